"""Products and sums of the plain ring, checked: a result that leaves the ring is an error.

The magnitudes of the operands bound the result.  If the bound does not exclude that the product
leaves the ring, where it would wrap unnoticed, a float64 estimate of the result decides, and a
result outside is an :class:`~syft.exceptions.EncodingError`.  ``syft.crypto.ring_products``
computes what has passed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from syft.chain.wrapper import Wrapper

from syft.crypto.gates.public_factors import MOST_BITS, nearest, whole_divisor
from syft.crypto.kernels import Kernel
from syft.crypto.ring_products import magnitude, ring_product
from syft.exceptions import EncodingError
from syft.ops.nested import leaves
from syft.tensors.fixed.grid import RING_END

IN_FLOAT64: Final = 2.0**45
"""Results below this are computed in float64: they are off by 2^-7 of a step besides rounding."""


def multiply(a: torch.Tensor, b: torch.Tensor, unit: int) -> torch.Tensor:
    """The elementwise product, checked: a new tensor, not yet rescaled to the grid.

    ``unit`` is the integer for 1 in the product (the square of the scale), for the error text.

    >>> multiply(torch.tensor([3]), torch.tensor([-7]), 1)
    tensor([-21])
    """
    if magnitude(a) * magnitude(b) >= RING_END:
        refuse_overflow(a.double() * b.double(), unit)
    return torch.mul(a, b)


def product(kernel: Kernel, a: torch.Tensor, b: torch.Tensor, unit: int) -> torch.Tensor:
    """Sums of products (matmul, convolution), checked; not yet rescaled to the grid.

    ``unit`` is the integer for 1 in the result.

    >>> from syft.crypto.kernels import KernelCode
    >>> a = torch.tensor([[2**40, 1]])
    >>> product(Kernel(KernelCode.MATMUL), a, torch.ones(2, 1, dtype=torch.int64), 1)
    tensor([[1099511627777]])
    """
    largest_a, largest_b = magnitude(a), magnitude(b)
    if largest_a * largest_b * max(kernel.terms(a.shape, b.shape), 1) >= RING_END:
        refuse_overflow(kernel(a.double(), b.double()), unit)
    return ring_product(kernel, a, b, (largest_a, largest_b))


def added(a: Any, b: Any, unit: int, sign: int = 1) -> Any:
    """``a + sign * b``, refused where it would leave the ring and wrap unnoticed.

    Numbers stand for tensors of them.  Integers that may not be read wrap.

    >>> added(torch.tensor([3, -7]), 2, 1), added(torch.tensor([3]), torch.tensor([5]), 1, sign=-1)
    (tensor([ 5, -5]), tensor([-2]))
    """
    check_sum(a, b, unit, sign)
    return a + b if sign > 0 else a - b


def check_sum(a: Any, b: Any, unit: int, sign: int = 1) -> None:
    """Refuse ``a + sign * b`` where it would leave the ring.

    >>> check_sum(torch.tensor([2**62]), 2**62 - 1, 1)
    """
    if _readable(a) and _readable(b) and _largest(a) + _largest(b) >= RING_END:
        refuse_overflow(_in_float64(a) + sign * _in_float64(b), unit)


def check_sums(x: Any, terms: int, sums: Callable[[torch.Tensor], torch.Tensor], unit: int) -> None:
    """Refuse sums of so many integers at most that would leave the ring.

    ``sums`` makes the same of float64.

    >>> check_sums(torch.tensor([2**62, 2**62]), 2, torch.sum, 2**16)
    Traceback (most recent call last):
    syft.exceptions.EncodingError: Cannot encode the result 1.407e+14 in fixed precision: the \
range is -1.407e+14 to 1.407e+14. Instead, use fewer fractional digits (precision_fractional) or \
scale the data down.
    """
    if _readable(x) and magnitude(x) * max(terms, 1) >= RING_END:
        refuse_overflow(sums(x.double()), unit)


def check_added_up(op: Any, args: Sequence[Any], values: Sequence[int], unit: int) -> None:
    """The same for an operation that adds some of its arguments up in others, at indices.

    ``values`` are the places of arguments that are added, also into; the others say where.

    >>> add = torch.ops.aten.index_add.default
    >>> largest = torch.tensor([2**62, 2**62])
    >>> args = torch.zeros_like(largest), 0, torch.tensor([0, 1]), largest
    >>> check_added_up(add, args, [0, 3], 1)
    """
    given = [args[place] for place in values if place < len(args)]
    if not all(map(_readable, given)):
        return
    terms = max(one.numel() for one in leaves(tuple(args)) if isinstance(one, torch.Tensor))
    if sum(map(_largest, given)) * max(terms, 1) >= RING_END:
        floats = [
            one.double() if place in values and isinstance(one, torch.Tensor) else one
            for place, one in enumerate(args)
        ]
        refuse_overflow(op(*floats), unit)


def _readable(value: Any) -> bool:
    return type(value) is not Wrapper


def _largest(value: Any) -> int:
    return magnitude(value) if isinstance(value, torch.Tensor) else abs(value)


def _in_float64(value: Any) -> Any:
    return value.double() if isinstance(value, torch.Tensor) else torch.tensor(float(value))


def division_by_zero() -> EncodingError:
    """The error for a divisor of zero; the usual cause is an epsilon below the grid's step."""
    return EncodingError(
        "a division by zero",
        "finite",
        "see that the divisor is not 0 on the grid: an eps below half a step (Adamax's 1e-8) is 0 "
        "there, so pass a larger one, such as eps=1e-3",
    )


def quotient(numerators: torch.Tensor, divisor: Any, factor: float, unit: int) -> torch.Tensor:
    """``numerators / divisor * factor`` to the nearest; a divisor of zero is an error.

    A whole number divides exactly; otherwise 2^-52 of the result come on top of half a step.

    >>> quotient(torch.tensor([7, -7]), 2, 3.0, 1)
    tensor([ 10, -10])
    """
    quotients = numerators.double() / divisor
    if factor != 1:
        quotients.mul_(factor)
    largest = quotients.abs().max().item() if quotients.numel() else 0.0
    if not largest < RING_END:  # also when one is NaN
        if (torch.as_tensor(divisor) == 0).any().item():
            raise division_by_zero()
    elif largest >= IN_FLOAT64 and factor == 1 and not isinstance(divisor, torch.Tensor):
        if float(divisor).is_integer() and abs(divisor) <= 2**MOST_BITS:
            signed = numerators if divisor > 0 else -numerators
            return nearest(signed, whole_divisor(abs(int(divisor))))
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
