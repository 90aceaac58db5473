"""Where a tensor is, and how it gets elsewhere: get, move, copy, and groups of messages.

Each function finds the first link of the tensor and asks it.  A tensor without a chain is answered
by :data:`~syft.chain.link.PLAIN`.
"""

from __future__ import annotations

import copy as copying
from collections.abc import Iterable
from typing import Any, Final

import torch

from syft.callers import warn_user
from syft.chain.link import PLAIN
from syft.chain.wrapper import Wrapper, first_link
from syft.exceptions import NothingToGet, UnsupportedOperation, UnusableSetting
from syft.hooks.sending import Location, names_of, refuse_shared
from syft.program.recording.role_crossings import ROLES, refuse_in_protocols, refuse_options
from syft.tensors.shared.shared_values import SPLIT_THERE, get_shared
from syft.workers.execution.leaving import copy_in_graph
from syft.workers.labels.origin import names_in

_PART: Final = "_part_of_module"


def location(tensor: torch.Tensor) -> Any:
    """The worker that holds the data (for a multi-pointer a list); None when the data is here.

    >>> x = torch.ones(2)
    >>> x.location is None, x.send(bob).location is bob
    (True, True)
    """
    refuse_in_protocols("x.location", "decide by what the function is given")
    return first_link(tensor).location


def get(
    tensor: torch.Tensor,
    user: str | None = None,
    sum_results: bool = False,
    wait: bool = True,
) -> Any:
    """Bring the tensor here, and remove it there.

    It comes without its graph, detached; ``x.move(sy.local_worker)`` keeps that.  A backward pass
    over a graph that stays, and that ends at a leaf which was brought here, is refused.

    A pointer to a pointer gives the inner pointer.  A shared tensor is put together here (but the
    first ``get()`` of what was shared at another worker gives the shared tensor); its
    shares stay while it lives, and so does a parameter of a module that was sent, which the module
    goes on using.  A multi-pointer gives every part, as a list or
    (``sum_results``) added up.  Gradients of leaves and tags come along.  ``user`` names the user
    who reads, which private tensors check.  Without ``wait`` it returns at once with a handle whose
    ``result()`` is the tensor; for a multi-pointer, with a list of handles.

    Raises :class:`~syft.exceptions.NothingToGet` for a tensor that is here,
    :class:`~syft.exceptions.ObjectNotFound` if it is gone,
    :class:`~syft.exceptions.PermissionDenied`.

    >>> x = torch.tensor([1.0, 2.0]).send(bob)
    >>> (x + x).get()
    tensor([2., 4.])
    >>> x.get(wait=False).result()
    tensor([1., 2.])
    """
    _check_user(user)
    roles = ROLES.get()
    if roles is not None:
        refuse_options("get", user=user, sum_results=sum_results, wait=not wait)
        return roles.get(tensor)
    link = tensor.child if type(tensor) is Wrapper else PLAIN
    shared = not link.at_function_level and link.shared_cell() is not None
    if wait:
        if shared:
            return _opened(tensor, user)
        return link.get(user, sum_results, _PART in tensor.__dict__)
    if shared:
        instead = "call get(), or sy.get_all() for several at once"
        raise UnsupportedOperation("get(wait=False)", "a shared tensor", instead)
    if sum_results:
        instead = "wait for the results, and add them up"
        raise UnsupportedOperation("get(sum_results=True, wait=False)", "a pointer", instead)
    handles = [link.start_get(user, keep=is_part(tensor)) for link in _remote_links(tensor, "get")]
    return handles[0] if len(handles) == 1 else handles


def _check_user(user: Any) -> None:
    if not (user is None or isinstance(user, str)):
        raise UnusableSetting("user", "the name of a user (a string)", f"a {type(user).__name__}")


def _opened(tensor: torch.Tensor, user: str | None) -> torch.Tensor:
    """A shared tensor, put together; but as it is the first time, if another worker split it."""
    if user is None and tensor.__dict__.pop(SPLIT_THERE, False):
        warn_user(
            "share() of a pointer gives the shared tensor already, and this get() does not open "
            "it: leave it out, or write decrypt()"
        )
        return tensor
    return get_shared([tensor], user)[0]


def move(
    tensor: torch.Tensor,
    location: Location,
    requires_grad: bool = False,
    user: str | None = None,
) -> Any:
    """Move a remote tensor to another worker, directly, and return a pointer to it there.

    The tensor keeps its id.  A graph behind it stays where it was, and is kept as long as the
    moved tensor: that arrives as a leaf that requires grad, and its gradients are sent back.  A
    leaf stays a leaf; graphs that were recorded with it stay too, and send their gradients after
    it.
    ``x.detach().move(worker)`` leaves the graph behind, and so does a move under
    ``torch.no_grad()``.  With ``requires_grad`` also a tensor without a graph arrives as a leaf
    that requires grad.  Raises :class:`~syft.exceptions.UnsupportedOperation` for a parameter of a
    module that was sent, which moves as a whole.

    >>> x = torch.ones(2, requires_grad=True).send(alice)
    >>> y = (x * 2).move(bob)
    >>> alice, bob
    (<VirtualWorker id:alice #objects:2>, <VirtualWorker id:bob #objects:1>)
    >>> (y * 3).sum().backward()
    >>> x.grad.get()
    tensor([6., 6.])
    """
    if is_part(tensor):
        instead = "move the whole: model.move(worker), or a copy of it: x.copy().move(worker)"
        raise UnsupportedOperation("move", "a parameter of a module", instead)
    return moved(tensor, location, requires_grad, user)


def moved(
    tensor: torch.Tensor, location: Location, requires_grad: bool = False, user: str | None = None
) -> Any:
    """The tensor that :func:`move` returns, also of a part of a module."""
    roles = ROLES.get()
    if roles is not None:
        refuse_options("move", requires_grad=requires_grad, user=user)
        return roles.send(tensor, (location,))
    refuse_shared(tensor)
    link = first_link(tensor)
    result = link.move(location, requires_grad, user)
    return tensor if type(result) is Wrapper and result.child is link else result


def mark_as_part(tensor: Wrapper) -> None:
    """Note that a module has this tensor as a parameter or buffer, and goes on using it."""
    tensor.__dict__[_PART] = True


def is_part(tensor: torch.Tensor) -> bool:
    """Whether a tensor is a parameter or buffer of a module that was sent.

    >>> model = torch.nn.Linear(2, 1).send(bob)
    >>> is_part(model.weight), is_part(model.weight.data), is_part(torch.ones(2).send(bob))
    (True, False, False)
    """
    return _PART in tensor.__dict__


def copy(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with its own memory, where the tensor is; for a pointer, a pointer to the copy.

    The copy of a leaf is a leaf, with a copy of its gradient; that of a result stays in its graph.

    >>> x = torch.tensor([1.0, 2.0]).send(bob)
    >>> y = x.copy()
    >>> y.add_(1).get(), x.get()
    (tensor([2., 3.]), tensor([1., 2.]))
    """
    if type(tensor) is Wrapper:
        return copying.deepcopy(tensor)
    return copy_in_graph(tensor)


def allow(
    tensor: torch.Tensor,
    *users: str | Iterable[str],
    destinations: Iterable[Location] = (),
    providers: Iterable[Location] = (),
) -> torch.Tensor:
    """A pointer to a copy of a private remote tensor that ``users`` may read too, that may go to
    the workers ``destinations`` on behalf of anybody, and for shares of which ``providers`` may
    deal.

    Only those to whom the data belongs may do that: whoever sent it or, for a result, whoever sent
    all private tensors from which it was computed.  The tensor itself, and what was computed from
    it before, stays as private as it was.  The copy has no gradient and no graph.

    Raises :class:`~syft.exceptions.PermissionDenied` for others, and
    :class:`~syft.exceptions.NothingToGet` for a tensor that is here.

    >>> x = torch.ones(2).private_tensor(allowed_users=["ann"]).send(bob, user="ann")
    >>> total = (x + x).allow("bea")
    >>> total.get(user="bea")
    tensor([2., 2.])
    >>> x.get(user="bea")
    Traceback (most recent call last):
    ...
    syft.exceptions.PermissionDenied: ...
    """
    places = names_of(destinations), names_of(providers)
    return first_link(tensor).allow(names_in("users", users), *places)


def remote_get(tensor: torch.Tensor, user: str | None = None) -> torch.Tensor:
    """Have the worker that holds a pointer fetch the tensor; returns the same pointer to it.

    For pointers to pointers.  Raises :class:`~syft.exceptions.NotALeaf` for a tensor that has a
    graph.

    >>> x = torch.ones(2).send(alice).send(bob)  # bob points to alice
    >>> x.remote_get().get(), alice
    (tensor([1., 1.]), <VirtualWorker id:alice #objects:0>)
    """
    if ROLES.get() is None:
        first_link(tensor).remote_get(user)
    else:  # a tensor of a role is where it was sent
        refuse_options("remote_get", user=user)
    return tensor


def remote_send(tensor: torch.Tensor, location: Location, user: str | None = None) -> torch.Tensor:
    """Have the worker that holds the tensor send it on and keep a pointer; returns the same
    pointer to that.

    ``user`` names the user who asks, which private tensors check.  Raises
    :class:`~syft.exceptions.NotALeaf` for a tensor that has a graph.

    >>> x = torch.ones(2).send(bob).remote_send(alice)  # bob points to alice
    >>> x.get()
    (Wrapper)>[PointerTensor | me:... -> alice:...]
    """
    refuse_in_protocols("remote_send()", "use y = x.move(role)")
    first_link(tensor).remote_send(location, user)
    return tensor


def begin_msg_group(tensor: torch.Tensor) -> torch.Tensor:
    """Hold back the messages to the tensor's worker until ``release_msg_group``; returns the
    tensor.

    Together the two calls do what ``with worker.group():`` does.
    Raises :class:`~syft.exceptions.NothingToGet` for a tensor that is here.

    >>> x = torch.ones(2).send(bob).begin_msg_group()
    >>> y = x + x  # not sent yet
    >>> y.release_msg_group().get()
    tensor([2., 2.])
    """
    for link in _remote_links(tensor, "begin_msg_group"):
        link.connection.message_group().begin()
    return tensor


def release_msg_group(tensor: torch.Tensor) -> torch.Tensor:
    """Send what was held back since ``begin_msg_group``; returns the tensor.

    Raises :class:`~syft.exceptions.NothingToGet` for a tensor that is here, and
    :class:`~syft.exceptions.ProgramError` if no group was begun.

    >>> torch.ones(2).send(bob).release_msg_group()
    Traceback (most recent call last):
    ...
    syft.exceptions.ProgramError: no group of messages for worker 'bob' is open: begin one first
    """
    for link in _remote_links(tensor, "release_msg_group"):
        link.connection.message_group().release()
    return tensor


def _remote_links(tensor: torch.Tensor, call: str) -> list[Any]:
    links = first_link(tensor).remote_links()
    if not links:
        raise NothingToGet(call)
    return links
