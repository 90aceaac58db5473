"""Public numbers from 0 to 1 by which integers of 64 bits are multiplied, exactly.

A factor is a whole number ``bits`` for 1 / 2^bits; ``(d,)`` for 1 / d; or ``(n, bits)`` for
n / 2^bits with a numerator of at most 53 bits, which is what a float64 is.  In the place of a
number in a tuple a tensor has one for each element, broadcast to their shape.

The product with an integer of 64 bits has up to 117 bits, and all of them count where the quotient
of a difference is found as the difference of two quotients (``gates.truncation``).  So nothing
here is computed in float64: a divisor divides integers, and a fraction is multiplied in limbs.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import torch

from syft.crypto.gates.bit_planes import Words, element_parts, new_words, tensor_of, words_of
from syft.exceptions import ProgramError

Factor: TypeAlias = Any
"""An int or a tuple, as above."""

MOST_BITS: Final = 62
NUMERATOR_BITS: Final = 53
LIMB_BITS: Final = 27
MOST_SHIFT: Final = NUMERATOR_BITS + 63
"""The bits of a fraction: a smaller one makes nothing of an integer of 64 bits."""

_RANGES: Final = {
    1: ((1, 1 << MOST_BITS),),
    2: ((0, (1 << NUMERATOR_BITS) - 1), (LIMB_BITS, MOST_SHIFT)),
}
"""The least and the largest of each number of a tuple, by its length."""


def check_factor(factor: Factor, shape: Sequence[int]) -> None:
    """Raise :class:`~syft.exceptions.ProgramError` for what is no factor of this shape.

    >>> check_factor(16, (2,)); check_factor((10,), (2,)); check_factor((torch.tensor([3]),), (2,))
    >>> check_factor(63, (2,))
    Traceback (most recent call last):
    ...
    syft.exceptions.ProgramError: a division by 2^63: the exponent must be 0 to 62
    """
    if type(factor) is int:
        if not 0 <= factor <= MOST_BITS:
            text = f"a division by 2^{factor!r:.20}: the exponent must be 0 to {MOST_BITS}"
            raise ProgramError(text)
        return
    if type(factor) is not tuple or len(factor) not in _RANGES:
        raise ProgramError("a factor that is no number of bits, divisor or fraction")
    for number, (least, most) in zip(factor, _RANGES[len(factor)], strict=True):
        ends = _ends_of(number, shape)
        if not (least <= ends[0] and ends[1] <= most):
            raise ProgramError(f"a factor of {ends[0]} to {ends[1]}, not {least} to {most}")


def _ends_of(number: Any, shape: Sequence[int]) -> tuple[int, int]:
    """The least and the largest of a number for each element."""
    if type(number) is int:
        return number, number
    plain = type(number) is torch.Tensor and number.dtype is torch.int64 and not number.is_meta
    if not (plain and number.layout is torch.strided and number.numel()):
        raise ProgramError("a factor of other things than int64")
    if number.dim() > len(shape) or any(
        size not in (1, whole) for size, whole in zip(reversed(number.shape), reversed(shape))
    ):
        raise ProgramError(f"a factor of shape {tuple(number.shape)} for {tuple(shape)}")
    low, high = torch.aminmax(number)
    return int(low), int(high)


def whole_divisor(divisor: int) -> Factor:
    """The factor 1 / divisor, for a divisor from 1 to 2^62.

    >>> whole_divisor(65536), whole_divisor(10)
    (16, (10,))
    """
    return (divisor,) if divisor & (divisor - 1) else divisor.bit_length() - 1


def fraction(number: float) -> Factor | None:
    """The factor that is a number from 0 to below 1, or nothing where its products are below 1/2.

    The inverse of a whole number is that, so that multiples of it stay whole.

    >>> fraction(0.5), fraction(0.1), fraction(0.7) == (round(0.7 * 2**53), 53), fraction(1e-30)
    (1, (10,), True, None)
    """
    mantissa, exponent = math.frexp(number)
    if not number or exponent < -63:
        return None
    divisor = round(1 / number)
    if 1 / divisor == number and divisor <= 1 << MOST_BITS:
        return whole_divisor(divisor)
    return int(mantissa * 2**NUMERATOR_BITS), NUMERATOR_BITS - exponent


def fractions(numbers: torch.Tensor) -> Factor:
    """The same for a tensor of float64: a fraction for each element.

    >>> fractions(torch.tensor([0.5, 0.0], dtype=torch.float64))
    (tensor([4503599627370496,                0]), tensor([53, 53]))
    """
    mantissas, exponents = torch.frexp(numbers)
    small = exponents < -63
    numerators = (mantissas * 2.0**NUMERATOR_BITS).to(torch.int64).masked_fill(small, 0)
    return numerators, (NUMERATOR_BITS - exponents.to(torch.int64)).masked_fill(small, MOST_SHIFT)


# ------------------------------------------------------------------------------------- computation


def products(words: Words, factor: Factor, less: int = 0) -> Words:
    """The floor of ``factor * (word - less)`` modulo 2^64, exact; ``less`` is 0, 2^62 or 2^64.

    ``words`` has one dimension, and so have tensors in the factor (``factor_for``).

    >>> x = words_of(torch.tensor([7, -7]))
    >>> products(x, 1), products(x, (3,)), products(x, (3 << 51, 53))
    (array([ 3, -4]), array([ 2, -3]), array([ 5, -6]))
    >>> int(products(x, (3,), 2**62)[0]) == (7 - 2**62) // 3
    True
    """
    if type(factor) is int:
        found = words >> factor
        found -= _signed(less >> factor)
        return found
    if len(factor) == 1:
        return _quotients(words, factor[0], less)
    numerator, bits = factor
    return _fractions_of(words, numerator, bits, less >> 32)


def _quotients(words: Words, divisor: Any, less: int) -> Words:
    found = words // divisor
    if less:
        whole, rest = _power_over(divisor, less)
        found -= whole + (words - found * divisor < rest)
    return found


def _power_over(divisor: Any, power: int) -> tuple[Any, Any]:
    """A power of two from 2^62 over a divisor modulo 2^64, and the rest; also for arrays."""
    if isinstance(divisor, int):
        return _signed(power // divisor), power % divisor
    whole = (1 << MOST_BITS) // divisor
    rest = (1 << MOST_BITS) - whole * divisor
    for _ in range(power.bit_length() - 1 - MOST_BITS):
        more = rest >= divisor - rest
        whole, rest = 2 * whole + more, 2 * rest - more * divisor
    return whole, rest


def _fractions_of(words: Words, numerator: Any, bits: Any, less: int) -> Words:
    """In limbs: of 32 bits of the words, and of 27 of the numerator. No sum leaves 64 bits."""
    high, low = (words >> 32) - less, words & 0xFFFFFFFF
    upper, lower = numerator >> LIMB_BITS, numerator & ((1 << LIMB_BITS) - 1)
    # floor(word * lower / 2^27), as a * 2^32 + b
    a = high * lower
    b = (low * lower) >> LIMB_BITS
    b += (a & ((1 << LIMB_BITS) - 1)) << 5
    a >>= LIMB_BITS
    # and word * upper added to it
    low *= upper
    low += b
    high *= upper
    high += a
    high += low >> 32
    low &= 0xFFFFFFFF
    shift = bits - LIMB_BITS
    high <<= _clipped(32 - shift, 32)
    high >>= _clipped(shift - 32, 63)
    low >>= _clipped(shift, 63)
    high += low
    return high


def _clipped(number: Any, most: int) -> Any:
    return min(max(number, 0), most) if isinstance(number, int) else number.clip(0, most)


def _signed(number: int) -> int:
    """A number modulo 2^64 as a word."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def nearest(x: torch.Tensor, factor: Factor) -> torch.Tensor:
    """``factor * x`` to the nearest, halves upwards, exact for every int64.

    >>> nearest(torch.tensor([5, -5, 2**63 - 1]), (10,))
    tensor([                 1,                  0, 922337203685477581])
    """
    words, factor = words_of(x.reshape(-1)), factor_for(factor, x.shape, x.device)
    found = new_words(words.shape, words)
    for part in element_parts(words):
        found[part] = _rounded(words[part], part_of(factor, part))
    return tensor_of(found).view(x.shape)


def _rounded(words: Words, factor: Factor) -> Words:
    if type(factor) is tuple and len(factor) == 1:
        found = words // factor[0]
        rest = words - found * factor[0]
        found += rest >= factor[0] - rest
        return found
    if type(factor) is int:
        return (words >> factor) + ((words >> (factor - 1)) & 1) if factor else words
    numerator, bits = factor
    half = numerator, bits - 1  # the next bit is the lowest of twice the product
    found = products(words, factor)
    found += products(words, half) & 1
    return found


def factor_for(factor: Factor, shape: Sequence[int], device: torch.device | str = "cpu") -> Factor:
    """A factor, frozen or not, with words of one dimension in the place of tensors: one for each
    element of this shape, in a row.

    Raises :class:`~syft.exceptions.ProgramError` for what is no factor of this shape.

    >>> factor_for((torch.tensor([[3], [4]]),), (2, 2))[0].tolist()
    [3, 3, 4, 4]
    """
    factor = thawed_factor(factor)
    check_factor(factor, shape)
    if type(factor) is int:
        return factor
    return tuple(
        one if type(one) is int else words_of(one.to(device).expand(tuple(shape)).reshape(-1))
        for one in factor
    )


def part_of(factor: Factor, part: slice) -> Factor:
    """The factor for some of the elements.

    >>> part_of((10,), slice(0, 2)), part_of(3, slice(0, 2))
    ((10,), 3)
    """
    if type(factor) is int:
        return factor
    return tuple(one if type(one) is int else one[part] for one in factor)


# ------------------------------------------------------------------------------ told to a provider


def frozen_factor(factor: Factor) -> Factor:
    """A factor with ``(shape, bytes)`` in the place of tensors, which is compared by its numbers.

    >>> frozen_factor((torch.tensor([3]),))
    (((1,), b'\\x03\\x00\\x00\\x00\\x00\\x00\\x00\\x00'),)
    """
    if type(factor) is not tuple:
        return factor
    return tuple(_frozen(one) if type(one) is torch.Tensor else one for one in factor)


def _frozen(tensor: torch.Tensor) -> tuple[tuple[int, ...], bytes]:
    return tuple(tensor.shape), tensor.detach().cpu().contiguous().numpy().astype("<i8").tobytes()


def thawed_factor(factor: Factor) -> Factor:
    """The factor again; what is no pair of a shape and bytes is left as it is.

    >>> thawed_factor(frozen_factor((torch.tensor([[3]]), 60)))
    (tensor([[3]]), 60)
    """
    if type(factor) is not tuple:
        return factor
    return tuple(_thawed(one) if type(one) is tuple else one for one in factor)


def _thawed(frozen: Any) -> torch.Tensor:
    if not _is_frozen(frozen) or type(frozen[0]) is not tuple:
        raise ProgramError("a factor that is no shape and bytes")
    shape, data = frozen
    if not all(type(size) is int and size > 0 for size in shape):
        raise ProgramError("a factor without a shape")
    if len(data) != 8 * math.prod(shape):
        raise ProgramError(f"a factor of {len(data)} bytes for {shape}")
    return torch.frombuffer(bytearray(data), dtype=torch.int64).reshape(shape)


def named_factor(factor: Factor) -> Factor:
    """A factor with hashes in the place of tensors, alike where it is frozen.

    >>> one = (torch.tensor([3]),)
    >>> named_factor(one) == named_factor(frozen_factor(one))
    True
    """
    if type(factor) is not tuple:
        return factor
    return tuple(
        hashlib.sha256(b"%r %b" % one).hexdigest() if _is_frozen(one) else one
        for one in frozen_factor(factor)
    )


def _is_frozen(one: Any) -> bool:
    return type(one) is tuple and len(one) == 2 and type(one[1]) is bytes
