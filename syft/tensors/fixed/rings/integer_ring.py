"""What the rules of fixed precision ask of the integers: an abstract ring of 64 bits.

A fixed-point tensor is a grid over integers modulo 2^64.  Those integers may be plain (an int64
tensor in this process) or private (shares of several parties).  The rules do not know which: they
add, negate, sum and rearrange by torch's own functions on the ring's own tensor type, and ask the
ring for everything else: products, truncation, comparison, selection, random access.  So one set of
rules serves every ring.

Why two ways.  Additions and shape operations are about 150 of torch's operations, all of them act
on each component of a share alone, and torch already names them; as methods they would be a second
spelling of torch.  What is left is what costs communication: seven abstract methods, and methods
made of them that a ring may replace by a cheaper protocol.

``readable`` says whether a rule may look at a value.  Over a ring that is not readable nothing may
depend on one: no magnitude decides which kernel runs, no loop ends early, and a result that leaves
the ring wraps without an error.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence
from typing import ClassVar

import torch

from syft.crypto.kernels import Kernel
from syft.exceptions import EncodingError
from syft.tensors.fixed.grid import Grid

FACTOR_BITS = 28
"""The significant bits of a real factor, where the product cannot be computed in float64."""

LARGEST_FACTOR = 2**63
"""No public factor reaches this."""


class Ring(abc.ABC):
    """The integers modulo 2^64 of one owner, or of several together. Abstract.

    An argument called ``x`` is a tensor of the ring.  ``a`` and ``b`` are tensors of the ring too,
    or one of them is public: a plain int64 tensor.  Results are tensors of the ring; bits report
    ``torch.bool``.
    """

    readable: ClassVar[bool] = False
    """Whether rules may look at values."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """What errors call the ring, such as ``"plain integers"``."""

    # ---------------------------------------------------------------------------- what a ring does

    @abc.abstractmethod
    def lift(self, integers: torch.Tensor) -> torch.Tensor:
        """Bring public integers (int64 or bool) into the ring."""

    @abc.abstractmethod
    def multiply(self, a: torch.Tensor, b: torch.Tensor, unit: int) -> torch.Tensor:
        """The elementwise product, not rescaled; ``unit`` is the integer for 1 in it."""

    @abc.abstractmethod
    def product(self, kernel: Kernel, a: torch.Tensor, b: torch.Tensor, unit: int) -> torch.Tensor:
        """A bilinear kernel (matmul, convolution): sums of products, not rescaled."""

    @abc.abstractmethod
    def linear(self, kernel: Kernel, x: torch.Tensor) -> torch.Tensor:
        """A linear kernel: whole coefficients, for which torch has kernels for floats only."""

    @abc.abstractmethod
    def divide(self, x: torch.Tensor, divisor: int | torch.Tensor) -> torch.Tensor:
        """Divide by public whole numbers, to the nearest; a ring may be off by one more step."""

    @abc.abstractmethod
    def negative(self, x: torch.Tensor) -> torch.Tensor:
        """The bits of ``x < 0``, for ``-2**63 <= x < 2**63``."""

    @abc.abstractmethod
    def zero(self, x: torch.Tensor) -> torch.Tensor:
        """The bits of ``x == 0``."""

    # -------------------------------------------------------- what follows; a ring may know better

    def select(self, bits: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """``a`` where the bit is set, and ``b`` elsewhere: one product."""
        return b + self.multiply(bits.to(torch.int64), a - b, 1)

    def positive_part(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """``max(x, 0)``, and the bits of ``x > 0``."""
        bits = self.negative(-x)
        return self.select(bits, x, torch.zeros_like(x)), bits

    def above_zero(self, x: torch.Tensor) -> torch.Tensor:
        """The bits of ``x > 0``; a ring may have kept those of a positive part."""
        return self.negative(-x)

    def one_hot(self, index: torch.Tensor, size: int) -> torch.Tensor:
        """A new last dimension of ``size`` with a 1 at each private index; outside: all zeros."""
        places = torch.arange(size, device=index.device)
        return self.zero(index.unsqueeze(-1) - places).to(torch.int64)

    def reached(self, x: torch.Tensor, thresholds: Sequence[int]) -> torch.Tensor:
        """The bits of ``x >= t`` for each public threshold, as 0 and 1, in a new first dimension.

        All at once, so it takes the rounds of one comparison.
        """
        levels = torch.tensor(thresholds, device=x.device).view(-1, *[1] * x.dim())
        return 1 - self.negative(x.unsqueeze(0) - levels).to(torch.int64)

    def rescale(self, products: torch.Tensor, grid: Grid) -> torch.Tensor:
        """Bring products of two encoded numbers back to the grid; may overwrite ``products``."""
        return self.divide(products, grid.scale)

    def times(self, x: torch.Tensor, factor: float | torch.Tensor, unit: int) -> torch.Tensor:
        """Multiply by a public real number, or a tensor of them, and round to the nearest.

        The factor has 28 significant bits, so a result is off by 2^-28 of it besides the rounding,
        and ``x`` must be below 2^34 where the factor needs all of them (below 2^62 over 1 for a
        factor such as 0.5 or 3).  NaN and infinity are no factors, and no number beyond 64 bits is:
        :class:`~syft.exceptions.EncodingError`.
        """
        if not isinstance(factor, torch.Tensor) and not abs(factor) < LARGEST_FACTOR:
            text = f"{-float(LARGEST_FACTOR):.4g} to {float(LARGEST_FACTOR):.4g}"
            raise EncodingError(f"a factor of {factor}", text, "scale the data down")
        numerator, shift = as_fraction(factor)
        return self.divide(x * numerator, 1 << shift) if shift else x * numerator

    def rescale_times(self, products: torch.Tensor, factor: float, grid: Grid) -> torch.Tensor:
        """Rescale products to the grid and multiply by a public number."""
        inverse = 1 / factor if factor else 0.0
        if inverse >= 1 and abs(inverse - round(inverse)) < 1e-9 * inverse:
            return self.divide(products, grid.scale * round(inverse))
        return self.times(self.rescale(products, grid), factor, grid.scale)

    def scaled_product(
        self, a: torch.Tensor, b: torch.Tensor, factor: float, grid: Grid
    ) -> torch.Tensor:
        """The product of two encoded numbers and a public one, on the grid."""
        return self.rescale_times(self.multiply(a, b, grid.scale**2), factor, grid)


def as_fraction(factor: float | torch.Tensor) -> tuple[int | torch.Tensor, int]:
    """A factor as ``numerator / 2**shift`` with a numerator of at most 28 bits.

    >>> as_fraction(0.75), as_fraction(-3), as_fraction(torch.tensor([0.5, 0.25]))
    ((3, 2), (-3, 0), (tensor([134217728,  67108864]), 28))
    """
    if isinstance(factor, int):
        return factor, 0
    if isinstance(factor, torch.Tensor):
        _, exponent = math.frexp(factor.abs().max().item() if factor.numel() else 0.0)
        shift = min(max(FACTOR_BITS - exponent, 0), 60)
        return (factor.double() * 2.0**shift).round().to(torch.int64), shift
    mantissa, exponent = math.frexp(factor)
    numerator, shift = round(mantissa * 2**FACTOR_BITS), FACTOR_BITS - exponent
    while shift > 0 and (numerator % 2 == 0 or shift > 60):
        numerator, shift = numerator // 2, shift - 1
    return (numerator, shift) if shift >= 0 else (numerator << -shift, 0)
