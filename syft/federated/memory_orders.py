"""In which order a tensor's dimensions lie in memory, and tensors laid out in that of another.

An operation on two tensors of different orders reads one of them across its lines of cache, at a
fifth of the speed.  The gradients of a linear layer come transposed from ``vmap``, so parameters
and momenta that have the same order save more than any other change to a step of large layers.
"""

from __future__ import annotations

import torch

Order = tuple[int, ...]
"""Dimensions, the outermost in memory first."""


def order_of(tensor: torch.Tensor) -> Order:
    """The order of a stacked tensor; its first dimension is taken to be the outermost.

    >>> order_of(torch.ones(2, 3, 4).transpose(1, 2))
    (0, 2, 1)
    """
    strides = tensor.stride()
    return (0, *sorted(range(1, tensor.dim()), key=lambda dim: -strides[dim]))


def laid_out(tensor: torch.Tensor, order: Order) -> torch.Tensor:
    """The same numbers in such an order; a copy only where they have another one.

    >>> laid_out(torch.ones(2, 3, 4), (0, 2, 1)).stride()
    (12, 1, 3)
    """
    return restored(tensor.permute(order).contiguous(), order)


def restored(tensor: torch.Tensor, order: Order) -> torch.Tensor:
    """The view of which ``tensor`` is ``permute(order)``.

    >>> restored(torch.ones(2, 3, 4), (0, 2, 1)).shape
    torch.Size([2, 4, 3])
    """
    return tensor.permute([order.index(dim) for dim in range(tensor.dim())])
