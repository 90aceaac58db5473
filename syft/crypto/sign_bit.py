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

from syft.crypto.bit_groups import GROUP_PLANES, by_bit, by_group, deal_groups, less_and_equal
from syft.crypto.bit_planes import (
    Words,
    column_parts,
    module_of,
    plane_length,
    rows_of,
    tensor_of,
    transpose,
    words_of,
)
from syft.crypto.carry_nodes import (
    DEALT,
    MASKS,
    deal_nodes,
    mask_products,
    generated,
    node_planes,
    propagated,
)
from syft.crypto.dealing import Dealer
from syft.crypto.opening import ShareOpening


@dataclass(frozen=True, slots=True)
class SignMaterial:
    """What the tree needs, in planes of w = ceil(n / 64) words; dealt 42.125 B an element."""

    masks: torch.Tensor
    """(34, w): of six bits of five nodes, of p0 of three, and of the result."""
    leaves: torch.Tensor
    """(241, w): products of the bits of r, without bit 63, in groups; then bit 63."""
    nodes: torch.Tensor
    """(21, 5, w): the planes of the four lower nodes and of the root."""
    propagation: torch.Tensor
    """(8, 3, w): a0 of each lower node but the lowest, and its products."""


_LEAVES = GROUP_PLANES + 1
_NODES = _LEAVES + 5 * len(DEALT)
_DEALT = _NODES + 3 * 7


def deal_sign(dealer: Dealer, mask: torch.Tensor) -> SignMaterial:
    """Deal for the sign of c - ``mask``, a tensor of one dimension: 337 planes, and 34 drawn."""
    length = plane_length(len(mask))
    masks = dealer.uniform_bits((34, length))
    dealt = dealer.derived_bits((_DEALT, length), lambda: _derived(mask, masks))
    return SignMaterial(
        masks,
        dealt[:_LEAVES],
        node_planes(_nodes_of(masks), dealt[_LEAVES:_NODES].view(len(DEALT), 5, length)),
        torch.cat((masks[30:33].unsqueeze(0), dealt[_NODES:].view(7, 3, length))),
    )


def _nodes_of(masks: Words) -> Words:
    """The masks of the nodes by (mask, node, word), the root last."""
    return masks[:30].reshape(MASKS, 5, masks.shape[1])


def _derived(mask: torch.Tensor, masks: torch.Tensor) -> torch.Tensor:
    rows = rows_of(mask)
    length = masks.shape[1]
    derived = masks.new_empty((_DEALT, length))
    out = words_of(derived)
    for part in column_parts(rows):
        bits = rows[:, part] ^ 0
        transpose(bits)
        out[GROUP_PLANES, part] = bits[63]
        bits[63] = 0
        deal_groups(bits, by_group(out[:GROUP_PLANES])[..., part])
    nodes = _nodes_of(masks)
    products = mask_products(nodes)
    deal_nodes(
        words_of(nodes),
        words_of(products),
        out[_LEAVES:_NODES].reshape(len(DEALT), 5, length),
    )
    of_lowest = words_of(masks)[30:33] & words_of(products)[:, 1:4]
    out[_NODES:].reshape(7, 3, length)[:] = of_lowest
    return derived


def masked_signs(
    rank: int, material: SignMaterial, opened: torch.Tensor, negated: bool
) -> Generator[ShareOpening, Sequence[torch.Tensor], torch.Tensor]:
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
    (joined,) = yield ShareOpening((message,), bits=True)
    message, root_highest = _lower_nodes(rank, material, words_of(joined), highest)
    (joined,) = yield ShareOpening((message,), bits=True)
    sign = _root(rank, material, words_of(joined), root_highest)
    if rank == 0:
        sign ^= top if negated else top ^ -1
    (joined,) = yield ShareOpening((tensor_of(sign),), bits=True)
    return joined


def _leaves(
    rank: int, material: SignMaterial, opened: torch.Tensor
) -> tuple[torch.Tensor, Words, Words]:
    """What the lower nodes open, shares of "less" of their highest groups, and c63 inverted."""
    rows = rows_of(opened)
    length = rows.shape[1]
    message = opened.new_empty((27, length))
    highest, top = words_of(opened.new_empty((4, length))), words_of(opened.new_empty(length))
    out, masks = words_of(message), words_of(material.masks)
    node_out, node_masks = out[:24].reshape(MASKS, 4, length), _nodes_of(masks)[:, :4]
    products = by_group(words_of(material.leaves)[:GROUP_PLANES])
    xor = module_of(out).bitwise_xor
    for part in column_parts(rows):
        bits = rows[:, part] ^ -1
        transpose(bits)
        top[part] = bits[63]
        bits[63] = -1
        less, equal = less_and_equal(products[..., part], by_bit(bits), rank)
        xor(equal[1:], node_masks[:3, :, part], out=node_out[:3, :, part])
        xor(less[:3], node_masks[3:, :, part], out=node_out[3:, :, part])
        xor(equal[0, 1:], masks[30:33, part], out=out[24:, part])
        highest[:, part] = less[3]
    return message, highest, top


def _lower_nodes(
    rank: int, material: SignMaterial, opened: Words, highest: Words
) -> tuple[torch.Tensor, Words]:
    """What the root opens, and shares of g of the highest of the lower nodes."""
    length = opened.shape[1]
    message = material.masks.new_empty((MASKS, length))
    root_highest = words_of(material.masks.new_empty(length))
    out, root_masks = words_of(message), _nodes_of(words_of(material.masks))[:, 4]
    nodes, propagation = words_of(material.nodes)[:, :4], words_of(material.propagation)
    node_bits, lowest = opened[:24].reshape(MASKS, 4, length), opened[24:]
    xor = module_of(out).bitwise_xor
    for part in column_parts(opened):
        six, planes = node_bits[..., part], nodes[..., part]
        less = generated(planes, six, highest[:, part], rank)
        equal = propagated(
            planes[:7, 1:], propagation[..., part], six[:3, 1:], lowest[:, part], rank
        )
        xor(equal, root_masks[:3, part], out=out[:3, part])
        xor(less[:3], root_masks[3:, part], out=out[3:, part])
        root_highest[part] = less[3]
    return message, root_highest


def _root(rank: int, material: SignMaterial, opened: Words, highest: Words) -> Words:
    """Shares of the borrow from bit 63, with bit 63 of r and the last mask added."""
    found = words_of(material.leaves)[GROUP_PLANES] ^ words_of(material.masks)[33]
    nodes = words_of(material.nodes)[:, 4]
    for part in column_parts(opened):
        borrow = found[part]
        borrow ^= generated(nodes[:, part], opened[:, part], highest[part], rank)
    return found
