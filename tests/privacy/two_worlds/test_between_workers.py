"""Random programs take private data to the worker that its owner named, and would find a leak."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from syft.workers.execution.followed_leaves import FollowedLeaves
from syft.workers.labels.guards import Guard
from tests.privacy.two_worlds import generator
from tests.privacy.two_worlds.between_workers import BOTH, follow, travel
from tests.privacy.two_worlds.generator import ACTIONS, RandomProgram
from tests.privacy.two_worlds.samples import Samples
from tests.privacy.two_worlds.world import TwoWorlds, fixed

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's samples use much that is deprecated

MOST = 60
"""The programs after which what is looked for should have come."""


@pytest.fixture
def programs(
    samples: Samples, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Callable[[bool], Iterator[RandomProgram]]:
    """Programs of these actions alone, each with its worlds, which are open until the next one."""
    often = [20 if one in (travel, follow) else 0 for one in ACTIONS]
    monkeypatch.setattr(generator, "WEIGHTS", often)

    def run(alike: bool) -> Iterator[RandomProgram]:
        for number in range(MOST):
            with fixed(), contextlib.closing(TwoWorlds(alike)) as both:
                program = RandomProgram(both, samples, f"{request.config.option.seed}/{number}")
                program.run()
                yield program

    return run


def test_what_may_go_to_another_worker_goes_there(
    programs: Callable[[bool], Iterator[RandomProgram]],
) -> None:
    names = ("move", "relay", "torch.Tensor.backward", "torch.autograd.grad", "torch.take")
    expected = {(name, True, True) for name in names} | {("move", True, False)}
    seen: set[tuple[str, bool, bool]] = set()
    for program in programs(True):
        assert program.both.difference is None
        seen |= {*program.outcomes} if program.destinations == BOTH else set()
        seen |= {one for one in program.outcomes if one == ("move", True, False)}
        if expected <= seen:
            return
    raise AssertionError(f"not seen: {expected - seen}")


def test_gradients_that_follow_values_are_found(
    programs: Callable[[bool], Iterator[RandomProgram]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is sent during the pass, unless that fails before."""

    def send(self: FollowedLeaves, guard: Guard) -> None:
        """Nothing is left to send."""

    monkeypatch.setattr(FollowedLeaves, "silent", lambda self: contextlib.nullcontext())
    monkeypatch.setattr(FollowedLeaves, "send", send)
    assert any(program.both.difference is not None for program in programs(False))
