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

The ring of plain integers: int64 tensors in this process, which rules may read.

Because it may be read, a result that would leave the ring is an error, the kernel of a product is
chosen by the magnitudes, and real factors and quotients are computed in float64 and rounded once.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import ClassVar, Final

import torch

from syft.crypto.gates.public_factors import Factor, fraction, fractions, nearest, whole_divisor
from syft.crypto.kernels import Kernel
from syft.crypto.ring_products import magnitude, ring_map
from syft.exceptions import EncodingError
from syft.tensors.fixed.grid import RING_END, Grid, rescale_
from syft.tensors.fixed.ring import IN_FLOAT64, multiply, product, refuse_overflow, rounded

LARGEST_DIVISOR = 2**62

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
    def linear(self, kernel: Kernel, x: torch.Tensor, unit: int) -> torch.Tensor:
        """A linear kernel: sums, for which torch has kernels for floats only; ``unit`` is 1."""

    @abc.abstractmethod
    def scaled(self, x: torch.Tensor, factor: Factor) -> torch.Tensor:
        """Times a public number from 0 to 1 (``gates.public_factors``), for ``|x| < 2**62``.

        To the nearest; a ring may give the floor, or one more.  A multiple of a divisor is exact.
        """

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

    def state_product(self, x: torch.Tensor) -> torch.Tensor:
        """``x``, of which it is stated that it is on the grid of products as well (``domains``)."""
        return x

    def divide(self, x: torch.Tensor, divisor: int | torch.Tensor) -> torch.Tensor:
        """Divide by public whole numbers other than 0, as :meth:`scaled` does."""
        if isinstance(divisor, torch.Tensor):
            if divisor.abs().max().item() > LARGEST_DIVISOR:
                return self.times(x, 1 / divisor.double(), 1)
            return self.scaled(_beside(x, divisor), (divisor.abs(),))
        if divisor < 0:
            return self.divide(-x, -divisor)
        if divisor > LARGEST_DIVISOR:
            return self.times(x, 1 / divisor, 1)
        return self.scaled(x, whole_divisor(divisor)) if divisor > 1 else x.clone()

    def times(self, x: torch.Tensor, factor: float | torch.Tensor, unit: int) -> torch.Tensor:
        """Multiply by a public real number, or a tensor of them, as :meth:`scaled` does.

        Exact but for that rounding, which is that of one step, where ``|x| < 2**62`` and the
        result is in the ring: the whole part of the factor multiplies as it is, and the fraction
        is that of the float64, all of it.  NaN and infinity are no factors, and no number beyond
        64 bits is: :class:`~syft.exceptions.EncodingError`.
        """
        if isinstance(factor, torch.Tensor):
            return self._times_each(x, factor.double(), unit)
        if not abs(factor) < LARGEST_FACTOR:
            raise _no_factor(factor)
        if factor < 0:
            return self.times(-x, -factor, unit)
        whole = int(factor)
        below = fraction(factor - whole)
        if below is None:
            return x * whole
        found = self.scaled(x, below)
        return found + x * whole if whole else found

    def _times_each(self, x: torch.Tensor, factors: torch.Tensor, unit: int) -> torch.Tensor:
        outside = ~(factors.abs() < LARGEST_FACTOR)
        if outside.any().item():
            raise _no_factor(factors[outside][0].item())
        x, factors = _beside(x, factors), factors.abs()
        whole = factors.trunc()
        found = self.scaled(x, fractions(factors - whole)) if factors.numel() else x.clone()
        return found + x * whole.to(torch.int64) if whole.any().item() else found

    def rescale_times(self, products: torch.Tensor, factor: float, grid: Grid) -> torch.Tensor:
        """Rescale products to the grid and multiply by a public number, rounded once."""
        return self.times(products, factor / grid.scale, grid.scale)

    def scaled_product(
        self, a: torch.Tensor, b: torch.Tensor, factor: float, grid: Grid
    ) -> torch.Tensor:
        """The product of two encoded numbers and a public one, on the grid."""
        return self.rescale_times(self.multiply(a, b, grid.scale**2), factor, grid)


def _no_factor(factor: float) -> EncodingError:
    text = f"{-float(LARGEST_FACTOR):.4g} to {float(LARGEST_FACTOR):.4g}"
    return EncodingError(f"a factor of {factor}", text, "scale the data down")


def _beside(x: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    """``x`` with the signs of public numbers, in the shape of both."""
    shape = torch.broadcast_shapes(x.shape, numbers.shape)  # type: ignore[no-untyped-call]
    x = x if x.shape == shape else x.expand(shape)
    return x * numbers.sign().to(torch.int64) if (numbers < 0).any().item() else x


class PlainRing(Ring):
    """Integers in plain int64 tensors.

    >>> x = torch.tensor([3, -7])
    >>> PLAIN.negative(x), PLAIN.zero(x - 3), PLAIN.select(x > 0, x, -x)
    (tensor([False,  True]), tensor([ True, False]), tensor([3, 7]))
    >>> PLAIN.divide(x, 2), PLAIN.times(x, 0.5, 1)
    (tensor([ 2, -3]), tensor([ 2, -4]))
    """

    readable = True

    @property
    def name(self) -> str:
        """``"plain integers"``."""
        return "plain integers"

    def lift(self, integers: torch.Tensor) -> torch.Tensor:
        """Plain integers are what they are."""
        return integers

    def multiply(self, a: torch.Tensor, b: torch.Tensor, unit: int) -> torch.Tensor:
        """The elementwise product, checked (``ring.multiply``)."""
        return multiply(a, b, unit)

    def product(self, kernel: Kernel, a: torch.Tensor, b: torch.Tensor, unit: int) -> torch.Tensor:
        """Sums of products, exact and checked (``ring.product``)."""
        return product(kernel, a, b, unit)

    def linear(self, kernel: Kernel, x: torch.Tensor, unit: int) -> torch.Tensor:
        """A linear map by float64 kernels, exact (``ring_products.ring_map``), and checked."""
        largest = magnitude(x)
        if largest * max(x.numel(), 1) >= RING_END:  # each element counts once, at most
            refuse_overflow(kernel(x.double()), unit)
        return ring_map(kernel, x, largest)

    def scaled(self, x: torch.Tensor, factor: Factor) -> torch.Tensor:
        """To the nearest, halves upwards; for every integer."""
        return nearest(x, factor)

    def rescale(self, products: torch.Tensor, grid: Grid) -> torch.Tensor:
        """Rescale in place: by a shift where the base is 2."""
        return rescale_(products, grid)

    def negative(self, x: torch.Tensor) -> torch.Tensor:
        """Which integers are below zero."""
        return x < 0

    def zero(self, x: torch.Tensor) -> torch.Tensor:
        """Which integers are zero."""
        return x == 0

    def select(self, bits: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Torch's own ``where``."""
        return torch.where(bits, a, b)

    def times(self, x: torch.Tensor, factor: float | torch.Tensor, unit: int) -> torch.Tensor:
        """Rounded once; a whole number multiplies exactly, and a result beyond is an error.

        Small results are computed in float64: half a step, and 2^-7 of one at most.
        """
        if not isinstance(factor, int):
            results = x.double() * factor
            if not results.numel() or results.abs().max().item() < IN_FLOAT64:
                return results.round_().to(torch.int64)
            refuse_overflow(results, unit)
            return super().times(x, factor, unit)
        if magnitude(x) * abs(factor) >= RING_END:
            refuse_overflow(x.double().mul_(factor), unit)
        return x * int(factor)

    def scaled_product(
        self, a: torch.Tensor, b: torch.Tensor, factor: float, grid: Grid
    ) -> torch.Tensor:
        """In float64, rounded once: off by half a step, and 2^-51 of the result."""
        return rounded(a.double().mul_(b).mul_(factor / grid.scale), grid.scale)


PLAIN: Final = PlainRing()
"""The one ring of plain integers."""
