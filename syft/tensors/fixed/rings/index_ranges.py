"""Public indices are looked at where they are used: an error belongs to the line that is wrong.

Whoever holds the components finds a wrong index too, but later, and what was computed in between is
lost then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from syft.ops.nested import Arguments

aten = torch.ops.aten


def check_indices(op: Any, args: Arguments) -> None:
    """Raise IndexError where a public index of an operation is outside of its dimension.

    >>> check_indices(aten.take.default, (torch.ones(2, 2), torch.tensor([3, -4])))
    >>> check_indices(aten.embedding.default, (torch.ones(2, 2), torch.tensor([3])))
    Traceback (most recent call last):
    ...
    IndexError: index 3 is out of bounds for dimension 0 with size 2
    """
    check = _CHECKS.get(op.overloadpacket)
    if check is not None:
        check(*args)


def _along(x: Any, dim: int, index: Any, *_: Any) -> None:
    if x.dim():
        _check(index, dim % x.dim(), x.shape[dim], 0)


def _along_from_the_end(x: Any, dim: int, index: Any, *_: Any) -> None:
    if x.dim():
        _check(index, dim % x.dim(), x.shape[dim], -x.shape[dim])


def _of_rows(table: Any, index: Any, *_: Any) -> None:
    _check(index, 0, table.shape[0], 0)


def _of_all(x: Any, index: Any, *_: Any) -> None:
    _check(index, 0, x.numel(), -x.numel())


def _of_dimensions(x: Any, indices: Sequence[Any], *_: Any) -> None:
    dim = 0
    for index in indices:
        if index is not None and index.dtype in (torch.bool, torch.uint8):
            covered = x.shape[dim : dim + index.dim()]
            if covered != index.shape:
                raise IndexError(
                    f"the shape of the mask {list(index.shape)} does not match that of the indexed "
                    f"dimensions, {list(covered)}"
                )
            dim += index.dim()
        else:
            if index is not None:
                _check(index, dim, x.shape[dim], -x.shape[dim])
            dim += 1


def _check(index: Any, dim: int, size: int, first: int) -> None:
    if type(index) is not torch.Tensor or not index.numel():
        return
    low, high = (int(end) for end in index.aminmax())
    if low < first or high >= size:
        outside = low if low < first else high
        raise IndexError(f"index {outside} is out of bounds for dimension {dim} with size {size}")


_CHECKS: Final[dict[Any, Callable[..., None]]] = {
    aten.index_select: _along,
    aten.gather: _along,
    aten.scatter: _along,
    aten.scatter_add: _along,
    aten.index_add: _along,
    aten.index_copy: _along,
    aten.index_fill: _along_from_the_end,
    aten.embedding: _of_rows,
    aten.take: _of_all,
    aten.index: _of_dimensions,
    aten._unsafe_index: _of_dimensions,
    aten.index_put: _of_dimensions,
    aten._unsafe_index_put: _of_dimensions,
}
