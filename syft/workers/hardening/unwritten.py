"""Torch functions that give a caller memory which they have not written, and what runs instead.

Freed memory may hold whatever a worker had there before.  Some functions say so of themselves
(``empty``); the op table flags them ``uninitialized``.  What others return is written, but not all
of the memory that it lies in is, and a caller reaches that with ``as_strided`` or ``resize_``.

A backward pass through a write to a view takes the gradient of the view out of new memory that is
laid out like the tensor behind it, and into which the gradient of that tensor was written.  If that
tensor has holes (every other element of a row), and the view reaches into them (``as_strided``,
``set_``, ``resize_``), nobody has written there: what freed memory held goes into the gradient of
what the view was multiplied with.  So memory for gradients is made of zeros in these passes.  Such
a pass takes several times as long, and a loop that writes its results into rows needs none of this.
So it is done from the first time on that one of these functions came upon a tensor with holes.
"""

from __future__ import annotations

import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Final

import torch

from syft.ops.nested import EXACT_TENSOR_TYPES, Function, every_tensor, leaves
from syft.torch_private import TorchDispatchMode, is_non_overlapping_and_dense_or_false
from syft.workers.labels.reached_graph import reached_graph
from syft.workers.labels.walk import elements_of, storages_of, strided_parts_of

_COMPRESSED: Final = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
"""The layouts whose parts torch enlarges where they are."""


class FunctionWrapper(ABC):
    """A function that calls another one, and does something before or after. Abstract.

    It equals the function, so that sets of functions which hold that one hold this one too: what is
    decided by the function is decided alike, whatever it is wrapped in.

    >>> class Twice(FunctionWrapper):
    ...     def __call__(self, /, *args, **kwargs):
    ...         return self.function(*args, **kwargs) * 2
    >>> Twice(abs)(-3), Twice(Twice(abs))(-3), Twice(Twice(abs)) in {abs}
    (6, 12, True)
    """

    __slots__ = ("function",)

    def __init__(self, function: Function) -> None:
        self.function = function

    @abstractmethod
    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""

    def __eq__(self, other: object) -> bool:
        return other is self or bool(other == self.function)

    def __hash__(self) -> int:
        return hash(self.function)


class OnACopy(FunctionWrapper):
    """``torch.cov``, which writes to its operand where that has one observation and weights.

    >>> x = torch.tensor([[2.0]]); OnACopy(torch.cov)(x, correction=0, aweights=torch.ones(1)), x
    (tensor(0.), tensor([[2.]]))
    """

    __slots__ = ()

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self.function(*map(_kept, args), **{key: _kept(one) for key, one in kwargs.items()})


def _kept(value: Any) -> Any:
    """A tensor, or a copy of one that has a single column."""
    is_tensor = isinstance(value, torch.Tensor)
    return value.clone() if is_tensor and (value.numel() == 1 or value.shape[1:] == (1,)) else value


class Clearing(FunctionWrapper):
    """The same function, with zeros in all memory that it allocates; with ``beyond``, in what lies
    beyond the elements of its results alone.

    A mean is computed in memory for all elements, of which one is written (``mse_loss``), and the
    elements that differ are fewer than there may have been (``unique_consecutive``).

    >>> Clearing(torch.empty)(2)
    tensor([0., 0.])
    >>> loss = Clearing(torch.nn.functional.mse_loss, beyond=True)
    >>> loss(torch.ones(3), torch.zeros(3)).as_strided((3,), (1,))
    tensor([1., 0., 0.])
    """

    __slots__ = ("_beyond",)

    def __init__(self, function: Function, beyond: bool = False) -> None:
        super().__init__(function)
        self._beyond = beyond

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        given = _memory((args, kwargs))
        written = {storage._cdata: storage.nbytes() for storage in given}
        result = self.function(*args, **kwargs)
        if self.function is torch.Tensor.new and _is_data(args[1:]):
            return result
        for part in (part for leaf in leaves(result) for part in strided_parts_of(leaf)):
            storage = part.untyped_storage()
            first = end_of(part) if self._beyond else 0
            clear_beyond(storage, max(first, written.get(storage._cdata, 0)))
        return result


def _is_data(args: tuple[Any, ...]) -> bool:
    """Whether these arguments of ``x.new`` are the elements of the new tensor, and not its size."""
    return any(not isinstance(arg, (int, torch.Size)) for arg in args)


class CopyingGradient(FunctionWrapper):
    """A torch function whose gradient lies in memory of its own: that of ``unfold`` is a part of a
    padded one, and what was padded is not written.

    >>> x = torch.ones(1, 1, 3, 3, requires_grad=True)
    >>> unfold = CopyingGradient(torch.nn.functional.unfold)
    >>> unfold(x, 1, padding=1).sum().backward()
    >>> x.grad.untyped_storage().nbytes()
    36
    """

    __slots__ = ()

    def __call__(self, /, input: Any, *args: Any, **kwargs: Any) -> Any:
        recorded = type(input) in EXACT_TENSOR_TYPES and input.requires_grad
        if recorded and torch.is_grad_enabled():
            input = input * 1
        return self.function(input, *args, **kwargs)


# ------------------------------------------------------------------------------------- enlarging


@contextlib.contextmanager
def sizes_within_memory(values: Any) -> Iterator[None]:
    """A context in which a tensor of ``values`` that cannot be enlarged keeps the size it has, and
    in which what fails leaves zeros in the memory that it has given to one.

    Torch gives a tensor its new size first and the memory for it then.  Where it cannot (numpy sees
    the memory, as it does once a tensor has been sent, or there is not as much), the tensor would
    be read and written beyond its memory by what comes next (torch 2.13).  Where it can, and fails
    afterwards (a result of another dtype, a memory format that does not fit), nobody has written
    that memory.

    >>> import numpy
    >>> x = torch.from_numpy(numpy.ones(2))
    >>> with sizes_within_memory([x]):
    ...     x.resize_(4)
    Traceback (most recent call last):
    ...
    RuntimeError: Trying to resize storage that is not resizable
    >>> x
    tensor([1., 1.], dtype=torch.float64)
    """
    tensors = [
        tensor
        for value in leaves(values)
        if (tensor := elements_of(value)) is not None and strided_parts_of(tensor)
    ]
    before = [(tensor, _as_it_is(tensor)) for tensor in tensors]
    memory = [(storage, storage.nbytes()) for storage in _memory(tensors)]
    try:
        yield
    except BaseException:
        for storage, written in memory:
            clear_beyond(storage, written)
        raise
    finally:
        for tensor, kept in before:
            if is_beyond_memory(tensor):
                tensor.data = kept


class KeepingSizes(FunctionWrapper):
    """A function that runs within :func:`sizes_within_memory` of its operands.

    >>> KeepingSizes(torch.Tensor.resize_)(torch.ones(1), 1)
    tensor([1.])
    """

    __slots__ = ()

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        with sizes_within_memory((args, kwargs)):
            return self.function(*args, **kwargs)


def _as_it_is(tensor: torch.Tensor) -> torch.Tensor:
    """Another tensor over the same memory, which stays as it is when this one is given a size."""
    if tensor.layout not in _COMPRESSED:
        return tensor.detach()
    compressed, plain, values = (part.detach() for part in strided_parts_of(tensor))
    return torch.sparse_compressed_tensor(
        compressed, plain, values, tensor.shape, layout=tensor.layout, check_invariants=False
    )


def is_beyond_memory(value: Any) -> bool:
    """Whether a tensor has more elements than its memory, which only a fault of torch can do.

    >>> is_beyond_memory(torch.ones(2)), is_beyond_memory("text")
    (False, False)
    """
    return any(  # torch enlarges no nested tensor
        not part.is_nested and end_of(part) > part.untyped_storage().nbytes()
        for part in strided_parts_of(value)
    )


def end_of(tensor: torch.Tensor) -> int:
    """Where the last element of a strided tensor ends, in bytes from where its memory begins.

    >>> end_of(torch.arange(6.0)[1:3])
    12
    """
    if not tensor.numel():
        return 0
    last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    return int(tensor.storage_offset() + last + 1) * tensor.itemsize


def clear_beyond(storage: torch.UntypedStorage, written: int) -> None:
    """Put zeros beyond the bytes of a storage that were written.

    >>> x = torch.ones(3); clear_beyond(x.untyped_storage(), 4); x
    tensor([1., 0., 0.])
    """
    if written < storage.nbytes():
        memory = torch.empty(0, dtype=torch.uint8, device=storage.device)
        memory.set_(storage)[written:].zero_()


def _memory(values: Any) -> list[torch.UntypedStorage]:
    return [storage for value in leaves(values) for storage in storages_of(value)]


# ------------------------------------------------------------------------- gradients through holes


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
        if not (_HOLES_FOUND.is_set() and _writes_to_views(every_tensor(args, kwargs))):
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
    return not (behind.is_contiguous() or is_non_overlapping_and_dense_or_false(behind))


class _Zeros(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode in which new memory of any strides is made of zeros."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func is torch.ops.aten.new_empty_strided.default:
            for storage in storages_of(result):
                clear_beyond(storage, 0)
        return result


def _writes_to_views(tensors: list[torch.Tensor]) -> bool:
    """Whether there is a write to a view in the graph of one of the tensors."""
    return any(type(node).__name__ == "CopySlices" for node in reached_graph(tensors).nodes)
