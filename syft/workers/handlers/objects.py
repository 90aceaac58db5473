"""Handlers of messages about whole objects: put, fetch, drop, move, duplicate, search, tags."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch

from syft.chain.wrapper import Wrapper
from syft.exceptions import MalformedMessage, ObjectIdTaken, PermissionDenied, StoreError
from syft.ids import digest, has_content
from syft.serde.errors import pack_error
from syft.serde.frame import Frame
from syft.serde.packer import Packer
from syft.serde.registry import pack, unpack_at
from syft.serde.tensors.strided import unpack_usual
from syft.torch_private import as_leaf, is_kept_by_torch
from syft.workers.core.access import Access, taking
from syft.workers.core.findable import copies_first, may_find
from syft.workers.core.peer import EVERYTHING, Peer
from syft.workers.core.pipeline import Call, Declaration, handles, shortcut
from syft.workers.core.sent_labels import bound_of, guard_fields, note_terms, received_guard
from syft.workers.core.shares import Confined
from syft.workers.core.state_machine import Answer, WorkerCore
from syft.workers.execution.leaving import check_no_graph, duplicate_of, reached_leaves
from syft.workers.execution.public_facts import in_public_form, tells
from syft.workers.handlers.gradient_return import (
    come_back,
    note_fetched,
    return_gradients,
    send_after,
    send_followed,
)
from syft.workers.labels.cell import Stored, guard_of, kind_of, opened_for, summary_of
from syft.workers.labels.cell import annotate as annotate_object
from syft.workers.labels.crossings import goes_on
from syft.workers.labels.guards import Guard
from syft.workers.labels.holders import Holder
from syft.workers.labels.memory_labels import full_guard_of, protect
from syft.workers.labels.origin import ObjectOrigin
from syft.workers.wire.messages import (
    Annotate,
    Await,
    Describe,
    Done,
    Drop,
    Duplicate,
    Fetch,
    GiveUp,
    Holds,
    Move,
    Parked,
    Promise,
    Put,
    Reply,
    Search,
    Share,
    Value,
)

_ABOUT_USUAL = (None, (), None, False, None, False)
"""What guards a usual tensor, who else may change it, where its gradients go, whether its memory is
to be used, whether its caller has named what is not there, and whether its id is taken."""


@handles(Put, Declaration(makes="id", plain="value, source", waits=False))
def put(call: Call, message: Put) -> Reply:
    """Store a value, and run the parked operations that waited for it."""
    core, peer = call.core, call.peer
    unpacker = call.unpacker(objects=False)
    value = unpack_at(message.value, unpacker, ".value")
    unpacker.finish()
    may_be_leaf = isinstance(value, torch.Tensor)
    if may_be_leaf:
        may_be_leaf = type(value) is Wrapper or value.requires_grad
    elif isinstance(value, Holder):
        value.admit(core.name, core.allow_plans and peer.plans)
    else:
        raise MalformedMessage("$.value", "a tensor or a plan", type(value).__name__)
    if message.users is not None:
        _guard_value(core, message, value, peer)
    if message.source is not None:
        return_gradients(core, value, message.source, peer)
    elif message.writers:
        value = come_back(core, message.id, value, peer)
    core.comes_back((message.id,), peer)
    core.owners.put(peer, message.id, message.writers, may_be_leaf, message.users or ())
    core.hold(message.id, value)
    if peer.knows != EVERYTHING:
        core.watch(peer)
    return Done(message.seq)


@shortcut(Put)
def put_usual(core: WorkerCore, message: Put, frame: Frame, peer: Peer) -> Reply | Answer | None:
    """Store a usual tensor that nothing guards, and leave any other value to the steps."""
    store = core.store
    if message.drop:
        core.forget(message.drop, peer)
    about = message.users, message.writers, message.source, frame.exclusive, peer.account.unseen
    if store.promised or core.dataflow.tasks or (*about, message.id in store) != _ABOUT_USUAL:
        return put(core, message, frame, peer)
    value = unpack_usual(message.value, frame.buffers, core.limits)
    if value is None:
        return put(core, message, frame, peer)
    store.put(message.id, value)
    if core.watched and store.has_gone(message.id):
        core.altered(peer)
    if core.contested:
        core.owners.put(peer, message.id, (), False)
    if peer.knows != EVERYTHING:
        core.watch(peer)
    return Done(message.seq)


def _guard_value(core: WorkerCore, message: Put, value: Any, peer: Peer) -> None:
    if isinstance(value, Holder) and not value.tensors():
        # A guard is stored on tensors, so it would be lost.
        raise MalformedMessage("$.users", "nil for a plan without any tensor", "names")
    about = message.users, message.shape_hidden, message.terms
    protect(value, received_guard(*about, core.limits, peer.identity))
    note_terms(value, message.terms)


def _stays(call: Call) -> bool:
    """Whether an object that is fetched stays: so does what is not the caller's."""
    core, message = call.core, call.message
    return message.keep or (core.contested and not core.owners.may_take(call.peer, message.id))


def _storing(call: Call) -> Sequence[str] | None:
    """The worker that fetches an object for its store, if one does."""
    return (call.core.place_of_caller(call.peer),) if call.message.guarded else None


@handles(
    Fetch,
    Declaration(
        takes="id",
        plain="depth, reading",
        leaves="the caller",
        to=_storing,
        answers=(Value, Parked),
        reading=_stays,
        access=lambda call: taking(() if call.read else (call.message.id,)),
    ),
)
def fetch(call: Call, message: Fetch) -> Answer | Parked:
    """Reply with an object, if the user may read it."""
    core, peer, keep = call.core, call.peer, call.read
    value = whole = call.whole(message.id)
    if isinstance(value, Confined):
        return _fetch_share(call, message, value)
    if message.depth:
        value = call.stored(message.id, message.depth)

    def remove() -> None:
        if not keep:
            core.store.take(message.id, peer.fetched)
            note_fetched(core, (message.id,), (whole,))

    if not message.guarded:
        return call.hand_over(value, remove, stays=keep)

    def label(value: Any, guard: Guard | None) -> tuple[Any, ...]:
        check_no_graph(value, guard)
        return (*guard_fields(guard, core.name), bound_of(value))

    return call.hand_over(value, remove, label, lambda _: "remote_get", keep)


@shortcut(Fetch)
def fetch_usual(
    core: WorkerCore, message: Fetch, frame: Frame, peer: Peer
) -> Reply | Answer | None:
    """Reply with a tensor that no graph ends at, and leave any other request to the steps."""
    store = core.store
    if message.drop:
        core.forget(message.drop, peer)
    waits = store.promised or core.dataflow.tasks or core.contested
    if not (waits or message.keep or message.depth or message.guarded):
        value = store.read(message.id)
        if type(value) is torch.Tensor and not (value.__dict__ or is_kept_by_torch(value)):
            remove = partial(store.remove, message.id, peer.fetched)
            return Call(core, message, frame, peer).hand_over(value, remove)
    return fetch(core, message, frame, peer)


def _fetch_share(call: Call, message: Fetch, share: Confined) -> Answer | Parked:
    """Reply with the tensor of a share to the owner of its session, if the user may read it: now,
    or after the programs that may still write to it."""
    core, peer = call.core, call.peer
    share.check_owner(peer, "get")
    if message.guarded or message.depth:
        raise share.refusal(peer, "get")
    turns = share.session.turns
    if not turns.busy:
        return _share_now(call, message, share)

    def act() -> None:
        reply: Reply | Answer
        try:
            reply = _share_now(call, message, share)
        except Exception as error:  # as in receive: no message may end the worker
            reply = core.failure(message.seq, error)
        core.answer(peer, reply)
        turns.done()

    turns.take(act)
    return Parked(message.seq)


def _share_now(call: Call, message: Fetch, share: Confined) -> Answer:
    core, peer = call.core, call.peer
    share.session.check_open()
    call.check_leaves(full_guard_of(share))

    def remove() -> None:
        if not call.read:
            core.store.take(message.id, peer.fetched)

    answer = call.hand_over(share.told(message.id, message.reading), remove)
    answer.private = True
    return answer


@handles(Drop, Declaration(plain="ids", waits=False, stays=True))
def drop(call: Call, message: Drop) -> Reply | None:
    """Drop objects whose last pointers are gone; sequence number 0 means no reply."""
    call.core.forget(message.ids, call.peer)
    return Done(message.seq) if message.seq else None


@handles(
    Duplicate,
    Declaration(
        reads="id",
        makes="out",
        action="copy",
        access=Access(reads_attributes=True, fresh=True),
        walks=True,
    ),
)
def duplicate(call: Call, message: Duplicate) -> Reply:
    """Store a copy under another id: same values, grad, tags and guard, without a graph."""
    return call.store(message.out, duplicate_of(call.stored(message.id)))


@handles(Search, Declaration(answers=(Value,), waits=False))
def search(call: Call, message: Search) -> Reply:
    """The ids, tags, descriptions and shapes of the objects that have every word as tag or id."""
    core, store, words = call.core, call.core.store, set(message.words)
    ids = (id for id in store.search(words) if _is_listed(store.read(id)))
    found = [id for id in ids if may_find(store, core.owners, call.peer, id)]
    ordered = copies_first(store, core.owners, call.peer, found, words)
    summaries = [(id, *summary_of(store.read(id))) for id in ordered]
    return call.tell(pack(summaries, Packer()), in_public_form)


def _is_listed(value: Any) -> bool:
    """Whether a search may find an object; shares and sessions are their owner's alone."""
    return not isinstance(value, Confined)


@handles(Annotate, Declaration(sets="id", action="tag"))
def annotate(call: Call, message: Annotate) -> Reply:
    """Add tags to an object and set its description."""
    store = call.core.store
    stored = call.stored(message.id)
    present = set(summary_of(stored)[0])
    texts, more = (*message.tags, message.description or ""), len({*message.tags} - present)
    store.charges.tag(message.id, len(present), texts, more)
    annotate_object(stored, message.tags, message.description)
    if message.tags:
        store.tags.note(message.id)
    return Done(message.seq)


@handles(Share, Declaration(plain="id", answers=(), waits=False, stays=True))
def share(call: Call, message: Share) -> None:
    """Name others who may change an object, or for whom it is there; of one that is not the
    caller's nothing happens."""
    call.core.owners.share(call.peer, message.id, message.writers, message.readers)


@handles(Describe, Declaration(reads="id", answers=(Value,), access=Access(reads_attributes=True)))
def describe(call: Call, message: Describe) -> Reply:
    """Reply with an object's tags, description and shape."""
    value = call.whole(message.id)
    if isinstance(value, Confined):
        value.check_owner(call.peer, "describe")
    return call.tell(pack(summary_of(value), Packer()), in_public_form)


@handles(Promise, Declaration(plain="ids", waits=False))
def promise(call: Call, message: Promise) -> Reply:
    """Register ids whose objects will arrive later: all of them, or none.

    Raises :class:`~syft.exceptions.ObjectIdTaken` for one that somebody else has promised, or that
    an operation here is to make.
    """
    core, peer, store = call.core, call.peer, call.core.store
    for id in message.ids:
        if id in store.promised and store.promisers.get(id) is not peer.session:
            raise ObjectIdTaken(id, core.name)
    sender = message.sender or peer.identity or peer.name
    store.promise(*message.ids, by=peer.session, senders=(sender,))
    call.note_made(message.ids)
    return Done(message.seq)


@handles(Await, Declaration(reads="id", answers=(Done, Value, Parked), waits=False, stays=True))
def wait_for_object(call: Call, message: Await) -> Reply:
    """Reply when an object is there, or was there, or when it is certain that it will not come.

    This is no operation that waits for an input: a promise that nobody else uses can be dropped.

    Raises :class:`~syft.exceptions.LimitExceeded` if the same connection waits for the same object
    too often.
    """
    core, peer, seq, id, store = call.core, call.peer, message.seq, message.id, call.core.store

    def outcome() -> Reply:
        try:
            store.read(id)
        except StoreError as error:
            if not store.was_kept(id):
                why = pack_error(error.with_traceback(None), Packer())
                return call.tell(why, in_public_form)
        return Done(seq)

    if id not in store.promised:
        return outcome()
    store.listeners.add(id, peer.session, seq, lambda: core.answer(peer, outcome()))
    return Parked(seq, *core.promises_named(id, peer))


@handles(GiveUp, Declaration(plain="id", waits=False, stays=True))
def give_up(call: Call, message: GiveUp) -> Reply:
    """Give up a promise: everything that waits for its object fails with the reason.

    Raises :class:`~syft.exceptions.PermissionDenied` for anybody but the connection that promised
    it, and :class:`~syft.exceptions.MalformedMessage` if there is no such promise any more.
    """
    core, peer, store = call.core, call.peer, call.core.store
    if message.id not in store.promised:
        store.read(message.id)  # raises, and says what became of it
        raise MalformedMessage("$.id", "a promise that is still to be kept", "an object")
    if store.promisers.get(message.id) is not peer.session:
        raise PermissionDenied("give up a promise", core.name, peer.user)
    store.give_up(message.id, message.id, message.reason)
    core.dataflow.settle((message.id,))
    return Done(message.seq)


def _origin(call: Call) -> ObjectOrigin:
    """Whose an object is that is about to be moved, by the time that this was asked."""
    peer = call.peer
    return call.core.owners.of(call.message.id) or ObjectOrigin(peer.identity, peer.name)


@handles(
    Move,
    Declaration(
        takes="id",
        leaves="worker `to`",
        to=lambda call: (call.core.place_of(call.message.to),),
        answers=(Done, Value),
        action="move",
        reading=_origin,
    ),
)
def move(call: Call, message: Move) -> Reply:
    """Send an object to another worker, and remove it here when it has arrived."""
    if message.requires_grad and issubclass(kind_of(call.stored(message.id)), Holder):
        raise MalformedMessage("$.requires_grad", "false for a plan", "true")
    follows = _send_on(call, message, call.stored(message.id))
    told = None if follows is None else call.tell(follows, partial(tells, "requires_grad"))
    call.core.store.take(message.id, f"{call.peer.name} moved it to {message.to}")
    return told or Done(message.seq)


def _send_on(call: Call, message: Move, stored: Stored) -> bool | None:
    """Send an object to another worker; returns true if its gradients come back, and false if those
    of graphs here go after it."""
    core, origin, id, value = call.core, call.read, message.id, call.to_send(stored, "move")
    guard, recorded = guard_of(stored), message.requires_grad is not False
    place = message.to if guard is None else core.place_of(message.to)
    connection = core.connect(message.to)
    if recorded and goes_on(value):
        send_followed(core, connection, id, value, guard, origin, message.to)
        return True
    followed = recorded and bool(reached_leaves(value))
    with as_leaf(value) if followed or message.requires_grad else nullcontext():
        connection.put(value, id, guard=guard, writers=origin.names())
    if not followed:
        return None
    frozen = not (value.requires_grad or message.requires_grad)
    writers = ObjectOrigin(origin.owner, origin.name, {*origin.writers, message.to})
    send_after(core, connection, id, value, place, writers, frozen)
    return False


@handles(Holds, Declaration(reads="id", answers=(Value,), waits=False))
def holds(call: Call, message: Holds) -> Value:
    """Reply whether the object is present with this content, and readable by the user."""
    store = call.core.store
    stored = store.read(message.id) if message.id in store else None
    guard = guard_of(stored)
    if guard is not None and (guard.error is not None or not guard.admits(call.peer.user)):
        return call.tell(False, in_public_form)
    value = opened_for(stored, call.peer.user, call.core.name)
    same = isinstance(value, torch.Tensor) and has_content(value)
    return call.tell(same and digest(value) == message.digest, lambda guard: False)
