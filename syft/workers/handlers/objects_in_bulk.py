"""Handlers of messages about many objects at once: all are stored or handed over, or none is."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from syft.chain.wrapper import Wrapper
from syft.exceptions import MalformedMessage
from syft.ops.nested import EXACT_TENSOR_TYPES
from syft.serde.registry import unpack_at
from syft.serde.tensors.bundle import Bundle
from syft.workers.core.access import taking
from syft.workers.core.peer import EVERYTHING
from syft.workers.core.pipeline import Call, Declaration, handles
from syft.workers.core.sent_labels import note_terms, received_guard
from syft.workers.core.state_machine import Answer, WorkerCore
from syft.workers.handlers.gradient_return import note_fetched
from syft.workers.labels.memory_labels import protect
from syft.workers.wire.messages import Done, FetchAll, PutAll, Reply, Value

_IDS = 2**63
"""How many ids there are."""


def _values(call: Call) -> Bundle:
    """The tensors of a bundle, for which there are ids."""
    unpacker, first = call.unpacker(objects=False), call.message.first
    values = unpack_at(call.message.value, unpacker, ".value")
    unpacker.finish()
    if type(values) is not Bundle:
        raise MalformedMessage("$.value", "a bundle", type(values).__name__)
    for index, value in enumerate(values):
        if not isinstance(value, torch.Tensor):
            raise MalformedMessage(f"$.value[{index}]", "a tensor", type(value).__name__)
    if not 0 <= first <= _IDS - len(values):
        expected = f"{len(values)} ids from 0 to 2**63 - 1"
        raise MalformedMessage("$.first", expected, str(first))
    return values


def _ids(call: Call) -> range:
    return range(call.message.first, call.message.first + len(call.read))


@handles(
    PutAll,
    Declaration(
        makes="first", plain="value, guards, writers", waits=False, reading=_values, outs=_ids
    ),
)
def put_all(call: Call, message: PutAll) -> Reply:
    """Store every tensor of a bundle, or none of them."""
    core, peer, values, ids = call.core, call.peer, call.read, _ids(call)
    for place, users, hidden, terms in message.guards:
        if not 0 <= place < len(values):
            raise MalformedMessage("$.guards", f"places below {len(values)}", str(place))
        protect(values[place], received_guard(users, hidden, terms, core.limits, peer.identity))
        note_terms(values[place], terms)
    core.comes_back(ids, peer)
    named = _named(message)
    for place, (id, value) in enumerate(zip(ids, values, strict=True)):
        may_be_leaf = value.requires_grad or type(value) is Wrapper
        if may_be_leaf or core.contested or place in named:
            writers, readers = named.get(place, ((), ()))
            core.owners.put(peer, id, writers, may_be_leaf, readers)
    _store(core, dict(zip(ids, values, strict=True)), plain=not message.guards)
    if peer.knows != EVERYTHING:
        core.watch(peer)
    return Done(message.seq)


def _named(message: PutAll) -> dict[int, tuple[Sequence[str], Sequence[str]]]:
    """Those who may change what is at a place of a bundle, and those who may read it."""
    writers = dict(message.writers)
    readers = {place: users for place, users, *_ in message.guards}
    places = {*writers, *readers}
    return {place: (writers.get(place, ()), readers.get(place, ())) for place in places}


def _store(core: WorkerCore, values: dict[int, torch.Tensor], plain: bool) -> None:
    """Store new tensors; with ``plain`` none of them has a guard."""
    kinds = map(type, values.values())
    if plain and not core.dataflow.active and EXACT_TENSOR_TYPES.issuperset(kinds):
        core.store.put_all(values)
    else:
        for id, value in values.items():
            core.hold(id, value)


def _places(call: Call) -> tuple[list[tuple[int, int]], list[int]]:
    """The ids and depths of the objects, and the ids of those that are removed: what is not the
    caller's stays."""
    core, message = call.core, call.message
    places = [(named, 0) if isinstance(named, int) else named for named in message.ids]
    if len(set(places)) < len(places):  # a few bytes would ask for any amount of data
        raise MalformedMessage("$.ids", "each object once", "one of them again")
    taken = [] if message.keep else [id for id, depth in places if not depth]
    if core.contested:
        taken = [id for id in taken if core.owners.may_take(call.peer, id)]
    return places, taken


@handles(
    FetchAll,
    Declaration(
        takes="ids",
        leaves="the caller",
        answers=(Value,),
        reading=_places,
        named=lambda call: [id for id, _ in call.read[0]],
        access=lambda call: taking(call.read[1]),
    ),
)
def fetch_all(call: Call, message: FetchAll) -> Answer:
    """Reply with a bundle of objects, if the user may read every one of them."""
    core, peer = call.core, call.peer
    places, taken = call.read
    values = Bundle(call.stored(id, depth) for id, depth in places)
    ids = [id for id, depth in places if not depth]  # kept ones may be dropped when they are there

    def remove() -> None:
        note_fetched(core, ids, [call.stored(id) for id in ids])
        if not message.keep:
            core.store.drop_all(taken, peer.fetched)

    def action(place: int) -> str:
        return f"get_all of object {places[place][0]}"

    return call.hand_over(values, remove, action=action, stays=message.keep)
