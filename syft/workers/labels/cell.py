"""Sealed cells: what a handler gets in the place of an object that is private.

Whoever asks the store of a worker for an object gets the object itself only if everybody may have
all that can be reached from it: its elements, its gradient, the tensor that it is a view of, and
its graph.  Otherwise it is a :class:`SealedCell`, which is no tensor, and tells what is public
alone.  So a handler that forgets to ask the guard fails for what is private.  Shares are no cells:
they ask for the owner of their session themselves.

:func:`opened_for` gives the object to a user whom its guard admits, and may be used by everybody.
:func:`unsealed` asks for nothing: the modules that use it are listed, each with its reason, in
``tests/workers/labels/test_door.py``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from syft.chain.wrapper import Wrapper
from syft.ops.nested import EXACT_TENSOR_TYPES
from syft.workers.labels.guards import Guard
from syft.workers.labels.holders import Holder
from syft.workers.labels.memory_labels import full_guard_of, travelling_guard_of
from syft.workers.labels.walk import Sealed, recorded_of, tensors_of


class SealedCell(Sealed):
    """A stored object from which something private can be reached; see :func:`sealed`.

    >>> from syft.workers.labels.memory_labels import protect
    >>> x = torch.ones(2); protect(x, Guard(frozenset({"ann"}))); cell = sealed(x)
    >>> cell.shape
    Traceback (most recent call last):
    ...
    AttributeError: 'SealedCell' object has no attribute 'shape'
    >>> opened_for(cell, "ann", "bob") is x
    True
    """

    __slots__ = ("__object",)

    def __init__(self, value: torch.Tensor | Holder) -> None:
        self.__object = value

    @staticmethod
    def _unsealed(cell: SealedCell) -> Any:
        return cell.__object


Stored = Any | SealedCell
"""What the store hands out: an object, of whatever kind, of which all is public, or a cell."""


def sealed(value: Any) -> Stored:
    """The object itself if everybody may have all that can be reached from it, or else a cell.

    >>> x = torch.ones(2); sealed(x) is x, type(sealed(torch.ones(2, requires_grad=True)))
    (True, <class 'syft.workers.labels.cell.SealedCell'>)
    """
    confined = isinstance(value, Holder) and value.confined
    if confined or all(map(_is_public, tensors_of(value))):
        return value
    return SealedCell(value)


def _is_public(tensor: torch.Tensor) -> bool:
    """Whether a tensor is public, and nothing is behind it that may be private: no gradient of its
    own or of what it is a view of, and no graph, which leads to leaves and their gradients."""
    if tensor.requires_grad or travelling_guard_of(tensor) is not None:
        return False
    if type(tensor) not in EXACT_TENSOR_TYPES:
        return True
    base = tensor._base
    return tensor.grad is None and (base is None or (base.grad is None and not base.requires_grad))


def unsealed(stored: Stored) -> Any:
    """The object, whoever asks."""
    return SealedCell._unsealed(stored) if type(stored) is SealedCell else stored


def opened_for(stored: Stored, user: str | None, worker: str, action: str = "get") -> Any:
    """The object with its gradients, for a user who may read both.

    Raises :class:`~syft.exceptions.PermissionDenied` for others, and the error that stands for the
    object if it could not be computed.

    >>> from syft.workers.labels.memory_labels import protect
    >>> x = torch.ones(2); protect(x, Guard(frozenset({"ann"})))
    >>> opened_for(sealed(x), None, "bob")
    Traceback (most recent call last):
    ...
    syft.exceptions.PermissionDenied: get: ...
    """
    guard = guard_of(stored)
    if guard is not None:
        guard.check_admits(user, worker, action)
    return unsealed(stored)


# ------------------------------------------------------------------------------------ what is told


def guard_of(stored: Stored) -> Guard | None:
    """Who may read an object together with its gradients; None if everybody may.

    >>> guard_of(sealed(torch.ones(2, requires_grad=True))), guard_of(torch.ones(2))
    (None, None)
    """
    return travelling_guard_of(unsealed(stored))


def elements_guard_of(stored: Stored) -> Guard | None:
    """Who may read the elements of an object, whoever may read its gradients.

    >>> elements_guard_of(sealed(torch.ones(2))) is None
    True
    """
    return full_guard_of(unsealed(stored))


def kind_of(stored: Stored) -> type[Any]:
    """The class of an object, which is public.

    >>> kind_of(sealed(torch.ones(2, requires_grad=True)))
    <class 'torch.Tensor'>
    """
    return type(unsealed(stored))


def elsewhere(stored: Stored) -> Wrapper | None:
    """An object whose data is at another worker, where it has its guards; None for any other.

    >>> elsewhere(torch.ones(2)), type(elsewhere(torch.ones(2).send(bob)))
    (None, <class 'syft.chain.wrapper.Wrapper'>)
    """
    value = unsealed(stored)
    is_pointer = type(value) is Wrapper and value.child.at_function_level
    return value if is_pointer and value.child.tensor_behind() is None else None


def summary_of(stored: Stored) -> tuple[Any, ...]:
    """The public facts about a stored object: tags, description, and the shape of a tensor.

    For a :class:`~syft.workers.labels.holders.Holder` the shape is None, and its own summary is the
    fourth item.

    >>> summary_of(torch.ones(2))
    ([], None, torch.Size([2]))
    """
    value = unsealed(stored)
    if isinstance(value, Holder):
        return sorted(value.tags), value.description, None, value.summary()
    guard, words, here = full_guard_of(value), value.__dict__, recorded_of(value)
    shape = None if here is None or (guard is not None and guard.shape_hidden) else here.shape
    return sorted(words.get("_tags", ())), words.get("_description"), shape


def forget_gradient(stored: Stored) -> None:
    """Take the gradient of a stored leaf away.

    >>> x = torch.ones(2, requires_grad=True); x.grad = torch.ones(2); forget_gradient(x); x.grad
    """
    unsealed(stored).grad = None


def annotate(stored: Stored, tags: Iterable[str], description: str | None) -> None:
    """Add tags to an object, and set its description unless that is None.

    >>> x = torch.ones(2); annotate(x, ["#a"], None); summary_of(x)[:2]
    (['#a'], None)
    """
    words = unsealed(stored).__dict__
    if tags:
        words["_tags"] = words.get("_tags", set()).union(tags)
    if description is not None:
        words["_description"] = description
