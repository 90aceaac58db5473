"""Rules for sums, means, running sums and the squared loss.

A sum adds the integers and is exact (it wraps, as the ring does).  A mean divides the sum by a
whole number, rounded to the nearest, so its error is half a step for any number of values.
"""

from __future__ import annotations

from typing import Any

import torch

from syft.tensors.fixed.rules.arithmetic import division_by_zero
from syft.tensors.fixed.grid import divide, rescale_
from syft.tensors.fixed.fallback import fall_back
from syft.tensors.fixed.fixed_link import fixed, grid_among, integers, rule
from syft.tensors.fixed.rules.creation import is_float
from syft.tensors.fixed.ring import multiply, product, rounded

NONE, MEAN = 0, 1
"""Torch's numbers for the reductions of a loss; 2 is the sum."""


@rule("sum sum.dim_IntList nansum cumsum trace")
def sums(op: Any, x: Any, *rest: Any, dtype: Any = None) -> Any:
    """Add the integers up."""
    if not is_float(dtype):
        return fall_back(op, x, *rest, dtype=dtype)
    link = x.child
    return fixed(op(link.child, *rest), link.grid)


@rule("mean mean.dim")
def mean(op: Any, x: Any, *rest: Any, dtype: Any = None) -> Any:
    """Add the integers up and divide by their number."""
    link = x.child
    total = torch.sum(link.child, *rest) if rest else torch.sum(link.child)
    if total.numel():
        total = divide(total, _count(link.child) // total.numel())
    return fixed(total, link.grid)


@rule("mse_loss")
def mse_loss(op: Any, x: Any, y: Any, reduction: int = MEAN) -> Any:
    """Square the differences; their sum or mean is exact and rounded once."""
    grid = grid_among(op, (x, y))
    off = integers(op, x, grid) - integers(op, y, grid)
    unit = grid.scale**2
    if reduction == NONE:
        return fixed(rescale_(multiply(off, off, unit), grid), grid)
    flat = off.flatten()
    total = product(torch.dot, flat, flat, flat.numel(), unit, native=True)
    if reduction == MEAN:
        return fixed(divide(total, _count(flat) * grid.scale), grid)
    return fixed(rescale_(total, grid), grid)


@rule("mse_loss_backward")
def mse_loss_backward(op: Any, grad: Any, x: Any, y: Any, reduction: int) -> Any:
    """Twice the difference times the gradient, rounded once."""
    grid = grid_among(op, (grad, x, y))
    off = integers(op, x, grid) - integers(op, y, grid)
    factor = 2 / _count(off) if reduction == MEAN else 2
    products = off.double() * integers(op, grad, grid) * (factor / grid.scale)
    return fixed(rounded(products, grid.scale), grid)


def _count(child: torch.Tensor) -> int:
    """The number of values of a mean; none is a division by zero."""
    if not child.numel():
        raise division_by_zero()
    return child.numel()
