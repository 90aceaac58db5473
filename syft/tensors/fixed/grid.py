"""The grid of fixed precision: the numbers that it holds, and how they are encoded and decoded.

A grid has a ``base`` and a number of fractional ``digits``; the number ``v`` is stored as the
64-bit integer nearest to ``v * base**digits``.  One step of the grid is ``base**-digits``, so the
error of encoding is at most half a step.  A value that does not fit (too large, infinite, not a
number) is refused and never wrapped.

``FLOOR`` and ``CEILING`` (minus and plus 2**61) represent the infinities that torch code uses as
limits: ``masked_fill(mask, -inf)`` before a softmax, a clamp without a bound.  They are a quarter
of the ring's end, so that the differences in softmax do not wrap.  Many models write the largest
float instead of infinity; so a number from ``INFINITE`` on counts as infinite.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum

import torch

from syft.crypto.gates.public_factors import nearest
from syft.exceptions import EncodingError, UnsupportedOperation, UnusableSetting

RING_END = 2**63
FLOOR = -(2**61)
CEILING = 2**61
INFINITE = 3.3e38

BASES = range(2, 17)
LARGEST_SCALE = 2**60
DEFAULT_BITS = 16

_decoding_forbidden: ContextVar[bool] = ContextVar("_decoding_forbidden", default=False)


class Excess(Enum):
    """How a number beyond the range of the grid is encoded.

    >>> [excess.name for excess in Excess]
    ['REFUSE', 'ENDS', 'CLAMP']
    """

    REFUSE = "refuse"
    """An error: for operands of arithmetic."""
    ENDS = "ends"
    """Infinities become the floor or the ceiling, others are refused: for fills and masks."""
    CLAMP = "clamp"
    """All become the floor or the ceiling: for bounds and comparisons."""


@dataclass(frozen=True, slots=True)
class Grid:
    """The numbers ``n / base**digits`` for integers ``n`` of 64 bits; see :func:`make_grid`."""

    base: int
    digits: int
    scale: int
    shift: int | None
    """The digits when the base is 2, so that dividing by the scale is a shift; otherwise None."""

    def limits(self) -> str:
        """The range of the grid, for an error text.

        >>> make_grid(2, 16).limits()
        '-1.407e+14 to 1.407e+14'
        """
        end = RING_END / self.scale
        return f"-{end:.4g} to {end:.4g}"

    def __str__(self) -> str:
        return f"base {self.base} with {self.digits} digits"


@functools.cache
def make_grid(base: int, digits: int) -> Grid:
    """The grid of that base and number of digits: always the same object for the same numbers.

    Raises :class:`~syft.exceptions.EncodingError` for a base or number of digits out of range.

    >>> make_grid(10, 3).scale, make_grid(2, 16) is make_grid(2, 16)
    (1000, True)
    """
    if base not in BASES:
        bases = f"bases {BASES.start} to {BASES.stop - 1}"
        raise EncodingError(f"with base {base}", bases, "choose base 2 or base 10")
    if not isinstance(digits, int):
        raise UnusableSetting("precision_fractional", "a number of digits", repr(digits))
    if digits < 0 or base**digits > LARGEST_SCALE:
        most = int(math.log(LARGEST_SCALE, base) + 1e-9)
        raise EncodingError(
            f"with {digits} fractional digits", f"0 to {most} digits of base {base}", "choose in it"
        )
    return Grid(base, digits, base**digits, digits if base == 2 else None)


# ------------------------------------------------------------------------------------ encoding


def encode(tensor: torch.Tensor, grid: Grid, excess: Excess = Excess.REFUSE) -> torch.Tensor:
    """Encode a plain tensor of any real dtype: int64, each value the nearest point of the grid.

    Raises :class:`~syft.exceptions.EncodingError`, naming the first value that does not fit.

    >>> encode(torch.tensor([1.5, -2.0]), make_grid(10, 3))
    tensor([ 1500, -2000])
    """
    tensor = tensor.detach()
    if tensor.is_complex():
        raise UnsupportedOperation(
            "complex numbers", "FixedPrecisionTensor", "encode the real and the imaginary part"
        )
    if not tensor.is_floating_point():
        return _encode_integers(tensor, grid)
    scaled = tensor.to(torch.float64, copy=True).mul_(grid.scale)
    if tensor.numel():
        low, high = torch.aminmax(scaled)
        if not (-RING_END < low.item() and high.item() < RING_END):  # also true when one is NaN
            scaled = _limit_excess(scaled, tensor, grid, excess)
    return scaled.round_().to(torch.int64)


def encode_number(value: float, grid: Grid, excess: Excess = Excess.REFUSE) -> int:
    """Encode one Python number.

    >>> encode_number(0.5, make_grid(2, 16))
    32768
    >>> encode_number(float("-inf"), make_grid(2, 16), Excess.ENDS) == FLOOR
    True
    """
    if isinstance(value, int):
        scaled: float = int(value) * grid.scale
    else:
        scaled = value * grid.scale
    if -RING_END < scaled < RING_END:
        return round(scaled)
    if excess is Excess.CLAMP or excess is Excess.ENDS and abs(value) >= INFINITE:
        if not math.isnan(value):
            return CEILING if value > 0 else FLOOR
    raise _does_not_fit(value, grid)


def _encode_integers(tensor: torch.Tensor, grid: Grid) -> torch.Tensor:
    whole = tensor.to(torch.int64)
    if tensor.numel() and tensor.dtype not in _NARROW:
        low, high = torch.aminmax(whole)
        most = (RING_END - 1) // grid.scale
        wrapped = tensor.dtype is torch.uint64 and low.item() < 0
        if wrapped or low.item() < -most or high.item() > most:
            outside = (whole < (0 if wrapped else -most)) | (whole > most)
            raise _does_not_fit(tensor[outside][0].item(), grid)
    return whole * grid.scale


_NARROW = (torch.bool, torch.uint8, torch.int8)


def _limit_excess(
    scaled: torch.Tensor, tensor: torch.Tensor, grid: Grid, excess: Excess
) -> torch.Tensor:
    if excess is not Excess.REFUSE:
        end = RING_END if excess is Excess.CLAMP else INFINITE * grid.scale
        scaled = torch.where(scaled <= -end, float(FLOOR), scaled)
        scaled = torch.where(scaled >= end, float(CEILING), scaled)
    outside = ~(scaled.abs() < RING_END)
    if outside.any().item():
        raise _does_not_fit(tensor[outside][0].item(), grid)
    return scaled


def _does_not_fit(value: float, grid: Grid) -> EncodingError:
    if math.isfinite(value):
        instead = "use fewer fractional digits (precision_fractional) or scale the data down"
    else:
        instead = "replace infinities and NaN first, for example with torch.nan_to_num"
    return EncodingError(repr(value), grid.limits(), instead)


# ------------------------------------------------------------------------------------ decoding


def decode(child: torch.Tensor, grid: Grid, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Decode the integers of ``child``.

    >>> decode(torch.tensor([1500, -2000]), make_grid(10, 3))
    tensor([ 1.5000, -2.0000])
    """
    if _decoding_forbidden.get():
        raise UnsupportedOperation(
            "decoding", "FixedPrecisionTensor", "forbid_decoding() is in force here"
        )
    numbers = child.to(torch.float64, copy=True).div_(grid.scale)
    return numbers if dtype is torch.float64 else numbers.to(dtype)


@contextmanager
def forbid_decoding() -> Iterator[None]:
    """Make decoding inside the block an error, to check that an operation works on the integers.

    >>> with forbid_decoding():
    ...     decode(torch.tensor([1]), make_grid(2, 16))
    Traceback (most recent call last):
    syft.exceptions.UnsupportedOperation: FixedPrecisionTensor has no rule for decoding: \
forbid_decoding() is in force here.
    """
    token = _decoding_forbidden.set(True)
    try:
        yield
    finally:
        _decoding_forbidden.reset(token)


# ------------------------------------------------------------------------------------ rounding


def rescale_(products: torch.Tensor, grid: Grid) -> torch.Tensor:
    """Rescale products of two encoded numbers in place: divide by the scale, to the nearest.

    >>> rescale_(torch.tensor([1500 * 2000]), make_grid(10, 3))
    tensor([3000])
    """
    if grid.shift is None or grid.shift == 1:
        return products.copy_(nearest(products, (grid.scale,)))
    if (
        grid.shift
    ):  # not (n + half) >> shift, which wraps at the end of the ring, as + 1 would for 1
        products.bitwise_right_shift_(grid.shift - 1).add_(1).bitwise_right_shift_(1)
    return products
