"""Others who name shares, masked values and sessions of somebody: nothing is told, nothing changes.

Every kind of request that names an object is tried, and every collective.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

import syft as sy
from syft.codes import CollectiveCode
from syft.crypto.programs.share_program import ShareCode
from syft.exceptions import SyftError
from syft.ids import new_execution, new_id
from syft.serde.frame import Frame
from syft.workers.wire import messages
from syft.workers.wire.references import Reference
from tests.workers.handlers.sharing_client import Client, wait
from tests.workers.handlers.test_sharing import S, X, Y, product_program, relu_program, step
from tests.crypto.ring_programs import program_of

REQUESTS: dict[str, Any] = {
    "Put": lambda id: (messages.Put, id, None),
    "Fetch": lambda id: (messages.Fetch, id),
    "Fetch for a store": lambda id: (messages.Fetch, id, 0, True, None, True),
    "Fetch below": lambda id: (messages.Fetch, id, 1),
    "FetchAll": lambda id: (messages.FetchAll, (id,)),
    "FetchAll below": lambda id: (messages.FetchAll, ((id, 1),)),
    "Move": lambda id: (messages.Move, id, "bob"),
    "Duplicate": lambda id: (messages.Duplicate, id, new_id()),
    "Annotate": lambda id: (messages.Annotate, id, ("#mine",)),
    "Allow": lambda id: (messages.Allow, id, ("eve",), new_id()),
    "Describe": lambda id: (messages.Describe, id),
    "Promise": lambda id: (messages.Promise, (id,)),
    "Relay": lambda id: (messages.Relay, id, "bob"),
    "Relay back": lambda id: (messages.Relay, id, None),
    "Convert": lambda id: (messages.Convert, id, 1, (), new_id()),
    "GiveUp": lambda id: (messages.GiveUp, id, "mine"),
    "Gradients": lambda id: (messages.Gradients, (id,), new_id()),
    "ClearGradients": lambda id: (messages.ClearGradients, (id,)),
    "Holds": lambda id: (messages.Holds, id, bytes(16)),
    "Await": lambda id: (messages.Await, id),
    "Search": lambda id: (messages.Search, (str(id),)),
    "Drop": lambda id: (messages.Drop, (id,)),
    "Cancel": lambda id: (messages.Cancel, id),
}
HARMLESS = {"Holds": False, "Search": []}
"""What requests are answered that tell nothing."""
SILENT = {"Await", "Drop", "ClearGradients", "Cancel"}
"""Requests that connections send in ways of their own; they change nothing."""


@pytest.fixture
def eve(hook: sy.TorchHook) -> sy.VirtualWorker:
    return sy.VirtualWorker(hook, id="laptop", user="eve")


@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.parametrize("kind", ["share", "masked", "session"])
def test_no_request_of_a_stranger_tells_or_changes_anything(
    pair: Client, eve: sy.VirtualWorker, name: str, kind: str
) -> None:
    x, y = pair.share(X, Y)
    _, masked = pair.run(product_program((5,)), [x, y])
    id = {"share": x, "masked": masked, "session": pair.session}[kind]
    before = [dict(party.core.store.objects) for party in pair.parties]
    message, *fields = REQUESTS[name](id)
    line = eve.connection_to(pair.parties[0])
    if name in SILENT:
        line.transport.deliver(_frame(message(line.requests.next_seq(), *fields)))
    elif name in HARMLESS:
        assert line.ask(message, *fields) == HARMLESS[name]
    else:
        with pytest.raises(SyftError):
            line.ask(message, *fields)
    assert [dict(party.core.store.objects) for party in pair.parties] == before
    assert torch.equal(pair.value(x), X)
    positive, _ = pair.run(relu_program((5,)), [x])
    assert torch.equal(pair.value(positive), X.clamp(min=0)), "the session goes on"


def _frame(message: messages.Message) -> Frame:
    return Frame(messages.encode(message), [])


def attempts(pair: Client, x: int) -> dict[str, Any]:
    """Starts that name what is not the caller's, or what is over."""
    here, program = Reference(pair.session), relu_program((5,))
    reveals = program_of(1, (step(ShareCode.REVEAL, (S(0), 1), 1),), (1,))
    deal = ((0, 7, ((5,),)),)
    return {
        "run": (CollectiveCode.SHARES, (here, 99, program, Reference(x)), 2),
        "reveal": (CollectiveCode.SHARES, (here, 99, reveals, Reference(x)), 0),
        "sum": (CollectiveCode.SUM, (Reference(x),), 1),
        "split": (CollectiveCode.SPLIT, (here, 1), 1),
        "deal": (CollectiveCode.DEAL, (here, 99, deal), 0),
    }


@pytest.mark.parametrize("name", ["run", "reveal", "sum", "split", "deal"])
@pytest.mark.parametrize("at", [0, 2])
def test_no_start_of_a_stranger_uses_or_ends_a_session(
    pair: Client, eve: sy.VirtualWorker, name: str, at: int
) -> None:
    (x,) = pair.share(X)
    code, args, count = attempts(pair, x)[name]
    thief = Client(eve, pair.parties, pair.provider)
    parts: list[Any] = [None] * 3
    parts[at] = args
    outs = [tuple(new_id() for _ in range(count))] * 3
    with pytest.raises(SyftError):
        wait(thief.start(code, pair.everybody, parts, outs, new_execution()))
    assert torch.equal(pair.value(x), X)
    positive, _ = pair.run(relu_program((5,)), [x])
    assert torch.equal(pair.value(positive), X.clamp(min=0)), "the session goes on"
    assert not any(worker.core.sessions for worker in pair.everybody)
