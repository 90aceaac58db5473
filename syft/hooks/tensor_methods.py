"""What ``torch.Tensor`` learns: send, get, move, copy, tag, describe, and where a tensor lives."""

from __future__ import annotations

import copy as copying
from collections.abc import Callable, Iterable
from typing import Any

import torch

from syft.chain.link import Link
from syft.chain.wrapper import Wrapper
from syft.exceptions import (
    NotALeaf,
    NothingToGet,
    NotSendable,
    PermissionDenied,
    UnsupportedOperation,
)
from syft.ids import new_id
from syft.tensors import multi_pointer
from syft.tensors.local import LocalLink
from syft.tensors.multi_pointer import MultiPointerTensor
from syft.tensors.pointer import PointerTensor, make_pointer
from syft.workers.client.contents import is_shared, put_once
from syft.workers.wire.messages import Fetch, Move, Relay
from syft.workers.core.objects import copy_of
from syft.workers.core.permissions import Guard, guard_of, set_guard
from syft.workers.client.transport import Location as Worker
from syft.workers.client.transport import Owner

Location = Worker | str
Id = int | Callable[[torch.Tensor], int] | None


def send(
    tensor: torch.Tensor,
    *locations: Location,
    owner: Owner,
    garbage_collect_data: bool = True,
    id: Id = None,
    user: str | None = None,
) -> Wrapper:
    """Put a copy of the tensor at a worker and return a pointer to it.

    With several ``locations``, a copy goes to each and the result is a multi-pointer.  A pointer
    that is sent becomes a pointer to a pointer.  ``id`` is the id the object gets there (a fresh
    one, or one that was promised); with ``id=sy.ids.content``, a constant that this worker sent
    there before, and that is still there unchanged, is not sent again.  ``user`` says who sends,
    which matters for private tensors.

    Raises :class:`~syft.exceptions.NotALeaf` for the result of a recorded computation,
    :class:`~syft.exceptions.NotSendable` for an ``id`` that is none,
    :class:`~syft.exceptions.UnknownWorker`, :class:`~syft.exceptions.PermissionDenied`.

    >>> import torch, syft as sy
    >>> hook = sy.TorchHook(torch)
    >>> bob = sy.VirtualWorker(hook, id="bob")
    >>> torch.tensor([1.0, 2.0]).send(bob)
    (Wrapper)>[PointerTensor | me:... -> bob:...]
    """
    if id is not None and not callable(id) and (type(id) is not int or not 0 <= id < 2**63):
        shown = repr(id) if type(id) is int else f"an id of type {type(id).__name__}"
        raise NotSendable(f"a tensor under {shown}", "an id is an int from 0 to 2**63 - 1")
    places = [owner.get_worker(place) for place in locations]  # before anything is sent
    if not places:
        raise NotSendable("a tensor to nobody", "name at least one worker: x.send(bob)")
    pointers = [_send_to(tensor, place, owner, garbage_collect_data, id, user) for place in places]
    return pointers[0] if len(pointers) == 1 else multi_pointer.combine(pointers)


def _send_to(
    tensor: torch.Tensor,
    location: Worker,
    owner: Owner,
    garbage_collect_data: bool,
    id: Id,
    user: str | None,
) -> Wrapper:
    link = pointer_of(tensor)
    if link is None and tensor.requires_grad and not tensor.is_leaf:
        raise NotALeaf(type(tensor.grad_fn).__name__)
    guard = guard_of(tensor)
    if guard is not None and not guard.admits(user or owner.user):
        raise PermissionDenied("send", owner.id, user or owner.user)
    connection = (link.owner if link is not None else owner).connection_to(location)
    if callable(id):
        shared = put_once(connection, tensor, id)
        if shared is not None:
            return make_pointer(connection, shared, garbage_collect_data)
        id = None
    id = int(connection.put(tensor, id, guard=guard))
    if garbage_collect_data:
        connection.add_owner(id)
    names = tensor.__dict__
    card = None
    if "_tags" in names or "_description" in names:
        card = (sorted(names.get("_tags", ())), names.get("_description"), tensor.shape)
    return make_pointer(connection, id, garbage_collect_data, card=card)


def pointer_of(tensor: torch.Tensor) -> PointerTensor | None:
    """The pointer at the head of the tensor's chain, or behind local links at its head."""
    link = _last_link(tensor)
    return link if isinstance(link, PointerTensor) else None


def _last_link(tensor: torch.Tensor) -> Link | None:
    """The first link of the chain that is not local; None if there is none."""
    while type(tensor) is Wrapper:
        link = tensor.child
        if not isinstance(link, LocalLink) or link.tensor is None:
            return link
        tensor = link.tensor
    return None


def get(tensor: torch.Tensor, user: str | None = None, sum_results: bool = False) -> Any:
    """Bring the tensor here, and remove it there.

    A pointer to a pointer gives the inner pointer.  Of a multi-pointer, every part comes, as a
    list or (``sum_results``) added up.  Gradients of leaves and tags come along.  ``user`` says
    who reads.

    Raises :class:`~syft.exceptions.NothingToGet` for a tensor that is here,
    :class:`~syft.exceptions.ObjectNotFound` if it is gone,
    :class:`~syft.exceptions.PermissionDenied`.

    >>> import torch, syft as sy
    >>> hook = sy.TorchHook(torch)
    >>> bob = sy.VirtualWorker(hook, id="bob")
    >>> x = torch.tensor([1.0, 2.0]).send(bob)
    >>> (x + x).get()
    tensor([2., 4.])
    """
    link = tensor.child if type(tensor) is Wrapper else None
    if isinstance(link, MultiPointerTensor):
        return multi_pointer.get(link, lambda part: get(part, user), sum_results)
    if isinstance(link, LocalLink) and link.tensor is not None:
        value = get(link.tensor, user, sum_results)
        return [_like(link, v) for v in value] if type(value) is list else _like(link, value)
    return fetch(tensor, user)


def fetch(tensor: torch.Tensor, user: str | None = None, keep: bool = False) -> torch.Tensor:
    """What the pointer at the head of a chain, or behind local links, points to; ``keep`` leaves
    it there as well."""
    link = tensor.child if type(tensor) is Wrapper else None
    if isinstance(link, LocalLink) and link.tensor is not None:
        return _like(link, fetch(link.tensor, user, keep))
    if not isinstance(link, PointerTensor):
        raise NothingToGet("get")
    keep = keep or link.depth > 0  # what is inside a remote chain cannot be taken out of it
    keep = keep or is_shared(link.connection, link.id_at_location)
    value: torch.Tensor = link.connection.ask(
        Fetch, link.id_at_location, depth=link.depth, keep=keep, user=user
    )
    link.garbage_collect_data = link.garbage_collect_data and keep
    return value


def _like(link: LocalLink, tensor: torch.Tensor) -> Wrapper:
    """The same kind of link before another tensor."""
    return link.like().on(tensor)


def move(
    tensor: torch.Tensor,
    location: Location,
    requires_grad: bool = False,
    user: str | None = None,
) -> Any:
    """Move a remote tensor to another worker, directly, and return a pointer to it there.

    It keeps its id.  With ``requires_grad`` it arrives as a leaf that requires grad; if it has a
    graph where it was, the graph stays there and gradients find their way back through it.

    >>> import torch, syft as sy
    >>> hook = sy.TorchHook(torch)
    >>> alice, bob = (sy.VirtualWorker(hook, id=name) for name in ("alice", "bob"))
    >>> x = torch.ones(2).send(alice).move(bob)
    >>> alice, bob
    (<VirtualWorker id:alice #objects:0>, <VirtualWorker id:bob #objects:1>)
    """
    head = tensor.child if type(tensor) is Wrapper else None
    if isinstance(head, LocalLink) and head.tensor is not None:
        return _like(head, move(head.tensor, location, requires_grad, user))
    if isinstance(head, MultiPointerTensor):
        instead = "move its parts one by one, or get it and send it again"
        raise UnsupportedOperation("move", "MultiPointerTensor", instead)
    link = pointer_of(tensor)
    if link is None:
        raise NothingToGet("move")
    destination = link.owner.get_worker(location)
    if destination is link.location:
        return tensor.requires_grad_() if requires_grad else tensor
    if destination is link.owner and not requires_grad:
        return get(tensor, user)
    link.connection.ask(
        Move, link.id_at_location, destination.id, requires_grad=requires_grad, user=user
    )
    if destination is link.owner:
        link.garbage_collect_data = False
        return destination.core.store.take(link.id_at_location, "it was moved home")
    collects, link.garbage_collect_data = link.garbage_collect_data, False
    card = link._card
    connection = link.owner.connection_to(destination)
    connection.crossed |= requires_grad
    moved = make_pointer(connection, link.id_at_location, collects)
    moved.child._card = card  # type: ignore[attr-defined]
    return moved


def unsend(tensor: torch.Tensor, sent: torch.Tensor) -> None:
    """Undo a send: a pointer that went to another worker gives back its duty to collect."""
    link = pointer_of(tensor)
    if link is not None:
        _take_duty(link, pointer_of(get(sent)))


def unmove(tensor: torch.Tensor, moved: torch.Tensor, user: str | None) -> None:
    """Undo a move: the data goes back to where ``tensor`` points."""
    link = pointer_of(tensor)
    if link is not None and moved is not tensor:
        _take_duty(link, pointer_of(move(moved, link.location, user=user)))


def _take_duty(link: PointerTensor, other: PointerTensor | None) -> None:
    if other is not None:
        link.garbage_collect_data, other.garbage_collect_data = other.garbage_collect_data, False


def leads_home(tensors: list[torch.Tensor], location: Location) -> bool:
    """Whether a move to ``location`` would bring these pointers home to their owner."""
    for tensor in tensors:
        link = pointer_of(tensor)
        return link is not None and link.owner.get_worker(location) is link.owner
    return False


def copy(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with its own memory, where the tensor is; of a pointer, a pointer to the copy.

    >>> import torch, syft as sy
    >>> hook = sy.TorchHook(torch)
    >>> bob = sy.VirtualWorker(hook, id="bob")
    >>> x = torch.tensor([1.0, 2.0]).send(bob)
    >>> y = x.copy()
    >>> y.add_(1).get(), x.get()
    (tensor([2., 3.]), tensor([1., 2.]))
    """
    if type(tensor) is Wrapper:
        return copying.deepcopy(tensor)
    return copy_of(tensor)


def remote_get(tensor: torch.Tensor, user: str | None = None) -> torch.Tensor:
    """Of a pointer to a pointer: have the worker in between fetch the tensor. Returns the same
    pointer.

    >>> import torch, syft as sy
    >>> hook = sy.TorchHook(torch)
    >>> alice, bob = (sy.VirtualWorker(hook, id=name) for name in ("alice", "bob"))
    >>> x = torch.ones(2).send(alice).send(bob)  # bob points to alice
    >>> x.remote_get().get(), alice
    (tensor([1., 1.]), <VirtualWorker id:alice #objects:0>)
    """
    return _relay(tensor, None, user)


def remote_send(tensor: torch.Tensor, location: Location, user: str | None = None) -> torch.Tensor:
    """Have the worker that holds the tensor send it on, and keep a pointer. Returns the same
    pointer.  ``user`` says for whom, which matters for private tensors.

    >>> import torch, syft as sy
    >>> hook = sy.TorchHook(torch)
    >>> alice, bob = (sy.VirtualWorker(hook, id=name) for name in ("alice", "bob"))
    >>> x = torch.ones(2).send(bob).remote_send(alice)  # bob points to alice
    >>> x.get()
    (Wrapper)>[PointerTensor | me:... -> alice:...]
    """
    link = pointer_of(tensor)
    name = location if isinstance(location, str) else location.id
    if link is not None:
        link.owner.get_worker(name)
    return _relay(tensor, name, user)


def _relay(tensor: torch.Tensor, to: str | None, user: str | None) -> torch.Tensor:
    link = pointer_of(tensor)
    if link is None:
        raise NothingToGet("remote_get" if to is None else "remote_send")
    link.connection.ask(Relay, link.id_at_location, to, user=user)
    return tensor


# ----------------------------------------------------------------------------------------- groups


def begin_msg_group(tensor: torch.Tensor) -> torch.Tensor:
    """Hold back what is asked of the tensor's worker until ``release_msg_group``; returns the
    tensor.

    It is what ``with worker.group():`` does, in two calls.
    Raises :class:`~syft.exceptions.NothingToGet` for a tensor that is here.

    >>> import torch, syft as sy
    >>> hook = sy.TorchHook(torch)
    >>> bob = sy.VirtualWorker(hook, id="bob")
    >>> x = torch.ones(2).send(bob).begin_msg_group()
    >>> y = x + x  # not sent yet
    >>> y.release_msg_group().get()
    tensor([2., 2.])
    """
    for link in _links_of(tensor, "begin_msg_group"):
        link.connection.message_group().begin()
    return tensor


def release_msg_group(tensor: torch.Tensor) -> torch.Tensor:
    """Send what was held back since ``begin_msg_group``; returns the tensor.

    Raises :class:`~syft.exceptions.NothingToGet` for a tensor that is here, and
    :class:`~syft.exceptions.ProgramError` if no group was begun.

    >>> import torch, syft as sy
    >>> hook = sy.TorchHook(torch)
    >>> bob = sy.VirtualWorker(hook, id="bob")
    >>> torch.ones(2).send(bob).release_msg_group()
    Traceback (most recent call last):
    ...
    syft.exceptions.ProgramError: no group of messages for worker 'bob' is open: begin one first
    """
    for link in _links_of(tensor, "release_msg_group"):
        link.connection.message_group().release()
    return tensor


def _links_of(tensor: torch.Tensor, action: str) -> list[PointerTensor]:
    links = _pointers_of(tensor)
    if not links:
        raise NothingToGet(action)
    return links


# ----------------------------------------------------------------------------------- annotations


def _pointers_of(tensor: torch.Tensor) -> list[PointerTensor]:
    """The pointers at the end of the chain: none, one, or all of a multi-pointer's."""
    link = _last_link(tensor)
    if isinstance(link, MultiPointerTensor):
        return [pointer for part in link.pointers.values() for pointer in _pointers_of(part)]
    return [link] if isinstance(link, PointerTensor) else []


def _check_text(what: str, *texts: str) -> None:
    for text in texts:
        if not isinstance(text, str):
            raise NotSendable(f"a {what} of type {type(text).__name__}", f"a {what} is a string")


def tag(tensor: torch.Tensor, *tags: str) -> torch.Tensor:
    """Add tags, by which the tensor can be found with ``search``; returns the tensor.

    When the local worker is not a mere client (``sy.local_worker.is_client_worker = False``), a
    tensor that is tagged here is put into its store, for others to find.
    Raises :class:`~syft.exceptions.NotSendable` for a tag that is not a string.

    >>> import torch, syft as sy
    >>> hook = sy.TorchHook(torch)
    >>> bob = sy.VirtualWorker(hook, id="bob")
    >>> x = torch.ones(2).tag("#digits", "#train").send(bob)
    >>> [found.get() for found in bob.search("#digits")]
    [tensor([1., 1.])]
    """
    _check_text("tag", *tags)
    links = _pointers_of(tensor)
    for link in links:
        link.annotate(tuple(tags), None)
    if not links:
        tensor.__dict__["_tags"] = tensor.__dict__.get("_tags", set()) | set(tags)
    return tensor


def offer(tensor: torch.Tensor, owner: Owner) -> None:
    """Put a tensor that is here into its owner's store, under its own id, if it is not there."""
    if pointer_of(tensor) is None and identity(tensor) not in owner.core.store.objects:
        owner.core.hold(identity(tensor), tensor)


def describe(tensor: torch.Tensor, description: str) -> torch.Tensor:
    """Say in words what the tensor is; returns the tensor.

    >>> import torch, syft as sy
    >>> hook = sy.TorchHook(torch)
    >>> bob = sy.VirtualWorker(hook, id="bob")
    >>> torch.ones(2).describe("two ones").send(bob).description
    'two ones'
    """
    _check_text("description", description)
    links = _pointers_of(tensor)
    for link in links:
        link.annotate((), description)
    if not links:
        tensor.__dict__["_description"] = description
    return tensor


def tags(tensor: torch.Tensor) -> set[str]:
    """The tensor's tags.

    >>> import torch, syft as sy
    >>> hook = sy.TorchHook(torch)
    >>> bob = sy.VirtualWorker(hook, id="bob")
    >>> torch.ones(2).tag("#digits").send(bob).tags
    {'#digits'}
    """
    links = _pointers_of(tensor)
    return links[0].tags if links else set(tensor.__dict__.get("_tags", ()))


def description(tensor: torch.Tensor) -> str | None:
    """The tensor's description.

    >>> import torch, syft as sy
    >>> hook = sy.TorchHook(torch)
    >>> print(torch.ones(2).description, torch.ones(2).describe("two ones").description)
    None two ones
    """
    links = _pointers_of(tensor)
    return links[0].description if links else tensor.__dict__.get("_description")


def private_tensor(tensor: torch.Tensor, allowed_users: Iterable[str]) -> torch.Tensor:
    """The same data as a tensor that, once sent, only ``allowed_users`` may read.

    So is whatever is computed from it at the worker.  Returns a new tensor that shares the data.

    >>> import torch, syft as sy
    >>> hook = sy.TorchHook(torch)
    >>> bob = sy.VirtualWorker(hook, id="bob")
    >>> x = torch.ones(2).private_tensor(allowed_users=["ann"]).send(bob, user="ann")
    >>> (x + x).get(user="ann")
    tensor([2., 2.])
    >>> (x + x).get()  # on behalf of nobody
    Traceback (most recent call last):
    ...
    syft.exceptions.PermissionDenied: ...
    """
    private = tensor.detach().requires_grad_(tensor.requires_grad)
    for name in ("_tags", "_description"):
        if name in tensor.__dict__:
            private.__dict__[name] = tensor.__dict__[name]
    set_guard(private, guard_of(tensor))
    set_guard(private, Guard(frozenset(allowed_users)))
    return private


# ----------------------------------------------------------------------------------- attributes


def location(tensor: torch.Tensor) -> Any:
    """The worker that holds the data (of a multi-pointer: a list); None when the data is here.

    >>> import torch, syft as sy
    >>> hook = sy.TorchHook(torch)
    >>> bob = sy.VirtualWorker(hook, id="bob")
    >>> x = torch.ones(2)
    >>> x.location is None, x.send(bob).location is bob
    (True, True)
    """
    link = _last_link(tensor)
    if isinstance(link, MultiPointerTensor):
        return link.locations
    return link.location if isinstance(link, PointerTensor) else None


def identity(tensor: torch.Tensor) -> int:
    """The tensor's id at its owner (of a pointer: the pointer's own).

    >>> import torch, syft as sy
    >>> hook = sy.TorchHook(torch)
    >>> x = torch.ones(2)
    >>> x.id == x.id, x.id == torch.ones(2).id
    (True, False)
    """
    link = pointer_of(tensor)
    if link is not None:
        return link.id
    number: int = tensor.__dict__.setdefault("_id", new_id())
    return number


def id_at_location(tensor: torch.Tensor) -> int | None:
    """The id of the remote tensor; None when the data is here.

    >>> import torch, syft as sy
    >>> hook = sy.TorchHook(torch)
    >>> bob = sy.VirtualWorker(hook, id="bob")
    >>> x = torch.tensor([1.0, 2.0]).send(bob)
    >>> x.id_at_location in bob.list_objects(), torch.ones(2).id_at_location
    (True, None)
    """
    link = pointer_of(tensor)
    return None if link is None else link.id_at_location
