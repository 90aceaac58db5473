"""Whether shared numbers are zero, exact on the whole ring.

x = c - r is 0 where each bit of the opened c equals that of the mask r: "and" over 64 bits, four of
them without a message (``bit_groups``), then four groups a round (``masked_products``).
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass

import torch

from syft.crypto.dealing import Dealer
from syft.crypto.gates.bit_groups import GROUP_PLANES, by_bit, by_group, deal_groups, equal
from syft.crypto.gates.bit_injection import inject, under_mask
from syft.crypto.gates.bit_planes import (
    Words,
    column_parts,
    module_of,
    new_words,
    plane_length,
    rows_of,
    tensor_of,
    transpose,
    unpack,
    words_of,
)
from syft.crypto.gates.carry_nodes import propagated
from syft.crypto.gates.masked_products import subset_products
from syft.crypto.opening import ShareOpening


@dataclass(frozen=True, slots=True)
class ZeroMaterial:
    """A mask r, and what the tree needs for it, in planes of w = ceil(n / 64) words."""

    mask: Words
    groups: Words
    """(15, 4, 4, w): products of the bits of r, as ``by_group`` has them."""
    masks: Words
    """(4, 5, w): a1, a2, a3 and a0 of the lower nodes and the root."""
    nodes: Words
    """(15, 5, w): the products of the subsets of (a3, a2, a1, a0)."""
    result_mask: Words
    """(w,)"""
    bit: Words
    """The mask of the result as a number, n words."""


_MASKS = 4
_DRAWN = (3, 1, 0, 7)
_DEALT = (2, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14)
_LEAVES = GROUP_PLANES
_PLANES = _LEAVES + 5 * len(_DEALT)


def deal_zero(dealer: Dealer, shape: Sequence[int]) -> ZeroMaterial:
    """Deal for ``zero`` of this shape: 44.875 B an element to the last party."""
    count = math.prod(shape)
    length = plane_length(count)
    mask = dealer.uniform((count,))
    masks = dealer.uniform_bits((5 * _MASKS + 1, length))
    dealt = dealer.derived_bits(
        (_PLANES, length), lambda: _derived(words_of(mask), words_of(masks))
    )
    drawn, planes = words_of(masks), words_of(dealt)
    node_masks = _nodes_of(drawn)
    nodes = new_words((15, 5, length), planes)
    nodes[list(_DRAWN)] = node_masks
    nodes[list(_DEALT)] = planes[_LEAVES:].reshape(len(_DEALT), 5, length)
    bit = dealer.derived((count,), lambda: unpack(masks[-1], count))
    return ZeroMaterial(
        mask=words_of(mask),
        groups=by_group(planes[:_LEAVES]),
        masks=node_masks,
        nodes=nodes,
        result_mask=drawn[-1],
        bit=words_of(bit),
    )


def _nodes_of(masks: Words) -> Words:
    """The masks of the nodes by (mask, node, word), the root last; a1, a2, a3 and a0."""
    return masks[: 5 * _MASKS].reshape(_MASKS, 5, masks.shape[1])


def _derived(mask: Words, masks: Words) -> torch.Tensor:
    rows, length = rows_of(mask), masks.shape[1]
    derived = new_words((_PLANES, length), masks)
    for part in column_parts(rows):
        bits = rows[:, part] ^ 0
        transpose(bits)
        deal_groups(bits, by_group(derived[:_LEAVES])[..., part])
    nodes = new_words((15, 5, length), masks)
    known = _nodes_of(masks)
    subset_products([known[2], known[1], known[0], known[3]], nodes)
    derived[_LEAVES:].reshape(len(_DEALT), 5, length)[:] = nodes[list(_DEALT)]
    return tensor_of(derived)


def zero(
    rank: int, material: ZeroMaterial, x: torch.Tensor
) -> Generator[ShareOpening, Sequence[torch.Tensor], torch.Tensor]:
    """1 where x = 0, else 0; exact for every x.

    1. Open c = x + r, for a uniform mask r: 8 B.  Each leaf: shares of whether four bits of c and
       of r are equal, from c and the products of the bits of r.
    2. Open the four leaves of each lower node under masks: 16 bits.  Each node: shares of their
       product.
    3. Open those of the root: 4 bits.
    4. Open the root's product under a mask bit b, e: 1 bit.  Each party: b (1 - 2 e); party 0 adds
       e.

    4 rounds; 8 B an element and 21 bits an element, in words of 64 elements; all of it uniform.
    """
    (opened,) = yield under_mask(words_of(x.reshape(-1)), material.mask)
    masks, nodes = material.masks, material.nodes
    equals = _leaves(rank, material, words_of(opened))
    equals ^= masks[:, :4]
    (joined,) = yield ShareOpening((tensor_of(equals),), bits=True)
    equals = _product(rank, nodes[:, :4], words_of(joined))
    equals ^= masks[:, 4]
    (joined,) = yield ShareOpening((tensor_of(equals),), bits=True)
    result = _product(rank, nodes[:, 4], words_of(joined))
    result ^= material.result_mask
    (joined,) = yield ShareOpening((tensor_of(result),), bits=True)
    return inject(rank, words_of(joined), material.bit).view(x.shape)


def _leaves(rank: int, material: ZeroMaterial, opened: Words) -> Words:
    rows = rows_of(opened)
    found = new_words((4, 4, rows.shape[1]), opened)
    for part in column_parts(rows):
        inverted = rows[:, part] ^ -1
        transpose(inverted)
        found[..., part] = equal(material.groups[..., part], by_bit(inverted), rank)
    return found


def _product(rank: int, planes: Words, opened: Words) -> Words:
    """Shares of the products of four factors under masks, by node."""
    found = module_of(opened).empty_like(opened[0])
    for part in column_parts(opened):
        factors = opened[..., part]
        known = planes[..., part]
        found[..., part] = propagated(known[:7], known[7:], factors[:3], factors[3], rank)
    return found
