"""Backward passes through writes to views, without freed memory in the gradients.

Where a view was written, torch takes the gradient of its part out of new memory that is laid out
like the tensor behind the view, and into which the gradient of that tensor was written.  If that
tensor has holes (every other element of a row), and the view reaches into them (``as_strided``,
``set_``, ``resize_``), nobody has written there: what freed memory held goes into the gradient of
what the view was multiplied with (torch 2.13).  So memory for a gradient is made of zeros in these
passes.

Such a pass takes several times as long, and a loop that writes its results into rows needs none of
this.  So it is done from the first time on that somebody here may have made such a view: that
one of these functions came upon a tensor with holes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any, Final

import torch

from syft.ops.nested import every_tensor, leaves
from syft.torch_private import TorchDispatchMode, is_non_overlapping_and_dense_or_false
from syft.workers.hardening.function_wrapper import FunctionWrapper
from syft.workers.hardening.unwritten import clear_behind
from syft.workers.labels.walk import elements_of, recorded_of, storages_of

_WRITE: Final = "CopySlices"
_NEW: Final = torch.ops.aten.new_empty_strided.default


class PassOverZeros(FunctionWrapper):
    """A torch function that runs a backward pass, with zeros in the memory that one through writes
    to views does not write.

    >>> holes, factor = torch.ones(6)[::2].detach(), torch.ones(5, requires_grad=True)
    >>> _ = NotingHoles(torch.as_strided)(holes, (5,), (1,)).mul_(factor)
    >>> PassOverZeros(torch.autograd.grad)(holes.sum(), factor)
    (tensor([1., 0., 1., 0., 1.]),)
    """

    __slots__ = ()

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        tensors = every_tensor(args, kwargs)
        if not (_HOLES_FOUND.is_set() and _writes_to_views(map(recorded_of, tensors))):
            return self.function(*args, **kwargs)
        with _Zeros():  # type: ignore[no-untyped-call]
            return self.function(*args, **kwargs)


class NotingHoles(FunctionWrapper):
    """A torch function that gives a tensor any sizes and strides, and notes where there are holes.

    >>> NotingHoles(torch.as_strided)(torch.ones(6), (3,), (2,))
    tensor([1., 1., 1.])
    """

    __slots__ = ()

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        result = self.function(*args, **kwargs)
        if not _HOLES_FOUND.is_set():
            tensors = map(elements_of, leaves((args, kwargs, result)))
            if any(map(_has_holes, tensors)):
                _HOLES_FOUND.set()
        return result


_HOLES_FOUND: Final = threading.Event()
"""Whether a tensor with holes has been given sizes and strides in this process."""


def _has_holes(tensor: torch.Tensor | None) -> bool:
    """Whether the tensor behind a view lies in more memory than it has elements."""
    if tensor is None or tensor.layout is not torch.strided or tensor.is_nested:
        return False
    behind = tensor if tensor._base is None else tensor._base
    return not is_non_overlapping_and_dense_or_false(behind)


class _Zeros(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode in which new memory of any strides is made of zeros."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func is _NEW:
            for storage in storages_of(result):
                clear_behind(storage, 0)
        return result


def _writes_to_views(tensors: Iterable[torch.Tensor | None]) -> bool:
    """Whether there is a write to a view in the graph of one of the tensors."""
    todo: list[Any] = [tensor.grad_fn for tensor in tensors if tensor is not None]
    seen = {None, *todo}
    while todo:
        node = todo.pop()
        if type(node).__name__ == _WRITE:
            return True
        for parent, _ in () if node is None else node.next_functions:
            if parent not in seen:
                seen.add(parent)
                todo.append(parent)
    return False
