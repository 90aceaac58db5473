"""How executions end at a worker that is driven with frames: who is told, and what is left."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from syft.codes import CollectiveCode
from syft.exceptions import (
    PermissionDenied,
    ProgramError,
    RemoteFailure,
    SharedOperationFailed,
    SyftError,
    TokenMissing,
    UnknownWorker,
    WorkerLost,
)
from syft.ids import new_execution, new_id
from syft.serde.frame import Frame
from syft.workers.core.peer import Peer
from syft.workers.core.state_machine import WorkerCore
from syft.workers.handlers.party_programs import PROGRAMS
from syft.workers.wire.messages import Abort, Done, Drop, Failure, Message, decode, encode
from syft.workers.wire.references import Reference
from tests.shells.owner import inspect
from tests.workers.core.peers import error_in, put
from tests.workers.handlers.sharing_client import Client, wait
from tests.workers.handlers.test_collective import exchange, known, show_twice, start, tell
from tests.workers.handlers.test_sharing import X, check_idle, relu_program
from tests.crypto.ring_programs import program_of

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
        exchange(bob, "alice", 0, 0)
        told, cause = exchange(bob, "carl", 0, 1), "expected 2, as carl has, got 1"
    else:
        keep_from_alice(bob, error)
        told, cause = tell(bob, "me", start(program=9999)), "expected a known collective"
    ((_, failure),) = [one for one in told if one[0] == "@me"]
    assert cause in str(error_in(failure)), "and not why alice was not told"
    ((to, abort),) = [one for one in told if one[0] != "@me"]
    assert to == "carl" and isinstance(abort, Abort) and cause in abort.reason
    assert not bob.sessions and not bob.store.promised


def test_a_program_that_fails_before_its_turn_is_passed_over(pair: Client) -> None:
    """Alice is given three programs and waits for Bob, who refuses the second, and then another."""
    (x,) = pair.share(X)
    here, code, alice = Reference(pair.session), CollectiveCode.SHARES, pair.parties[0]
    executions = [new_execution() for _ in range(3)]
    pending = []
    for counter, execution in enumerate(executions, 2):
        args = [(here, counter, relu_program((5,)), Reference(x)), None, None]
        outs: list[Any] = [(new_id(), new_id()), (), ()]
        pending += pair.start(code, pair.everybody, args, outs, execution)

    nothing_there = program_of(1, (), (5,))

    def refuse(number: int) -> None:
        wrong = [None, (here, 9, nothing_there, Reference(x)), None]
        with pytest.raises((ProgramError, SharedOperationFailed)):
            wait(pair.start(code, pair.everybody, wrong, [()] * 3, executions[number]))
        with pytest.raises(RemoteFailure, match="party bob failed"):
            wait([pending[number]])

    refuse(1)
    assert inspect(alice).executions == 2, "the first one has its turn"
    told: list[Message] = []
    pair.caller.network.observers.append(
        lambda sender, receiver, frame: sender == "alice" and told.append(decode(frame.header))
    )
    refuse(0)
    with pytest.raises(SharedOperationFailed, match="party bob failed"):
        wait([pending[2]])
    pair.caller.network.observers.pop()
    failed = [one.seq for one in told if isinstance(one, Failure)]
    assert len(failed) == len(set(failed)) == 2, "of the first and the third"
    check_idle(pair)


def test_a_result_that_was_dropped_before_it_was_there_is_not_stored(
    bob: WorkerCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PROGRAMS, int(CollectiveCode.SUM), show_twice)
    me = Peer("me")
    bob.receive(Frame(encode(start()), []), me)
    bob.receive(Frame(encode(Drop(5, (50,))), []), me)
    assert 50 not in bob.store.promised
    for number in (0, 1):
        exchange(bob, "alice", number, 0)
        told = exchange(bob, "carl", number, 2)
    assert told == [("@me", Done(4))]
    assert set(bob.store.objects) == {5} and not bob.sessions
