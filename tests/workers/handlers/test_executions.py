"""How executions end at a worker that is driven with frames: who is told, and what is left."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from syft.exceptions import PermissionDenied, SyftError, TokenMissing, UnknownWorker, WorkerLost
from syft.workers.core.state_machine import WorkerCore
from syft.workers.wire.messages import Abort
from tests.workers.core.peers import error_in, put
from tests.workers.handlers.test_collective import exchange, known, start, tell

UNREACHABLE: list[SyftError] = [
    PermissionDenied("a collective operation", "bob", None, to="alice"),
    TokenMissing("alice", "ann"),
    WorkerLost("alice", "it is gone"),
    UnknownWorker("alice", "bob", ()),
]


@pytest.fixture
def bob() -> WorkerCore:
    """One of three parties, who holds 5."""
    core = WorkerCore("bob", lambda name: known(name))
    put(core, 5, torch.tensor([1, 2]))
    return core


def keep_from_alice(core: WorkerCore, error: SyftError) -> None:
    """Nothing can be sent to alice any more."""

    def addressed(name: str) -> Any:
        if name == "alice":
            raise error
        return name

    core.addressed = addressed


@pytest.mark.parametrize("error", UNREACHABLE, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("started", [False, True])
def test_a_party_that_cannot_be_told_keeps_nobody_from_being_told(
    bob: WorkerCore, started: bool, error: SyftError
) -> None:
    if started:
        tell(bob, "me", start())
        keep_from_alice(bob, error)
        exchange(bob, "eve", 0, 0)  # who has no part in it
        told, cause = exchange(bob, "carl", 0, 2), "expected party 0 of this execution, got eve"
    else:
        keep_from_alice(bob, error)
        told, cause = tell(bob, "me", start(program=9999)), "expected a known collective"
    ((_, failure),) = [one for one in told if one[0] == "@me"]
    assert cause in str(error_in(failure)), "and not why alice was not told"
    ((to, abort),) = [one for one in told if one[0] != "@me"]
    assert to == "carl" and isinstance(abort, Abort) and cause in abort.reason
    assert not bob.sessions and not bob.store.promised
