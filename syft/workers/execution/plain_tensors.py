"""Plain tensors: what private results are, whether they were computed or stand for a failure.

A result may be a view of memory that was made for it, lie somewhere in a larger one, or be
conjugated when it is read.  Operations on it tell: a view cannot be detached in place.  Whether a
private command failed would be seen by that, if what stands for its results were unlike them in
anything.  So all of them are brought to one form, in memory of their extent and no more, and what
stands for a result has a graph that leads to the same tensors.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import torch


def is_plain(tensor: torch.Tensor, nbytes: int) -> bool:
    """Whether a strided tensor is no view, holds its values as they are, and lies in memory of this
    many bytes.

    >>> x = torch.ones(2, 3)
    >>> is_plain(x, 24), is_plain(x.clone()[1:], 12), is_plain(x.view(6), 24)
    (True, False, False)
    """
    if tensor._is_view() or tensor.untyped_storage().nbytes() != nbytes:
        return False
    return not tensor.is_conj() and not tensor.is_neg()


def plain_copy(tensor: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    """A plain tensor of these strides with the same values, and with a graph if the tensor has one.

    >>> x = torch.ones(3, 2)
    >>> plain_copy(x.t(), (3, 1)).stride(), plain_copy(torch.ones(2).requires_grad_(), (1,)).is_leaf
    ((3, 1), True)
    """
    made = torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device)
    if tensor.is_leaf:
        return made.copy_(tensor.detach()).requires_grad_(tensor.requires_grad)
    with torch.enable_grad():
        return made.copy_(tensor)


def reaching(tensor: torch.Tensor, reached: Iterable[torch.Tensor]) -> torch.Tensor:
    """The tensor itself, from now on with a graph that leads to these; they get zeros by it.

    >>> x = torch.ones(2, requires_grad=True)
    >>> reaching(torch.zeros(3), [x]).sum().backward(); x.grad
    tensor([0., 0.])
    """
    with torch.enable_grad():
        made = _Reaching.apply(tensor, *reached)  # type: ignore[no-untyped-call]
        return cast(torch.Tensor, made)


class _Reaching(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, *reached: torch.Tensor) -> torch.Tensor:
        ctx.reached = [(each.shape, each.dtype, each.device) for each in reached]
        ctx.mark_dirty(tensor)
        return tensor

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        zeros = (torch.zeros(shape, dtype=dtype, device=at) for shape, dtype, at in ctx.reached)
        return None, *zeros
