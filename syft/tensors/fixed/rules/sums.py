"""Rules for sums, means, running sums and the squared loss.

A sum adds the integers and is exact, or refused; of private integers it wraps, as their ring does.
A mean divides the sum by a whole number, rounded to the nearest, so its error is half a step for
any number of values.
"""

from __future__ import annotations

from typing import Any

import torch

from syft.crypto.kernels import Kernel, KernelCode
from syft.tensors.fixed.ring import added, check_sums, division_by_zero
from syft.tensors.fixed.fallback import fall_back
from syft.tensors.fixed.fixed_link import fixed, grid_among, integers, rule
from syft.tensors.fixed.rules.creation import is_float
from syft.tensors.fixed.rings.ring_link import ring_of

NONE, MEAN = 0, 1
"""Torch's numbers for the reductions of a loss; 2 is the sum."""


@rule("sum sum.dim_IntList nansum cumsum trace")
def sums(op: Any, x: Any, *rest: Any, dtype: Any = None) -> Any:
    """Add the integers up."""
    if not is_float(dtype):
        return fall_back(op, x, *rest, dtype=dtype)
    link = x.child
    check_sums(link.child, link.child.numel(), lambda child: op(child, *rest), link.grid.scale)
    return fixed(op(link.child, *rest), link.grid)


@rule("mean mean.dim")
def mean(op: Any, x: Any, *rest: Any, dtype: Any = None) -> Any:
    """Add the integers up and divide by their number."""
    link = x.child
    check_sums(link.child, link.child.numel(), lambda child: child.sum(*rest), link.grid.scale)
    total = torch.sum(link.child, *rest) if rest else torch.sum(link.child)
    if total.numel():
        total = link.ring.divide(total, _count(link.child) // total.numel())
    return fixed(total, link.grid)


@rule("mse_loss")
def mse_loss(op: Any, x: Any, y: Any, reduction: int = MEAN) -> Any:
    """Square the differences.

    Their sum is exact and rounded once.  For a mean of private ones each is rounded: their sum may
    be far larger than it, and leave the grid of products where nobody sees it.
    """
    grid = grid_among(op, (x, y))
    off = added(integers(op, x, grid), integers(op, y, grid), grid.scale, -1)
    ring, unit = ring_of(off), grid.scale**2
    if reduction == NONE or reduction == MEAN and not ring.readable:
        squares = fixed(ring.rescale(ring.multiply(off, off, unit), grid), grid)
        return squares if reduction == NONE else squares.mean()
    flat = off.flatten()
    total = ring.product(Kernel(KernelCode.MATMUL), flat, flat, unit)
    if reduction == MEAN:
        return fixed(ring.divide(total, _count(flat) * grid.scale), grid)
    return fixed(ring.rescale(total, grid), grid)


@rule("mse_loss_backward")
def mse_loss_backward(op: Any, grad: Any, x: Any, y: Any, reduction: int) -> Any:
    """Twice the difference times the gradient, rounded once."""
    grid = grid_among(op, (grad, x, y))
    off = added(integers(op, x, grid), integers(op, y, grid), grid.scale, -1)
    factor = 1 / _count(off) if reduction == MEAN else 1
    gradient, twice = integers(op, grad, grid), added(off, off, grid.scale)
    return fixed(ring_of(off, gradient).scaled_product(twice, gradient, factor, grid), grid)


def _count(child: torch.Tensor) -> int:
    """The number of values of a mean; none is a division by zero."""
    if not child.numel():
        raise division_by_zero()
    return child.numel()
