"""Whether a private value may leave for another worker: the one check for every kind of request.

A worker cannot know what the owner of another worker does with a value, whatever guard goes along
with it: that one's memory is theirs.  So a value that is private may leave on behalf of a user who
may read it, and could fetch and send it as well.  On behalf of anybody else it may leave for those
workers alone that its owner named (``allow_destinations=``).  By default it names none.

The promise: on behalf of somebody who may not read a private value, neither the value nor anything
computed from it reaches a worker that the owner of each private input has not named.  Destinations
of inputs meet as users do.  A value takes its guard along, so the same holds at the next worker.
There the worker from which it came counts as named: the value was there already.

The check looks at guards, which are public, and at nothing else.  So that a value was refused tells
nothing about it.  It comes before anything has changed.  A value whose shape is private leaves on
behalf of those who may read it only: how much arrives would tell.

What was refused: to let the guard travel and trust the receiver.  Whoever chooses the receiver then
chooses who holds the data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from syft.exceptions import NotALeaf, PermissionDenied, ProviderDenied, UnsupportedOperation
from syft.ids import digest, has_content
from syft.ops.calls import argument
from syft.ops.nested import every_tensor
from syft.ops.table import NUMBERS
from syft.torch_private import ends_a_graph
from syft.workers.execution.public_sizes import note_like
from syft.workers.execution.successors import and_before
from syft.workers.labels.cell import Stored, unsealed
from syft.workers.labels.crossings import followers, goes_on
from syft.workers.labels.guards import Guard, meet_guards
from syft.workers.labels.holders import Holder
from syft.workers.labels.memory_labels import (
    bare_copy_of,
    copy_of,
    full_guard_of,
    protect,
    with_words_of,
)
from syft.workers.labels.reached_graph import reached_graph
from syft.workers.labels.walk import recorded_of


def may_leave(guard: Guard | None, to: str, user: str | None) -> bool:
    """Whether a value with this guard may go to worker ``to`` on behalf of ``user``.

    >>> guard = Guard(frozenset({"ann"}), destinations=frozenset({"alice"}))
    >>> may_leave(guard, "alice", None), may_leave(guard, "eve", None)
    (True, False)
    >>> may_leave(guard, "eve", "ann"), may_leave(None, "eve", None)
    (True, True)
    """
    if guard is None or guard.admits(user):
        return True
    return to in guard.destinations and not guard.shape_hidden


def check_leaving(
    guard: Guard | None, to: str, user: str | None, action: str, worker: str, id: int | None = None
) -> None:
    """Raise :class:`~syft.exceptions.PermissionDenied` if a value at ``worker`` may not leave.

    Whoever may read the value gets the error that stands for it, if it could not be computed.

    >>> check_leaving(Guard(frozenset({"ann"})), "eve", None, "move", "bob", 7)
    Traceback (most recent call last):
    ...
    syft.exceptions.PermissionDenied: move: object 7 on 'bob' may not go to 'eve': ...
    """
    if not may_leave(guard, to, user):
        raise PermissionDenied(action, worker, user, id, to=to)
    if guard is not None and guard.admits(user):
        guard.check_open()


def check_public_shape(guard: Guard | None, action: str) -> None:
    """Raise :class:`~syft.exceptions.UnsupportedOperation` for a value of private shape, whoever
    asks: what is sent of it is counted by others, as large as it is, until it is read.

    >>> check_public_shape(Guard(frozenset({"ann"}), shape_hidden=True), "a collective operation")
    Traceback (most recent call last):
    ...
    syft.exceptions.UnsupportedOperation: a collective operation has no rule for a value of ...
    """
    if guard is not None and guard.shape_hidden:
        instead = "choose elements with torch.where, which keeps the shape"
        raise UnsupportedOperation("a value of private shape", action, instead)


def check_dealing(guard: Guard | None, provider: str, worker: str) -> None:
    """Raise :class:`~syft.exceptions.ProviderDenied` if a worker may not deal for shares of a value
    at ``worker``: on behalf of nobody, also not of those who may read it.

    >>> check_dealing(Guard(frozenset({"ann"}), providers=frozenset({"carol"})), "eve", "bob")
    Traceback (most recent call last):
    ...
    syft.exceptions.ProviderDenied: share: ... and 'eve' is not among its allow_providers=: ...
    """
    if guard is not None and guard.providers is not None and provider not in guard.providers:
        raise ProviderDenied(worker, provider, tuple(sorted(guard.providers)))


# ------------------------------------------------------------------- gradients that follow a move


def reached_leaves(value: Any) -> list[torch.Tensor]:
    """The tensors at which graphs here end of an object that is a leaf: it, and what it was before.
    A leaf may be frozen meanwhile.

    >>> x = torch.ones(2, requires_grad=True); reached_leaves(x)
    []
    >>> y = x * 2; reached_leaves(x), reached_leaves(y)
    ([tensor([1., 1.], requires_grad=True)], [])
    """
    tensor = recorded_of(unsealed(value))
    if tensor is None or not tensor.is_leaf:
        return []
    return list(filter(ends_a_graph, and_before(tensor)))


def takes_over(left: torch.Tensor, value: Any) -> bool:
    """Give a leaf that had left what it is now that it comes back: values, gradient and words.
    Returns false if it cannot be the same tensor: it has another size or kind, or a guard by which
    fewer may read it.

    Values that have changed are written, so torch refuses a pass that needs those of before.

    >>> x = torch.ones(2, requires_grad=True)
    >>> takes_over(x, torch.zeros(2)), x, takes_over(x, torch.zeros(3))
    (True, tensor([0., 0.]), False)
    """
    guard = full_guard_of(left)
    if type(left) is not type(value) or meet_guards(guard, full_guard_of(value)) != guard:
        return False
    old, new = left.detach(), value.detach()
    kinds = [(each.shape, each.dtype, each.device, has_content(each)) for each in (old, new)]
    if kinds[0] != kinds[1] or not has_content(old):
        return False
    if digest(old) != digest(new):
        with torch.no_grad():
            left.copy_(new)
    with_words_of(value, left).requires_grad_(value.requires_grad)
    left.grad = value.grad
    return True


def check_no_graph(value: Any, guard: Guard | None = None) -> None:
    """Raise :class:`~syft.exceptions.NotALeaf` for an object whose gradients go on from it; if it
    is private, that does not say how it was computed.

    >>> check_no_graph(torch.ones(2, requires_grad=True).exp())
    Traceback (most recent call last):
    ...
    syft.exceptions.NotALeaf: Cannot send a tensor that is the result of a recorded computation ...
    """
    if goes_on(value):
        grad_fn = recorded_of(value).grad_fn  # type: ignore[union-attr]
        name = "a move" if grad_fn is None else type(grad_fn).__name__
        raise NotALeaf(name if guard is None else "a private one")


def duplicate_of(stored: Stored) -> torch.Tensor | Holder:
    """A copy of a stored object, with its gradient and as private; of a tensor whose gradients go
    on from it, they also go on from the copy.

    >>> duplicate_of(torch.ones(1))
    tensor([1.])
    """
    value = unsealed(stored)
    duplicate = value.duplicate() if isinstance(value, Holder) else copy_in_graph(value)
    protect(duplicate, full_guard_of(value))
    note_like(duplicate, value)
    return duplicate


def released(stored: Stored, widened: Callable[[Guard | None], Guard | None]) -> torch.Tensor:
    """A copy of a stored tensor, without gradient and graph, that has another guard: what
    ``widened`` makes of that of the tensor, or raises.

    Raises :class:`~syft.exceptions.UnsupportedOperation` for a plan and for data elsewhere.

    >>> released(torch.ones(1), lambda guard: guard)
    tensor([1.])
    """
    value = unsealed(stored)
    if isinstance(value, Holder):
        raise UnsupportedOperation("allow", "a plan", "send it again with a state of wider guards")
    if recorded_of(value) is None:
        instead = "call allow() where the data is, on what get() gives"
        raise UnsupportedOperation("allow", "a pointer to a pointer", instead)
    guard = widened(full_guard_of(value))
    duplicate = bare_copy_of(value)
    protect(duplicate, guard)
    note_like(duplicate, value)
    return duplicate


def copy_in_graph(tensor: torch.Tensor) -> torch.Tensor:
    """A copy as :func:`copy_of` makes it; but of a tensor whose gradients go on from it, they also
    go on from the copy.

    >>> x = torch.ones(2, requires_grad=True)
    >>> copy_in_graph(x * 2).grad_fn, copy_in_graph(x).grad_fn
    (<CloneBackward0 object at ...>, None)
    """
    if not (torch.is_grad_enabled() and goes_on(tensor)):
        return copy_of(tensor)
    return with_words_of(tensor, tensor.clone())


def check_gradients_leave(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    guard: Guard,
    worker: str,
    user: str | None,
) -> None:
    """Raise :class:`~syft.exceptions.PermissionDenied` if a backward pass would send a gradient
    with this guard to a worker where it may not go.

    >>> from syft.workers.labels.crossings import Follower
    >>> class Silent(Follower): came = send = lambda *given: None
    >>> x = torch.ones(2, requires_grad=True); Silent("eve").follow(x)
    >>> call = torch.Tensor.backward, [(x * 2).sum()], {}
    >>> check_gradients_leave(*call, Guard(frozenset()), "bob", None)
    Traceback (most recent call last):
    ...
    syft.exceptions.PermissionDenied: backward: this value on 'bob' may not go to 'eve': ...
    """
    for leaf in _receivers(function, args, kwargs):
        for place in sorted(followers(leaf)):
            check_leaving(guard, place, user, "backward", worker)


def _receivers(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> list[torch.Tensor]:
    """The leaves whose followers a backward pass calls: all within reach, or none if it is limited
    to some inputs."""
    if argument(NUMBERS[function], "inputs", args, kwargs) is not None:
        return []
    return reached_graph(every_tensor((args, dict(kwargs)))).leaves
