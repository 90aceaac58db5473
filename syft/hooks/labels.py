"""The id, tags and description of a tensor, in this process or at another worker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from syft.chain.wrapper import first_link
from syft.exceptions import NotSendable, UnsupportedOperation
from syft.ids import new_id
from syft.program.recording.role_crossings import refuse_in_protocols
from syft.workers.client.transport import Owner
from syft.workers.labels.origin import names_in


def tensor_id(tensor: torch.Tensor) -> int:
    """The tensor's id at its owner; for a pointer, the id of the pointer.

    >>> hook = sy.TorchHook(torch)
    >>> x = torch.ones(2)
    >>> x.id == x.id, x.id == torch.ones(2).id
    (True, False)
    """
    pointer_id = first_link(tensor).id
    if pointer_id is not None:
        return pointer_id
    number: int = tensor.__dict__.setdefault("_id", new_id())
    return number


def id_at_location(tensor: torch.Tensor) -> int | None:
    """The id of the remote tensor; None when the data is here.

    >>> x = torch.tensor([1.0, 2.0]).send(bob)
    >>> x.id_at_location in bob.list_objects(), torch.ones(2).id_at_location
    (True, None)
    """
    return first_link(tensor).id_at_location


def tag(tensor: torch.Tensor, *tags: str, allow: Iterable[str] = ()) -> torch.Tensor:
    """Add tags, by which ``worker.search`` finds the tensor; returns the tensor.

    At a worker with tokens its sender finds it, or whoever has computed it, and the users whom
    ``allow`` names (of a tensor that is at a worker; ``send`` has that of others).

    Unless the local worker is a client only (``sy.local_worker.is_client_worker``, true by
    default), a tensor that is tagged here is put into its store, where others find it.
    Raises :class:`~syft.exceptions.NotSendable` for a tag that is not a string, and for ``allow``
    of a tensor that is here.

    >>> x = torch.ones(2).tag("#digits", "#train").send(bob)
    >>> [found.get() for found in bob.search("#digits")]
    [tensor([1., 1.])]
    """
    refuse_in_protocols("tag()", "tag what an execution gives")
    _check_text("tag", *tags)
    links, users = first_link(tensor).remote_links(), names_in("allow", allow)
    if users and not links:
        raise NotSendable("users with a tensor that is here", "name them with send(..., allow=)")
    for link in links:
        link.annotate(tuple(tags), None)
        link.connection.show_to(link.id_at_location, users)
    if not links:
        tensor.__dict__["_tags"] = tensor.__dict__.get("_tags", set()) | set(tags)
    return tensor


def set_description(tensor: torch.Tensor, description: str) -> torch.Tensor:
    """Say in words what the tensor is; returns the tensor.

    >>> torch.ones(2).describe("two ones").send(bob).description
    'two ones'
    """
    refuse_in_protocols("describe()", "describe what an execution gives")
    _check_text("description", description)
    links = first_link(tensor).remote_links()
    for link in links:
        link.annotate((), description)
    if not links:
        tensor.__dict__["_description"] = description
    return tensor


def tags(tensor: torch.Tensor) -> set[str]:
    """The tensor's tags.

    >>> torch.ones(2).tag("#digits").send(bob).tags
    {'#digits'}
    """
    links = first_link(tensor).remote_links()
    return links[0].tags if links else set(tensor.__dict__.get("_tags", ()))


def description(tensor: torch.Tensor) -> str | None:
    """The tensor's description.

    >>> hook = sy.TorchHook(torch)
    >>> print(torch.ones(2).description, torch.ones(2).describe("two ones").description)
    None two ones
    """
    links = first_link(tensor).remote_links()
    return links[0].description if links else tensor.__dict__.get("_description")


def set_own(name: str, tensor: torch.Tensor, value: Any) -> None:
    """Give a tensor that is here an attribute of its own in the place of one of the hook's.

    Raises :class:`~syft.exceptions.UnsupportedOperation` for a pointer, where this would change
    nothing at the worker.

    >>> torch.ones(2).send(bob).location = alice
    Traceback (most recent call last):
    ...
    syft.exceptions.UnsupportedOperation: PointerTensor has no rule for location = ...: ...
    """
    link = first_link(tensor)
    if name != "id" and link.remote_links():
        instead = "move(), tag() and describe() change it, and search(id) gives another pointer"
        raise UnsupportedOperation(f"{name} = ...", type(link).__name__, instead)
    tensor.__dict__[name] = value


def offer(tensor: torch.Tensor, owner: Owner) -> None:
    """Put a tensor of this process into its owner's store, under its own id, unless it is there."""
    number, store = tensor_id(tensor), owner.core.store
    if first_link(tensor).id_at_location is not None:
        return
    if number in store:
        store.tags.note(number)
    else:
        owner.core.hold(number, tensor)
        owner.core.own(number)
        store.show_to_owner((number,))


def _check_text(what: str, *texts: str) -> None:
    for text in texts:
        if not isinstance(text, str):
            raise NotSendable(f"a {what} of type {type(text).__name__}", f"a {what} is a string")
