"""The sign of x = c - r, where c is public and the parties share r and products of its bits.

Bit 63 of c - r is c63 + r63 + [c' < r'], where c' and r' are the low 63 bits and + is xor: "less"
is the borrow of the subtraction.  It is found by a tree with 16 leaves (``bit_groups``) and two
levels of nodes with four children each (``carry_nodes``).  Leaves take no round, as c is public.
Nothing but masked bits is opened.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass

import torch

from syft.crypto.dealing import Dealer
from syft.crypto.gates.bit_groups import GROUP_PLANES, by_bit, by_group, deal_groups, less_and_equal
from syft.crypto.gates.bit_planes import (
    Words,
    column_parts,
    module_of,
    new_words,
    plane_length,
    rows_of,
    tensor_of,
    transpose,
    words_of,
)
from syft.crypto.gates.carry_nodes import (
    DEALT,
    MASKS,
    deal_nodes,
    generated,
    mask_products,
    node_planes,
    propagated,
)
from syft.crypto.opening import ShareOpening


@dataclass(frozen=True, slots=True)
class SignMaterial:
    """What the tree needs, in planes of w = ceil(n / 64) words; 337 planes of it are dealt."""

    groups: Words
    """(15, 4, 4, w): products of the bits of r, without bit 63, as ``by_group`` has them."""
    top: Words
    """(w,): bit 63 of r."""
    masks: Words
    """(6, 4, w): of the bits that the four lower nodes open."""
    lowest_masks: Words
    """(3, w): a0 of each lower node but the lowest."""
    root_masks: Words
    """(6, w): of the bits that the root opens."""
    result_mask: Words
    """(w,): of the sign."""
    nodes: Words
    """(21, 4, w): the planes of the lower nodes."""
    propagation: Words
    """(8, 3, w): a0 of each lower node but the lowest, and its products."""
    root: Words
    """(21, w): the planes of the root."""


_LEAVES = GROUP_PLANES + 1
_NODES = _LEAVES + 5 * len(DEALT)
_DEALT = _NODES + 3 * 7


def deal_sign(dealer: Dealer, mask: torch.Tensor) -> SignMaterial:
    """Deal for the sign of c - ``mask``, a tensor of one dimension: 337 planes, and 34 drawn."""
    length = plane_length(len(mask))
    masks = dealer.uniform_bits((34, length))
    dealt = dealer.derived_bits((_DEALT, length), lambda: _derived(words_of(mask), words_of(masks)))
    drawn, planes = words_of(masks), words_of(dealt)
    node_masks = _nodes_of(drawn)
    nodes = node_planes(node_masks, planes[_LEAVES:_NODES].reshape(len(DEALT), 5, length))
    propagation = new_words((8, 3, length), planes)
    propagation[0] = drawn[30:33]
    propagation[1:] = planes[_NODES:].reshape(7, 3, length)
    return SignMaterial(
        groups=by_group(planes[:GROUP_PLANES]),
        top=planes[GROUP_PLANES],
        masks=node_masks[:, :4],
        lowest_masks=drawn[30:33],
        root_masks=node_masks[:, 4],
        result_mask=drawn[33],
        nodes=nodes[:, :4],
        propagation=propagation,
        root=nodes[:, 4],
    )


def _nodes_of(masks: Words) -> Words:
    """The masks of the nodes by (mask, node, word), the root last."""
    return masks[:30].reshape(MASKS, 5, masks.shape[1])


def _derived(mask: Words, masks: Words) -> torch.Tensor:
    rows, length = rows_of(mask), masks.shape[1]
    derived = new_words((_DEALT, length), masks)
    for part in column_parts(rows):
        bits = rows[:, part] ^ 0
        transpose(bits)
        derived[GROUP_PLANES, part] = bits[63]
        bits[63] = 0
        deal_groups(bits, by_group(derived[:GROUP_PLANES])[..., part])
    nodes = _nodes_of(masks)
    products = mask_products(nodes)
    deal_nodes(nodes, products, derived[_LEAVES:_NODES].reshape(len(DEALT), 5, length))
    derived[_NODES:].reshape(7, 3, length)[:] = masks[30:33] & products[:, 1:4]
    return tensor_of(derived)


def masked_signs(
    rank: int, material: SignMaterial, opened: Words, negated: bool
) -> Generator[ShareOpening, Sequence[torch.Tensor], Words]:
    """Open the sign bits of x under the last of the masks: a plane (w,), equal at all parties.

    ``opened`` is c; with ``negated`` the bit is 1 where x >= 0.

    1. Each leaf: shares of less and equal, from c and the products of the bits of r.
    2. Open p1, p2, p3, g0, g1, g2 of the four lower nodes, and p0 of all but the lowest, under
       masks: 27 bits.  Each node: shares of g and p.
    3. Open the same of the root, without p0: 6 bits.  Its g is the borrow from bit 63.
    4. Open borrow + r63 + c63 + mask: 1 bit.

    3 rounds, 34 bits an element; what is opened is uniform.
    """
    message, highest, top = _leaves(rank, material, opened)
    (joined,) = yield ShareOpening((tensor_of(message),), bits=True)
    message, root_highest = _lower_nodes(rank, material, words_of(joined), highest)
    (joined,) = yield ShareOpening((tensor_of(message),), bits=True)
    sign = _root(rank, material, words_of(joined), root_highest)
    if rank == 0:
        sign ^= top if negated else top ^ -1
    (joined,) = yield ShareOpening((tensor_of(sign),), bits=True)
    return words_of(joined)


def _leaves(rank: int, material: SignMaterial, opened: Words) -> tuple[Words, Words, Words]:
    """What the lower nodes open, shares of "less" of their highest groups, and c63 inverted."""
    rows = rows_of(opened)
    length = rows.shape[1]
    message, highest, top = (new_words((k, length), opened) for k in (27, 4, 1))
    six = message[:24].reshape(MASKS, 4, length)
    xor = module_of(opened).bitwise_xor
    for part in column_parts(rows):
        bits = rows[:, part] ^ -1
        transpose(bits)
        top[0, part] = bits[63]
        bits[63] = -1
        less, equal = less_and_equal(material.groups[..., part], by_bit(bits), rank)
        masks, out = material.masks[..., part], six[..., part]
        xor(equal[1:], masks[:3], out=out[:3])
        xor(less[:3], masks[3:], out=out[3:])
        xor(equal[0, 1:], material.lowest_masks[:, part], out=message[24:, part])
        highest[:, part] = less[3]
    return message, highest, top[0]


def _lower_nodes(
    rank: int, material: SignMaterial, opened: Words, highest: Words
) -> tuple[Words, Words]:
    """What the root opens, and shares of g of the highest of the lower nodes."""
    length = opened.shape[1]
    message, root_highest = (new_words((k, length), opened) for k in (MASKS, 1))
    node_bits = opened[:24].reshape(MASKS, 4, length)
    xor = module_of(opened).bitwise_xor
    for part in column_parts(opened):
        six, planes = node_bits[..., part], material.nodes[..., part]
        less = generated(planes, six, highest[:, part], rank)
        equal = propagated(
            planes[:7, 1:],
            material.propagation[..., part],
            six[:3, 1:],
            opened[24:, part],
            rank,
        )
        masks, out = material.root_masks[:, part], message[:, part]
        xor(equal, masks[:3], out=out[:3])
        xor(less[:3], masks[3:], out=out[3:])
        root_highest[0, part] = less[3]
    return message, root_highest[0]


def _root(rank: int, material: SignMaterial, opened: Words, highest: Words) -> Words:
    """Shares of the borrow from bit 63, with bit 63 of r and the last mask added."""
    found = material.top ^ material.result_mask
    for part in column_parts(opened):
        borrow = found[part]
        borrow ^= generated(material.root[:, part], opened[:, part], highest[part], rank)
    return found
