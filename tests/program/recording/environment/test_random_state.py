"""Random state is as before after a recording, and a function that seeds is found out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from syft.exceptions import CannotRecord
from syft.program.recording.environment.random_state import PreservedRandomState
from syft.program.recording.record import record
from syft.program.recording.environment.source_line import SourceLine

from tests.program.replaying import recorded, replay

LINE = SourceLine("train.py", 12)
X = torch.ones(2)


def test_what_is_drawn_inside_leaves_no_trace() -> None:
    torch.manual_seed(4)
    expected = torch.rand(3)
    torch.manual_seed(4)
    random = PreservedRandomState()
    with random:
        torch.rand(100)
        random.check(LINE)
    assert torch.default_generator.initial_seed() == 4
    assert torch.equal(torch.rand(3), expected)


def test_an_error_inside_leaves_no_trace_either() -> None:
    torch.manual_seed(4)
    state = torch.get_rng_state()
    with pytest.raises(ZeroDivisionError), PreservedRandomState():
        torch.manual_seed(1)
        raise ZeroDivisionError
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("seed", [lambda: torch.manual_seed(3), torch.seed])
def test_seeding_is_refused(seed: Callable[[], Any]) -> None:
    random = PreservedRandomState()
    with random:
        seed()
        with pytest.raises(CannotRecord, match=r"torch.manual_seed \(before train.py:12\)"):
            random.check(LINE)


def test_each_time_the_same_numbers_are_drawn() -> None:
    drawn = []
    for _ in range(2):
        with PreservedRandomState():
            drawn.append(torch.rand(2))
    assert torch.equal(*drawn)


def forked(x: torch.Tensor) -> torch.Tensor:
    with torch.random.fork_rng():
        a = torch.rand(2)
    return a - torch.rand(2)


def forked_at_the_end(x: torch.Tensor) -> torch.Tensor:
    with torch.random.fork_rng():
        return x + torch.rand(2)


def put_back(x: torch.Tensor) -> torch.Tensor:
    state = torch.get_rng_state()
    a = torch.rand(2)
    torch.set_rng_state(state)
    return a - torch.rand(2)


STATE = torch.get_rng_state()


def put_there(x: torch.Tensor) -> torch.Tensor:
    torch.set_rng_state(STATE)
    return x + torch.rand(2)


GENERATOR = torch.Generator()


def seeded_anew(x: torch.Tensor) -> torch.Tensor:
    return x + torch.rand(2, generator=GENERATOR.manual_seed(1))


def put_back_by_itself(x: torch.Tensor) -> torch.Tensor:
    state = GENERATOR.get_state()
    a = torch.rand(2, generator=GENERATOR)
    GENERATOR.set_state(state)
    return a - torch.rand(2, generator=GENERATOR)


def made(x: torch.Tensor) -> torch.Tensor:
    return x + torch.rand(2, generator=torch.Generator().manual_seed(1))


REFUSED: dict[str, tuple[Callable[[torch.Tensor], Any], str]] = {
    "forked": (forked, "torch.set_rng_state or torch.random.fork_rng"),
    "forked_at_the_end": (forked_at_the_end, "torch.set_rng_state or torch.random.fork_rng"),
    "put_back": (put_back, "torch.set_rng_state or torch.random.fork_rng"),
    "put_there": (put_there, "torch.manual_seed"),
    "seeded_anew": (seeded_anew, "torch.manual_seed"),
    "put_back_by_itself": (put_back_by_itself, "torch.set_rng_state or torch.random.fork_rng"),
    "made": (made, "a torch.Generator that the function makes"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_function_that_sets_random_state_is_refused(name: str) -> None:
    function, what = REFUSED[name]
    before = torch.get_rng_state()
    with pytest.raises(CannotRecord) as caught:
        record(function, [X])
    assert caught.value.what == what and __file__ in caught.value.line
    assert torch.equal(torch.get_rng_state(), before)


def test_a_generator_that_is_drawn_from_is_given_back() -> None:
    generator = torch.Generator().manual_seed(3)
    before = generator.get_state()
    recording = record(lambda x: x + torch.rand(2, generator=generator), [X])
    assert torch.equal(generator.get_state(), before)
    expected = X + torch.rand(2, generator=torch.Generator().manual_seed(3))
    assert torch.equal(recording.result, expected)


def test_drawing_nothing_changes_nothing() -> None:
    recording = recorded(lambda x: (torch.rand(0), torch.rand(0), torch.rand(2)), X)
    assert len(replay(recording, X)[2]) == 2


def test_checkpoints_draw_again_as_they_should() -> None:
    layer, dropout = nn.Linear(6, 6), nn.Dropout(0.5)

    def step(x: torch.Tensor) -> Any:
        layer.zero_grad()
        y: Any = checkpoint(lambda z: dropout(layer(z)).pow(2), x, use_reentrant=False)
        y.pow(2).sum().backward()
        assert layer.weight.grad is not None
        return y.detach(), layer.weight.grad * 1

    x = torch.ones(3, 6)
    recording = recorded(step, x)
    torch.manual_seed(0)
    got = replay(recording, x)
    torch.manual_seed(0)
    expected = step(x)
    assert all(map(torch.equal, got, expected))
