"""A ring whose integers nobody may read: int64 tensors behind a link that computes on them alone.

It stands for shares of several parties: what works over it reads no value, because there is no way
to.  Every operation that is not in the table of ring links is refused, among them ``item``,
``nonzero``, an index by a mask, and every kernel for floats.  Products wrap without an error, and
truncation rounds to the nearest or one above, as masked truncation of shares does.

``reveal`` is the tests' own way in.
"""

from __future__ import annotations

from typing import Any

import torch

from syft.crypto.gates.public_factors import nearest
from syft.crypto.kernels import Kernel
from syft.crypto.ring_products import ring_map, ring_product
from syft.chain.wrapper import wrap_like
from syft.ops.nested import replace
from syft.tensors.fixed.fixed_link import fixed
from syft.tensors.fixed.grid import decode
from syft.tensors.fixed.precision import fix_precision
from syft.tensors.fixed.rings.integer_ring import Ring
from syft.tensors.fixed.rings.ring_link import RingLink, is_ring


class BlindRing(Ring):
    """Integers that only their ring computes on; it counts what costs communication."""

    def __init__(self, name: str = "blind integers", noisy: bool = False) -> None:
        self.called = name
        self.noisy = noisy
        self.comparisons = 0

    @property
    def name(self) -> str:
        return self.called

    def hide(self, integers: torch.Tensor, dtype: torch.dtype = torch.int64) -> Any:
        assert type(integers) is torch.Tensor and integers.dtype is torch.int64
        return wrap_like(BlindLink(integers, self), integers, dtype)

    def lift(self, integers: torch.Tensor) -> Any:
        return self.hide(integers.to(torch.int64), integers.dtype)

    def multiply(self, a: Any, b: Any, unit: int) -> Any:
        return self.hide(_open(a) * _open(b))

    def product(self, kernel: Kernel, a: Any, b: Any, unit: int) -> Any:
        return self.hide(ring_product(kernel, _open(a), _open(b)))

    def linear(self, kernel: Kernel, x: Any, unit: int) -> Any:
        return self.hide(ring_map(kernel, _open(x)))

    def scaled(self, x: Any, factor: Any) -> Any:
        found = nearest(_open(x), factor)
        if self.noisy:
            found += torch.randint(0, 2, found.shape, device=found.device)
        return self.hide(found)

    def negative(self, x: Any) -> Any:
        self.comparisons += 1
        return self.hide((_open(x) < 0).to(torch.int64), torch.bool)

    def zero(self, x: Any) -> Any:
        self.comparisons += 1
        return self.hide((_open(x) == 0).to(torch.int64), torch.bool)


class BlindLink(RingLink):
    """One tensor of integers that nobody may read."""

    __slots__ = ("_integers", "_ring")

    def __init__(self, integers: torch.Tensor, ring: BlindRing) -> None:
        self._integers = integers
        self._ring = ring

    @property
    def ring(self) -> BlindRing:
        return self._ring

    @classmethod
    def componentwise(cls, op: Any, args: Any, kwargs: Any) -> Any:
        rings = []

        def inner(value: Any) -> Any:
            if is_ring(value):
                rings.append(value.child.ring)
                return value.child._integers
            return value

        out = op(*replace(args, inner), **replace(kwargs, inner))
        assert all(ring is rings[0] for ring in rings)
        return replace(out, lambda v: rings[0].hide(v) if isinstance(v, torch.Tensor) else v)

    def show(self) -> str:
        return "BlindLink"


def _open(x: Any) -> torch.Tensor:
    return x.child._integers if is_ring(x) else x


def blind(x: torch.Tensor, ring: BlindRing, bits: int = 16, base: int = 2) -> Any:
    """A fixed tensor over the blind ring, or its private integers or bits; a leaf as ``x`` was."""
    if not x.is_floating_point():
        return ring.lift(x)
    link = fix_precision(x.detach(), bits, base).child
    return fixed(ring.lift(link.child), link.grid).requires_grad_(x.requires_grad)


def reveal(x: Any, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """What a blind tensor holds, as plain numbers, integers or bits."""
    if type(x) is torch.Tensor:
        return x
    if is_ring(x):
        return x.child._integers.to(x.dtype)
    return decode(_open(x.child.child), x.child.grid, dtype)
