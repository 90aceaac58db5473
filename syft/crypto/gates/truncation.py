"""Multiplication of a shared number by a public one from 0 to 1: division, where products need it.

Dividing each share by itself is wrong by 2^64 / d whenever the shares' sum wraps: with a small
probability for two parties, almost always for more.  Here the sum is opened under a mask, so that
the wrap is a function of one public bit and one dealt bit (Escudero et al., CRYPTO 2020; Dalskov,
Escudero and Keller, USENIX Security 2021, for powers of two).

With words taken as signed, c = x + 2^62 + r: if 0 <= x + 2^62 < 2^63, c - r is x + 2^62, less 2^64
where c < 0 <= r.  So k x is k (c - 2^62) - k r, or there k (c - 2^62) - k (r - 2^64), each product
rounded down exactly (``public_factors``): the floor of the whole, or one more; and where d divides
x, x / d is exact.  The provider knows k, and deals both products of r.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Final

import torch

from syft.crypto.dealing import Dealer
from syft.crypto.gates.bit_planes import Words, element_parts, new_words, tensor_of, words_of
from syft.crypto.gates.public_factors import Factor, factor_for, part_of, products
from syft.crypto.opening import ShareOpening

OFFSET: Final = 1 << 62
"""What is added to x, so that it is not negative."""
WHOLE: Final = 1 << 64


@dataclass(frozen=True, slots=True)
class DivideMaterial:
    """A mask r, and derived from it what ``quotient_and_wrap`` says; n words each."""

    factor: Factor
    mask: Words
    quotient: Words
    wrap: Words


def quotient_and_wrap(mask: torch.Tensor, factor: Factor) -> torch.Tensor:
    """k r, rounded down; and where r >= 0 what a wrap adds: that less k (r - 2^64). Shape (2, n).

    >>> quotient_and_wrap(torch.tensor([-3, 3]), 62)
    tensor([[-1,  0],
            [ 0,  4]])
    """
    words = words_of(mask)
    found = new_words((2, len(words)), words)
    for part in element_parts(words):
        own = part_of(factor, part)
        found[0, part] = products(words[part], own)
        found[1, part] = found[0, part] - products(words[part], own, WHOLE)
        found[1, part] &= ~(words[part] >> 63)
    return tensor_of(found)


def deal_divide(dealer: Dealer, shape: Sequence[int], factor: Factor) -> DivideMaterial | None:
    """Deal for k x of this shape: 16 B an element to the last party, nothing for a factor of 1."""
    if factor == 0:
        return None
    count = math.prod(shape)
    mask = dealer.uniform((count,))
    factor = factor_for(factor, shape, mask.device)
    derived = words_of(dealer.derived((2, count), lambda: quotient_and_wrap(mask, factor)))
    return DivideMaterial(factor, words_of(mask), derived[0], derived[1])


def divide(
    rank: int, material: DivideMaterial | None, x: torch.Tensor
) -> Generator[ShareOpening, Sequence[torch.Tensor], torch.Tensor]:
    """Multiply by the factor: the floor or one more, for -2^62 <= x < 2^62; it never wraps.

    1. Open c = x + 2^62 + r, for a uniform mask r.
    2. Each party: wrap where c < 0, less the product of r.  Party 0 adds that of c - 2^62.

    1 round, 8 B an element; c is uniform.  For other x the result is wrong by k 2^64, and nothing
    is revealed by it.  It is the floor plus one with a probability of about the fraction of k x,
    which depends on r: what the rounding tells is of x's lowest bits, to whom the result is told.
    Where x is a multiple of a divisor, the quotient is exact.  Without material, which is for a
    factor of 1, x is returned as it is.
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
            share += products(opened[part], part_of(material.factor, part), OFFSET)
        found[part] = share
    return tensor_of(found).view(x.shape)


def wrapped_quotient(opened: Words, quotient: Words, wrap: Words) -> Words:
    """Shares of what is not public: the wrap where it happened, less the product of the mask."""
    found = opened >> 63
    found &= wrap
    found -= quotient
    return found
