"""Signs and positive parts, exact over the whole ring, against plain torch."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from syft.crypto.gates.comparison import deal_negative, deal_positive, negative, positive
from syft.crypto.gates.public_factors import products
from syft.crypto.mask_stream import fresh_key
from syft.exceptions import ProgramError
from tests.crypto.gates.test_public_factors import FACTORS
from tests.crypto.parties import NAME, PartyRun, dealt, run_parties, shared, total

EDGES = [0, 1, -1, 1 << 62, -(1 << 62), (1 << 62) - 1, (1 << 63) - 1, -(1 << 63), 1 - (1 << 63)]
ANY = st.integers(-(1 << 63), (1 << 63) - 1) | st.sampled_from(EDGES)
PARTIES = st.sampled_from([2, 3, 5])


def words(count: int) -> int:
    return -(-count // 64)


def run_gate(deal: Any, protocol: Any, x: torch.Tensor, parties: int = 2) -> tuple[PartyRun, int]:
    """Share, run, and say what was dealt."""
    keys = [fresh_key() for _ in range(parties)]
    materials, size = dealt(deal, keys, NAME, parties)
    shares = shared(x, parties)
    kept = [share.clone() for share in shares]
    run = run_parties([protocol(rank, materials[rank], shares[rank]) for rank in range(parties)])
    assert all(map(torch.equal, kept, shares))
    return run, size


def run_negative(x: torch.Tensor, parties: int = 2) -> tuple[PartyRun, int]:
    return run_gate(functools.partial(deal_negative, shape=x.shape), negative, x, parties)


def run_positive(x: torch.Tensor, factor: Any, parties: int = 2) -> tuple[PartyRun, int]:
    deal = functools.partial(deal_positive, shape=x.shape, factor=factor)
    return run_gate(deal, positive, x, parties)


def parts(run: PartyRun) -> tuple[torch.Tensor, torch.Tensor]:
    """The two results of ``positive``."""
    value, flag = zip(*run.results, strict=True)
    return total(value), total(flag)


@given(st.lists(ANY, max_size=70), PARTIES)
def test_negative_is_exact(values: list[int], parties: int) -> None:
    x = torch.tensor(values, dtype=torch.int64)
    run, _ = run_negative(x, parties)
    assert torch.equal(total(run.results), (x < 0).long())


@given(st.lists(ANY, max_size=70), PARTIES)
def test_positive_is_exact(values: list[int], parties: int) -> None:
    x = torch.tensor(values, dtype=torch.int64)
    value, flag = parts(run_positive(x, 0, parties)[0])
    assert torch.equal(value, x.clamp(min=0))
    assert torch.equal(flag, (x >= 0).long())


def check_quotient(x: torch.Tensor, factor: Any, run: PartyRun) -> None:
    """The floor or one more for every x: there is no offset that a large one would go beyond."""
    value, flag = parts(run)
    excess = value - torch.from_numpy(products(x.numpy(), factor)).clamp(min=0)
    assert bool(((excess == 0) | (excess == 1)).all())
    assert not value[x < 0].any()
    assert torch.equal(flag, (x >= 0).long())


@given(st.lists(ANY, min_size=1, max_size=70), FACTORS.filter(lambda one: one != 0), PARTIES)
def test_positive_divides(values: list[int], factor: Any, parties: int) -> None:
    x = torch.tensor(values, dtype=torch.int64)
    check_quotient(x, factor, run_positive(x, factor, parties)[0])


@pytest.mark.parametrize("parties", [2, 3])
def test_many_values_at_once(parties: int) -> None:
    """More than a part of what is worked on at once, and no multiple of 64."""
    x = shared(torch.zeros(70_001, dtype=torch.int64))[0]
    x[: len(EDGES)] = torch.tensor(EDGES)
    x[1000:2000] >>= 50
    assert torch.equal(total(run_negative(x, parties)[0].results), (x < 0).long())
    value, flag = parts(run_positive(x, 0, parties)[0])
    assert torch.equal(value, x.clamp(min=0)) and torch.equal(flag, (x >= 0).long())
    check_quotient(x, 16, run_positive(x, 16, parties)[0])


def test_every_bit_may_decide() -> None:
    """Masks that differ from the opened word in one bit only, at each place of the tree."""
    for bit in range(63):
        x = torch.cat((torch.full((64,), 1 << bit), torch.full((64,), -(1 << bit))))
        assert torch.equal(total(run_negative(x)[0].results), (x < 0).long()), bit


@pytest.mark.parametrize("count", [0, 1, 64, 130, 6400])
@pytest.mark.parametrize("parties", [2, 3])
def test_what_they_cost(count: int, parties: int) -> None:
    x = torch.zeros(count, dtype=torch.int64)
    sent = [8 * count + 34 * 8 * words(count)] * parties
    planes = 337 * 8 * words(count)
    for (run, size), derived in (
        (run_negative(x, parties), 1),
        (run_positive(x, 0, parties), 2),
        (run_positive(x, 8, parties), 5),
    ):
        assert (run.rounds, run.sent, size) == (4, sent, planes + derived * 8 * count)


def test_the_costs_that_are_promised() -> None:
    run, size = run_negative(torch.zeros(6400, dtype=torch.int64))
    assert run.sent[0] / 6400 == 12.25 and size / 6400 == 50.125
    assert run_positive(torch.zeros(6400, dtype=torch.int64), 0)[1] / 6400 == 58.125
    assert run_positive(torch.zeros(6400, dtype=torch.int64), 9)[1] / 6400 == 82.125


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (2, 3, 5)])
def test_shapes(shape: tuple[int, ...]) -> None:
    x = torch.arange(torch.Size(shape).numel()).reshape(shape) - 7
    assert torch.equal(total(run_negative(x)[0].results), (x < 0).long())
    for bits in (0, 3):
        value, flag = parts(run_positive(x << bits, bits)[0])
        assert torch.equal(value, x.clamp(min=0)) and torch.equal(flag, (x >= 0).long())


def test_shares_with_gaps() -> None:
    whole = torch.arange(24).reshape(4, 6).t()[::2] - 11
    shares = [whole, torch.zeros(3, 4, dtype=torch.int64)]
    materials, _ = dealt(functools.partial(deal_positive, shape=(3, 4), factor=0))
    run = run_parties([positive(rank, materials[rank], shares[rank]) for rank in range(2)])
    assert torch.equal(parts(run)[0], whole.clamp(min=0))


@pytest.mark.parametrize("bits", [-1, 63])
def test_other_exponents_are_refused(bits: int) -> None:
    with pytest.raises(ProgramError, match="the exponent must be 0 to 62"):
        run_positive(torch.zeros(1, dtype=torch.int64), bits)
