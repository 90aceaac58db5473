"""Labels: what is noted on memory about a value, in one record, and what reads it.

A label is an attribute of memory, and not an entry in a list of ids or on a tensor object.  So all
tensors over the same memory (a view, ``x.data``, the tensor that a chain wraps) are as private and
as much somebody's, no matter how and when they are made.  A tensor object has a label of its own
for what is not true of its memory: whose the object is, and what stands for a view that could not
be made.  What is handed over with a tensor (its gradient) has memory of its own, and
:func:`travelling_guard_of` is asked for both.

A record never changes; another one takes its place.  So a copy of a tensor's attributes, or of
those of its memory, may have the same one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import torch

from syft.ops.nested import EXACT_TENSOR_TYPES
from syft.program.recording.environment.snapshot import LABELS
from syft.workers.labels.guards import Guard, meet_guards
from syft.workers.labels.holders import Holder
from syft.workers.labels.origin import ObjectOrigin
from syft.workers.labels.walk import gradients_behind, places_of

LABEL: Final = "_label"
"""The attribute of memory, and of a tensor object, that holds its label."""


class Label(NamedTuple):
    """What is noted on memory, or on a tensor object.

    ``guard`` says who may read it, and ``owner`` whose it is.  ``most`` bounds a size that is
    private: the bytes of memory, or the sizes of a tensor and the byte of its memory where it
    begins.  ``viewed`` says of memory of a private size whether a command has made a view there.
    On a tensor, ``reached`` says whose result it was behind as a leaf, and who was named for that,
    and ``walked`` which graph behind it has been labelled.

    >>> x = torch.ones(2); note(x, most=((2,), 0)); label_of(x).most, label_of(torch.ones(2)).most
    (((2,), 0), None)
    """

    guard: Guard | None = None
    owner: ObjectOrigin | None = None
    most: Any = None
    viewed: bool = False
    reached: ObjectOrigin | None = None
    walked: Any = None


BLANK: Final = Label()
"""The label of memory on which nothing is noted."""


def label_of(place: Any) -> Label:
    """The label of a storage, or of a tensor object."""
    label: Label = place.__dict__.get(LABEL, BLANK)
    return label


def note(place: Any, **fields: Any) -> None:
    """Note something in the label of a storage, or of a tensor object.

    What has nothing noted on it has no label: buffers without any are used again.
    """
    label = place.__dict__.get(LABEL, BLANK)._replace(**fields)
    if label == BLANK:
        place.__dict__.pop(LABEL, None)
    else:
        place.__dict__[LABEL] = label


def full_guard_of(value: Any) -> Guard | None:
    """The guard of a tensor, or of all tensors in a holder; None if everyone may read it.

    It is noted on the memory in which a tensor lies, also on that of what a chain wraps, so it is
    that of every other tensor over the same memory.  Only a tensor without memory in this process
    has the guard itself, and what stands for a view that could not be made.

    >>> x = torch.ones(2); protect(x, Guard(frozenset({"ann"})))
    >>> full_guard_of(x[:1]), full_guard_of(x * 1)
    (Guard(users=frozenset({'ann'}), ...), None)
    """
    if type(value) in EXACT_TENSOR_TYPES and value.layout is torch.strided:
        guard: Guard | None = value.untyped_storage().__dict__.get(LABEL, BLANK).guard
        return meet_guards(guard, value.__dict__.get(LABEL, BLANK).guard)
    guard = None
    for place in places_of(value):
        guard = meet_guards(guard, label_of(place).guard)
    return guard


def protect(value: Any, guard: Guard | None) -> None:
    """Add a guard to a tensor, or to all tensors of a holder: to their memory.

    The result is the meet with the guard that is there already.  None changes nothing.
    """
    if guard is not None:
        for place in places_of(value):
            note(place, guard=meet_guards(label_of(place).guard, guard))


def travelling_guard_of(tensor: torch.Tensor | Holder) -> Guard | None:
    """The guard of a tensor together with its gradients, which are sent along with it."""
    guard, gradients = full_guard_of(tensor), gradients_behind(tensor)
    return combined((tensor, *gradients)) if gradients else guard


def protect_all(tensor: torch.Tensor | Holder, guard: Guard | None) -> None:
    """The same for a tensor that has arrived with a guard, and for the gradients that it brought.

    >>> x = torch.ones(2, requires_grad=True); x.grad = torch.ones(2)
    >>> protect_all(x, Guard(frozenset())); full_guard_of(x.grad)
    Guard(users=frozenset(), shape_hidden=False, ...)
    """
    protect(tensor, guard)
    for gradient in gradients_behind(tensor):
        protect(gradient, guard)


def combined(values: Iterable[Any]) -> Guard | None:
    """The guard of a result computed from ``values``: the meet of all their guards."""
    result: Guard | None = None
    for value in values:
        result = meet_guards(result, full_guard_of(value))
    return result


def copy_of(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of a tensor: values, grad, class (tensor or parameter), tags and guard; no graph.

    The gradient is as private as the one that is copied.

    >>> copied = copy_of(torch.ones(2, requires_grad=True)); copied.requires_grad, copied.is_leaf
    (True, True)
    """
    duplicate = bare_copy_of(tensor)
    protect(duplicate, full_guard_of(tensor))
    if tensor.is_leaf and tensor.grad is not None:
        duplicate.grad = tensor.grad.detach().clone()
        protect(duplicate.grad, full_guard_of(tensor.grad))
    return duplicate


LABELS.append(lambda tensor, copy: protect(copy, full_guard_of(tensor)))  # constants of programs


def bare_copy_of(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of a tensor without gradient and graph, that nothing guards: values, class and tags.

    >>> x = torch.ones(2); protect(x, Guard(frozenset())); full_guard_of(bare_copy_of(x)) is None
    True
    """
    duplicate = tensor.detach().clone()
    if tensor.requires_grad:
        duplicate.requires_grad_()
    if isinstance(tensor, torch.nn.Parameter):
        if type(tensor) is torch.nn.Parameter:
            duplicate = torch.nn.Parameter(duplicate.detach(), requires_grad=tensor.requires_grad)
        else:
            duplicate._is_param = True
    return with_words_of(tensor, duplicate)


def with_words_of(tensor: torch.Tensor, duplicate: torch.Tensor) -> torch.Tensor:
    """Give ``duplicate`` the tags and the description of a tensor, and return it."""
    for name in ("_tags", "_description"):
        if name in tensor.__dict__:
            duplicate.__dict__[name] = tensor.__dict__[name]
    return duplicate
