"""Torch functions that give a caller memory which they have not written, and what runs instead.

Freed memory may hold whatever a worker had there before.  The functions below are not flagged
``uninitialized`` in the op table, for what they return is written; but not all of the memory that
it lies in is, and a caller reaches that with ``as_strided`` or ``resize_``.  Found by calling every
operation twice, over freed memory of two contents (torch 2.13 on CPU).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from syft.ops.nested import EXACT_TENSOR_TYPES, leaves
from syft.workers.execution.checked_operands import Given, tensor_of, values_of
from syft.workers.execution.function_wrapper import FunctionWrapper
from syft.workers.execution.operation import clear_behind, end_of
from syft.workers.labels.walk import storages_of, strided_parts_of


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


def unfolding(function: Callable[..., Any]) -> ClearingBehind:
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
