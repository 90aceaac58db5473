"""Whose the memory is in which an object lies, and the leaves that its graph reaches.

An operation on somebody else's tensor may return that very tensor, or a view of it.  So before it
runs, the tensor, its storages and its gradient are marked with where they come from, and so are the
leaves of its graph.  What nobody has marked was reached through the caller's own objects alone, and
is the caller's.

A mark is a part of the label of memory, and of that of a tensor object
(:mod:`syft.workers.labels.memory_labels`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from syft.ops.nested import EXACT_TENSOR_TYPES
from syft.workers.labels.memory_labels import label_of, note
from syft.workers.labels.origin import ObjectOrigin
from syft.workers.labels.reached_graph import reached_graph
from syft.workers.labels.walk import gradient_of, recorded_of, storages_of, tensors_of


def mark(value: Any, origin: ObjectOrigin) -> None:
    """Mark an object, its memory, its gradient and the leaves of its graph, unless they have a mark
    of another owner.

    >>> x = torch.ones(2); y = x.view(-1)
    >>> mark(x, ObjectOrigin("ann", "me"))
    >>> [mine.owner for mine in memory_owners(y)], list(tensor_owners(y))
    (['ann'], [])
    """
    for tensor in tensors_of(value):
        recorded = recorded_of(tensor)
        _mark_whole(tensor, origin)
        if recorded is None:
            continue
        _mark(recorded, origin)
        if not recorded.is_leaf:
            _mark_graph(recorded, origin)
        elif recorded.grad is not None:
            _mark_whole(recorded.grad, origin)


def is_marked(value: Any, origin: ObjectOrigin) -> bool:
    """Whether :func:`mark` has nothing to add to an object: a strided tensor without a graph and a
    gradient; a fast path.

    >>> x, ann = torch.ones(2), ObjectOrigin("ann", "me")
    >>> before = is_marked(x, ann)
    >>> mark(x, ann); before, is_marked(x, ann)
    (False, True)
    """
    if type(value) not in EXACT_TENSOR_TYPES or value.layout is not torch.strided:
        return False
    if value.grad_fn is not None or not value.is_leaf or value.grad is not None:
        return False
    return label_of(value).owner is origin and label_of(value.untyped_storage()).owner is origin


def may_write(value: Any, identity: str | None) -> bool:
    """Whether it is certain that a caller may write to the memory of its own object: that of a
    strided tensor; a fast path.

    >>> x = torch.ones(2); mark(x[:1], ObjectOrigin("ann", "me"))
    >>> may_write(x, "ann"), may_write(x, "eve")
    (True, False)
    >>> may_write(torch.eye(2).to_sparse(), "ann")
    False
    """
    if type(value) not in EXACT_TENSOR_TYPES or value.layout is not torch.strided:
        return False
    origin = label_of(value.untyped_storage()).owner
    return origin is None or origin.admits(identity)


def _mark_whole(tensor: torch.Tensor, origin: ObjectOrigin) -> None:
    """Mark a tensor and its memory."""
    for place in (tensor, *storages_of(tensor)):
        _mark(place, origin)


def _mark(place: Any, origin: ObjectOrigin) -> None:
    present = label_of(place).owner
    if present is None or (present is not origin and present.owner == origin.owner):
        note(place, owner=origin)


def _mark_graph(recorded: torch.Tensor, origin: ObjectOrigin) -> None:
    """Mark the leaves behind a result, and the results among them that retain gradients."""
    walked = recorded.grad_fn, origin.writers
    if label_of(recorded).walked == walked:
        return
    note(recorded, walked=walked)
    owner = ObjectOrigin(origin.owner, origin.name)
    for tensor in _receivers(recorded):
        known = label_of(tensor).reached or origin
        if known.owner == origin.owner:
            known = known.with_writers(origin.writers)
        note(tensor, reached=known)
        gradient = gradient_of(tensor)
        if gradient is not None:
            _mark_whole(gradient, owner)


def tensor_owners(value: Any) -> Iterator[ObjectOrigin]:
    """Where the tensor objects of an object come from, as far as they were marked."""
    for tensor in tensors_of(value):
        yield from _marks(tensor)
        recorded = recorded_of(tensor)
        if recorded is not None and recorded is not tensor:
            yield from _marks(recorded)


def memory_owners(value: Any) -> Iterator[ObjectOrigin]:
    """Where the memory of an object comes from, as far as it was marked."""
    for storage in storages_of(value):
        yield from _marks(storage)


def leaf_owners(value: Any, beyond: bool) -> Iterator[ObjectOrigin]:
    """Where those tensors come from in which a backward pass adds to a gradient, and the memory of
    the gradients that it adds to.

    These are the tensors of ``value``, and ``beyond`` them the leaves of their graphs and the
    results that retain their gradient.

    >>> w = torch.ones(2, requires_grad=True); mark(w, ObjectOrigin("ann", "me"))
    >>> [owner.owner for owner in leaf_owners((w * 2).sum(), beyond=True)]
    ['ann']
    """
    for tensor in tensors_of(value):
        recorded = recorded_of(tensor)
        if recorded is None:
            continue
        for receiver in _receivers(recorded) if beyond else (recorded,):
            whose = [*_owner_of_gradient(receiver)]
            yield from whose
            gradient = gradient_of(receiver)
            if gradient is not None:
                known = {leaf.owner for leaf in whose}  # the leaf says who may add to its own
                memory = memory_owners(gradient)
                yield from (one for one in memory if one.owner not in known)


def out_of_sight(value: Any) -> bool:
    """Whether the memory of an object cannot be told: it is at another worker, or of a layout
    without storages.

    >>> out_of_sight(torch.ones(2)), out_of_sight(torch.ones(2).to_mkldnn())
    (False, True)
    """
    return any(not storages_of(tensor) for tensor in tensors_of(value))


def _marks(marked: Any) -> Iterator[ObjectOrigin]:
    origin = label_of(marked).owner
    if origin is not None:
        yield origin


def _owner_of_gradient(leaf: torch.Tensor) -> Iterator[ObjectOrigin]:
    """Whose a leaf is, and who may run a backward pass into it: also who was named for a result."""
    label = label_of(leaf)
    marks = [mark for mark in (label.owner, label.reached) if mark is not None]
    if marks:
        first, last = marks[0], marks[-1]
        yield first.with_writers(last.writers) if first.owner == last.owner else first


def _receivers(recorded: torch.Tensor) -> list[torch.Tensor]:
    """The tensors in which a backward pass over a tensor leaves gradients: leaves, and results of
    the graph for which ``retain_grad`` was called."""
    if recorded.grad_fn is None:  # nearly always: it has no graph
        return [recorded] if recorded.requires_grad else []
    graph = reached_graph([recorded])
    return [*graph.leaves, *graph.keeping(())]
