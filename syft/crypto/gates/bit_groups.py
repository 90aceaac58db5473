"""Groups of four bits of a shared mask against those of a public word: less, and equal.

x = c - r with c public, so that questions about x are questions about c and the bits of r.  The
bits of c are public; products of the bits of r in a group of four are dealt.  So what a group says
is linear in what the parties hold, and the first two levels of a comparison's tree take no round.

The 64 bits are taken as (node, group, bit) = (4, 4, 4), the highest last.  Arrays of groups have
the shape (group, node, words), so that the same group of all nodes lies together.
"""

from __future__ import annotations

from typing import Final

from syft.crypto.gates.bit_planes import Words
from syft.crypto.gates.masked_products import multiplied, subset_products, with_factor

GROUP_PLANES: Final = 240
"""Planes that are dealt for the groups: 15 products in each of 16 groups."""


def by_bit(planes: Words) -> Words:
    """Planes (64, words) in the order (bit in the group, group, node, words), the same memory."""
    return planes.reshape(4, 4, 4, planes.shape[-1]).swapaxes(0, 2)


def by_group(planes: Words) -> Words:
    """Dealt planes (240, words) as (products, group, node, words), the same memory."""
    return planes.reshape(15, 4, 4, planes.shape[-1])


def deal_groups(mask_planes: Words, out: Words) -> None:
    """Write the products of the bits of each group of the mask, at the provider."""
    bits = by_bit(mask_planes)
    subset_products([bits[0], bits[1], bits[2], bits[3]], out)


def equal(products: Words, inverted: Words, rank: int) -> Words:
    """Shares of whether the bits of c and r are equal in each group.

    ``products`` are shares of ``deal_groups``'s, ``inverted`` the bits of c, each inverted: n.
    Bit i is equal where r_i + n_i = 1, so this is the product of the four.
    """
    found = with_factor(rank, products[:7], products[7:], inverted[3])
    for bit in (2, 1, 0):
        found = multiplied(found, inverted[bit])
    return found[0]


def less_and_equal(products: Words, inverted: Words, rank: int) -> tuple[Words, Words]:
    """Shares of whether the bits of c are less than those of r in each group, and equal.

    Bit i decides where r_i n_i = 1 and all higher bits are equal.
    """
    equal_3 = with_factor(rank, products[:7], products[7:], inverted[3])
    equal_32 = multiplied(equal_3, inverted[2])
    equal_321 = multiplied(equal_32, inverted[1])
    less = inverted[3] & products[7]
    less ^= inverted[2] & equal_3[4]
    less ^= inverted[1] & equal_32[2]
    less ^= inverted[0] & equal_321[1]
    return less, multiplied(equal_321, inverted[0])[0]
