"""Products of shared tensors, after Beaver (1991): of masked values and the product of the masks.

A factor x is *masked*: the parties open E = x - a, for a mask a that nobody knows.  A bilinear map
K of two masked factors then needs no more messages, because

    K(x, y) = K(a, b) + K(E_x, b) + K(a, E_y) + K(E_x, E_y)

where the provider deals shares of c = K(a, b).  So a factor that is used in several products is
opened once, and a square needs one mask.  E is uniform whatever x is: nothing leaks.

Beaver, Efficient multiparty protocols using circuit randomization (CRYPTO 1991).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from syft.crypto.dealing import Dealer, StreamName
from syft.crypto.kernels import Kernel, KernelCode
from syft.crypto.opening import Protocol, ShareOpening
from syft.crypto.ring_products import ring_product


@dataclass(frozen=True, slots=True, eq=False)
class MaskedValue:
    """A shared tensor behind a mask: what all parties know, and a party's share of the mask.

    Nobody writes to its tensors.

    >>> MaskedValue(torch.tensor([5]), torch.tensor([2]), StreamName(1, 0)).shape
    torch.Size([1])
    """

    opened: torch.Tensor
    """x - a."""
    mask: torch.Tensor
    """This party's share of a.  It can be drawn again by its name; keeping it is faster."""
    name: StreamName
    """Where a was drawn: the first words of this stream."""

    @property
    def shape(self) -> torch.Size:
        """The shape of the tensor and of its mask."""
        return self.opened.shape


def mask(dealer: Dealer, name: StreamName, x: torch.Tensor) -> Protocol:
    """The masked value of ``x``: 1 round of 8 bytes an element.

    1. Draw a share of the mask a, the first words of the stream ``name``, which is the dealer's.
    2. Open E = x - a.

    >>> from syft.crypto.dealing import PartyDealer
    >>> name = StreamName(1, 0)
    >>> alone = mask(PartyDealer(b"a" * 32, name, None), name, torch.tensor([5]))
    >>> opening = next(alone)
    >>> opening.shares[0] + PartyDealer(b"a" * 32, name, None).uniform([1])
    tensor([5])
    """
    a = dealer.uniform(x.shape)
    (opened,) = yield ShareOpening((torch.sub(x, a),))
    return MaskedValue(opened, a, name)


def deal_product(
    dealer: Dealer, kernel: Kernel, a: torch.Tensor, b: torch.Tensor, shape: tuple[int, ...]
) -> torch.Tensor:
    """c = K(a, b), of this shape: 8 bytes for each of its elements to the last party.

    The provider has the masks a and b from ``dealer.again``, a party from its masked values.

    >>> from syft.crypto.dealing import ProviderDealer
    >>> dealer = ProviderDealer([b"a" * 32, b"b" * 32], StreamName(1, 2))
    >>> a = dealer.again(StreamName(1, 0), (2,))
    >>> torch.equal(deal_product(dealer, Kernel(KernelCode.MULTIPLY), a, a, (2,)), a * a)
    True
    """
    return dealer.derived(shape, lambda: ring_product(kernel, a, b))


def product(
    rank: int, kernel: Kernel, c: torch.Tensor, x: MaskedValue, y: MaskedValue
) -> torch.Tensor:
    """A share of K(x, y), from this party's share of c: no round.

    z = c + K(E_x, b) + K(a, E_y), where party 0 has a + E_x in the place of a.

    >>> x = MaskedValue(torch.tensor([5]), torch.tensor([2]), StreamName(1, 0))
    >>> product(0, Kernel(KernelCode.MULTIPLY), torch.tensor([4]), x, x)  # 7, at one party alone
    tensor([49])
    """
    a = x.mask + x.opened if rank == 0 else x.mask
    if kernel.code is KernelCode.MULTIPLY:
        return torch.addcmul(c, x.opened, y.mask).addcmul_(a, y.opened)
    return ring_product(kernel, x.opened, y.mask).add_(c).add_(ring_product(kernel, a, y.opened))
