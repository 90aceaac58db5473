"""The two ends of a protocol on bits: a number is opened under a mask, a bit becomes a number.

A bit k that is shared by xor becomes a number ("bit injection") with a dealt mask bit b, which is
shared both ways: open e = k + b, then k = e + b (1 - 2 e) in integers, which is linear in b.
"""

from __future__ import annotations

import torch

from syft.crypto.gates.bit_planes import Words, bit_masks, module_of, new_words, tensor_of
from syft.crypto.opening import ShareOpening


def under_mask(elements: Words, mask: Words) -> ShareOpening:
    """The opening of elements under a mask, in one dimension.

    >>> under_mask(torch.tensor([1, 2]), torch.tensor([5, 5])).shares
    (tensor([6, 7]),)
    """
    return ShareOpening((tensor_of(elements + mask),))


def inject(rank: int, plane: Words, bit: Words) -> torch.Tensor:
    """Shares of the bits of which ``plane`` holds e, from those of b, (n,).

    >>> plane = torch.tensor([0b10])
    >>> inject(0, plane, torch.tensor([0, 0])) + inject(1, plane, torch.tensor([1, 1]))
    tensor([1, 0])
    """
    found = new_words((len(bit),), bit)
    for where, masks in bit_masks(plane, len(bit)):
        inject_part(rank, masks, bit[where], found[where])
    return tensor_of(found)


def inject_part(rank: int, masks: Words, bit: Words, out: Words) -> Words:
    """Write shares of e + b (1 - 2 e), for ``masks`` -e; return 1 - 2 e."""
    sign = masks | 1
    module_of(out).multiply(bit, sign, out=out)
    if rank == 0:
        out -= masks
    return sign
