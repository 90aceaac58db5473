"""Kernels of int64 tensors in the ring Z/2^64, exact and fast on every device; results wrap.

Torch multiplies int64 matrices on the CPU only.  On some processors its int64 kernel is as fast as
the float64 one, on others twenty times slower.  There are four ways with the same result:

* torch's int64 kernel on the CPU;
* if every sum is below 2^53: one float64 call, exact in any order of summation;
* limbs: both operands are cut into pieces of 22 bits with a sign, so that a sum of 2,048 products
  of pieces stays within 2^53; the float64 products (6 for full 64-bit integers) are added in int64,
  where they wrap as the ring does.  A longer inner dimension of a matrix product is split;
* digits: both operands are cut into 8 digits of 8 bits with a sign, whose 36 products torch
  computes with int8 instructions, where the processor has them.

Which one is fastest is measured once in a process (:func:`int64_cost`, :func:`int8_cost`).
"""

from __future__ import annotations

import functools
import itertools
import math
import time
from collections.abc import Callable
from typing import Final

import torch

from syft.crypto.kernels import Kernel, KernelCode
from syft.torch_private import int8_matmul

EXACT = 2**53
"""Every integer up to here is a float64."""

SMALL = 2**15
"""Multiplications below which an int64 kernel is faster than float64 (32 x 32 x 32)."""

CONVERSION = 64
"""What an element costs besides its products, in multiplications (design note 9)."""

LIMB = 22
"""The bits of a limb, sign included; ``LONGEST`` products of two limbs sum to 2^53 at most."""

LONGEST = 2**11

DIGITS_LONGEST = 2**13
"""Terms of an int8 product: 8 x 2^13 products of digits are at most 2^30, so int32 holds them."""

WHOLE: Final = (2**63, 2**63)
"""The magnitudes of operands that may be any integers, as shares are."""


def magnitude(values: torch.Tensor) -> int:
    """The largest absolute value (0 when empty), as a Python number, because it may be 2^63.

    >>> magnitude(torch.tensor([3, -7]))
    7
    """
    if values.numel() == 0:
        return 0
    low, high = torch.aminmax(values)
    return max(-int(low.item()), int(high.item()))


def ring_product(
    kernel: Kernel, a: torch.Tensor, b: torch.Tensor, largest: tuple[int, int] = WHOLE
) -> torch.Tensor:
    """A bilinear kernel modulo 2^64, by what is fastest for these shapes and magnitudes.

    ``largest`` are the magnitudes of the operands, where they are known: small ones take fewer
    float64 products.

    >>> a = torch.tensor([[2**62]])
    >>> ring_product(Kernel(KernelCode.MATMUL), a, torch.tensor([[4]]))
    tensor([[0]])
    """
    native = kernel.native(a.device.type)
    if native and (a.numel() * b.numel() <= SMALL or kernel.elementwise):
        return kernel(a, b)
    terms = max(kernel.terms(a.shape, b.shape), 1)
    in_float64 = largest[0] * largest[1] * terms < EXACT
    pairs = 1 if in_float64 else limb_products(*largest)
    return _fastest(kernel, a, b, terms, native, pairs)(kernel, a, b)


Way = Callable[[Kernel, torch.Tensor, torch.Tensor], torch.Tensor]


def _fastest(
    kernel: Kernel, a: torch.Tensor, b: torch.Tensor, terms: int, native: bool, pairs: int
) -> Way:
    """The way that takes least time, counted in float64 products of these shapes.

    Cutting, converting and adding up cost about as much for an element as 64 multiplications.
    """
    in_floats: Way = _by_one_float if pairs == 1 else by_limbs
    if not native:
        return in_floats
    multiplications = a.numel() * b.numel() / terms
    if multiplications <= SMALL * pairs:
        return _natively
    elements = a.numel() + b.numel() + multiplications / terms
    overhead = 1 + CONVERSION * elements / multiplications
    costs = {_natively: int64_cost(), in_floats: pairs * overhead}
    if kernel.code is KernelCode.MATMUL and a.dim() == b.dim() == 2:
        costs[by_digits] = int8_cost() * overhead
    return min(costs, key=costs.__getitem__)


def _natively(kernel: Kernel, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return kernel(a, b)


def _by_one_float(kernel: Kernel, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return kernel(a.double(), b.double()).to(torch.int64)


# --------------------------------------------------------------------------------------- measuring

_SIDE: Final = 128


@functools.cache
def int64_cost() -> float:
    """How long torch's int64 matrix product takes on this CPU, over the float64 one.

    Measured once in a process, in some milliseconds, on 128 x 128; both give the same results.

    >>> int64_cost() > 0
    True
    """
    whole = torch.ones(_SIDE, _SIDE, dtype=torch.int64, device="cpu")
    return _seconds(torch.mm, whole) / _seconds(torch.mm, whole.double())


@functools.cache
def int8_cost() -> float:
    """How long a product by digits takes, over a float64 one; infinite where it is not exact.

    What an element costs besides its products is taken off.  Some processors without instructions
    for sums of int8 products let intermediate sums saturate: so the extremes are tried first.

    >>> int8_cost() > 0
    True
    """
    worst = torch.full((_SIDE, _SIDE), _LOWEST_DIGITS, device="cpu")
    worst[::2, ::3] = _HIGHEST_DIGITS
    if not _digits_are_exact(worst):
        return math.inf
    seconds = _seconds(_multiply_digits, worst) / _seconds(torch.mm, worst.double())
    return seconds / (1 + CONVERSION * 3 / _SIDE)


def _digits_are_exact(values: torch.Tensor) -> bool:
    try:
        return torch.equal(_multiply_digits(values, values), torch.mm(values, values))
    except RuntimeError:  # this torch has no such kernel here
        return False


def _seconds(
    multiply: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], x: torch.Tensor
) -> float:
    """The least time of three runs."""

    def once() -> float:
        start = time.perf_counter()
        multiply(x, x)
        return time.perf_counter() - start

    return min(once() for _ in range(3))


# ------------------------------------------------------------------------------------------- digits

_BYTES: Final = -0x7F7F7F7F7F7F7F80
"""128 in every byte, as a signed number of 64 bits."""
_LOWEST_DIGITS: Final = 0x7F7F7F7F7F7F7F80
"""The integer whose digits are all -128."""
_HIGHEST_DIGITS: Final = 0x7F7F7F7F7F7F7F7F
"""The integer whose digits are all 127."""


def digits(values: torch.Tensor) -> torch.Tensor:
    """Integers as 8 digits of int8 in a new last dimension, lowest first: balanced base 256.

    >>> digits(torch.tensor([255, -129]))[:, :3].tolist()
    [[-1, 1, 0], [127, -1, 0]]
    """
    carried = values.clone(memory_format=torch.contiguous_format)
    carried.add_(_BYTES).bitwise_xor_(_BYTES)
    return carried.view(torch.int8).view(*values.shape, 8)


def by_digits(kernel: Kernel, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The product of two matrices from int8 products, whose sums are exact in int32.

    >>> a = torch.tensor([[2**40, -3]])
    >>> by_digits(Kernel(KernelCode.MATMUL), a, a.t()).item() == (2**80 + 9) % 2**64
    True
    """
    a, b = _turned(kernel, a, b)
    parts = zip(torch.split(a, DIGITS_LONGEST, 1), torch.split(b, DIGITS_LONGEST), strict=True)
    return functools.reduce(torch.Tensor.add_, (_multiply_digits(one, two) for one, two in parts))


def _multiply_digits(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """One int8 product for each digit of the result: its pairs of digits lie side by side."""
    rows, inner, columns = *a.shape, b.shape[1]
    left = digits(a).permute(0, 2, 1).reshape(rows, 8 * inner)
    right = digits(b).permute(2, 0, 1).flip(0).reshape(8 * inner, columns)
    total = torch.zeros(rows, columns, dtype=torch.int64, device=a.device)
    for place in range(7, -1, -1):
        sums = int8_matmul(left[:, : inner * (place + 1)], right[inner * (7 - place) :])
        total.bitwise_left_shift_(8).add_(sums)
    return total


def _turned(kernel: Kernel, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The operands of a matrix product, transposed as its settings say."""
    turn_a, turn_b = kernel.settings or (False, False)
    return (a.mT if turn_a else a), (b.mT if turn_b else b)


# -------------------------------------------------------------------------------------------- limbs


def by_limbs(kernel: Kernel, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The same product modulo 2^64 from float64 products of limbs; needs no int64 kernel.

    With limbs of w bits a product of two is at most 2^(2w - 2) and a sum of them at most 2^53
    (w = 22 up to 2,048 terms).  Matrix products with more terms are split, others get narrower
    limbs.

    >>> a = torch.tensor([[2**40, -3]])
    >>> by_limbs(Kernel(KernelCode.MATMUL), a, a.t()).item() == (2**80 + 9) % 2**64
    True
    """
    terms = kernel.terms(a.shape, b.shape)
    if terms > LONGEST and kernel.code is KernelCode.MATMUL:
        return _split(*_turned(kernel, a, b))
    width = min(LIMB, max((55 - max(terms - 1, 0).bit_length()) // 2, 2))
    limbs_a, limbs_b = limbs(a, width), limbs(b, width)
    parts = (
        kernel(limb_a, limb_b).round_().to(torch.int64).bitwise_left_shift_((i + j) * width)
        for (i, limb_a), (j, limb_b) in itertools.product(enumerate(limbs_a), enumerate(limbs_b))
        if (i + j) * width < 64
    )
    return functools.reduce(torch.Tensor.add_, parts)


def _split(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A matrix product as a sum of products over parts of the inner dimension."""
    inner = min(b.dim(), 2)
    pairs = zip(torch.split(a, LONGEST, -1), torch.split(b, LONGEST, -inner), strict=True)
    parts = [by_limbs(Kernel(KernelCode.MATMUL), one, other) for one, other in pairs]
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


def ring_map(kernel: Kernel, values: torch.Tensor, largest: int = WHOLE[0]) -> torch.Tensor:
    """A linear kernel modulo 2^64, by float64 products of limbs.

    >>> ring_map(Kernel(KernelCode.REFLECTION_PAD1D, ((1, 0),)), torch.tensor([[2**60 + 1, 7]]))
    tensor([[                  7, 1152921504606846977,                   7]])
    """
    terms = max(kernel.terms(values.shape), 1)
    if largest * terms < EXACT:
        return kernel(values.double()).to(torch.int64)
    width = 54 - terms.bit_length()
    parts = [kernel(limb).to(torch.int64) for limb in limbs(values, width)]
    total = parts[-1]
    for part in reversed(parts[:-1]):
        total = total.bitwise_left_shift_(width).add_(part)
    return total
