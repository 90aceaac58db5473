"""Products and sums of int64 tensors in the ring Z/2^64, exact and fast on every device.

Torch multiplies int64 matrices on the CPU only, and has no int64 kernel for the backward of a
convolution.  On some processors its int64 kernel is as fast as the float64 one, on others twenty
times slower.  A float64 kernel is exact on integers as long as no sum passes 2^53.  So each product
first computes the largest magnitudes of its operands, and takes one of three ways with the same
result:

* if every sum is below 2^53: one float64 call, exact in any order of summation;
* limbs: both operands are cut into pieces of 22 bits with a sign, so that a sum of 2,048 products
  of pieces stays within 2^53; the float64 products (6 for full 64-bit integers) are added in int64,
  where they wrap as the ring does.  A longer inner dimension of a matrix product is split;
* torch's int64 kernel on the CPU: where the matrices are small, or where measuring both kernels
  once (:func:`int64_cost`) says that it is faster than the float64 products it saves.

The magnitudes also bound the result.  If the bound does not exclude that the product leaves the
ring, where it would wrap unnoticed, a float64 estimate of the result decides, and a result outside
is an :class:`~syft.exceptions.EncodingError`.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable
from typing import Any

import torch

from syft.exceptions import EncodingError
from syft.tensors.fixed.grid import RING_END

Bilinear = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
Linear = Callable[[torch.Tensor], torch.Tensor]

EXACT = 2**53
"""Every integer up to here is a float64."""

SMALL = 2**15
"""Multiplications below which an int64 kernel is faster than float64 (32 x 32 x 32)."""

CONVERSION = 64
"""What an element costs besides its products, in multiplications (design note 9)."""

LIMB = 22
"""The bits of a limb, sign included; ``LONGEST`` products of two limbs sum to 2^53 at most."""

LONGEST = 2**11


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
    largest_a, largest_b = magnitude(a), magnitude(b)
    if largest_a * largest_b * max(terms, 1) >= RING_END:
        refuse_overflow(bilinear(a.double(), b.double()), unit)
    return _fastest(bilinear, a, b, terms, native, (largest_a, largest_b))


def wrapping_product(
    bilinear: Bilinear, a: torch.Tensor, b: torch.Tensor, terms: int, native: bool
) -> torch.Tensor:
    """The same, but unchecked: it wraps as the ring does, which is what shares need.

    >>> a = torch.tensor([[2**62]])
    >>> wrapping_product(torch.mm, a, torch.tensor([[4]]), 1, True)
    tensor([[0]])
    """
    return _fastest(bilinear, a, b, terms, native, (magnitude(a), magnitude(b)))


def _fastest(
    bilinear: Bilinear,
    a: torch.Tensor,
    b: torch.Tensor,
    terms: int,
    native: bool,
    largest: tuple[int, int],
) -> torch.Tensor:
    """The product modulo 2^64 by the fastest kernel for these shapes and magnitudes."""
    in_float64 = largest[0] * largest[1] * max(terms, 1) < EXACT
    pairs = 1 if in_float64 else limb_products(*largest)
    if native and a.device.type == "cpu" and _int64_is_faster(a, b, terms, pairs):
        return bilinear(a, b)
    if in_float64:
        return bilinear(a.double(), b.double()).to(torch.int64)
    return by_limbs(bilinear, a, b, terms)


def _int64_is_faster(a: torch.Tensor, b: torch.Tensor, terms: int, pairs: int) -> bool:
    """Whether the int64 kernel takes less time than ``pairs`` products in float64.

    Cutting, converting and adding up cost about as much for an element as 64 multiplications.
    """
    multiplications = a.numel() * b.numel() / max(terms, 1)
    if multiplications <= SMALL * pairs:
        return True
    elements = a.numel() + b.numel() + multiplications / max(terms, 1)
    return int64_cost() <= pairs * (1 + CONVERSION * elements / multiplications)


@functools.cache
def int64_cost() -> float:
    """How long torch's int64 matrix product takes on this CPU, over the float64 one.

    Measured once in a process, in some milliseconds, on 128 x 128; both give the same results.

    >>> int64_cost() > 0
    True
    """
    whole = torch.ones(128, 128, dtype=torch.int64, device="cpu")
    seconds = [min(_seconds(x) for _ in range(3)) for x in (whole, whole.double())]
    return seconds[0] / seconds[1]


def _seconds(x: torch.Tensor) -> float:
    start = time.perf_counter()
    torch.mm(x, x)
    return time.perf_counter() - start


def by_limbs(bilinear: Bilinear, a: torch.Tensor, b: torch.Tensor, terms: int) -> torch.Tensor:
    """The same product modulo 2^64 from float64 products of limbs; needs no int64 kernel.

    With limbs of w bits a product of two is at most 2^(2w - 2) and a sum of them at most 2^53
    (w = 22 up to 2,048 terms).  Matrix products with more terms are split, others get narrower
    limbs.

    >>> a = torch.tensor([[2**40, -3]])
    >>> by_limbs(torch.mm, a, a.t(), 2).item() == (2**80 + 9) % 2**64
    True
    """
    if terms > LONGEST and bilinear in MATRIX_PRODUCTS:
        return _split(bilinear, a, b)
    width = min(LIMB, max((55 - max(terms - 1, 0).bit_length()) // 2, 2))
    limbs_a, limbs_b = limbs(a, width), limbs(b, width)
    parts = (
        bilinear(limb_a, limb_b).round_().to(torch.int64).bitwise_left_shift_((i + j) * width)
        for (i, limb_a), (j, limb_b) in itertools.product(enumerate(limbs_a), enumerate(limbs_b))
        if (i + j) * width < 64
    )
    return functools.reduce(torch.Tensor.add_, parts)


MATRIX_PRODUCTS = frozenset(
    {torch.mm, torch.bmm, torch.matmul, torch.mv, torch.dot}
    | {getattr(torch.ops.aten, name).default for name in ("mm", "bmm", "mv", "dot", "vdot")}
)
"""Bilinear maps that sum over the last dimension of the first operand."""


def _split(bilinear: Bilinear, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A matrix product as a sum of products over parts of the inner dimension."""
    inner = min(b.dim(), 2)
    pairs = zip(torch.split(a, LONGEST, -1), torch.split(b, LONGEST, -inner), strict=True)
    parts = [by_limbs(bilinear, one, other, LONGEST) for one, other in pairs]
    return functools.reduce(torch.Tensor.add_, parts)


def limbs(values: torch.Tensor, width: int) -> list[torch.Tensor]:
    """Cut integers into float64 limbs of ``width`` bits with a sign, lowest first.

    Limb ``i`` counts ``2**(width * i)``; none is above ``2**(width - 1)`` in magnitude.

    >>> [limb.tolist() for limb in limbs(torch.tensor([5, -7]), 2)]
    [[1.0, 1.0], [1.0, -2.0]]
    """
    half, mask = 1 << (width - 1), (1 << width) - 1
    cut = []
    for _ in range(limb_count(magnitude(values), width) - 1):
        low = values.add(half).bitwise_and_(mask).sub_(half)
        cut.append(low.double())
        values = (values - low).bitwise_right_shift_(width)
    cut.append(values.double())
    return cut


def limb_count(largest: int, width: int) -> int:
    """How many limbs hold integers of a magnitude.

    >>> limb_count(0, 22), limb_count(2**21, 22), limb_count(2**21 + 1, 22), limb_count(2**63, 22)
    (1, 1, 2, 3)
    """
    count, end = 1, 1 << (width - 1)
    while largest > end:
        count, end = count + 1, end << width
    return min(count, -(-64 // width))


def limb_products(largest_a: int, largest_b: int) -> int:
    """How many products of limbs lie inside the ring, for operands of these magnitudes.

    >>> limb_products(2**63, 2**63), limb_products(2**40, 2**40), limb_products(2**63, 1)
    (6, 4, 3)
    """
    counts = (limb_count(largest, LIMB) for largest in (largest_a, largest_b))
    every = itertools.product(*(range(count) for count in counts))
    return sum((i + j) * LIMB < 64 for i, j in every)


def apply_linear(linear: Linear, values: torch.Tensor, terms: int) -> torch.Tensor:
    """A linear map with whole coefficients (pooling sums, unfold) that torch has for floats only.

    Each element of the result is a sum of at most ``terms`` elements of ``values``.

    >>> apply_linear(lambda t: t + t, torch.tensor([2**60 + 1]), 2).item() == 2**61 + 2
    True
    """
    if magnitude(values) * max(terms, 1) < EXACT:
        return linear(values.double()).to(torch.int64)
    width = 54 - max(terms, 1).bit_length()
    parts = [linear(limb).to(torch.int64) for limb in limbs(values, width)]
    total = parts[-1]
    for part in reversed(parts[:-1]):
        total = total.bitwise_left_shift_(width).add_(part)
    return total


def division_by_zero() -> EncodingError:
    """The error for a divisor of zero; the usual cause is an epsilon below the grid's step."""
    return EncodingError(
        "a division by zero",
        "finite",
        "see that the divisor is not 0 on the grid: an eps below half a step (Adam's 1e-8) is 0 "
        "there, so pass a larger one, such as eps=1e-3",
    )


def quotient(numerators: torch.Tensor, divisor: Any, factor: float, unit: int) -> torch.Tensor:
    """``numerators / divisor * factor`` to the nearest; a divisor of zero is an error.

    >>> quotient(torch.tensor([7, -7]), 2, 3.0, 1)
    tensor([ 10, -10])
    """
    quotients = numerators.double() / divisor
    if factor != 1:
        quotients.mul_(factor)
    if quotients.numel() and not quotients.abs().max().item() < RING_END:  # also when one is NaN
        if (torch.as_tensor(divisor) == 0).any().item():
            raise division_by_zero()
    return rounded(quotients, unit)


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
