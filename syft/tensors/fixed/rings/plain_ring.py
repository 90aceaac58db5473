"""The ring of plain integers: int64 tensors in this process, which rules may read.

Because it may be read, a result that would leave the ring is an error, the kernel of a product is
chosen by the magnitudes, and real factors and quotients are computed in float64 and rounded once.
"""

from __future__ import annotations

from typing import Final

import torch

from syft.crypto.gates.public_factors import Factor, nearest
from syft.crypto.kernels import Kernel
from syft.crypto.ring_products import magnitude, ring_map
from syft.tensors.fixed.grid import RING_END, Grid, rescale_
from syft.tensors.fixed.ring import IN_FLOAT64, multiply, product, refuse_overflow, rounded
from syft.tensors.fixed.rings.integer_ring import Ring


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
