"""Whether shared numbers are negative, and their positive part, exact on the whole ring.

Both open c = x + r and find the sign of c - r with a tree of four children a node (``sign_bit``)
in place of a full adder: 4 rounds for 64 bits, where a Kogge-Stone adder takes 7 to 9.  That is
borrowed from Ohata and Nuida (FC 2020), and the public side of the comparison from Damgård et al.
(TCC 2006).  The last opening is that of the sign under a mask bit whose number is shared too, and
so is its product with r: the step from bits to numbers, and the choice of max(x, 0), take no more.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass

import torch

from syft.crypto.dealing import Dealer
from syft.crypto.gates.bit_injection import inject, inject_part, under_mask
from syft.crypto.gates.bit_planes import (
    Words,
    bit_masks,
    module_of,
    new_words,
    tensor_of,
    unpack,
    words_of,
)
from syft.crypto.gates.sign_bit import SignMaterial, deal_sign, masked_signs
from syft.crypto.gates.public_factors import Factor, factor_for, part_of, products
from syft.crypto.gates.truncation import quotient_and_wrap, wrapped_quotient
from syft.crypto.opening import ShareOpening


@dataclass(frozen=True, slots=True)
class ComparisonMaterial:
    """A mask r, what the tree needs for it, and numbers derived from r and the last mask bit b.

    ``numbers`` has a row for each: b; for the positive part b·r, or with a factor b·q, b·w, q and
    w, where q and w are the product and the wrap of ``truncation``.
    """

    factor: Factor
    mask: Words
    sign: SignMaterial
    numbers: Words


def deal_negative(dealer: Dealer, shape: Sequence[int]) -> ComparisonMaterial:
    """Deal for ``negative`` of this shape: 50.125 B an element to the last party."""
    count = math.prod(shape)
    mask = dealer.uniform((count,))
    sign = deal_sign(dealer, mask)
    bit = dealer.derived(
        (1, count), lambda: unpack(tensor_of(sign.result_mask), count).view(1, count)
    )
    return ComparisonMaterial(0, words_of(mask), sign, words_of(bit))


def deal_positive(dealer: Dealer, shape: Sequence[int], factor: Factor) -> ComparisonMaterial:
    """Deal for ``positive`` of this shape, to the last party: 58.125 B an element, or 82.125 B
    with a factor other than 1."""
    count = math.prod(shape)
    mask = dealer.uniform((count,))
    factor = factor_for(factor, shape, mask.device)
    plain = type(factor) is int and not factor
    sign = deal_sign(dealer, mask)

    def numbers() -> torch.Tensor:
        bit = unpack(tensor_of(sign.result_mask), count).view(1, count)
        if plain:
            return torch.cat((bit, bit * mask))
        parts = quotient_and_wrap(mask, factor)
        return torch.cat((bit, bit * parts, parts))

    derived = dealer.derived((2 if plain else 5, count), numbers)
    return ComparisonMaterial(factor, words_of(mask), sign, words_of(derived))


def negative(
    rank: int, material: ComparisonMaterial, x: torch.Tensor
) -> Generator[ShareOpening, Sequence[torch.Tensor], torch.Tensor]:
    """1 where x < 0, else 0; exact for every x.

    1. Open c = x + r, for a uniform mask r: 8 B.
    2. Find s = [x < 0] from c and the bits of r, and open e = s + b (``masked_signs``): 34 bits.
    3. Each party: b (1 - 2 e); party 0 adds e.

    4 rounds; 8 B an element and 34 bits an element, in words of 64 elements; all of it uniform.
    """
    (opened,) = yield under_mask(words_of(x.reshape(-1)), material.mask)
    plane = yield from masked_signs(rank, material.sign, words_of(opened), negated=False)
    return inject(rank, plane, material.numbers[0]).view(x.shape)


def positive(
    rank: int, material: ComparisonMaterial, x: torch.Tensor
) -> Generator[ShareOpening, Sequence[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]:
    """max(k x, 0), and 1 where x >= 0, else 0: ReLU of a product, and its derivative.

    Right for every x, without an offset: where x >= 0 the first is the floor of k x or one more,
    exactly k x for a factor of 1, and 0 where x < 0; the other result is exact.

    1. Open c = x + r, for a uniform mask r: 8 B.
    2. Find k = [x >= 0] from c and the bits of r, and open e = k + b (``masked_signs``): 34 bits.
    3. Each party, without a message: y, which is x, or k x from c as in ``divide`` (whatever it is
       where x < 0); b y from c and its shares of b and of b times what y takes from r.
    4. k = e + b (1 - 2 e), and k y = e y + (1 - 2 e) b y.

    4 rounds; 8 B an element and 34 bits an element, in words of 64 elements; all of it uniform.
    What the rounding depends on is said at ``divide``.
    """
    flat = words_of(x.reshape(-1))
    (opened,) = yield under_mask(flat, material.mask)
    c = words_of(opened)
    plane = yield from masked_signs(rank, material.sign, c, negated=True)
    value, flag = (new_words((len(flat),), flat) for _ in range(2))
    for where, masks in bit_masks(plane, len(flat)):
        bit, *others = (row[where] for row in material.numbers)
        if others[1:]:
            factor = part_of(material.factor, where)
            share, masked = _quotients(rank, factor, c[where], bit, others)
        else:
            share, masked = flat[where], c[where] * bit
            masked -= others[0]
        sign = inject_part(rank, masks, bit, flag[where])
        masked *= sign
        masks &= share
        module_of(masked).add(masked, masks, out=value[where])
    return tensor_of(value).view(x.shape), tensor_of(flag).view(x.shape)


def _quotients(
    rank: int, factor: Factor, opened: Words, bit: Words, others: Sequence[Words]
) -> tuple[Words, Words]:
    """Shares of y = k x, and of b y."""
    masked_quotient, masked_wrap, quotient, wrap = others
    public = products(opened, factor)
    share = wrapped_quotient(opened, quotient, wrap)
    masked = wrapped_quotient(opened, masked_quotient, masked_wrap)
    masked += public * bit
    if rank == 0:
        share += public
    return share, masked
