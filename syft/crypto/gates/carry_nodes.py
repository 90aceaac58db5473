"""Nodes of a comparison's tree: they join four groups of bits into one, in one round.

A group says whether its bits are less (g, "generate") and whether they are equal (p, "propagate").
Of four groups, the highest is number 3::

    g = g3 + p3 (g2 + p2 (g1 + p1 g0))        p = p3 p2 p1 p0

p1, p2, p3, g0, g1, g2 are opened under masks a1, a2, a3, b0, b1, b2, and p0 under a0 where p is
asked for; g3 stays as it is.  Products of masks are dealt (``masked_products``).

The planes of a node, in the order in which they are used: the products of the subsets of
(a3, a2, a1); b0 and its products with all of these; b1 and those with subsets of (a3, a2); b2 and
a3 b2.  The masks themselves are drawn, the others dealt.
"""

from __future__ import annotations

from typing import Final

from syft.crypto.gates.bit_planes import Words, module_of, new_words
from syft.crypto.gates.masked_products import multiplied, subset_products, with_factor

MASKS: Final = 6
"""Masks of a node, and bits of it that are opened for each element: p1, p2, p3, g0, g1, g2."""
DEALT: Final = (2, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14, 16, 17, 18, 20)
"""Which of the planes of a node are dealt."""

_DRAWN: Final = (3, 1, 0, 7, 15, 19)
"""Where the masks are among the planes: a1, a2, a3, b0, b1, b2."""
_PLANES: Final = 21


def node_planes(masks: Words, dealt: Words) -> Words:
    """Put what was drawn (6, nodes, words) and dealt (15, nodes, words) in the order of use."""
    planes = new_words((_PLANES, *masks.shape[1:]), masks)
    planes[list(_DRAWN)] = masks
    planes[list(DEALT)] = dealt
    return planes


def mask_products(masks: Words) -> Words:
    """The products of the non-empty subsets of (a3, a2, a1), of which the masks are known."""
    products = new_words((7, *masks.shape[1:]), masks)
    subset_products([masks[2], masks[1], masks[0]], products)
    return products


def deal_nodes(masks: Words, products: Words, out: Words) -> None:
    """Write what is dealt of nodes (15, nodes, words), from masks and their products."""
    module = module_of(out)
    out[0] = products[2]
    out[1:4] = products[4:]
    module.bitwise_and(products, masks[3], out=out[4:11])
    module.bitwise_and(products[:3], masks[4], out=out[11:14])
    module.bitwise_and(products[0], masks[5], out=out[14])


def generated(planes: Words, opened: Words, highest: Words, rank: int) -> Words:
    """Shares of g of each node.

    ``opened`` are the six bits under their masks, (6, nodes, words), ``highest`` shares of g3.
    """
    products = planes[:7]
    found = with_factor(rank, products, planes[7:15], opened[3])
    found = multiplied(found, opened[0])
    found ^= with_factor(rank, products[:3], planes[15:19], opened[4])
    found = multiplied(found, opened[1])
    found ^= with_factor(rank, products[:1], planes[19:21], opened[5])
    found = multiplied(found, opened[2])[0]
    found ^= highest
    return found


def propagated(products: Words, masked: Words, opened: Words, lowest: Words, rank: int) -> Words:
    """Shares of p of each node.

    ``products`` are those of subsets of (a3, a2, a1), ``masked`` a0 and its products with them;
    ``opened`` holds p1, p2, p3 under their masks, and ``lowest`` p0.
    """
    found = with_factor(rank, products, masked, lowest)
    for factor in (opened[0], opened[1], opened[2]):
        found = multiplied(found, factor)
    return found[0]
