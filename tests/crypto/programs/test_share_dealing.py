"""The provider draws what the parties draw, and holds each mask no longer than it is used."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from syft.crypto.dealing import PartyDealer, StreamName
from syft.crypto.kernels import Kernel, KernelCode
from syft.crypto.programs.share_dealing import deal_program, deals_of
from syft.crypto.programs.share_program import ShareCode, stream_of, stream_of_mask
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
        named = [stream_of_mask((0, 0), (2,), 7), stream_of_mask((0, 1), (3, 2), 7)]
        assert drawn == named
        masks = [
            total([_words(key, name, shape) for key in keys])
            for name, shape in zip(named, ((2,), (3, 2)), strict=True)
        ]
        for (place, code, public), expected in zip(
            deals, (masks[0] * masks[1], masks[0] * masks[0]), strict=True
        ):
            name = stream_of(ShareCode(code), public, 7, place)
            others = total([_words(key, name, expected.shape) for key in keys[:-1]])
            assert torch.equal(corrections[place][0] + others, expected)


def _words(key: bytes, name: StreamName, shape: Sequence[int]) -> torch.Tensor:
    return PartyDealer(key, name, None).uniform(shape)


def test_masks_of_programs_before_are_drawn_by_their_counter():
    public = (1, (), (5, 2), (2,), (0, 0), (2,), (2,))
    (deal,) = deal_program(((3, 5, public),), KEYS[:2], 7)
    a, b = (
        total([_words(key, stream_of_mask(mask, (2,), 7), (2,)) for key in KEYS[:2]])
        for mask in ((5, 2), (0, 0))
    )
    drawn = _words(KEYS[0], stream_of(ShareCode.PRODUCT, public, 7, 3), (2,))
    assert torch.equal(deal[1][0] + drawn, a * b)


def test_what_is_dealt_for_another_instruction_has_another_stream():
    """A client could have the provider deal one thing, and a party draw another, from one stream:
    what is sent behind its words would show."""
    names = {
        stream_of(ShareCode.MASK, ((2,),), 7, 3),
        stream_of(ShareCode.DIVIDE, (16, (2,)), 7, 3),
        stream_of(ShareCode.DIVIDE, (16, (3,)), 7, 3),
        stream_of(ShareCode.DIVIDE, (17, (2,)), 7, 3),
        stream_of(ShareCode.PRODUCT, (1, (), (0, 0), (2,), (0, 1), (2,), (2,)), 7, 3),
        stream_of(ShareCode.PRODUCT, (1, (), (0, 0), (2,), (5, 1), (2,), (2,)), 7, 3),
    }
    assert len({name.block() for name in names}) == 6


def test_deals_are_kept_where_no_public_tensor_is_part_of_them():
    """Programs that differ in public tensors alone share what is known of them."""
    made = Recorded((2,))
    made.divide(0, (torch.tensor([3, 4]),))
    program = made.program()
    other = program.on([torch.tensor([5, 6])])
    assert program.facts is other.facts
    assert deals_of(program) != deals_of(other) and deals_of(other) == deals_of(other)
    made = Recorded((2,))
    made.public(torch.arange(2))
    made.divide(0, 3)
    program = made.program()
    assert deals_of(program) is deals_of(program.on([torch.tensor([5, 6])]))
