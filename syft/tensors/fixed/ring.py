"""Products and sums of int64 tensors in the ring Z/2^64, exact and fast on every device.

Torch multiplies int64 matrices on the CPU only, slowly, and has no int64 kernel for the backward
of a convolution.  A float64 kernel is fast, and exact on integers as long as no sum passes 2^53.
So each product first computes the largest magnitudes of its operands:

* if every sum is below 2^53: one float64 call, exact in any order of summation;
* otherwise on the CPU, where torch has an int64 kernel: that kernel;
* otherwise the operands are cut into limbs, narrow enough that every product of limbs stays below
  2^53, and the float64 products are added in int64, where they wrap as the ring does.

The magnitudes also bound the result.  If the bound does not exclude that the product leaves the
ring, where it would wrap unnoticed, a float64 estimate of the result decides, and a result outside
is an :class:`~syft.exceptions.EncodingError`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

from syft.exceptions import EncodingError
from syft.tensors.fixed.grid import RING_END

Bilinear = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
Linear = Callable[[torch.Tensor], torch.Tensor]

EXACT = 2**53
"""Every integer up to here is a float64."""

SMALL = 2**15
"""Multiplications below which an int64 kernel is faster than float64 (32 x 32 x 32)."""


def magnitude(child: torch.Tensor) -> int:
    """The largest absolute value (0 when empty), as a Python number, because it may be 2^63.

    >>> magnitude(torch.tensor([3, -7]))
    7
    """
    if child.numel() == 0:
        return 0
    low, high = torch.aminmax(child)
    return max(-int(low.item()), int(high.item()))


def multiply(a: torch.Tensor, b: torch.Tensor, unit: int) -> torch.Tensor:
    """The elementwise product, checked: a new tensor, not yet rescaled to the grid.

    ``unit`` is the integer for 1 in the product (the square of the scale), for the error text.

    >>> multiply(torch.tensor([3]), torch.tensor([-7]), 1)
    tensor([-21])
    """
    if magnitude(a) * magnitude(b) >= RING_END:
        refuse_overflow(a.double() * b.double(), unit)
    return torch.mul(a, b)


def product(
    bilinear: Bilinear, a: torch.Tensor, b: torch.Tensor, terms: int, unit: int, native: bool
) -> torch.Tensor:
    """A sum of ``terms`` products for each element of the result (matmul, convolution), checked.

    ``bilinear`` computes it for float64 and, if ``native``, for int64 on the CPU.  The result is
    not yet rescaled to the grid; ``unit`` is the integer for 1 in it.

    >>> a = torch.tensor([[2**40, 1]])
    >>> product(torch.mm, a, torch.ones(2, 1, dtype=torch.int64), 2, 1, True)
    tensor([[1099511627777]])
    """
    on_cpu = native and a.device.type == "cpu"
    largest_a, largest_b = magnitude(a), magnitude(b)
    bound = largest_a * largest_b * max(terms, 1)
    if bound < EXACT:
        if on_cpu and a.numel() * b.numel() <= SMALL * max(terms, 1):
            return bilinear(a, b)
        return bilinear(a.double(), b.double()).to(torch.int64)
    if bound >= RING_END:
        refuse_overflow(bilinear(a.double(), b.double()), unit)
    if on_cpu:
        return bilinear(a, b)
    return by_limbs(bilinear, a, b, terms)


def by_limbs(bilinear: Bilinear, a: torch.Tensor, b: torch.Tensor, terms: int) -> torch.Tensor:
    """The same product modulo 2^64 from float64 products of limbs; needs no int64 kernel.

    With limbs of w bits a product of two is below 2^2w and a sum of them below 2^53 (w = 21 up to
    2048 terms: three limbs an operand for 63 bits, of which six pairs lie inside the ring).

    >>> a = torch.tensor([[2**40, -3]])
    >>> by_limbs(torch.mm, a, a.t(), 2).item() == (2**80 + 9) % 2**64
    True
    """
    width = max((53 - max(terms, 1).bit_length()) // 2, 1)
    limbs_b = limbs(b, width)
    parts = [
        bilinear(limb_a, limb_b).round_().to(torch.int64).bitwise_left_shift_((i + j) * width)
        for i, limb_a in enumerate(limbs(a, width))
        for j, limb_b in enumerate(limbs_b)
        if (i + j) * width < 64
    ]
    return functools.reduce(torch.Tensor.add_, parts)


def limbs(values: torch.Tensor, width: int) -> list[torch.Tensor]:
    """Cut integers into float64 limbs of ``width`` bits, lowest first; the last one carries the
    sign.

    >>> [limb.tolist() for limb in limbs(torch.tensor([5, -1]), 2)]
    [[1.0, 3.0], [1.0, -1.0]]
    """
    bits = magnitude(values).bit_length() + 1
    cut = []
    while bits > width + 1:
        cut.append(torch.bitwise_and(values, (1 << width) - 1).double())
        values = torch.bitwise_right_shift(values, width)
        bits -= width
    cut.append(values.double())
    return cut


def apply_linear(linear: Linear, values: torch.Tensor, terms: int) -> torch.Tensor:
    """A linear map with whole coefficients (pooling sums, unfold) that torch has for floats only.

    Each element of the result is a sum of at most ``terms`` elements of ``values``.

    >>> apply_linear(lambda t: t + t, torch.tensor([2**60 + 1]), 2).item() == 2**61 + 2
    True
    """
    if magnitude(values) * max(terms, 1) < EXACT:
        return linear(values.double()).to(torch.int64)
    width = 53 - max(terms, 1).bit_length()
    parts = [linear(limb).to(torch.int64) for limb in limbs(values, width)]
    total = parts[-1]
    for part in reversed(parts[:-1]):
        total = total.bitwise_left_shift_(width).add_(part)
    return total


def refuse_overflow(estimate: torch.Tensor, unit: int) -> None:
    """Raise :class:`~syft.exceptions.EncodingError` if a result would leave the ring.

    ``estimate`` is the integer result in float64, ``unit`` the integer for 1 in it.

    >>> refuse_overflow(torch.tensor([2.0**70]), 2**32)
    Traceback (most recent call last):
    syft.exceptions.EncodingError: Cannot encode the result 2.749e+11 in fixed precision: the \
range is -2.147e+09 to 2.147e+09. Instead, use fewer fractional digits (precision_fractional) or \
scale the data down.
    """
    outside = ~(estimate.abs() < RING_END)
    if outside.any().item():
        end = RING_END / unit
        raise EncodingError(
            f"the result {estimate[outside][0].item() / unit:.4g}",
            f"-{end:.4g} to {end:.4g}",
            "use fewer fractional digits (precision_fractional) or scale the data down",
        )


def rounded(results: torch.Tensor, unit: int) -> torch.Tensor:
    """Round float64 results to integers, checked; ``results`` is overwritten.

    >>> rounded(torch.tensor([2.6, -2.6], dtype=torch.float64), 1)
    tensor([ 3, -3])
    """
    if results.numel():
        low, high = torch.aminmax(results)
        if not (-RING_END < low.item() and high.item() < RING_END):
            refuse_overflow(results, unit)
    return results.round_().to(torch.int64)
