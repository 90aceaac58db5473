"""What comes late for executions that have ended is refused, however many there were."""

from __future__ import annotations

from typing import Any

import torch

from syft.codes import CollectiveCode
from syft.exceptions import InputRefused
from syft.serde.frame import Frame
from syft.workers.core.peer import KEPT, Peer
from syft.workers.handlers.role_runs import FROM_USERS
from syft.workers.wire.messages import Done, Exchange, Start, decode, encode
from syft.workers.wire.references import REF
from tests.workers.core.peers import error_in, put, sociable


def test_late_values_are_refused_however_many_executions_there_were() -> None:
    core, me = sociable(), Peer("me")
    put(core, 5, torch.ones(1))

    def told(message: Any) -> Any:
        letters = core.receive(Frame(encode(message), []), me)
        return [decode(frame.header) for _, frame in letters]

    def run(execution: int) -> None:
        start = Start(1, CollectiveCode.SUM, execution, ("bob",), 0, ((REF, 5),), (70,))
        assert told(start) == [Done(1)]
        core.store.drop(70, "nobody wants it")

    for execution in range(10, 10 + 2 * KEPT):
        run(execution)
    for execution in (10, 10 + KEPT, 9 + 2 * KEPT):
        (failure,) = told(Exchange(execution, FROM_USERS, 0, (3,), seq=7))
        refused = error_in(failure)
        assert type(refused) is InputRefused and refused.why == "it has ended"
        assert told(Exchange(execution, FROM_USERS, 0, (3,))) == [], "a party is told nothing"
    assert not (core.sessions or core.ended or core.aborted)
    assert len(core.past[core]._used) == KEPT
