"""Torch functions that give a caller memory which they have not written, and what runs instead.

Freed memory may hold whatever a worker had there before.  The functions below are not flagged
``uninitialized`` in the op table, for what they return is written; but not all of the memory that
it lies in is, and a caller reaches that with ``as_strided`` or ``resize_``.  Found by calling every
operation twice, over freed memory of two contents (torch 2.13 on CPU).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final

import torch

from syft.ops.nested import EXACT_TENSOR_TYPES, leaves
from syft.workers.hardening.checked_operands import Given, tensor_of, values_of
from syft.workers.hardening.function_wrapper import Function, FunctionWrapper
from syft.workers.labels.walk import elements_of, storages_of, strided_parts_of

_COMPRESSED: Final = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
"""The layouts whose parts torch enlarges where they are."""


class ClearingBehind(FunctionWrapper):
    """A torch function that leaves zeros behind the elements of its results.

    A mean is computed in memory for all elements, of which one is written (``mse_loss``), and the
    elements that differ are fewer than there may have been (``unique_consecutive``).

    >>> loss = ClearingBehind(torch.nn.functional.mse_loss)
    >>> loss(torch.ones(3), torch.zeros(3)).as_strided((3,), (1,))
    tensor([1., 0., 0.])
    """

    __slots__ = ()

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        given = [part for leaf in leaves((args, kwargs)) for part in storages_of(leaf)]
        written = {storage._cdata: storage.nbytes() for storage in given}
        result = self.function(*args, **kwargs)
        for leaf in leaves(result):
            for part in strided_parts_of(leaf):
                storage = part.untyped_storage()
                first = max(end_of(part), written.get(storage._cdata, 0))
                if first < storage.nbytes():
                    clear_behind(storage, first)
        return result


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


def unfolding(function: Function) -> ClearingBehind:
    """What runs ``unfold``: its results have unwritten memory behind them, and so has its gradient.

    >>> unfolding(torch.nn.functional.unfold)(torch.ones(1, 1, 2, 2), 2).shape
    torch.Size([1, 4, 1])
    """
    return ClearingBehind(CopyingGradient(function))


def reduction_checked(given: Given) -> None:
    """Refuse the number of a reduction that there is not: the loss of no elements would not be
    written.

    >>> reduction_checked({"reduction": 4})
    Traceback (most recent call last):
    ...
    RuntimeError: expected a reduction from 0 to 2, got 4
    """
    reduction = given.get("reduction", 1)
    if isinstance(reduction, int) and not 0 <= reduction <= 2:
        raise RuntimeError(f"expected a reduction from 0 to 2, got {reduction}")


def batches_checked(given: Given) -> None:
    """Refuse batches of a packed sequence that are empty, or that grow: the lengths are counted
    down as they shrink, and would be written outside of their memory.

    >>> batches_checked({"batch_sizes": torch.tensor([1, 2])})
    Traceback (most recent call last):
    ...
    RuntimeError: _pad_packed_sequence: expected batch sizes over 0, none larger than the one before
    """
    sizes = values_of(given.get("batch_sizes"))
    if sizes is None or tensor_of(given, "batch_sizes") is None or sizes.ndim != 1:
        return
    if bool((sizes < 1).any()) or bool((sizes[1:] > sizes[:-1]).any()):
        raise RuntimeError(
            "_pad_packed_sequence: expected batch sizes over 0, none larger than the one before"
        )


def clearing(function: Function) -> Function:
    """The same function, with zeros in all memory that it allocates and does not write.

    Freed memory may contain private values of other users.

    >>> clearing(torch.empty)(2)
    tensor([0., 0.])
    >>> clearing(torch.empty) in {torch.empty}
    True
    """
    return _Clearing(function)


class _Clearing(FunctionWrapper):
    __slots__ = ()

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        known = {id(storage): (storage, storage.nbytes()) for storage in _memory((args, kwargs))}
        result = self.function(*args, **kwargs)
        if self.function is torch.Tensor.new and _is_data(args[1:]):
            return result
        for storage in _memory(result):
            _, written = known.get(id(storage), (storage, 0))
            clear_behind(storage, written)
        return result


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
            if storage.nbytes() > written:
                clear_behind(storage, written)
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
    return any(map(_is_part_beyond, strided_parts_of(value)))


def _is_part_beyond(tensor: torch.Tensor) -> bool:
    # torch enlarges no nested tensor
    return not tensor.is_nested and end_of(tensor) > tensor.untyped_storage().nbytes()


def end_of(tensor: torch.Tensor) -> int:
    """Where the last element of a strided tensor ends, in bytes from where its memory begins.

    >>> end_of(torch.arange(6.0)[1:3])
    12
    """
    if not tensor.numel():
        return 0
    last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    return int(tensor.storage_offset() + last + 1) * tensor.itemsize


def clear_behind(storage: torch.UntypedStorage, written: int) -> None:
    """Put zeros behind the bytes of a storage that were written.

    >>> x = torch.ones(3); clear_behind(x.untyped_storage(), 4); x
    tensor([1., 0., 0.])
    """
    memory = torch.empty(0, dtype=torch.uint8, device=storage.device)
    memory.set_(storage)[written:].zero_()


def _memory(values: Any) -> list[torch.UntypedStorage]:
    return [storage for value in leaves(values) for storage in storages_of(value)]


def _is_data(args: tuple[Any, ...]) -> bool:
    """Whether these arguments of ``x.new`` are the elements of the new tensor, and not its size."""
    return any(not isinstance(arg, (int, torch.Size)) for arg in args)
