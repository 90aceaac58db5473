"""Dealing: shares that sum to what the provider knows, for any number of parties."""

from __future__ import annotations

import operator
from functools import reduce

import pytest
import torch

from syft.crypto.dealing import Dealer, PartyDealer, ProviderDealer, StreamName
from syft.exceptions import MaterialError
from tests.crypto.parties import KEYS, NAME, dealt

FOUR = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def deal_all(dealer: Dealer) -> FOUR:
    a, bits = dealer.uniform((3, 2)), dealer.uniform_bits((5,))
    square = dealer.derived((3, 2), lambda: a * a)
    return a, bits, square, dealer.derived_bits((5,), lambda: bits & 0xFF)


@pytest.mark.parametrize("parties", [2, 3, 5])
def test_shares_join_to_the_values_of_the_provider(parties: int) -> None:
    known = deal_all(ProviderDealer(KEYS[:parties], NAME))
    materials, size = dealt(deal_all, parties=parties)
    joins = (operator.add, operator.xor, operator.add, operator.xor)
    for whole, join, shares in zip(known, joins, zip(*materials, strict=True), strict=True):
        assert torch.equal(reduce(join, shares), whole)
    assert size == 8 * (6 + 5)
    assert torch.equal(known[2], known[0] ** 2) and torch.equal(known[3], known[1] & 0xFF)


def test_a_mask_is_found_again_by_its_name() -> None:
    later = StreamName(2, 3)
    provider = ProviderDealer(KEYS[:2], NAME)
    mask = provider.uniform((4,))
    assert torch.equal(ProviderDealer(KEYS[:2], later).again(NAME, (4,)), mask)
    shares = [PartyDealer(key, later, None).again(NAME, (4,)) for key in KEYS[:2]]
    assert torch.equal(shares[0] + shares[1], mask)


@pytest.mark.parametrize(
    "corrections, got",
    [
        ([], "none"),
        ([torch.zeros(2, dtype=torch.int64)], r"one of shape \(2,\)"),
        ([torch.zeros(3)], r"one of shape \(3,\) of torch.float32"),
        ([torch.zeros(3, dtype=torch.int64).to_sparse()], r"one of shape \(3,\)"),
        ([torch.zeros(3, dtype=torch.int64, device="meta")], r"one of shape \(3,\)"),
    ],
)
def test_a_correction_that_does_not_fit_is_refused(
    corrections: list[torch.Tensor], got: str
) -> None:
    dealer = PartyDealer(KEYS[0], NAME, corrections)
    with pytest.raises(MaterialError, match=rf"of shape \(3,\) from the provider, got {got}"):
        dealer.derived((3,), lambda: torch.zeros(3, dtype=torch.int64))
