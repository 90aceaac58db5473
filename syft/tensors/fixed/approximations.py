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

Numbers inside are on a grid of ``BITS`` binary digits, where a product of two needs 2 * BITS + 2
bits.  ``scale`` is the integer for 1 in the arguments and results.  The errors are those of the
results; on 16 bits every function here is off by less than two steps in its range.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from syft.tensors.fixed.ring import division_by_zero
from syft.tensors.fixed.rings.integer_ring import Ring
from syft.tensors.fixed.rings.ring_link import is_ring

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

    ``places`` are the leading bits that ``x`` may have; below them (0, negative) the row is empty.
    """
    row = one_row(ring.reached(x, [1 << i for i in places]))
    power = weighted(row, [1 << (places[-1] - i) for i in places])
    return ring.divide(ring.multiply(x, power, 1), 1 << (places[-1] + 1 - BITS)), row


# ---------------------------------------------------------------------------------------- quotients


def inverse(ring: Ring, m: Any) -> Any:
    """``1 / m`` for m in [1/2, 1], both with ``BITS`` digits; off by 1e-6 of it."""
    w = round(2.9142 * ONE) - 2 * m
    for _ in range(NEWTON_STEPS):
        w = product(ring, w, 2 * ONE - product(ring, m, w))
    return w


def quotient(ring: Ring, a: Any, b: Any, factor: float, places: range) -> Any:
    """``factor * a / b`` for positive ``b`` with its leading bit in ``places``.

    ``|a|`` must be below 2^36 and the result below 2^61 over 2^p, where p is 36 minus the bits of
    the factor (20 for 16 binary digits).  Off by one step, and by 1e-6 of the result.
    """
    m, row = normalised(ring, b, places)
    spare = max(36 - math.frexp(factor)[1], 4)
    weights = [round(factor * 2.0 ** (spare - i - 1)) for i in places]
    over_m = ring.divide(ring.multiply(a, inverse(ring, m), 1), ONE)
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

    A private divisor of zero gives 0: nobody may see that it is zero.  See :func:`quotient`.
    """
    if is_ring(b):
        below = ring.negative(b)
        found = quotient(ring, a, ring.select(below, -b, b), factor, range(36))
        return ring.select(below, -found, found)
    divisors = torch.as_tensor(b)
    if not divisors.all().item():
        raise division_by_zero()
    if factor == 1 and not divisors.is_floating_point():
        return ring.divide(a, b)
    return ring.times(a, factor / (divisors.double() if divisors.dim() else float(b)), unit)


def invert(ring: Ring, b: Any, scale: int) -> Any:
    """``1 / b`` for private ``b`` of either sign, up to 2 * scale**2; 0 for 0 and beyond."""
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


def log(ring: Ring, x: Any, scale: int) -> Any:
    """The natural logarithm of ``x`` from one step to 2^30 (in units of 1). Off by one step.

    Zero and negative numbers have none, and nobody may see that they are: the result for 0 is
    -14.2 on 16 bits (below the logarithm of a step), and that for a negative number means nothing.
    """
    places = all_places(scale)
    m, row = normalised(ring, x, places)
    weights = [round(((i + 1) * math.log(2) - math.log(scale)) * scale) for i in places]
    floor = round(-math.log(scale) * scale)
    found = weighted(row, [weight - floor for weight in weights]) + floor
    return found + ring.times(polynomial(ring, LOG, m), scale / ONE, scale)


def logistic(ring: Ring, x: Any, scale: int, steepness: int = 1) -> tuple[Any, Any, Any]:
    """``exp(-z)`` and ``1 / (1 + exp(-z))`` for ``z = steepness * |x|``, and the bits of ``x < 0``.

    Both with ``BITS`` digits.  Sigmoid and tanh follow without another comparison.
    """
    below = ring.negative(x)
    size = ring.select(below, x, -x)  # minus the magnitude
    falling = exp(ring, steepness * size, scale, ONE, negative=True)
    return falling, ring.divide(inverse(ring, ring.divide(ONE + falling, 2)), 2), below


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
    """The error function, for ``|x|`` below 2^9. Off by one step."""
    below = ring.negative(x)
    size = ring.select(below, -x, x)
    leading = scale.bit_length() - 1
    slope = scale + ring.times(size, ERF_SLOPE, scale)
    places = range(leading, max(leading + 9, BITS))
    t = reciprocal(ring, slope, float(scale) * ONE, places)
    square = ring.divide(ring.multiply(size, size, scale * scale), scale)
    tail = product(ring, polynomial(ring, ERF, t), exp(ring, -square, scale, ONE, negative=True))
    found = ring.times(ONE - tail, scale / ONE, scale)
    return ring.select(below, -found, found)
