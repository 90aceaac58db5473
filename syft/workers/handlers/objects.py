"""Handlers of messages about whole objects: put, fetch, drop, move, duplicate, search, tags."""

from __future__ import annotations

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
from syft.workers.core.access import Access
from syft.workers.core.claim import Claim
from syft.workers.core.findable import copies_first, may_find, tags_of
from syft.workers.core.peer import EVERYTHING, Peer
from syft.workers.core.sent_labels import bound_of, guard_fields, note_terms, received_guard
from syft.workers.core.shares import Confined
from syft.workers.core.state_machine import Answer, HeldInputs, WorkerCore
from syft.workers.execution.holders import Holder
from syft.workers.execution.leaving import (
    check_leaving,
    check_no_graph,
    copy_in_graph,
    goes_on,
    reached_leaves,
)
from syft.workers.execution.permissions import (
    full_guard_of,
    protect,
    travelling_guard_of,
)
from syft.workers.execution.public_sizes import note_like
from syft.workers.handlers.commands import unpacker_for
from syft.workers.handlers.gradient_return import (
    note_fetched,
    return_gradients,
    send_after,
    send_followed,
)
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


@WorkerCore.handles(Put)
def put(core: WorkerCore, message: Put, frame: Frame, peer: Peer) -> Reply:
    """Store a value, and run the parked operations that waited for it."""
    if message.drop:
        core.forget(message.drop, peer)
    core.store.check_free(message.id)
    core.check_keeps((message.id,), peer)
    unpacker = unpacker_for(core, frame, None)
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
    core.comes_back((message.id,), peer)
    core.owners.put(peer, message.id, message.writers, may_be_leaf)
    core.hold(message.id, value)
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


@WorkerCore.handles(Fetch)
def fetch(core: WorkerCore, message: Fetch, frame: Frame, peer: Peer) -> Reply | Answer | None:
    """Reply with an object, if the user may read it."""
    if message.drop:
        core.forget(message.drop, peer)
    # What is not the caller's can be read, and stays.
    keep = message.keep or (core.contested and not core.owners.may_take(peer, message.id))
    if not core.dataflow.active:
        return _fetch_now(core, message, peer, None, keep)
    return core.when_ready(
        message.seq,
        peer,
        lambda held: _fetch_now(core, message, peer, held, keep),
        (message.id,),
        access=Access(reads_attributes=True) if keep else _taking(message.id),
    )


def _fetch_now(
    core: WorkerCore, message: Fetch, peer: Peer, held: HeldInputs | None, keep: bool
) -> Answer | Parked:
    value = whole = _object(core, message.id, held)
    if not isinstance(value, torch.Tensor) and isinstance(value, Confined):
        return _fetch_share(core, message, peer, value, keep)
    if message.depth:
        value = core.resolve(message.id, message.depth, held)
    guard = travelling_guard_of(whole) if core.guarded else None
    user = peer.user_named(message.user, core.name)
    if message.guarded:  # another worker fetches it for its store
        check_leaving(guard, core.place_of_caller(peer), user, "remote_get", core.name, message.id)
        check_no_graph(value, guard)
    elif guard is not None:
        if not guard.admits(user):
            raise PermissionDenied("get", core.name, user)
        guard.check_open()
    packer = Packer(worker=core, stays=keep, gradients=True)
    payload = value
    if message.guarded:
        payload = (value, *guard_fields(guard, core.name), bound_of(value))
    operand = pack(payload, packer)
    packer.hand_over(peer.name)
    if not keep:
        core.store.take(message.id, peer.fetched)
        note_fetched(core, (message.id,), (whole,))
    packer.sent()
    return Answer(Value(message.seq, operand), packer.buffers, private=guard is not None)


def _object(core: WorkerCore, id: int, held: HeldInputs | None) -> Any:
    return held[id] if held and id in held else core.store.read(id)


def _fetch_share(
    core: WorkerCore, message: Fetch, peer: Peer, share: Confined, keep: bool
) -> Answer | Parked:
    """Reply with the tensor of a share to the owner of its session, if the user may read it: now,
    or after the programs that may still write to it."""
    share.check_owner(peer, "get")
    if message.guarded or message.depth:
        raise share.refusal(peer, "get")
    turns = share.session.turns
    if not turns.busy:
        return _share_now(core, message, peer, share, keep)

    def act() -> None:
        reply: Reply | Answer
        try:
            reply = _share_now(core, message, peer, share, keep)
        except Exception as error:  # as in receive: no message may end the worker
            reply = core.failure(message.seq, error)
        core.answer(peer, reply)
        turns.done()

    turns.take(act)
    return Parked(message.seq)


def _share_now(core: WorkerCore, message: Fetch, peer: Peer, share: Confined, keep: bool) -> Answer:
    share.session.check_open()
    guard, user = full_guard_of(share), peer.user_named(message.user, core.name)
    if guard is not None:
        if not guard.admits(user):
            raise PermissionDenied("get", core.name, user)
        guard.check_open()
    packer = Packer()
    operand = pack(share.told(message.id, message.reading), packer)
    if not keep:
        core.store.take(message.id, peer.fetched)
    return Answer(Value(message.seq, operand), packer.buffers, private=True)


@WorkerCore.handles(Drop)
def drop(core: WorkerCore, message: Drop, frame: Frame, peer: Peer) -> Reply | None:
    """Drop objects whose last pointers are gone; sequence number 0 means no reply."""
    core.forget(message.ids, peer)
    return Done(message.seq) if message.seq else None


@WorkerCore.handles(Duplicate)
def duplicate(
    core: WorkerCore, message: Duplicate, frame: Frame, peer: Peer
) -> Reply | Answer | None:
    """Store a copy under another id: same values, grad, tags and guard, without a graph."""
    core.forget(message.drop, peer)
    core.store.check_free(message.out)

    def act(held: HeldInputs) -> Reply:
        lookup = partial(core.resolve, held=held)
        value = lookup(message.id)
        twin = value.duplicate() if isinstance(value, Holder) else copy_in_graph(value)
        protect(twin, full_guard_of(value))
        note_like(twin, value)
        core.comes_back((message.out,), peer)
        core.store.put(message.out, twin)
        core.note_made((message.out,), None if permit is None else permit.behind(lookup))
        return Done(message.seq)

    access = Access(reads_attributes=True, fresh=True)
    permit = core.permit(peer, (message.id,), access, "copy")
    return core.when_ready(message.seq, peer, act, (message.id,), (message.out,), access)


@WorkerCore.handles(Search)
def search(core: WorkerCore, message: Search, frame: Frame, peer: Peer) -> Reply:
    """The ids, tags, descriptions and shapes of the objects that have every word as tag or id."""
    core.forget(message.drop, peer)
    objects = core.store.objects
    words = set(message.words)
    ids = (id for id in core.store.search(words) if _is_listed(objects[id]))
    found = [id for id in ids if may_find(core.store, core.owners, peer, id)]
    ordered = copies_first(core.store, core.owners, peer, found, words)
    return Value(message.seq, pack([(id, *_card(objects[id])) for id in ordered], Packer()))


def _is_listed(value: Any) -> bool:
    """Whether a search may find an object; shares and sessions are their owner's alone."""
    return not isinstance(value, Confined)


def _card(value: torch.Tensor | Holder) -> tuple[Any, ...]:
    """The public facts about a stored object: tags, description, and the shape of a tensor.

    For a :class:`Holder` the shape is None, and its own card is the fourth item.
    """
    tags = sorted(tags_of(value))
    if isinstance(value, Holder):
        return tags, value.description, None, value.card()
    guard = full_guard_of(value)
    shape = None if guard is not None and guard.shape_hidden else _shape_here(value)
    return tags, value.__dict__.get("_description"), shape


def _shape_here(value: torch.Tensor) -> torch.Size | None:
    """The shape of a tensor whose data is at this worker; None if it is at another one."""
    while type(value) is Wrapper and value.child.at_function_level:
        behind = value.child.tensor_behind()
        if behind is None:
            return None
        value = behind
    return value.shape


@WorkerCore.handles(Annotate)
def annotate(
    core: WorkerCore, message: Annotate, frame: Frame, peer: Peer
) -> Reply | Answer | None:
    """Add tags to an object and set its description."""
    core.forget(message.drop, peer)

    def act(held: HeldInputs) -> Reply:
        if permit is not None:
            permit.check_memory(partial(core.resolve, held=held))
        attributes = core.resolve(message.id, 0, held).__dict__
        present = attributes.get("_tags", set())
        tags = present | set(message.tags)
        texts = (*message.tags, message.description or "")
        core.store.charges.tag(message.id, len(present), texts, len(tags) - len(present))
        if message.tags:
            attributes["_tags"] = tags
            core.store.tags.note(message.id)
        if message.description is not None:
            attributes["_description"] = message.description
        return Done(message.seq)

    access = Access(sets=(message.id,))
    permit = core.permit(peer, (message.id,), access, "tag")
    return core.when_ready(message.seq, peer, act, (message.id,), access=access)


@WorkerCore.handles(Share)
def share(core: WorkerCore, message: Share, frame: Frame, peer: Peer) -> None:
    """Name others who may change an object; of one that is not the caller's nothing happens."""
    core.owners.share(peer, message.id, message.writers)


@WorkerCore.handles(Describe)
def describe(
    core: WorkerCore, message: Describe, frame: Frame, peer: Peer
) -> Reply | Answer | None:
    """Reply with an object's tags, description and shape."""
    core.forget(message.drop, peer)

    def act(held: HeldInputs) -> Reply:
        value = _object(core, message.id, held)
        if isinstance(value, Confined):
            value.check_owner(peer, "describe")
        else:
            value = core.resolve(message.id, 0, held)
        return Value(message.seq, pack(_card(value), Packer()))

    access = Access(reads_attributes=True)
    return core.when_ready(message.seq, peer, act, (message.id,), access=access)


@WorkerCore.handles(Promise)
def promise(core: WorkerCore, message: Promise, frame: Frame, peer: Peer) -> Reply:
    """Register ids whose objects will arrive later.

    Raises :class:`~syft.exceptions.ObjectIdTaken` for one that somebody else has promised, or that
    an operation here is to make.
    """
    core.forget(message.drop, peer)
    store = core.store
    for id in message.ids:
        if id in store.promised and store.promisers.get(id) is not peer.session:
            raise ObjectIdTaken(id, core.name)
    sender = message.sender or peer.identity or peer.name
    for id in message.ids:
        store.promise(id, by=peer.session, senders=(sender,))
    core.note_made(message.ids)
    return Done(message.seq)


@WorkerCore.handles(Await)
def wait_for_object(core: WorkerCore, message: Await, frame: Frame, peer: Peer) -> Reply:
    """Reply when an object is there, or was there, or when it is certain that it will not come.

    This is no operation that waits for an input: a promise that nobody else uses can be dropped.

    Raises :class:`~syft.exceptions.LimitExceeded` if the same connection waits for the same object
    too often.
    """
    seq, id, store = message.seq, message.id, core.store

    def outcome() -> Reply:
        try:
            store.read(id)
        except StoreError as error:
            if not store.was_kept(id):
                return Value(seq, pack_error(error.with_traceback(None), Packer()))
        return Done(seq)

    if id not in store.promised:
        return outcome()
    store.listeners.add(id, peer.session, seq, lambda: core.answer(peer, outcome()))
    return Parked(seq, *core.promises_named(id, peer))


@WorkerCore.handles(GiveUp)
def give_up(core: WorkerCore, message: GiveUp, frame: Frame, peer: Peer) -> Reply:
    """Give up a promise: everything that waits for its object fails with the reason.

    Raises :class:`~syft.exceptions.PermissionDenied` for anybody but the connection that promised
    it, and :class:`~syft.exceptions.MalformedMessage` if there is no such promise any more.
    """
    core.forget(message.drop, peer)
    if message.id not in core.store.promised:
        core.store.read(message.id)  # raises, and says what became of it
        raise MalformedMessage("$.id", "a promise that is still to be kept", "an object")
    if core.store.promisers.get(message.id) is not peer.session:
        raise PermissionDenied("give up a promise", core.name, peer.user)
    core.store.give_up(message.id, message.id, message.reason)
    core.dataflow.settle((message.id,))
    return Done(message.seq)


@WorkerCore.handles(Move)
def move(core: WorkerCore, message: Move, frame: Frame, peer: Peer) -> Reply | Answer | None:
    """Send an object to another worker, and remove it here when it has arrived."""
    core.forget(message.drop, peer)

    def act(held: HeldInputs) -> Reply:
        follows = _send_on(core, message, core.resolve(message.id, 0, held), origin, peer)
        core.store.take(message.id, f"{peer.name} moved it to {message.to}")
        return Done(message.seq) if follows is None else Value(message.seq, follows)

    access = _taking(message.id)
    core.permit(peer, (message.id,), access, "move")
    origin = core.owners.of(message.id) or Claim(peer.identity, peer.name)
    return core.when_ready(message.seq, peer, act, (message.id,), access=access)


def _send_on(core: WorkerCore, message: Move, value: Any, origin: Claim, peer: Peer) -> bool | None:
    """Send an object to another worker; returns true if its gradients come back, and false if those
    of graphs here go after it."""
    if message.requires_grad and isinstance(value, Holder):
        raise MalformedMessage("$.requires_grad", "false for a plan", "true")
    guard, recorded = travelling_guard_of(value), message.requires_grad is not False
    user = peer.user_named(message.user, core.name)
    place = message.to if guard is None else core.place_of(message.to)
    check_leaving(guard, place, user, "move", core.name, message.id)
    connection, id = core.connect(message.to), message.id
    if recorded and goes_on(value):
        send_followed(core, connection, id, value, guard, origin, message.to)
        return True
    makes_leaf = message.requires_grad and not value.requires_grad
    leaf = value.detach().requires_grad_() if makes_leaf else value
    connection.put(leaf, id, guard=guard, writers=origin.names())
    if not (recorded and reached_leaves(value)):
        return None
    send_after(core, connection, id, value, place)
    return False


def _taking(id: int) -> Access:
    """The access of an operation that takes an object out of the store."""
    return Access(writes=(id,), reads_attributes=True, takes=(id,))


@WorkerCore.handles(Holds)
def holds(core: WorkerCore, message: Holds, frame: Frame, peer: Peer) -> Value:
    """Reply whether the object is present with this content, and readable by the user."""
    core.forget(message.drop, peer)
    value = core.store.objects.get(message.id)
    if not isinstance(value, torch.Tensor) or not has_content(value):
        return Value(message.seq, False)
    guard = full_guard_of(value)
    if guard is not None and not guard.admits(peer.user):
        return Value(message.seq, False)
    return Value(message.seq, digest(value) == message.digest)
