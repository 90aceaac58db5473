"""What each kind of request comes to in each state of an id that it names or makes.

The table of these in ``docs/wire.md`` is made of the declarations; each of its cells is tried here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from syft.codes import CollectiveCode, ConversionCode
from syft.ops.table import BY_NAME
from syft.program.program import Action, Program, Slot
from syft.serde.packer import Packer
from syft.serde.registry import pack
from syft.serde.tensors.bundle import Bundle
from syft.workers.core.peer import Peer, Session
from syft.workers.core.pipeline import DECLARATIONS
from syft.workers.core.state_machine import WorkerCore
from syft.workers.wire import messages
from syft.workers.wire.messages import COUNT_SHIFT, GRAD_MODE
from syft.workers.wire.definitions import Group, InputKind
from tools import wire_tables
from tests.workers.core.peers import ask, command, error_in, put, ref, sent, sociable
from tests.workers.core.test_owners import Sink

MAKER, CALLER = Peer("maker"), Peer("caller")
X, OUT = 5, 100
_FIX, _SUM = int(ConversionCode.FIX_PRECISION), int(CollectiveCode.SUM)
_ONE = GRAD_MODE | 1 << COUNT_SHIFT
"""The flags of a request with one result."""


def _group() -> Any:
    action = Action(BY_NAME["torch.Tensor.neg"], (Slot(0),), {}, Slot(1))
    return pack(Group((InputKind.REFERENCE,), Program(1, (action,), (Slot(1),))), Packer())


def _packed(value: Any) -> tuple[Any, list[torch.Tensor]]:
    packer = Packer()
    return pack(value, packer), packer.buffers


NAMING: dict[type[messages.Message], Callable[[int], messages.Message]] = {
    messages.Command: lambda id: command("torch.Tensor.neg", ref(id), out=OUT, flags=9),
    messages.Run: lambda id: messages.Run(1, 0, [id], OUT, _ONE, define=_group()),
    messages.Fetch: lambda id: messages.Fetch(1, id),
    messages.FetchAll: lambda id: messages.FetchAll(1, (id,)),
    messages.Move: lambda id: messages.Move(1, id, "alice"),
    messages.Relay: lambda id: messages.Relay(1, id, "alice"),
    messages.Duplicate: lambda id: messages.Duplicate(1, id, OUT),
    messages.Annotate: lambda id: messages.Annotate(1, id, ("#a",)),
    messages.Describe: lambda id: messages.Describe(1, id),
    messages.Holds: lambda id: messages.Holds(1, id, b"\x01" * 32),
    messages.Await: lambda id: messages.Await(1, id),
    messages.Gradients: lambda id: messages.Gradients(1, (id,), OUT),
    messages.ClearGradients: lambda id: messages.ClearGradients(1, (id,)),
    messages.Allow: lambda id: messages.Allow(1, id, ("ann",), OUT),
    messages.Convert: lambda id: messages.Convert(1, id, _FIX, pack((), Packer()), OUT),
    messages.Start: lambda id: messages.Start(1, _SUM, 77, ("bob",), 0, (ref(id),), (OUT,)),
}
"""A request of each kind that names an object, by its id."""
MAKING: dict[type[messages.Message], Callable[[int], tuple[messages.Message, list[Any]]]] = {
    messages.Put: lambda id: (
        messages.Put(1, id, _packed(torch.ones(2))[0]),
        _packed(torch.ones(2))[1],
    ),
    messages.PutAll: lambda id: (
        messages.PutAll(1, id, _packed(Bundle([torch.ones(2)]))[0]),
        _packed(Bundle([torch.ones(2)]))[1],
    ),
    messages.Command: lambda id: (command("torch.Tensor.neg", ref(7), out=id, flags=9), []),
    messages.Run: lambda id: (messages.Run(1, 0, [7], id, _ONE, define=_group()), []),
    messages.Duplicate: lambda id: (messages.Duplicate(1, 7, id), []),
    messages.Allow: lambda id: (messages.Allow(1, 7, ("ann",), id), []),
    messages.Gradients: lambda id: (messages.Gradients(1, (7,), id), []),
    messages.Convert: lambda id: (messages.Convert(1, 7, _FIX, pack((), Packer()), id), []),
    messages.Start: lambda id: (messages.Start(1, _SUM, 77, ("bob",), 0, (ref(7),), (id,)), []),
}
"""A request of each kind that makes an object, by its id, with the buffers."""


def worker() -> WorkerCore:
    core = sociable()
    sink = Sink()
    core.connect = lambda other: sink  # type: ignore[assignment,return-value]
    MAKER.session, CALLER.session = Session(), Session()
    leaf = torch.tensor([1.0, 2.0], requires_grad=True)
    leaf.grad = torch.ones(2)
    put(core, 7, leaf, peer=CALLER)
    put(core, 8, torch.ones(2), peer=MAKER)  # objects belong to several
    return core


def _there(core: WorkerCore, peer: Peer) -> None:
    leaf = torch.tensor([1.0, 2.0], requires_grad=True)
    leaf.grad = torch.ones(2)
    put(core, X, leaf, peer=peer)


def _promised(core: WorkerCore, peer: Peer) -> None:
    ask(core, messages.Promise(1, (X,)), peer=peer)


def _gone(core: WorkerCore) -> None:
    _there(core, CALLER)
    ask(core, messages.Drop(1, (X,)), peer=CALLER)


def _given_up(core: WorkerCore) -> None:
    _promised(core, CALLER)
    ask(core, messages.GiveUp(1, X, "no more"), peer=CALLER)


STATES: dict[str, Callable[[WorkerCore], None]] = {
    "there": lambda core: _there(core, CALLER),
    "another's": lambda core: _there(core, MAKER),
    "promised": lambda core: _promised(core, CALLER),
    "another's promise": lambda core: _promised(core, MAKER),
    "unknown": lambda core: None,
    "gone": _gone,
    "given up": _given_up,
}


def outcome(core: WorkerCore, message: messages.Message, buffers: Any = ()) -> str:
    """What a request comes to, in the words of the table."""
    replies = [reply for to, reply in sent(core, message, *buffers, peer=CALLER) if to is CALLER]
    (kind,) = map(type, replies)
    if kind is messages.Failure:
        return f"`{type(error_in(replies[0])).__name__}`"
    assert kind is messages.Parked or kind in DECLARATIONS[type(message)].answers
    return "waits" if kind is messages.Parked else "runs"


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize(
    "named, kind",
    [*((True, kind) for kind in NAMING), *((False, kind) for kind in MAKING)],
    ids=lambda value: ("makes", "names")[value] if type(value) is bool else value.__name__,
)
def test_what_becomes_of_a_request(named: bool, kind: type[messages.Message], state: str) -> None:
    core = worker()
    STATES[state](core)
    request, buffers = (NAMING[kind](X), []) if named else MAKING[kind](X)
    expected = wire_tables.if_named if named else wire_tables.if_made
    assert outcome(core, request, buffers) == expected(DECLARATIONS[kind], state)


def test_every_kind_that_names_or_makes_an_object_is_tried_in_every_state() -> None:
    named = {kind for kind, it in DECLARATIONS.items() if it.reads or it.sets or it.takes}
    made = {kind for kind, it in DECLARATIONS.items() if it.makes or it.returns}
    assert named == NAMING.keys() and made == MAKING.keys()
    assert tuple(STATES) == tuple(wire_tables.IF_MADE)
