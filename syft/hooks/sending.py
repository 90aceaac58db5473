"""``x.send(worker)``: a copy of a tensor goes to a worker, and a pointer to it comes back.

The first link of the tensor decides what travels (:meth:`~syft.chain.link.Link.deliver`): a tensor
in this process as a copy, a pointer as a pointer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from syft.callers import warn_user
from syft.chain.link import PLAIN
from syft.chain.wrapper import Wrapper, first_link
from syft.exceptions import GraphLeftBehind, NotALeaf, NotSendable
from syft.program.recording.role_crossings import ROLES, refuse_in_protocols, refuse_options
from syft.tensors.multi_pointer import combine
from syft.tensors.pointer import make_pointer
from syft.workers.client.connection import Connection
from syft.workers.client.contents import put_once
from syft.workers.client.transport import Location as Worker, Owner
from syft.workers.execution.leaving import check_leaving
from syft.workers.execution.private_memory import make_private
from syft.workers.labels.guards import Guard
from syft.workers.labels.memory_labels import full_guard_of, protect, travelling_guard_of
from syft.workers.labels.origin import names_in, set_writers, writers_of
from syft.workers.wire.messages import Put

Location = Worker | str
Id = int | Callable[[torch.Tensor], int] | None


class SentCopy:
    """One copy on its way over ``connection``: under which id, and on whose behalf.

    It is the :class:`~syft.chain.link.Delivery` that a link gets.
    """

    __slots__ = ("connection", "collects", "id", "user", "writers", "readers")

    def __init__(
        self,
        connection: Connection,
        collects: bool,
        id: Id,
        user: str | None,
        writers: frozenset[str],
        readers: tuple[str, ...] = (),
    ) -> None:
        self.connection, self.collects, self.id = connection, collects, id
        self.user, self.writers, self.readers = user, writers, readers

    def put_leaf(self, tensor: torch.Tensor) -> Wrapper:
        """Put a copy of a tensor without a graph: see :func:`leaf_to_send`."""
        return self.put(leaf_to_send(tensor))

    def put(self, tensor: torch.Tensor, sender: Owner | None = None) -> Wrapper:
        """Put a copy of ``tensor`` at the location, and return the pointer to it.

        ``sender`` is the worker that sends, if it is not the owner.
        """
        connection, collects, id = self.connection, self.collects, self.id
        guard = guard_to_send(tensor, connection.location, connection.owner, self.user)
        if sender is not None:
            connection = sender.connection_to(connection.location)
        writers = self.writers | writers_of(tensor)
        with connection.lock:  # what is noted of the last request is noted of this one
            if callable(id):
                named = {*writers, *self.readers}
                shared = None if named else put_once(connection, tensor, id)
                if shared is not None:
                    return make_pointer(connection, shared, collects)
                id = None
            promised, id = id, connection.put(tensor, id, guard, writers)
            connection.show_to(id, self.readers)
            if promised is not None and collects:
                connection.garbage.add_owner(id)
            pointer = make_pointer(connection, id, collects, summary=summary_of(tensor))
            if connection.replies.pending or connection.groups.open:
                connection.follow_last(pointer.child)
            if type(tensor) is not Wrapper:
                _note_kind(pointer.child, tensor, guard)
        return pointer


def _note_kind(link: Any, tensor: torch.Tensor, guard: Guard | None) -> None:
    """Note at the pointer to a copy of a tensor that it is private, or a leaf with a gradient."""
    if guard is not None:
        link.note_private(tensor)
    if tensor.requires_grad and link.garbage_collect_data:
        link.connection.facts.leaf_sent(link, tensor)


def leaf_to_send(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself, if it has no graph; for a view of a leaf, a leaf over the same data.

    What is sent of data that requires grad is often a part of it, such as a batch.  There is no
    computation in its graph to be lost, only where its gradient would go, and a
    :class:`~syft.exceptions.GraphLeftBehind` warning says so.  Guards, tags and who may write come
    along, those of the whole too.

    Raises :class:`~syft.exceptions.NotALeaf` for any other tensor with an autograd graph.

    >>> x = torch.ones(2, requires_grad=True)
    >>> leaf_to_send(x) is x
    True
    """
    recorded = _behind_local_links(tensor) if type(tensor) is Wrapper else tensor
    if recorded.is_leaf or not recorded.requires_grad:
        return tensor
    whole = tensor._base
    if whole is None or not whole.is_leaf:
        raise NotALeaf(type(tensor.grad_fn).__name__)
    warn_user(GraphLeftBehind(type(tensor.grad_fn).__name__))
    leaf = _leaf_over(tensor)
    set_writers(leaf, writers_of(whole))
    return leaf


def _behind_local_links(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor whose graph torch records: links above autograd only stand before it.

    It is asked, and not they, because a link that logs would log a question nobody has put.
    """
    while type(tensor) is Wrapper and tensor.child.at_function_level:
        behind = tensor.child.tensor_behind()
        if behind is None:
            break
        tensor = behind
    return tensor


def _leaf_over(tensor: torch.Tensor) -> torch.Tensor:
    """A leaf that shares the data of a tensor, and its guard, its writers and its annotations."""
    leaf = tensor.detach().requires_grad_(tensor.requires_grad)
    for name in ("_tags", "_description"):
        if name in tensor.__dict__:
            leaf.__dict__[name] = tensor.__dict__[name]
    protect(leaf, full_guard_of(tensor))
    set_writers(leaf, writers_of(tensor))
    return leaf


def guard_to_send(
    tensor: torch.Tensor, location: Worker, owner: Owner, user: str | None
) -> Guard | None:
    """The guard with which a tensor travels, if it may go to ``location`` on behalf of ``user`` (by
    default that of ``owner``); raises :class:`~syft.exceptions.PermissionDenied` otherwise.

    >>> guard_to_send(torch.ones(2), bob, hook.local_worker, None) is None
    True
    """
    if type(tensor) is Wrapper:
        refuse_shared(tensor)
    guard = travelling_guard_of(tensor)
    if guard is not None:
        check_leaving(guard, location.id, user or owner.user, "send", owner.id)
    return guard


def refuse_shared(tensor: torch.Tensor) -> None:
    """Raise :class:`~syft.exceptions.NotSendable` for a shared tensor, which is nowhere as a whole.

    >>> refuse_shared(torch.ones(2))
    """
    if first_link(tensor).shared_cell() is not None:
        instead = "get() it, or reveal(to=...) it at one of those who share it, first"
        raise NotSendable("a shared tensor", instead)


def summary_of(tensor: torch.Tensor) -> tuple[Any, ...] | None:
    """Tags, description and shape, for the repr of the pointer; None for a tensor without tags.

    >>> hook = sy.TorchHook(torch)
    >>> summary_of(torch.ones(2).tag("#digits"))
    (['#digits'], None, torch.Size([2]))
    """
    names = tensor.__dict__
    if "_tags" not in names and "_description" not in names:
        return None
    return sorted(names.get("_tags", ())), names.get("_description"), tensor.shape


def send(
    tensor: torch.Tensor,
    *locations: Location,
    owner: Owner,
    garbage_collect_data: bool = True,
    id: Id = None,
    user: str | None = None,
    allow_writes: Iterable[str] = (),
    allow: Iterable[str] = (),
) -> torch.Tensor:
    """Put a copy of the tensor at a worker and return a pointer to it.

    With several ``locations``, a copy goes to each and the result is a multi-pointer.  A pointer
    that is sent becomes a pointer to a pointer.  ``id`` is the id of the object there: by default
    a fresh one, or one that was promised.  With ``id=sy.ids.content`` a constant that this worker
    sent there before, and that is still there unchanged, is not sent again.  ``user`` names the
    user who sends, which private tensors check.  ``allow_writes`` names those who may change the
    object there too, and take it away: users, or callers that act for no user.  ``allow`` names
    those who find and use it.  At a worker with tokens it is there for its sender alone otherwise,
    for whom ``allow_writes`` names and for whom a private tensor admits.

    Of a view of a leaf that requires grad a leaf of its own goes, with a warning
    (:class:`~syft.exceptions.GraphLeftBehind`).

    Raises :class:`~syft.exceptions.NotALeaf` for the result of any other recorded computation,
    :class:`~syft.exceptions.NotSendable` for an ``id`` outside 0 to ``2**63 - 1``,
    :class:`~syft.exceptions.UnknownWorker`, :class:`~syft.exceptions.PermissionDenied`.

    >>> torch.tensor([1.0, 2.0]).send(bob)
    (Wrapper)>[PointerTensor | me:... -> bob:...]
    """
    roles = ROLES.get()
    if roles is not None:
        kept = not garbage_collect_data
        settings = {"garbage_collect_data": kept, "id": id, "user": user}
        refuse_options("send", **settings, allow_writes=allow_writes, allow=allow)
        return roles.send(tensor, locations)
    if len(locations) == 1 and id is None and user is None and allow_writes == allow == ():
        connection = owner.connection_to(locations[0])
        usual = connection.put_usual(tensor)
        if usual is not None:
            return make_pointer(connection, usual, garbage_collect_data)
    if id is not None:
        _check_id(id)
    writers = frozenset(names_in("allow_writes", allow_writes))
    readers = tuple(sorted(set(names_in("allow", allow))))
    deliveries = []
    for place in locations:  # before anything is sent
        connection = owner.connection_to(place)
        deliveries.append(SentCopy(connection, garbage_collect_data, id, user, writers, readers))
    return _deliver(tensor, deliveries)


def _deliver(tensor: torch.Tensor, deliveries: list[SentCopy]) -> torch.Tensor:
    """Have the first link of a tensor send the copies; a multi-pointer if they are several."""
    link = tensor.child if type(tensor) is Wrapper else PLAIN
    if not deliveries:
        raise NotSendable("a tensor to nobody", "name at least one worker: x.send(bob)")
    requests = deliveries[0].connection.requests
    requests.check_not_recording(Put.verb)  # before the tensor is looked at
    if len(deliveries) == 1:
        return link.deliver(tensor, deliveries[0])
    return combine([link.deliver(tensor, delivery) for delivery in deliveries])


def send_(
    tensor: torch.Tensor, *locations: Location, owner: Owner, **settings: Any
) -> torch.Tensor:
    """Send the tensor in place: the same object becomes the pointer; returns it.

    The arguments are those of ``send``, and so is what it raises.  Raises
    :class:`~syft.exceptions.NotSendable` too, and leaves the tensor here, if a graph or a weak
    reference still holds it.

    >>> x = torch.ones(2)
    >>> x.send_(bob) is x, x
    (True, (Wrapper)>[PointerTensor | me:... -> bob:...])
    """
    refuse_in_protocols("send_()", "use y = x.send(role)")
    sent = send(tensor, *locations, owner=owner, **settings)
    if type(tensor) is Wrapper and tensor.child.at_function_level and type(sent) is Wrapper:
        tensor.child, sent.child = sent.child, tensor.child
        return tensor
    try:
        torch.utils.swap_tensors(tensor, sent)  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        instead = f"use y = x.send(worker), or delete what was computed with it first ({error})"
        raise NotSendable("a tensor in place that something else holds", instead) from error
    return tensor


def _check_id(id: Id) -> None:
    if callable(id) or (type(id) is int and 0 <= id < 2**63):
        return
    shown = repr(id) if type(id) is int else f"an id of type {type(id).__name__}"
    raise NotSendable(f"a tensor under {shown}", "an id is an int from 0 to 2**63 - 1")


def names_of(places: Iterable[Location]) -> tuple[str, ...]:
    """The names of workers, given by name or as they are.

    >>> names_of(["alice", bob])
    ('alice', 'bob')
    """
    return tuple(place if isinstance(place, str) else place.id for place in places)


def private_tensor(
    tensor: torch.Tensor,
    allowed_users: Iterable[str],
    allow_destinations: Iterable[Location] = (),
    allow_writes: Iterable[str] = (),
    allow_providers: Iterable[Location] | None = None,
) -> torch.Tensor:
    """The same data as a tensor that, once sent, only ``allowed_users`` may read.

    The same holds for everything that the worker computes from it.  Neither may go on to another
    worker on behalf of anybody but these users, unless ``allow_destinations`` names that worker:
    its owner has the data in memory then.  ``allow_writes`` names those who may change it there
    besides whoever sends it: users, or callers that act for no user.  ``allow_providers`` names
    the workers that may deal for shares of it (``crypto_provider=``), whoever shares it; None lets
    all of them, but a caller who may not read it.  Returns a new tensor that shares the data.
    Views of that are as private when they are sent; this tensor is as it was.

    >>> x = torch.ones(2).private_tensor(allowed_users=["ann"]).send(bob, user="ann")
    >>> (x + x).get(user="ann")
    tensor([2., 2.])
    >>> (x + x).get()  # names no user
    Traceback (most recent call last):
    ...
    syft.exceptions.PermissionDenied: ...
    >>> x.move(alice)
    Traceback (most recent call last):
    ...
    syft.exceptions.PermissionDenied: move: object ... on 'bob' may not go to 'alice': ...
    """
    refuse_in_protocols("private_tensor()", "give the protocol a private tensor")
    users = names_in("allowed_users", allowed_users)
    private = _leaf_over(tensor)
    places = frozenset(names_of(allow_destinations))
    providers = None if allow_providers is None else frozenset(names_of(allow_providers))
    make_private(private, Guard(frozenset(users), destinations=places, providers=providers))
    set_writers(private, allow_writes)
    return private
