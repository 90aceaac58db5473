"""Functions of private numbers, from products, truncations and comparisons alone.

Nothing here reads a value: the operations and their number depend on shapes and on the grid only.

* **Normalisation.**  Comparing ``x`` with every power of two, all in one round, gives the place of
  its leading bit as a row of zeros and a single one.  A public weight for each place, summed under
  that row, is a private power of two that brings ``x`` to [1/2, 1) (Catrina and Saxena, "Secure
  computation with fixed-point numbers", 2010).  The row also undoes it, by other weights.
* **Reciprocal**: Newton's ``w <- w (2 - m w)`` from ``2.9142 - 2 m`` on [1/2, 1) (same paper); the
  error 0.086 is squared in each of 3 steps.  **Inverse root**: ``y <- y (3 - m y^2) / 2`` from
  ``1.787 - 0.81 m``, error 0.023, 3 steps.
* **Exponential**: ``exp(x) = exp(t) exp(y)`` with ``y`` in [0, ln 2) and ``t`` the point of the
  grid next to a multiple of ln 2, found by comparisons; ``exp(y)`` by interpolation in Chebyshev
  nodes.  The limit ``(1 + x/2^k)^(2^k)`` of CrypTen needs fewer comparisons, but is off by
  ``x^2 / 2^(k+1)``, which is 3 % at -4 for k = 8.
* **Logarithm**: of the normalised number by interpolation, plus a weight for the place (the split
  of Aly and Smart, "Benchmarking privacy preserving scientific operations", 2019).
* **Error function**: Abramowitz and Stegun 7.1.26, off by 1.5e-7.
* **Smooth rectifiers** (softplus, SiLU, GELU, Mish) are ``max(x, 0)`` and an even curve that goes
  to zero: of ``min(|x|, limit)``, so nothing leaves the ring however large ``x`` is.

Numbers inside are on a grid of ``BITS`` binary digits, where a product of two needs 2 * BITS + 2
bits.  ``scale`` is the integer for 1 in the arguments and results.  The errors are those of the
results; on 16 bits every function here is off by less than two steps in its range.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from syft.exceptions import EncodingError
from syft.tensors.fixed.ring import division_by_zero
from syft.tensors.fixed.rings.integer_ring import Ring
from syft.tensors.fixed.rings.ring_link import as_bits, as_integers, is_ring

BITS = 24
ONE = 1 << BITS
NEWTON_STEPS = 3

EXP = (0.9999998984, 1.000010545, 0.4998237314, 0.1677363425, 0.03877049235, 0.0118357633)
"""exp on [0, ln 2], in rising powers; off by 1.1e-7."""

LOG = (
    -3.061406045,
    11.23671252,
    -27.4113791,
    50.56480525,
    -65.09605804,
    56.78934763,
    -32.02096368,
    10.53663234,
    -1.537690889,
)
"""The natural logarithm on [1/2, 1], in rising powers; off by 3.9e-8."""

GATE_END = 32
"""From here on ``x / (1 + exp(x))`` is 0 on every grid."""

NORMAL_END = 8
"""From here on the normal distribution's tail is 0 on every grid."""

GELU_SLOPE = 2 * math.sqrt(2 / math.pi)

ERF_SLOPE = 0.3275911
ERF = (0.0, 0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)


def product(ring: Ring, a: Any, b: Any) -> Any:
    """The product of two numbers of ``BITS`` digits."""
    return ring.divide(ring.multiply(a, b, ONE * ONE), ONE)


def polynomial(ring: Ring, coefficients: Sequence[float], x: Any) -> Any:
    """A polynomial in a number of ``BITS`` digits, by Horner's scheme."""
    whole = [round(coefficient * ONE) for coefficient in coefficients]
    total = ring.divide(x * whole[-1], ONE) + whole[-2]
    for coefficient in reversed(whole[:-2]):
        total = product(ring, total, x) + coefficient
    return total


def one_row(bits: Any) -> Any:
    """From ``x >= t`` for rising ``t``: a single one at the last threshold that is reached."""
    above = torch.cat([bits[1:], torch.zeros_like(bits[:1])])
    return bits - above


def weighted(row: Any, weights: Sequence[int]) -> Any:
    """The weight of the place at which the row has its one; 0 if it has none."""
    levels = torch.tensor(weights, device=row.device).view(-1, *[1] * (row.dim() - 1))
    return (row * levels).sum(0)


def normalised(ring: Ring, x: Any, places: range) -> tuple[Any, Any]:
    """``x / 2**(i + 1)`` in [1/2, 1) with ``BITS`` digits, and the row that holds its place ``i``.

    ``places`` are the leading bits that ``x`` may have; below them (0, negative) and beyond the row
    is empty, and so are the weights that are summed under it: the inverse of what is beyond is 0.
    """
    row = one_row(ring.reached(x, [1 << i for i in (*places, places[-1] + 1)]))[:-1]
    power = weighted(row, [1 << (places[-1] - i) for i in places])
    return ring.divide(ring.multiply(x, power, 1), 1 << (places[-1] + 1 - BITS)), row


# ---------------------------------------------------------------------------------------- quotients


def inverse(ring: Ring, m: Any) -> Any:
    """``1 / m`` for m in [1/2, 1], both with ``BITS`` digits; off by 1e-6 of it."""
    w = round(2.9142 * ONE) - 2 * m
    for _ in range(NEWTON_STEPS):
        w = product(ring, w, 2 * ONE - product(ring, m, w))
    return w


_TOO_LARGE = 2.0**60
"""A public factor from which on the weights of a private quotient have no place in 64 bits."""


def quotient(ring: Ring, a: Any, b: Any, factor: float, places: range) -> Any:
    """``factor * a / b`` for positive ``b`` with its leading bit in ``places``.

    ``|a|`` must be below 2^36; ``domains`` says how large ``a / b`` may be.  Off by one step, by
    1e-6 of the result, and by ``2 * factor / b`` steps.  The digits of the factor go where
    ``a / m`` is rounded, so that the weights are powers of two: a rounded one of few bits would be
    off by much of itself.
    """
    m, row = normalised(ring, b, places)
    half, bits = math.frexp(factor)
    spare = max(places[-1] + 2 - bits, 4)
    weights = [1 << (bits + spare - i - 2) for i in places]
    over_m = ring.times(ring.multiply(a, inverse(ring, m), 1), 2 * half / ONE, 1)
    return ring.divide(ring.multiply(over_m, weighted(row, weights), 1), 1 << spare)


def reciprocal(ring: Ring, b: Any, factor: float, places: range) -> Any:
    """``factor / b`` for positive ``b`` with its leading bit in ``places``; 0 for 0."""
    m, row = normalised(ring, b, places)
    spare = max(0, 36 - max(math.frexp(factor)[1] - places[0], 0))
    weights = [round(factor * 2.0 ** (spare - i - 1)) for i in places]
    raw = ring.multiply(inverse(ring, m), weighted(row, weights), 1)
    return ring.divide(raw, 1 << (spare + BITS))


def divide(ring: Ring, a: Any, b: Any, factor: float, unit: int) -> Any:
    """``factor * a / b`` for any ``a``; ``b`` is public, or private of either sign and below 2^36.

    A public divisor is told to who computes for the ring, also to a provider of randomness.  A
    private one of zero gives 0: nobody may see that it is zero.  See :func:`quotient`.
    """
    if is_ring(b):
        if not abs(factor) < _TOO_LARGE:
            most = f"{_TOO_LARGE / unit:.4g}"
            raise EncodingError(
                f"a factor of {factor / unit}", f"-{most} to {most}", "scale the data down"
            )
        below = ring.negative(b)
        found = quotient(ring, a, ring.select(below, -b, b), factor, range(36))
        return ring.select(below, -found, found)
    divisors = torch.as_tensor(b, dtype=torch.float64 if isinstance(b, float) else None)
    if not divisors.all().item():
        raise division_by_zero()
    if factor == 1 and _are_whole(divisors):
        return ring.divide(a, divisors.to(torch.int64) if divisors.dim() else int(divisors))
    return ring.times(a, factor / (divisors.double() if divisors.dim() else float(b)), unit)


def _are_whole(numbers: torch.Tensor) -> bool:
    small = numbers.abs() < 2.0**53
    return not numbers.is_floating_point() or bool((small & (numbers == numbers.trunc())).all())


def invert(ring: Ring, b: Any, scale: int) -> Any:
    """``1 / b`` for private ``b`` of either sign; 0 for 0, and beyond 2 * scale**2."""
    square = float(scale) * scale
    first = max(math.frexp(square)[1] - 36, 0)
    places = range(first, min(max(math.frexp(square)[1] + 1, BITS), 61))
    below = ring.negative(b)
    found = reciprocal(ring, ring.select(below, -b, b), square, places)
    return ring.select(below, -found, found)


def inverse_root(ring: Ring, m: Any) -> Any:
    """``1 / sqrt(m)`` for m in [1/2, 1], both with ``BITS`` digits."""
    y = round(1.787 * ONE) - ring.divide(m * round(0.81 * ONE), ONE)
    for _ in range(NEWTON_STEPS):
        square = product(ring, y, y)
        y = ring.divide(ring.multiply(y, 3 * ONE - product(ring, m, square), 1), 2 * ONE)
    return y


def sqrt(ring: Ring, x: Any, scale: int) -> Any:
    """The root of ``x``, from 0 to 2^30 (in units of 1); 0 below 0. Off by two steps."""
    places = all_places(scale)
    m, row = normalised(ring, x, places)
    root = product(ring, m, inverse_root(ring, m))
    spare = 36 - round(math.log2(scale * 2.0 ** (places[-1] + 1)) / 2)
    weights = [round(math.sqrt(scale * 2.0 ** (i + 1)) * 2**spare) for i in places]
    return ring.divide(ring.multiply(root, weighted(row, weights), 1), 1 << (BITS + spare))


def rsqrt(ring: Ring, x: Any, scale: int) -> Any:
    """``1 / sqrt(x)`` for ``x`` up to 2^30 (in units of 1); 0 for 0. Off by two steps."""
    places = all_places(scale)
    m, row = normalised(ring, x, places)
    spare = max(0, 35 - math.ceil(1.5 * math.log2(scale)))
    weights = [round(scale * math.sqrt(scale / 2.0 ** (i + 1)) * 2**spare) for i in places]
    raw = ring.multiply(inverse_root(ring, m), weighted(row, weights), 1)
    return ring.divide(raw, 1 << (BITS + spare))


def all_places(scale: int) -> range:
    """The leading bits of the integers from 1 to 2^30 times the scale, 60 at most."""
    return range(0, max(min(scale.bit_length() + 29, 60), BITS))


# ------------------------------------------------------------------- exponentials and their inverse


def exp(ring: Ring, x: Any, scale: int, out: int, negative: bool = False) -> Any:
    """The exponential; ``out`` is the integer for 1 in the result.

    For ``negative`` arguments (0 counted) there is no lower end: minus infinity on the grid gives
    0.  Others must be below ``largest_exponent(out) + 1`` times ln 2.  Off by 2e-7 of the result,
    and by one step.
    """
    bits = out.bit_length() - 1
    last = 0 if negative else largest_exponent(out)
    powers = range(-bits - 2, last + 1)
    steps = [round(n * math.log(2) * scale) for n in powers]
    row = one_row(ring.reached(x, steps))
    rest = x - weighted(row, steps)
    spare = max(0, 35 - last - bits)
    power = weighted(row, [round(math.exp(step / scale) * 2**spare * out) for step in steps])
    curve = polynomial(ring, EXP, ring.times(rest, ONE / scale, ONE))
    return ring.divide(ring.multiply(curve, power, 1), 1 << (BITS + spare))


def largest_exponent(out: int) -> int:
    """The largest whole n for which :func:`exp` computes ``2**n``.

    >>> largest_exponent(2**16), largest_exponent(2**24)
    (18, 10)
    """
    return 35 - out.bit_length()


def log(ring: Ring, x: Any, scale: int, bits: int = 0) -> Any:
    """The natural logarithm of ``x`` from one step to 2^30 (in units of 1). Off by one step.

    Where it is known that ``x`` is from a half on, and has so many ``bits``, it takes fewer
    comparisons.

    Zero and negative numbers have none, and nobody may see that they are: the result for 0 is
    -14.2 on 16 bits (below the logarithm of a step), and that for a negative number means nothing.
    """
    places = range(scale.bit_length() - 2, bits + 1) if bits else all_places(scale)
    m, row = normalised(ring, x, places)
    weights = [round(((i + 1) * math.log(2) - math.log(scale)) * scale) for i in places]
    floor = round(-math.log(scale) * scale)
    found = weighted(row, [weight - floor for weight in weights]) + floor
    return found + ring.times(polynomial(ring, LOG, m), scale / ONE, scale)


def limited_size(ring: Ring, x: Any, limit: int) -> tuple[Any, Any]:
    """``min(|x|, limit)`` and the bits of ``x < 0``: comparisons of one round, and one product."""
    above, from_zero, from_below = ring.reached(x, [limit, 0, 1 - limit])
    signs = from_zero - above - (from_below - from_zero)  # 1, -1, or 0 where the limit stands
    beyond = above + 1 - from_below
    return ring.multiply(signs, x, 1) + beyond * limit, as_bits(1 - from_zero)


def gate_of(ring: Ring, size: Any, scale: int) -> tuple[Any, Any]:
    """``exp(-size)`` and ``1 / (1 + exp(-size))`` for sizes from 0, with ``BITS`` digits."""
    falling = exp(ring, -size, scale, ONE, negative=True)
    return falling, ring.divide(inverse(ring, ring.divide(ONE + falling, 2)), 2)


def logistic(ring: Ring, x: Any, scale: int, steepness: int = 1) -> tuple[Any, Any, Any]:
    """``exp(-z)`` and ``1 / (1 + exp(-z))`` for ``z = steepness * |x|``, and the bits of ``x < 0``.

    Both with ``BITS`` digits.  Sigmoid and tanh follow without another comparison.
    """
    below = ring.negative(x)
    size = ring.select(below, x, -x)  # minus the magnitude
    falling, above = gate_of(ring, -steepness * size, scale)
    return falling, above, below


def sigmoid(ring: Ring, x: Any, scale: int) -> Any:
    """``1 / (1 + exp(-x))`` for every ``x``. Off by one step."""
    _, above, below = logistic(ring, x, scale)
    return ring.times(ring.select(below, ONE - above, above), scale / ONE, scale)


def tanh(ring: Ring, x: Any, scale: int) -> Any:
    """The hyperbolic tangent of every ``x`` below 2^60 steps. Off by one step."""
    falling, above, below = logistic(ring, x, scale, steepness=2)
    size = ring.times(product(ring, ONE - falling, above), scale / ONE, scale)
    return ring.select(below, -size, size)


def erf(ring: Ring, x: Any, scale: int) -> Any:
    """The error function of every ``x``. Off by two steps."""
    size, below = limited_size(ring, x, NORMAL_END * scale)
    found = ring.times(ONE - error_tail(ring, size, scale, 1), scale / ONE, scale)
    return ring.select(below, -found, found)


def error_tail(ring: Ring, size: Any, scale: int, halves: int) -> Any:
    """``1 - erf(size / sqrt(halves))`` for sizes up to ``NORMAL_END``, with ``BITS`` digits."""
    slope = ONE + ring.times(size, ERF_SLOPE / math.sqrt(halves) * ONE / scale, ONE)
    t = reciprocal(ring, slope, float(ONE) * ONE, range(BITS, BITS + 2))
    square = ring.divide(ring.multiply(size, size, scale * scale), halves * scale)
    return product(ring, polynomial(ring, ERF, t), exp(ring, -square, scale, ONE, negative=True))


# ------------------------------------------------------------------------------- rectifiers, smooth


def softplus(ring: Ring, x: Any, scale: int, steepness: float) -> Any:
    """``max(x, 0) + log(1 + exp(-b |x|)) / b`` for every ``x`` and a positive ``b``.

    Off by two steps, and by one over ``b``.  The logarithm of the sum of an exponential, as torch
    has it, would need ``exp(x)``, which leaves the ring long before ``x`` does.
    """
    size, below = limited_size(ring, x, max(round(GATE_END / steepness * scale), 1))
    falling = exp(ring, -ring.times(size, steepness, scale), scale, ONE, negative=True)
    curve = polynomial(ring, LOG, ring.divide(ONE + falling, 2)) + round(math.log(2) * ONE)
    return rectified(ring, x, below) + ring.times(curve, scale / ONE / steepness, scale)


def silu(ring: Ring, x: Any, scale: int) -> Any:
    """``x / (1 + exp(-x))`` for every ``x``. Off by two steps."""
    size, below = limited_size(ring, x, GATE_END * scale)
    falling, above = gate_of(ring, size, scale)
    return rectified(ring, x, below) - gated(ring, size, product(ring, falling, above))


def gelu(ring: Ring, x: Any, scale: int) -> Any:
    """``x`` times the normal distribution function, for every ``x``. Off by two steps."""
    size, below = limited_size(ring, x, NORMAL_END * scale)
    tail = error_tail(ring, size, scale, 2)
    return rectified(ring, x, below) - gated(ring, size, ring.divide(tail, 2))


def gelu_by_tanh(ring: Ring, x: Any, scale: int) -> Any:
    """torch's approximation of :func:`gelu`, for every ``x``. Off by two steps."""
    size, below = limited_size(ring, x, NORMAL_END * scale)
    square = ring.divide(ring.multiply(size, size, scale * scale), scale)
    slope = round(GELU_SLOPE * scale) + ring.times(square, GELU_SLOPE * 0.044715, scale)
    place = ring.divide(ring.multiply(size, slope, scale * scale), scale)
    falling, above = gate_of(ring, place, scale)
    return rectified(ring, x, below) - gated(ring, size, product(ring, falling, above))


def mish(ring: Ring, x: Any, scale: int) -> Any:
    """``x tanh(log(1 + exp(x)))`` for every ``x``. Off by two steps.

    With ``e = exp(-|x|)`` it is ``max(x, 0) - |x| p / q``, where ``p`` is ``2 e^2`` from 0 and
    ``e^2 + 2 e`` below, and ``q = p + (1 + 2 e from 0, 2 below)``.
    """
    size, below = limited_size(ring, x, GATE_END * scale)
    falling = exp(ring, -size, scale, ONE, negative=True)
    square = product(ring, falling, falling)
    above = ring.select(below, square + 2 * falling, 2 * square)
    under = above + ring.select(below, torch.zeros_like(falling) + 2 * ONE, ONE + 2 * falling)
    over = reciprocal(ring, under, float(ONE) * ONE, range(BITS, BITS + 3))
    return rectified(ring, x, below) - gated(ring, size, product(ring, above, over))


def rectified(ring: Ring, x: Any, below: Any) -> Any:
    """``max(x, 0)``, where it is known which are below zero."""
    return x - ring.multiply(as_integers(below), x, 1)


def gated(ring: Ring, size: Any, gate: Any) -> Any:
    """A size times a number of ``BITS`` digits."""
    return ring.divide(ring.multiply(size, gate, 1), ONE)
