"""The provider draws what the parties draw, and holds each mask no longer than it is used."""

from __future__ import annotations

import torch

from syft.crypto.dealing import PartyDealer, StreamName
from syft.crypto.kernels import Kernel, KernelCode
from syft.crypto.programs.share_dealing import deal_program, deals_of
from syft.crypto.programs.share_program import ShareCode
from tests.crypto.parties import KEYS, total
from tests.crypto.program_runs import Recorded

MULTIPLY = Kernel(KernelCode.MULTIPLY)


def test_only_what_has_corrections_is_dealt():
    made = Recorded((2,), (2,))
    made.product(MULTIPLY, made.mask(0), made.mask(1))
    made.divide(0, 0)
    made.divide(0, 3)
    made.public(torch.arange(2))
    made.reveal(0, 0)
    made.compare(ShareCode.ZERO, 0)
    assert [deal[:2] for deal in deals_of(made.program())] == [(2, 5), (4, 6), (7, 9)]


def test_corrections_make_products_of_the_masks_that_the_parties_draw(monkeypatch):
    from syft.crypto.programs import share_dealing

    drawn = []
    again = share_dealing.ProviderDealer.again
    monkeypatch.setattr(
        share_dealing.ProviderDealer,
        "again",
        lambda self, name, shape: drawn.append(name) or again(self, name, shape),
    )
    made = Recorded((2,), (3, 2))
    one, other = made.mask(0), made.mask(1)
    made.product(MULTIPLY, one, other)
    made.product(MULTIPLY, one, one)
    deals = deals_of(made.program())
    for parties in (2, 3):
        keys = KEYS[:parties]
        drawn.clear()
        corrections = dict(deal_program(deals, keys, 7))
        assert drawn == [StreamName(7, 0), StreamName(7, 1)]
        masks = {
            place: total([_words(key, place, shape) for key in keys])
            for place, shape in ((0, (2,)), (1, (3, 2)))
        }
        for place, expected in ((2, masks[0] * masks[1]), (3, masks[0] * masks[0])):
            others = total([_words(key, place, expected.shape) for key in keys[:-1]])
            assert torch.equal(corrections[place][0] + others, expected)


def _words(key: bytes, place: int, shape: tuple[int, ...]) -> torch.Tensor:
    return PartyDealer(key, StreamName(7, place), None).uniform(shape)


def test_masks_of_programs_before_are_drawn_by_their_counter():
    public = (1, (), (5, 2), (2,), (0, 0), (2,), (2,))
    (deal,) = deal_program(((3, 5, public),), KEYS[:2], 7)
    a = total([PartyDealer(key, StreamName(5, 2), None).uniform((2,)) for key in KEYS[:2]])
    b = total([_words(key, 0, (2,)) for key in KEYS[:2]])
    assert torch.equal(deal[1][0] + _words(KEYS[0], 3, (2,)), a * b)
