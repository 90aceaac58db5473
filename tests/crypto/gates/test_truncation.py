"""Products with public factors: the floor or one more, never a wrap."""

from __future__ import annotations

import functools
from fractions import Fraction
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from syft.crypto.dealing import StreamName
from syft.crypto.gates.public_factors import fractions, products
from syft.crypto.gates.truncation import deal_divide, divide
from syft.crypto.mask_stream import fresh_key
from syft.exceptions import ProgramError
from tests.crypto.gates.test_public_factors import FACTORS, SIZES, exact
from tests.crypto.parties import KEYS, NAME, PartyRun, dealt, run_parties, shared, total

LEAST, MOST = -(1 << 62), (1 << 62) - 1
EDGES = [LEAST, LEAST + 1, -(1 << 32), -2, -1, 0, 1, 2, 1 << 32, MOST - 1, MOST]


def run_divide(
    x: torch.Tensor, factor: Any, parties: int = 2, name: StreamName = NAME
) -> tuple[PartyRun, int]:
    """Share, divide, and say what was dealt."""
    deal = functools.partial(deal_divide, shape=x.shape, factor=factor)
    keys = [fresh_key() for _ in range(parties)]
    materials, size = dealt(deal, keys, name, parties)
    shares = shared(x, parties)
    kept = [share.clone() for share in shares]
    run = run_parties([divide(rank, materials[rank], share) for rank, share in enumerate(shares)])
    assert all(map(torch.equal, kept, shares))
    return run, size


@given(
    st.lists(st.integers(LEAST, MOST) | st.sampled_from(EDGES), max_size=70),
    st.integers(0, 62),
    st.sampled_from([2, 3, 5]),
)
def test_the_quotient_is_the_floor_or_one_more(values: list[int], bits: int, parties: int) -> None:
    x = torch.tensor(values, dtype=torch.int64)
    run, _ = run_divide(x, bits, parties)
    excess = total(run.results) - (x >> bits)
    assert bool(((excess == 0) | (excess == 1)).all())
    assert bool((excess[(x & ((1 << bits) - 1)) == 0] == 0).all())


@given(
    st.lists(st.integers(LEAST, MOST) | st.sampled_from(EDGES), min_size=1, max_size=70),
    FACTORS,
    st.sampled_from([2, 3, 5]),
)
def test_any_factor_gives_the_floor_or_one_more(
    values: list[int], factor: Any, parties: int
) -> None:
    """Over the whole range of the ring; a multiple of a divisor is exact."""
    run, size = run_divide(torch.tensor(values), factor, parties)
    assert (run.rounds, size) == ((0, 0) if factor == 0 else (1, 16 * len(values)))
    for value, found in zip(values, total(run.results).tolist(), strict=True):
        whole = value * exact(factor)
        assert 0 <= found - whole // 1 <= (whole.denominator > 1)


@given(st.lists(st.tuples(st.integers(LEAST, MOST), st.integers(1, 1_000_000)), min_size=1))
def test_each_element_has_a_divisor_of_its_own(rows: list[tuple[int, int]]) -> None:
    x, divisors = (torch.tensor([row[at] for row in rows]) for at in (0, 1))
    run, _ = run_divide(x, (divisors,), 3)
    for (value, divisor), found in zip(rows, total(run.results).tolist(), strict=True):
        assert 0 <= found - value // divisor <= (value % divisor > 0)


@given(st.lists(st.tuples(st.integers(LEAST, MOST), SIZES), min_size=1))
def test_each_element_has_a_fraction_of_its_own(rows: list[tuple[int, float]]) -> None:
    x = torch.tensor([row[0] for row in rows])
    run, _ = run_divide(x, fractions(torch.tensor([r[1] for r in rows], dtype=torch.float64)), 3)
    for (value, number), found in zip(rows, total(run.results).tolist(), strict=True):
        assert -1 < found - value * Fraction(number) < 1


def test_a_divisor_is_broadcast() -> None:
    x = torch.arange(24).reshape(2, 3, 4) * 60
    run, _ = run_divide(x, (torch.tensor([[3], [4], [5]]),))
    assert torch.equal(total(run.results), x // torch.tensor([[3], [4], [5]]))


def test_a_million_quotients_do_not_wrap() -> None:
    x = shared(torch.zeros(1_000_000, dtype=torch.int64))[0] >> 1
    run, _ = run_divide(x, 16)
    excess = total(run.results) - (x >> 16)
    assert set(excess.unique().tolist()) == {0, 1}


@pytest.mark.soak
def test_a_hundred_million_quotients_do_not_wrap() -> None:
    for place in range(100):
        x = shared(torch.zeros(1_000_000, dtype=torch.int64))[0] >> 1
        bits = 1 + place % 62
        run, _ = run_divide(x, bits)
        excess = total(run.results) - (x >> bits)
        assert set(excess.unique().tolist()) == {0, 1}


@pytest.mark.soak
@pytest.mark.parametrize("factor", [(10,), (10_001,), (3 << 51, 54)])
def test_many_quotients_do_not_wrap(factor: Any) -> None:
    for _ in range(20):
        x = shared(torch.zeros(1_000_000, dtype=torch.int64))[0] >> 1
        run, _ = run_divide(x, factor)
        excess = total(run.results) - torch.from_numpy(products(x.numpy(), factor))
        assert set(excess.unique().tolist()) <= {0, 1}


def test_it_rounds_up_as_often_as_the_rest_says() -> None:
    """A rest of one quarter is rounded up in a quarter of the cases (7 standard deviations)."""
    run, _ = run_divide(torch.full((100_000,), 5), 2)
    ups = int((total(run.results) - 1).sum())
    assert abs(ups - 25_000) < 7 * (100_000 * 0.25 * 0.75) ** 0.5


@pytest.mark.parametrize("count", [0, 1, 64, 1001])
@pytest.mark.parametrize("parties", [2, 3])
def test_what_it_costs(count: int, parties: int) -> None:
    run, size = run_divide(torch.zeros(count, dtype=torch.int64), 8, parties)
    assert (run.rounds, run.sent, size) == (1, [8 * count] * parties, 16 * count)


def test_no_bits_take_no_round() -> None:
    run, size = run_divide(torch.tensor([3, -4]), 0)
    assert (run.rounds, size, total(run.results).tolist()) == (0, 0, [3, -4])


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (2, 3, 5)])
def test_shapes(shape: tuple[int, ...]) -> None:
    x = torch.arange(torch.Size(shape).numel()).reshape(shape) << 4
    run, _ = run_divide(x, 4)
    assert torch.equal(total(run.results), x >> 4)


def test_shares_with_gaps() -> None:
    shares = [torch.arange(24).reshape(4, 6).t()[::2] << 8, torch.zeros(3, 4, dtype=torch.int64)]
    materials, _ = dealt(functools.partial(deal_divide, shape=(3, 4), factor=8))
    run = run_parties([divide(rank, materials[rank], shares[rank]) for rank in range(2)])
    assert torch.equal(total(run.results), shares[0] >> 8)


@pytest.mark.parametrize("bits", [-1, 63])
def test_other_exponents_are_refused(bits: int) -> None:
    with pytest.raises(
        ProgramError, match=rf"a division by 2\^{bits}: the exponent must be 0 to 62"
    ):
        dealt(functools.partial(deal_divide, shape=(1,), factor=bits), KEYS)
