"""Products of masked values: exact in the ring, and opened behind uniform masks."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from syft.crypto.dealing import Dealer, StreamName
from syft.crypto.kernels import Kernel, KernelCode
from syft.crypto.programs.beaver_products import MaskedValue, deal_product, mask, product
from tests.crypto.parties import KEYS, dealt, run_parties, shared, total

MULTIPLY, MATMUL = Kernel(KernelCode.MULTIPLY), Kernel(KernelCode.MATMUL)
X, Y, Z = (StreamName(3, place) for place in range(3))

words = st.one_of(
    st.sampled_from([0, 1, -1, 2**63 - 1, -(2**63)]), st.integers(-(2**63), 2**63 - 1)
)


def masked(secret: torch.Tensor, name: StreamName, parties: int) -> list[MaskedValue]:
    dealers, _ = dealt(lambda dealer: dealer, KEYS, name, parties)
    shares = shared(secret, parties)
    return run_parties(
        [mask(dealer, name, share) for dealer, share in zip(dealers, shares, strict=True)]
    ).results


def multiplied(kernel: Kernel, x: torch.Tensor, y: torch.Tensor, parties: int) -> torch.Tensor:
    one, other = masked(x, X, parties), masked(y, Y, parties)
    shape = tuple(kernel.shape(tuple(x.shape), tuple(y.shape)))

    def deal(dealer: Dealer) -> torch.Tensor:
        a, b = dealer.again(X, x.shape), dealer.again(Y, y.shape)
        return deal_product(dealer, kernel, a, b, shape)

    materials, size = dealt(deal, KEYS, Z, parties)
    assert size == 8 * torch.Size(shape).numel()
    return total(
        [
            product(rank, kernel, c, a, b)
            for rank, (c, a, b) in enumerate(zip(materials, one, other, strict=True))
        ]
    )


@settings(deadline=None)
@given(st.lists(words, min_size=6, max_size=6), st.sampled_from([2, 3, 5]))
def test_products_wrap_as_those_of_integers_do(values, parties):
    x, y = torch.tensor(values).view(2, 3), torch.tensor(values[::-1]).view(2, 3)
    assert torch.equal(multiplied(MULTIPLY, x, y, parties), x * y)
    assert torch.equal(multiplied(MULTIPLY, x, y[:1], parties), x * y[:1])
    assert torch.equal(multiplied(MATMUL, x, y.t(), parties), x @ y.t())


def test_empty_products_are_zeros():
    x, y = torch.empty(2, 0, dtype=torch.int64), torch.empty(0, 3, dtype=torch.int64)
    assert torch.equal(multiplied(MATMUL, x, y, 2), torch.zeros(2, 3, dtype=torch.int64))


@pytest.mark.parametrize("secret", [0, -1])
def test_what_is_opened_is_uniform(secret):
    """Chi-square of its bytes over many masks; a false alarm once in 10^9 runs."""
    x = torch.full((4096,), secret)
    opened = torch.cat([masked(x, StreamName(counter, 0), 2)[0].opened for counter in range(1, 9)])
    counts = opened.view(torch.uint8).bincount(minlength=256).double()
    expected = counts.sum() / 256
    assert ((counts - expected) ** 2 / expected).sum() < 255 + 6 * (2 * 255) ** 0.5 + 36


def test_a_mask_of_another_name_is_another_mask():
    x = torch.zeros(64, dtype=torch.int64)
    one, other = masked(x, X, 2)[0].opened, masked(x, Y, 2)[0].opened
    assert not (one == other).any()
