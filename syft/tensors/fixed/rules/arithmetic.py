"""Rules for addition, multiplication, division, whole powers and rounding.

Two fixed tensors: the integers are added; a product is rescaled to the grid, rounded to the
nearest, and a product or sum beyond the ring is an error (``ring``).

A tensor and a Python number (or a plain tensor of no dimensions, which torch treats alike): the
number is not put on the grid, where a learning rate of 1e-6 would become 0; the integers are
multiplied by it in float64 and rounded once.  The error is at most half a step of the grid.

A quotient of the integers is computed in float64 and rounded once, with the same error.  A plain
divisor is not put on the grid either.  Division by zero is an error, because the grid has no
infinity.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import torch

from syft.tensors.fixed.grid import Excess, Grid
from syft.tensors.fixed.fallback import fall_back
from syft.tensors.fixed.fixed_link import (
    fixed,
    grid_among,
    integers,
    is_fixed,
    rule,
    target_of,
)
from syft.chain.wrapper import Wrapper
from syft.tensors.fixed import approximations
from syft.tensors.fixed.ring import added, check_sum, division_by_zero, quotient
from syft.tensors.fixed.rings.ring_link import as_integers, is_ring, ring_of

LARGEST_WHOLE_POWER = 4
"""For larger powers one float64 power is more accurate than repeated products."""


def number_in(value: Any) -> float | None:
    """The value of a Python number or of a plain tensor of no dimensions; None for other operands.

    >>> number_in(2.5), number_in(torch.tensor(3)), number_in(torch.ones(2))
    (2.5, 3, None)
    """
    if isinstance(value, (int, float)):
        return value
    if type(value) is not Wrapper and value.dim() == 0 and not value.is_complex():
        number: float = value.item()
        return number
    return None


def times(child: torch.Tensor, number: float | torch.Tensor, grid: Grid) -> torch.Tensor:
    """Multiply integers by plain numbers, which are not rounded themselves; to the nearest.

    Raises :class:`~syft.exceptions.EncodingError` if a product does not fit.

    >>> from syft.tensors.fixed.grid import make_grid
    >>> times(torch.tensor([10_000_000]), 1e-5, make_grid(2, 16))
    tensor([100])
    """
    return ring_of(child).times(child, number, grid.scale)


def divided(numerators: torch.Tensor, divisor: Any, factor: float, unit: int) -> torch.Tensor:
    """``numerators / divisor * factor`` to the nearest; a public divisor of zero is an error."""
    ring = ring_of(numerators, divisor)
    if ring.readable:
        if isinstance(divisor, torch.Tensor) and divisor.is_floating_point():
            divisor = divisor.double()
        return quotient(numerators, divisor, factor, unit)
    found: torch.Tensor = approximations.divide(ring, numerators, divisor, factor, unit)
    return found


# ---------------------------------------------------------------------------------------- addition


def _addend(op: Any, y: Any, alpha: float, grid: Grid) -> Any:
    """The integers of ``alpha * y``."""
    number = y if isinstance(y, (int, float)) else None
    if number is not None:
        return integers(op, number * alpha, grid, Excess.ENDS)
    child = integers(op, y, grid, Excess.ENDS)
    return child if alpha == 1 else times(child, alpha, grid)


@rule("add.Tensor add.Scalar")
def add_values(op: Any, x: Any, y: Any, alpha: float = 1) -> Any:
    """Add the integers."""
    if is_fixed(x) and is_fixed(y):
        one: Any = x.child
        other: Any = y.child
        if alpha == 1:
            return fixed(added(one.child, other.child, one.grid.scale), one.grid)
    grid = grid_among(op, (x, y))
    start = integers(op, x, grid, Excess.ENDS)
    return fixed(added(start, _addend(op, y, alpha, grid), grid.scale), grid)


@rule("sub.Tensor sub.Scalar")
def subtract_values(op: Any, x: Any, y: Any, alpha: float = 1) -> Any:
    """Subtract the integers."""
    grid = grid_among(op, (x, y))
    return fixed(added(integers(op, x, grid), _addend(op, y, alpha, grid), grid.scale, -1), grid)


@rule("rsub.Tensor rsub.Scalar")
def rsub(op: Any, x: Any, y: Any, alpha: float = 1) -> Any:
    """``y - alpha * x``."""
    grid = grid_among(op, (x, y))
    return fixed(added(integers(op, y, grid), _addend(op, x, alpha, grid), grid.scale, -1), grid)


@rule("add_.Tensor add_.Scalar")
def add_(op: Any, x: Any, y: Any, alpha: float = 1) -> Any:
    """Add to the integers in place."""
    return _add_into(op, x, y, alpha, 1)


@rule("sub_.Tensor sub_.Scalar")
def sub_(op: Any, x: Any, y: Any, alpha: float = 1) -> Any:
    """Subtract from the integers in place."""
    return _add_into(op, x, y, alpha, -1)


def _add_into(op: Any, x: Any, y: Any, alpha: float, sign: int) -> Any:
    link = target_of(op, x)
    addend = _addend(op, y, alpha, link.grid)
    check_sum(link.child, addend, link.grid.scale, sign)
    link.child.add_(addend, alpha=sign)
    return x


@rule("neg")
def negate_values(op: Any, x: Any) -> Any:
    """Negate the integers."""
    return fixed(torch.neg(x.child.child), x.child.grid)


# ---------------------------------------------------------------------------------- multiplication


def raw_product(op: Any, x: Any, y: Any, grid: Grid) -> torch.Tensor:
    """The product of the integers of two operands, not yet rescaled to the grid."""
    one, other = integers(op, x, grid), integers(op, y, grid)
    return ring_of(one, other).multiply(one, other, grid.scale**2)


def product(op: Any, x: Any, y: Any, grid: Grid) -> torch.Tensor:
    """The product of two operands on the grid."""
    raw = raw_product(op, x, y, grid)
    return ring_of(raw).rescale(raw, grid)


@rule("mul.Tensor mul.Scalar")
def multiply_values(op: Any, x: Any, y: Any) -> Any:
    """Multiply the integers, and rescale the product to the grid.

    A plain factor that is not on the grid multiplies as it is, as a number does.
    """
    if not is_fixed(x):
        x, y = y, x
    link = x.child
    grid = link.grid
    number = number_in(y)
    if number is not None:
        return fixed(times(link.child, number, grid), grid)
    if not (y.is_floating_point() or y.is_complex()):
        ring = ring_of(link.child, *([y] if is_ring(y) else []))
        return fixed(ring.multiply(link.child, as_integers(y), grid.scale), grid)
    if not _is_on_grid(y, grid):
        return fixed(times(link.child, y.double(), grid), grid)
    return fixed(product(op, x, y, grid), grid)


def _is_on_grid(y: torch.Tensor, grid: Grid) -> bool:
    """Whether numbers are multiples of the grid's step, which rounds none of them then."""
    if is_fixed(y) or is_ring(y) or y.is_complex() or y.is_meta:
        return True
    steps = y.double() * grid.scale
    return bool((steps == steps.round()).all().item())


@rule("pow.Tensor_Scalar")
def power(op: Any, x: Any, exponent: float) -> Any:
    """Whole powers from 1 to 4 by multiplication; other powers by the fallback."""
    if exponent not in range(1, LARGEST_WHOLE_POWER + 1):
        return fall_back(op, x, exponent)
    square = multiply_values(op, x, x) if exponent > 1 else None
    return _WHOLE_POWERS[int(exponent)](op, x, square)


_WHOLE_POWERS: dict[int, Any] = {
    1: lambda op, x, square: x.clone(),
    2: lambda op, x, square: square,
    3: lambda op, x, square: multiply_values(op, square, x),
    4: lambda op, x, square: multiply_values(op, square, square),
}


@rule("addcmul")
def addcmul(op: Any, x: Any, a: Any, b: Any, value: float = 1) -> Any:
    """Add ``value * a * b``, rounded once."""
    grid = grid_among(op, (x, a, b))
    raw = raw_product(op, a, b, grid)
    scaled = ring_of(raw).rescale_times(raw, value, grid)
    return fixed(added(integers(op, x, grid), scaled, grid.scale), grid)


@rule("lerp.Scalar")
def lerp(op: Any, x: Any, end: Any, weight: float) -> Any:
    """``x + weight * (end - x)``."""
    grid = grid_among(op, (x, end))
    start = integers(op, x, grid)
    way = added(integers(op, end, grid), start, grid.scale, -1)
    return fixed(added(start, times(way, weight, grid), grid.scale), grid)


@rule("lerp.Tensor")
def lerp_tensor(op: Any, x: Any, end: Any, weight: Any) -> Any:
    """``x + weight * (end - x)``, with a weight for each element."""
    grid = grid_among(op, (x, end, weight))
    start, stop = integers(op, x, grid), integers(op, end, grid)
    way = fixed(added(stop, start, grid.scale, -1), grid)
    return add_values(op, fixed(start, grid), multiply_values(op, way, weight))


@rule("leaky_relu")
def leaky_relu(op: Any, x: Any, slope: float = 0.01) -> Any:
    """Multiply negative values by the slope."""
    link = x.child
    return fixed(
        torch.where(link.child > 0, link.child, times(link.child, slope, link.grid)), link.grid
    )


@rule("leaky_relu_backward")
def leaky_relu_backward(op: Any, grad: Any, x: Any, slope: float, of_result: bool) -> Any:
    """Multiply the gradient by the slope where the input was negative."""
    grid = grid_among(op, (grad, x))
    child = integers(op, grad, grid)
    return fixed(torch.where(integers(op, x, grid) > 0, child, times(child, slope, grid)), grid)


@rule("softshrink_backward hardshrink_backward")
def shrink_backward(op: Any, grad: Any, x: Any, bound: float) -> Any:
    """The gradient where the input was further from zero than the bound."""
    grid = grid_among(op, (grad, x))
    child, ints = integers(op, grad, grid), integers(op, x, grid)
    most = math.floor(Fraction(bound) * grid.scale)
    below = torch.where(ints < -most, child, 0)
    return fixed(torch.where(ints > most, child, below), grid)


@rule("_prelu_kernel")
def prelu(op: Any, x: Any, weight: Any) -> Any:
    """Multiply negative values by the weight."""
    grid = grid_among(op, (x, weight))
    child = integers(op, x, grid)
    scaled = product(op, x, weight, grid)
    return fixed(torch.where(child > 0, child, scaled), grid)


@rule("_prelu_kernel_backward")
def prelu_backward(op: Any, grad: Any, x: Any, weight: Any) -> Any:
    """The gradients of the input and of the weight (before it is summed)."""
    grid = grid_among(op, (grad, x, weight))
    positive = integers(op, x, grid) > 0
    child = integers(op, grad, grid)
    for_x = torch.where(positive, child, product(op, grad, weight, grid))
    for_weight = product(op, grad, x, grid).masked_fill(positive, 0)
    return fixed(for_x, grid), fixed(for_weight, grid)


@rule("bernoulli_.float")
def bernoulli_(op: Any, x: Any, p: float = 0.5, generator: Any = None) -> Any:
    """Draw zeros and ones in place; every dropout starts with this."""
    target_of(op, x).child.bernoulli_(p, generator=generator).mul_(x.child.grid.scale)
    return x


@rule("native_dropout")
def native_dropout(op: Any, x: Any, p: float, train: bool | None) -> Any:
    """Drop elements and scale the others up; the second result is the mask, a plain tensor."""
    link = x.child
    drop = p if train is not False else 0.0
    mask = torch.empty(x.shape, dtype=torch.bool, device=x.device).bernoulli_(1 - drop)
    kept = link.child * mask
    child = times(kept, 1 / (1 - drop), link.grid) if drop < 1 else kept
    return fixed(child, link.grid), mask


@rule("native_dropout_backward")
def native_dropout_backward(op: Any, grad: Any, mask: Any, scale: float) -> Any:
    """Drop the same elements of the gradient."""
    link = grad.child
    return fixed(times(link.child * mask, scale, link.grid), link.grid)


# ---------------------------------------------------------------------------------------- division


@rule("div.Tensor div.Scalar")
def div(op: Any, x: Any, y: Any) -> Any:
    """Divide the integers, rounded once."""
    grid = grid_among(op, (x, y))
    numerators = integers(op, x, grid)
    divisor = number_in(y)
    if divisor is not None:
        return fixed(divided(numerators, divisor, 1, grid.scale), grid)
    if not is_fixed(y) and not y.is_complex():  # of any real dtype, and not rounded to the grid
        return fixed(divided(numerators, y, 1, grid.scale), grid)
    return fixed(divided(numerators, integers(op, y, grid), grid.scale, grid.scale), grid)


@rule("div.Tensor_mode div.Scalar_mode")
def div_mode(op: Any, x: Any, y: Any, rounding_mode: str | None = None) -> Any:
    """Divide and round to a whole number: exact on the integers."""
    if rounding_mode is None:
        return div(op, x, y)
    grid = grid_among(op, (x, y))
    numerators, divisors = _dividends(op, x, y, grid)
    return fixed(torch.div(numerators, divisors, rounding_mode=rounding_mode) * grid.scale, grid)


@rule("floor_divide floor_divide.Scalar")
def floor_divide(op: Any, x: Any, y: Any) -> Any:
    """Divide and round down to a whole number."""
    return div_mode(op, x, y, "floor")


@rule("remainder.Tensor remainder.Scalar remainder.Scalar_Tensor fmod.Tensor fmod.Scalar")
def remainder(op: Any, x: Any, y: Any) -> Any:
    """The remainder of the integers."""
    grid = grid_among(op, (x, y))
    numerators, divisors = _dividends(op, x, y, grid)
    function = torch.fmod if op.overloadpacket is torch.ops.aten.fmod else torch.remainder
    return fixed(function(numerators, divisors), grid)


def _dividends(op: Any, x: Any, y: Any, grid: Grid) -> tuple[torch.Tensor, torch.Tensor]:
    numerators, divisors = (
        child if isinstance(child, torch.Tensor) else torch.tensor(child, device="cpu")
        for child in (integers(op, x, grid), integers(op, y, grid))
    )
    if not divisors.all().item():
        raise division_by_zero()
    return numerators, divisors


@rule("reciprocal")
def reciprocal(op: Any, x: Any) -> Any:
    """Divide the square of the scale by the integers."""
    link = x.child
    if not link.ring.readable:
        return fixed(approximations.invert(link.ring, link.child, link.grid.scale), link.grid)
    one = torch.ones_like(link.child)
    return fixed(divided(one, link.child, link.grid.scale**2, link.grid.scale), link.grid)


@rule("addcdiv")
def addcdiv(op: Any, x: Any, a: Any, b: Any, value: float = 1) -> Any:
    """Add ``value * a / b``, rounded once."""
    grid = grid_among(op, (x, a, b))
    quotients = divided(
        integers(op, a, grid), integers(op, b, grid), grid.scale * value, grid.scale
    )
    return fixed(added(integers(op, x, grid), quotients, grid.scale), grid)


# ---------------------------------------------------------------------------------------- rounding


@rule("sign sgn")
def sign(op: Any, x: Any) -> Any:
    """-1, 0 or 1."""
    return fixed(torch.sign(x.child.child) * x.child.grid.scale, x.child.grid)


@rule("floor ceil trunc frac round")
def to_whole(op: Any, x: Any) -> Any:
    """Round to whole numbers (``round``: halves to even); ``frac`` keeps the fraction."""
    link = x.child
    return fixed(_WHOLE[op.overloadpacket](link.child, link.grid.scale), link.grid)


def _round_to_even(child: torch.Tensor, scale: int) -> torch.Tensor:
    doubled = child * 2 + scale
    whole = torch.div(doubled, 2 * scale, rounding_mode="floor")
    tie = torch.remainder(doubled, 2 * scale) == 0
    return (whole - (tie & (whole % 2 == 1)).to(torch.int64)) * scale


_WHOLE = {
    torch.ops.aten.floor: lambda child, scale: child - child.remainder(scale),
    torch.ops.aten.ceil: lambda child, scale: child + (-child).remainder(scale),
    torch.ops.aten.trunc: lambda child, scale: child - child.fmod(scale),
    torch.ops.aten.frac: lambda child, scale: child.fmod(scale),
    torch.ops.aten.round: _round_to_even,
}
