"""``sy.cond`` and ``sy.while_loop`` in a program take the path that the values say."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import syft as sy
from syft.exceptions import CannotRecord
from syft.program.lowered import Lowered
from syft.program.recording.record import record

from tests.program.replaying import agrees, assert_unchanged, recorded, replay, snapshot

BIAS = torch.tensor([0.5, -0.5, 1.0])
VALUES = [
    torch.tensor(values, dtype=torch.float32)
    for values in itertools.product([-2.0, 0.0, 1.5], repeat=3)
]


def two_ways(x: torch.Tensor) -> Any:
    return sy.cond(x.sum() > 0, lambda x: x * 2 + BIAS, lambda x: -x, x)


def by_a_size(x: torch.Tensor) -> Any:
    return sy.cond(x.shape[0] > 2, lambda: x + x.shape[0], lambda: x * 3)


def by_a_number(x: torch.Tensor) -> Any:
    total = x.sum().item()
    return sy.cond(total, lambda n: x * n, lambda n: x, total)


def by_a_truth(x: torch.Tensor) -> Any:
    return sy.cond((x > 0).all().item(), torch.neg, torch.abs, x)


def structures(x: torch.Tensor) -> Any:
    return sy.cond(
        x[0] > x[1],
        lambda p: {"a": p["x"] + 1, "b": (p["x"].sum().item(), None)},
        lambda p: {"a": p["x"].flip(0), "b": (2, None)},
        {"x": x},
    )


def inherited(x: torch.Tensor) -> Any:
    return sy.cond(x[0] > 0, lambda x: x, lambda x: x.clone(), x) + 1, x


def in_place(x: torch.Tensor) -> Any:
    y, z = torch.zeros(3), x.clone()

    def add(v: torch.Tensor) -> torch.Tensor:
        y.add_(v)
        z[0] = 5
        return v.mul_(2)

    result = sy.cond(x.sum() > 0, add, lambda v: v + 0, x)
    return result, y, z, x


def nested(x: torch.Tensor) -> Any:
    return sy.cond(
        x.sum() > 0,
        lambda: sy.cond(x[0] > 0, lambda: x + 1, lambda: x * BIAS),
        lambda: sy.cond(x[1] > x[2], lambda: x - 1, lambda: -x),
    )


def looped(x: torch.Tensor) -> Any:
    return sy.while_loop(lambda x: x.abs().sum() < 20, lambda x: x.abs() * 1.5 + 1, x)


def counted(x: torch.Tensor) -> Any:
    n, y = sy.while_loop(lambda n, y: n < 4, lambda n, y: (n + 1, y + n * BIAS), 0, x)
    return y * n


def branch_in_a_loop(x: torch.Tensor) -> Any:
    limit = x.shape[0] * 3

    def turn(n: int, y: torch.Tensor, up: torch.Tensor) -> Any:
        y = sy.cond(y.sum() > 0, lambda: y - 3, lambda: y * 2 + n + 1)
        return n + 1, y, up + (y > 0)

    return sy.while_loop(lambda n, y, up: n < limit, turn, 0, x, torch.zeros(3))


def writing_in_a_loop(x: torch.Tensor) -> Any:
    seen = torch.zeros(6)

    def turn(n: int, y: torch.Tensor) -> Any:
        seen[n] = y.sum()
        return n + 1, y.add_(1)

    n, y = sy.while_loop(lambda n, y: n < 5, turn, 0, x.clone())
    return n, y, seen


def never(x: torch.Tensor) -> Any:
    return sy.while_loop(lambda x: x.sum() > 100, lambda x: x - 1, x)


FUNCTIONS: list[Callable[..., Any]] = [
    two_ways, by_a_size, by_a_number, by_a_truth, structures, inherited, in_place, nested, looped,
    counted, branch_in_a_loop, writing_in_a_loop, never,
]  # fmt: skip


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
@pytest.mark.parametrize("start", [0, 13, 26])
def test_the_path_is_taken_anew(function: Callable[..., Any], start: int) -> None:
    agrees(function, [VALUES[start]], *[[x] for x in VALUES])


@pytest.mark.parametrize(
    "function",
    [two_ways, nested, looped, counted, inherited],
    ids=lambda function: function.__name__,
)
def test_gradients_flow_through_the_path_taken(function: Callable[..., Any]) -> None:
    values = [[x.clone().requires_grad_()] for x in VALUES]
    agrees(function, values[3], *values)


def test_sizes_choose_too() -> None:
    agrees(by_a_size, [torch.ones(2)], [torch.ones(1)], [torch.ones(3)], [torch.ones(7)])


def test_a_program_with_branches_inside_a_recording() -> None:
    inner = recorded(branch_in_a_loop, VALUES[5])
    lowered = Lowered(inner.program)

    def outer(x: torch.Tensor) -> Any:
        n, y, up = lowered.run([x + 1])
        return sy.cond(y.sum() > 0, lambda: y * n, lambda: up)

    agrees(outer, [VALUES[3]], *[[x] for x in VALUES])


def test_parameters_in_branches_are_state_and_learn() -> None:
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    both = nn.ModuleList([first, second])
    before = snapshot(both)
    recording = recorded(lambda x: sy.cond(x.sum() > 0, first, second, x), VALUES[0])
    assert_unchanged(both, before)
    assert {id(tensor) for tensor in recording.captured} == {id(p) for p in both.parameters()}
    replay(recording, VALUES[-1]).sum().backward()
    assert first.weight.grad is not None and second.weight.grad is None


def test_a_plain_condition_is_python() -> None:
    recording = recorded(lambda x: sy.cond(True, torch.neg, torch.abs, x), torch.ones(2))
    assert [action.name for action in recording.program.actions] == ["torch.neg"]


def test_outside_a_recording_it_is_if_and_while() -> None:
    x = VALUES[1]
    assert sy.cond(False, torch.neg, torch.abs, x).tolist() == x.abs().tolist()
    assert sy.while_loop(lambda n: n < 3, lambda n: n + 1, 0) == 3
    with pytest.raises(CannotRecord, match="does not return 2 values"):
        sy.while_loop(lambda n, m: n < 3, lambda n, m: n + 1, 0, 0)


def ghost(x: torch.Tensor) -> Any:
    kept: list[Any] = []
    sy.cond(x.sum() > 0, lambda: kept.append(x.sum().item()) or x, lambda: x)
    return x * kept[0]


REFUSED: dict[str, tuple[Callable[[torch.Tensor], Any], str]] = {
    "structure": (
        lambda x: sy.cond(x.sum() > 0, lambda: (x, x), lambda: x),
        "sy.cond whose branches return different things",
    ),
    "kind": (
        lambda x: sy.cond(x.sum() > 0, lambda: x, lambda: 3),
        "sy.cond whose branches return different things",
    ),
    "text": (
        lambda x: sy.cond(x.sum() > 0, lambda: "a", lambda: "b"),
        "sy.cond whose branches return different things",
    ),
    "count": (
        lambda x: sy.while_loop(lambda a, b: a.sum() < 3, lambda a, b: a, x, x),
        "a sy.while_loop that does not return 2 values",
    ),
    "turn": (
        lambda x: sy.while_loop(lambda a: a.sum() < 3, lambda a: 3, x),
        "a sy.while_loop that returns a tensor for a number, or a number for a tensor",
    ),
    "operand": (
        lambda x: sy.while_loop(lambda a: True, lambda a: a, "text"),
        "a sy.while_loop that takes something else than tensors and numbers",
    ),
    "test": (
        lambda x: sy.while_loop(lambda a: (a,), lambda a: a, x),
        "a sy.while_loop that has a test that returns neither a tensor nor a number",
    ),
    "ghost": (ghost, "a number that was made inside a branch"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name(name: str) -> None:
    function, what = REFUSED[name]
    with pytest.raises(CannotRecord) as caught:
        record(function, [VALUES[3]])
    assert caught.value.what == what
    assert caught.value.line.startswith(f"{__file__}:")
