"""More digits for what optimizers keep: running means of squares, and what is made of them.

Adam keeps ``v = b2 v + (1 - b2) g g``.  On a grid of 16 digits ``(1 - b2) g g`` is 0 for gradients
below 0.1, and so is the root of a small ``v``.  So a tensor that begins as ``zeros_like`` or
``full_like``, as the state of every optimizer of torch does, may hold its numbers a second time, as
integers with more digits (:class:`~syft.tensors.fixed.fixed_link.FinerNumbers`): the raw squares
have twice the digits of the grid, and the public factor ``1 - b2`` is not multiplied but noted.

The operations of torch's optimizers (``lerp_``, ``addcmul_``, ``mul_``, ``sqrt``, ``div``,
``add_``, ``addcdiv_``, …) have rules here that go on from these numbers.  They write the integers
on the grid too, rounded, so every other operation sees an ordinary tensor.  What another operation
has written is not in the finer numbers, which are passed over then.

Refused was a grid of its own for such a tensor: every rule would meet two grids, and a view taken
before the first step would be on the wrong one.  Refused was also an optimizer of our own.

Integers here are below 2^62; what that means for an optimizer is stated in ``domains``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from syft.exceptions import EncodingError
from syft.tensors.fixed import approximations
from syft.tensors.fixed.approximations import BITS, ONE
from syft.tensors.fixed.fixed_link import (
    FinerNumbers,
    FixedPrecisionTensor,
    attach,
    fixed,
    grid_among,
    integers,
    is_fixed,
    most_digits,
    refined,
)
from syft.tensors.fixed.grid import CEILING, Grid, encode
from syft.tensors.fixed.ring import added, division_by_zero
from syft.tensors.fixed.rings.integer_ring import Ring
from syft.tensors.fixed.rings.ring_link import overloads, ring_of
from syft.tensors.fixed.rules.arithmetic import divided, number_in

FACTOR_DIGITS = 23
"""The binary digits of a factor, so that a product may be up to 2^16."""

DIVIDEND_DIGITS = 27

QUOTIENT_UNIT = 1 << 24
"""The unit of a quotient that is not written to the grid."""

SMALL = 16
"""The steps below which a number that is added to zeros keeps digits of its own."""

SPARE_DIGITS = 8
"""The digits that a dividend has beyond the grid, over what is no root."""

ROOT_DIGITS = 7
ROOT_UNIT = 1 << (BITS + ROOT_DIGITS)
LARGEST_PLACE = 60

Rule = Callable[..., Any]


def rule(names: str) -> Callable[[Rule], Rule]:
    """Enter the decorated function for each of the overloads, where an operand has finer numbers.

    It is called with the operands, and returns None where the ordinary rule is as good.
    """

    def enter(function: Rule) -> Rule:
        for operation in overloads(names):
            assert operation not in FixedPrecisionTensor.finer_rules
            FixedPrecisionTensor.finer_rules[operation] = function
        return function

    return enter


def encoded_state(x: torch.Tensor, grid: Grid) -> torch.Tensor:
    """What an optimizer keeps of plain numbers, in fixed precision: with digits of its own.

    Raises :class:`~syft.exceptions.EncodingError` for a number that does not fit with these.

    >>> from syft.tensors.fixed.grid import make_grid
    >>> made = encoded_state(torch.tensor([1e-9]), make_grid(2, 16))
    >>> made, refined(made).integers, refined(made).unit == 2**32
    ((Wrapper)>FixedPrecisionTensor>tensor([0]), tensor([4]), True)
    """
    unit = most_digits(grid)
    made: Any = fixed(encode(x, grid), grid)
    values = x.double() * unit
    outside = values[~(values.abs() < CEILING)]
    if outside.numel():
        end = CEILING / unit
        raise EncodingError(repr(float(outside[0]) / unit), f"-{end:.4g} to {end:.4g}", _SCALE)
    begun = bool(values.any())
    numbers = FinerNumbers(values.round().to(torch.int64), unit if begun else 0, begun=begun)
    attach(made.child, replace(numbers, is_kept=True))
    return made  # type: ignore[no-any-return]


_SCALE = "scale the data down"


# ------------------------------------------------------------------------------------- arithmetic


def _operand(op: Any, value: Any, grid: Grid) -> FinerNumbers:
    """The numbers of an operand with all the digits that there are."""
    found = refined(value) if is_fixed(value) else None
    if found is not None and found.begun:
        return found
    return FinerNumbers(integers(op, value, grid), grid.scale)


def _at(ring: Ring, one: FinerNumbers, unit: int, factor: float = 1.0, times: float = 1.0) -> Any:
    """The integers of numbers, times a public number, in another unit."""
    return ring.times(one.integers, times * one.factor / factor * (unit / one.unit), 1)


def _short(ring: Ring, one: FinerNumbers, digits: int, times: float = 1.0) -> FinerNumbers:
    """Numbers with so many binary digits at most, and these if it is times a public number."""
    if one.is_root:
        return FinerNumbers(_at(ring, one, 1 << digits, 1.0, times), 1 << digits)
    unit = 1 << digits if times != 1 else min(one.unit, 1 << digits)
    return FinerNumbers(_at(ring, one, unit, one.factor, times), unit, one.factor)


def _product(ring: Ring, a: FinerNumbers, b: FinerNumbers) -> FinerNumbers:
    a, b = _short(ring, a, FACTOR_DIGITS), _short(ring, b, FACTOR_DIGITS)
    unit = a.unit * b.unit
    return FinerNumbers(ring.multiply(a.integers, b.integers, unit), unit, a.factor * b.factor)


def _limited(ring: Ring, one: FinerNumbers, grid: Grid) -> FinerNumbers:
    """Numbers with no more digits than sums may have."""
    unit = most_digits(grid)
    if one.unit <= unit:
        return one
    return FinerNumbers(_at(ring, one, unit, one.factor), unit, one.factor)


def _quotient(ring: Ring, a: FinerNumbers, b: FinerNumbers, value: float, unit: int) -> Any:
    """``value * a / b`` in a unit, where ``b`` is a root and has a number added, or not.

    A private divisor of zero gives 0, as nobody may see that it is zero.
    """
    dividend_factor = 1.0 if a.is_root else a.factor
    whole = value * dividend_factor * unit / (1 << DIVIDEND_DIGITS) * b.unit / b.factor
    if ring.readable:
        if not bool(b.integers.all()):
            raise division_by_zero()
        numbers = a.integers.double() * (value * a.factor / a.unit * b.unit / b.factor * unit)
        return ring.times(torch.ones_like(b.integers), numbers / b.integers, unit)
    mantissa, exponent = math.frexp(whole)
    dividend = _short(ring, a, DIVIDEND_DIGITS, mantissa).integers
    places = range(BITS, LARGEST_PLACE + 1)
    m, row = approximations.normalised(ring, b.integers, places)
    over = ring.divide(ring.multiply(dividend, approximations.inverse(ring, m), 1), ONE)
    weights = [1 << (LARGEST_PLACE - place) for place in places]
    raw = ring.multiply(over, approximations.weighted(row, weights), 1)
    return ring.times(raw, 2.0 ** (exponent - LARGEST_PLACE - 1), 1)


def _root(ring: Ring, x: Any) -> Any:
    """The root of integers below 2^60, times :data:`ROOT_UNIT`; off by 10^-4 of it at most."""
    if ring.readable:
        return ring.times(torch.ones_like(x), x.double().sqrt() * ROOT_UNIT, 1)
    places = range(LARGEST_PLACE)
    m, row = approximations.normalised(ring, x, places)
    root = approximations.product(ring, m, approximations.inverse_root(ring, m))
    weights = [round(math.sqrt(2.0 ** (place + 1)) * 2**ROOT_DIGITS) for place in places]
    return ring.multiply(root, approximations.weighted(row, weights), 1)


# ------------------------------------------------------------------------------------ the results


def _result(found: FinerNumbers, grid: Grid, ring: Ring) -> Any:
    """A new tensor with finer numbers."""
    result: Any = fixed(_at(ring, found, grid.scale), grid)
    if found.begun:
        attach(result.child, found)
    return result


def _write(x: Any, found: FinerNumbers) -> Any:
    """Write numbers into a tensor, with their digits.

    Private integers that an optimizer keeps are written in place: where a program fails they are
    what they were before it.
    """
    link, kept = x.child, refined(x)
    if found is kept:  # zeros times a number
        return x
    ring = link.ring
    link.child.copy_(_at(ring, found, link.grid.scale))
    if kept is not None and kept.is_kept:
        unit, factor = (kept.unit, kept.factor) if kept.unit else (found.unit, found.factor)
        values = _at(ring, found, unit, factor)
        kept.integers = values if ring.readable else kept.integers.copy_(values)
        kept.unit, kept.factor, kept.begun = unit, factor, True
        found = kept
    if found.begun:
        attach(link, found)
    return x


def _in_place(function: Rule) -> Rule:
    """The rule of an in-place form from that of the functional one."""

    def run(op: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_fixed(x):
            return None
        found = function(op, x, *args, in_place=True, **kwargs)
        return None if found is None else _write(x, found)

    return run


def _functional(function: Rule) -> Rule:
    """The rule of a functional form: a new tensor."""

    def run(op: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
        found = function(op, x, *args, in_place=False, **kwargs)
        link = next(each.child for each in (x, *args) if is_fixed(each))  # ``number * x`` too
        return None if found is None else _result(found, link.grid, link.ring)

    return run


def rules(functional: str, in_place: str) -> Callable[[Rule], Rule]:
    """Enter a function from operands to finer numbers, for both forms of operations."""

    def enter(function: Rule) -> Rule:
        rule(functional)(_functional(function))
        rule(in_place)(_in_place(function))
        return function

    return enter


# ---------------------------------------------------------------------------------- the operations


def _numbers(x: Any, in_place: bool = False) -> FinerNumbers | None:
    """The finer numbers of a tensor, if there are any that count: those of a tensor that was just
    made do in sums that are written to it."""
    found = refined(x) if is_fixed(x) else None
    return found if found is None or found.begun or in_place else None


def _sum(ring: Ring, one: FinerNumbers, other: FinerNumbers, times: float = 1.0) -> FinerNumbers:
    """``one + times * other``, with the digits of the first; of the other if the first is zeros."""
    if not one.unit:
        return FinerNumbers(other.integers, other.unit, other.factor * times)
    values = added(one.integers, _at(ring, other, one.unit, one.factor, times), one.unit)
    return FinerNumbers(values, one.unit, one.factor, one.is_root)


@rules("addcmul", "addcmul_")
def _addcmul(op: Any, x: Any, a: Any, b: Any, value: float = 1, in_place: bool = False) -> Any:
    """Add ``value * a * b``: a raw product, with the factor noted."""
    start = _numbers(x, in_place)
    if start is None or value == 0:
        return None
    grid, ring = x.child.grid, x.child.ring
    made = _product(ring, _operand(op, a, grid), _operand(op, b, grid))
    return _sum(ring, start, _limited(ring, made, grid), value)


@rules("lerp.Scalar", "lerp_.Scalar")
def _lerp(op: Any, x: Any, end: Any, weight: float, in_place: bool = False) -> Any:
    """``x + weight * (end - x)``."""
    start = _numbers(x, in_place)
    if start is None:
        return None
    grid, ring = x.child.grid, x.child.ring
    unit = start.unit or min(grid.scale << 16, most_digits(grid))
    factor = start.factor if start.unit else 1.0
    way = added(_at(ring, _operand(op, end, grid), unit, factor), start.integers, unit, -1)
    return FinerNumbers(added(start.integers, ring.times(way, weight, 1), unit), unit, factor)


@rules("mul.Tensor mul.Scalar", "mul_.Tensor mul_.Scalar")
def _mul(op: Any, x: Any, y: Any, in_place: bool = False) -> Any:
    """Times a number, which is noted; or a product of fewer digits."""
    if not is_fixed(x):
        x, y = y, x
    start, number = _numbers(x, in_place), number_in(y)
    if number is not None:
        return start and _times(start, number)
    start = _numbers(x)
    both = [one for one in (start, _numbers(y)) if one is not None]
    if not both or not y.is_floating_point() or any(one.is_kept for one in both):
        return None  # of what is kept, the product has the range of all products
    grid = x.child.grid
    return _product(x.child.ring, _operand(op, x, grid), _operand(op, y, grid))


def _times(one: FinerNumbers, number: float) -> FinerNumbers | None:
    if not one.unit:
        return one
    root = one.is_root and number > 0
    scaled_up = FinerNumbers(one.integers.clone(), one.unit, one.factor * number, root)
    return scaled_up if number else None


@rules("div.Tensor div.Scalar", "div_.Tensor div_.Scalar")
def _div(op: Any, x: Any, y: Any, in_place: bool = False) -> Any:
    """Over a number, which is noted; or over a root."""
    number = number_in(y)
    if number is not None:
        start = _numbers(x, in_place)
        return _times(start, 1 / number) if start and number else None
    divisor = _numbers(y)
    if not is_fixed(x) or divisor is None or not divisor.is_root:
        return None
    link = x.child
    dividend = _operand(op, x, link.grid)
    values = _quotient(link.ring, dividend, divisor, 1.0, QUOTIENT_UNIT)
    return FinerNumbers(values, QUOTIENT_UNIT)


@rule("reciprocal")
def _reciprocal(op: Any, x: Any) -> Any:
    """One over a root."""
    divisor = _numbers(x)
    if divisor is None or not divisor.is_root:
        return None
    grid, ring = x.child.grid, x.child.ring
    unit = 1 << DIVIDEND_DIGITS
    one = FinerNumbers(torch.full_like(divisor.integers, unit), unit)
    values = _quotient(ring, one, divisor, 1.0, QUOTIENT_UNIT)
    return _result(FinerNumbers(values, QUOTIENT_UNIT), grid, ring)


@rules("addcdiv", "addcdiv_")
def _addcdiv(op: Any, x: Any, a: Any, b: Any, value: float = 1, in_place: bool = False) -> Any:
    """Add ``value * a / b``, over a root."""
    dividend, divisor = _numbers(a), _numbers(b)
    grid, ring = grid_among(op, (x, a, b)), ring_of(*(one.child.child for one in (x, a, b)))
    if divisor is not None and divisor.is_root:
        values = _quotient(ring, dividend or _operand(op, a, grid), divisor, value, grid.scale)
    elif dividend is not None:
        above = _at(ring, dividend, grid.scale << SPARE_DIGITS)
        factor = grid.scale * value / 2.0**SPARE_DIGITS
        values = divided(above, integers(op, b, grid), factor, grid.scale)
    else:
        return None
    return FinerNumbers(added(x.child.child, values, grid.scale), grid.scale, begun=False)


@rules("add.Tensor add.Scalar", "add_.Tensor add_.Scalar")
def _add(op: Any, x: Any, y: Any, alpha: float = 1, in_place: bool = False) -> Any:
    """Add a number, or what is finer."""
    return _added(op, x, y, alpha, in_place)


@rules("sub.Tensor sub.Scalar", "sub_.Tensor sub_.Scalar")
def _sub(op: Any, x: Any, y: Any, alpha: float = 1, in_place: bool = False) -> Any:
    """Subtract a number, or what is finer."""
    return _added(op, x, y, -alpha, in_place)


def _added(op: Any, x: Any, y: Any, alpha: float, in_place: bool) -> Any:
    if not is_fixed(x):
        return None
    link = x.child
    grid, ring = link.grid, link.ring
    number = number_in(y)
    if number is not None:
        small = abs(number * alpha) * grid.scale < SMALL
        start = _numbers(x, in_place=small and not in_place)
        return start and _plus(start, number * alpha)
    start, addend = _numbers(x), _numbers(y)
    if start is None:
        if addend is None:
            return None
        values = added(link.child, _at(ring, addend, grid.scale, 1.0, alpha), grid.scale)
        return FinerNumbers(values, grid.scale, begun=False)
    return _sum(ring, start, addend or _operand(op, y, grid), alpha)


def _plus(one: FinerNumbers, number: float) -> FinerNumbers | None:
    """A number added; a root stays one, as it is never below zero."""
    if not one.unit:
        return FinerNumbers(one.integers + ONE, ONE, number) if number else None
    whole = round(number * one.unit / one.factor)
    if not abs(whole) < 1 << (LARGEST_PLACE + 1):
        end = one.factor / one.unit * 2.0 ** (LARGEST_PLACE + 1)
        raise EncodingError(repr(number), f"-{end:.4g} to {end:.4g}", _SCALE)
    root = one.is_root and number >= 0
    return FinerNumbers(added(one.integers, whole, one.unit), one.unit, one.factor, root)


@rules("sqrt", "sqrt_")
def _sqrt(op: Any, x: Any, in_place: bool = False) -> Any:
    """The root, with digits of its own."""
    start = _numbers(x)
    if start is None or start.factor < 0:
        return None
    values = _root(x.child.ring, start.integers)
    return FinerNumbers(values, ROOT_UNIT, math.sqrt(start.factor / start.unit), is_root=True)


@rule("maximum maximum.out")
def _maximum(op: Any, x: Any, y: Any, out: Any = None) -> Any:
    """The larger of two."""
    one, other = (refined(each) if is_fixed(each) else None for each in (x, y))
    if one is None or other is None or not (one.begun or other.begun):
        return None
    ring = x.child.ring
    first, second = (one, other) if one.unit else (other, one)
    values = _at(ring, second, first.unit, first.factor) if second.unit else second.integers
    found = FinerNumbers(torch.maximum(first.integers, values), first.unit, first.factor)
    return _result(found, x.child.grid, ring) if out is None else _write(out, found)


@rule("clone")
def _clone(op: Any, x: Any, **settings: Any) -> Any:
    """The numbers too."""
    found = refined(x)
    made: Any = fixed(op(x.child.child, **settings), x.child.grid)
    if found is not None and made.stride() == x.stride():
        attach(made.child, replace(found, integers=found.integers.clone()))
    return made


@rule("detach alias")
def _alias(op: Any, x: Any) -> Any:
    """The same memory, and the same numbers."""
    made: Any = fixed(op(x.child.child), x.child.grid)
    made.child.finer = x.child.finer
    return made
