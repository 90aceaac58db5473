"""Handlers of messages about many objects at once: all are stored or handed over, or none is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from syft.chain.wrapper import Wrapper
from syft.exceptions import MalformedMessage, PermissionDenied
from syft.ops.nested import EXACT_TENSOR_TYPES
from syft.serde.frame import Frame
from syft.serde.packer import Packer
from syft.serde.registry import pack, unpack_at
from syft.serde.tensors.bundle import Bundle
from syft.workers.core.access import Access
from syft.workers.core.peer import EVERYTHING, Peer
from syft.workers.core.sent_labels import note_terms, received_guard
from syft.workers.core.state_machine import Answer, HeldInputs, WorkerCore
from syft.workers.handlers.commands import unpacker_for
from syft.workers.handlers.gradient_return import note_fetched
from syft.workers.labels.memory_labels import protect, travelling_guard_of
from syft.workers.wire.messages import Done, FetchAll, PutAll, Reply, Value

_IDS = 2**63
"""How many ids there are."""


@WorkerCore.handles(PutAll)
def put_all(core: WorkerCore, message: PutAll, frame: Frame, peer: Peer) -> Reply:
    """Store every tensor of a bundle, or none of them."""
    core.forget(message.drop, peer)
    unpacker = unpacker_for(core, frame, None)
    values = unpack_at(message.value, unpacker, ".value")
    unpacker.finish()
    if type(values) is not Bundle:
        raise MalformedMessage("$.value", "a bundle", type(values).__name__)
    for index, value in enumerate(values):
        if not isinstance(value, torch.Tensor):
            raise MalformedMessage(f"$.value[{index}]", "a tensor", type(value).__name__)
    if not 0 <= message.first <= _IDS - len(values):
        expected = f"{len(values)} ids from 0 to 2**63 - 1"
        raise MalformedMessage("$.first", expected, str(message.first))
    ids = range(message.first, message.first + len(values))
    core.store.check_all_free(ids)
    core.check_keeps(ids, peer)
    for place, users, hidden, terms in message.guards:
        if not 0 <= place < len(values):
            raise MalformedMessage("$.guards", f"places below {len(values)}", str(place))
        protect(values[place], received_guard(users, hidden, terms, core.limits, peer.identity))
        note_terms(values[place], terms)
    core.comes_back(ids, peer)
    named = dict(message.writers)
    for place, (id, value) in enumerate(zip(ids, values, strict=True)):
        may_be_leaf = value.requires_grad or type(value) is Wrapper
        if may_be_leaf or core.contested or place in named:
            core.owners.put(peer, id, named.get(place, ()), may_be_leaf)
    _store(core, dict(zip(ids, values, strict=True)), peer, plain=not message.guards)
    if peer.knows != EVERYTHING:
        core.watch(peer)
    return Done(message.seq)


def _store(core: WorkerCore, values: dict[int, torch.Tensor], peer: Peer, plain: bool) -> None:
    """Store new tensors; with ``plain`` none of them has a guard."""
    kinds = map(type, values.values())
    if plain and not core.dataflow.active and EXACT_TENSOR_TYPES.issuperset(kinds):
        core.store.put_all(values)
    else:
        for id, value in values.items():
            core.hold(id, value)


@WorkerCore.handles(FetchAll)
def fetch_all(core: WorkerCore, message: FetchAll, frame: Frame, peer: Peer) -> Any:
    """Reply with a bundle of objects, if the user may read every one of them."""
    core.forget(message.drop, peer)
    places = [(named, 0) if isinstance(named, int) else named for named in message.ids]
    if len(set(places)) < len(places):  # a few bytes would ask for any amount of data
        raise MalformedMessage("$.ids", "each object once", "one of them again")
    ids = [id for id, _ in places]
    taken = _taken(core, message, places, peer)
    return core.when_ready(
        message.seq,
        peer,
        lambda held: _fetch_now(core, message, places, peer, held, taken),
        ids,
        access=Access(writes=taken, reads_attributes=True, takes=taken),
    )


def _taken(
    core: WorkerCore, message: FetchAll, places: list[tuple[int, int]], peer: Peer
) -> list[int]:
    """The ids of the objects that are removed: what is not the caller's stays."""
    taken = [] if message.keep else [id for id, depth in places if not depth]
    return [id for id in taken if core.owners.may_take(peer, id)] if core.contested else taken


def _fetch_now(
    core: WorkerCore,
    message: FetchAll,
    places: list[tuple[int, int]],
    peer: Peer,
    held: HeldInputs,
    taken: list[int],
) -> Answer:
    values = Bundle(core.resolve(id, depth, held) for id, depth in places)
    private = core.guarded and _check_admitted(
        core, [id for id, _ in places], held, peer.user_named(message.user, core.name)
    )
    packer = Packer(worker=core, gradients=True)
    operand = pack(values, packer)
    packer.hand_over(peer.name)
    ids = [id for id, depth in places if not depth]  # kept ones may be dropped when they are there
    note_fetched(core, ids, [core.resolve(id, 0, held) for id in ids])
    if not message.keep:
        core.store.drop_all(taken, peer.fetched)
    packer.sent()
    return Answer(Value(message.seq, operand), packer.buffers, private)


def _check_admitted(
    core: WorkerCore, ids: Iterable[int], held: HeldInputs, user: str | None
) -> bool:
    """Raise :class:`~syft.exceptions.PermissionDenied`, which names the first private object that
    the user may not read; returns whether any of them is private."""
    private = False
    for id in ids:
        guard = travelling_guard_of(core.resolve(id, 0, held))
        if guard is not None:
            if not guard.admits(user):
                raise PermissionDenied(f"get_all of object {id}", core.name, user)
            guard.check_open()
            private = True
    return private
