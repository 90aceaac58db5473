"""Division of a shared number by a power of two, which products of fixed precision need.

Dividing each share by itself is wrong by 2^64 / 2^bits whenever the shares' sum wraps: with a small
probability for two parties, almost always for more.  Here the sum is opened under a mask, so that
the wrap is a function of one public bit and one dealt bit (Escudero et al., CRYPTO 2020; Dalskov,
Escudero and Keller, USENIX Security 2021).

With words taken as signed, c = x + 2^62 + r: if 0 <= x + 2^62 < 2^63, c - r is x + 2^62, less 2^64
where c < 0 <= r.  So x / 2^bits is c / 2^bits - r / 2^bits - 2^(62 - bits), plus 2^(64 - bits)
there, each quotient rounded down: at most one more than the floor of the whole.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Final

import torch

from syft.crypto.dealing import Dealer
from syft.crypto.gates.bit_planes import Words, element_parts, new_words, tensor_of, words_of
from syft.crypto.opening import ShareOpening

OFFSET_BITS: Final = 62
OFFSET: Final = 1 << OFFSET_BITS
"""What is added to x, so that it is not negative."""


@dataclass(frozen=True, slots=True)
class DivideMaterial:
    """A mask r, and derived from it what ``quotient_and_wrap`` says; n words each."""

    bits: int
    mask: Words
    quotient: Words
    wrap: Words


def quotient_and_wrap(mask: torch.Tensor, bits: int) -> torch.Tensor:
    """r / 2^bits, rounded down; and 2^(64 - bits) where r >= 0, which a wrap adds. Shape (2, n).

    >>> quotient_and_wrap(torch.tensor([-3, 3]), 62)
    tensor([[-1,  0],
            [ 0,  4]])
    """
    return torch.stack((mask >> bits, ((mask >> 63) + 1) << (64 - bits)))


def check_bits(bits: int) -> None:
    """Raise :class:`ValueError` for a division that this protocol has not.

    >>> check_bits(63)
    Traceback (most recent call last):
    ValueError: a division by 2^63: the exponent must be 0 to 62
    """
    if not 0 <= bits <= OFFSET_BITS:
        raise ValueError(f"a division by 2^{bits}: the exponent must be 0 to {OFFSET_BITS}")


def deal_divide(dealer: Dealer, shape: Sequence[int], bits: int) -> DivideMaterial | None:
    """Deal for x / 2^bits of this shape: 16 B an element to the last party, nothing for 0 bits."""
    check_bits(bits)
    if not bits:
        return None
    count = math.prod(shape)
    mask = dealer.uniform((count,))
    derived = words_of(dealer.derived((2, count), lambda: quotient_and_wrap(mask, bits)))
    return DivideMaterial(bits, words_of(mask), derived[0], derived[1])


def divide(
    rank: int, material: DivideMaterial | None, x: torch.Tensor
) -> Generator[ShareOpening, Sequence[torch.Tensor], torch.Tensor]:
    """Divide by 2^bits: the floor or one more, for -2^62 <= x < 2^62; it never wraps.

    1. Open c = x + 2^62 + r, for a uniform mask r.
    2. Each party: wrap where c < 0, less the quotient of r.  Party 0 adds c / 2^bits - 2^(62 -
       bits).

    1 round, 8 B an element; c is uniform.  For other x the result is wrong by a multiple of
    2^(64 - bits), and nothing is revealed by it.  It is the floor plus one with a probability of
    (x mod 2^bits) / 2^bits, which depends on r: what the rounding tells is of x's lowest bits, to
    whom the result is told.  Without material, which is for 0 bits, x is returned as it is.
    """
    if material is None:
        return x
    masked = words_of(x.reshape(-1)) + material.mask
    if rank == 0:
        masked += OFFSET
    (joined,) = yield ShareOpening((tensor_of(masked),))
    opened = words_of(joined)
    found = new_words((len(opened),), opened)
    for part in element_parts(opened):
        share = wrapped_quotient(opened[part], material.quotient[part], material.wrap[part])
        if rank == 0:
            share += public_quotient(opened[part], material.bits)
        found[part] = share
    return tensor_of(found).view(x.shape)


def public_quotient(opened: Words, bits: int) -> Words:
    """What is public of the quotient, of c with its offset."""
    found = opened >> bits
    found -= OFFSET >> bits
    return found


def wrapped_quotient(opened: Words, quotient: Words, wrap: Words) -> Words:
    """Shares of what is not: the wrap where it happened, less the quotient of the mask."""
    found = opened >> 63
    found &= wrap
    found -= quotient
    return found
