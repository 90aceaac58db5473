"""Zeros, exact over the whole ring, against plain torch."""

from __future__ import annotations

import functools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from syft.crypto.gates.equality import deal_zero, zero
from tests.crypto.parties import PartyRun, shared, total
from tests.crypto.gates.test_comparison import ANY, PARTIES, run_gate, words


def run_zero(x: torch.Tensor, parties: int = 2) -> tuple[PartyRun, int]:
    return run_gate(functools.partial(deal_zero, shape=x.shape), zero, x, parties)


@given(st.lists(ANY | st.just(0), max_size=70), PARTIES)
def test_zero_is_exact(values: list[int], parties: int) -> None:
    x = torch.tensor(values, dtype=torch.int64)
    assert torch.equal(total(run_zero(x, parties)[0].results), (x == 0).long())


def test_every_bit_counts() -> None:
    x = torch.cat([torch.full((70,), 1) << bit for bit in range(64)] + [torch.zeros(70).long()])
    assert torch.equal(total(run_zero(x)[0].results), (x == 0).long())


def test_many_values_at_once() -> None:
    x = shared(torch.zeros(70_001, dtype=torch.int64))[0]
    x[::3] = 0
    assert torch.equal(total(run_zero(x, 3)[0].results), (x == 0).long())


@pytest.mark.parametrize("count", [0, 1, 64, 130, 6400])
@pytest.mark.parametrize("parties", [2, 3])
def test_what_it_costs(count: int, parties: int) -> None:
    run, size = run_zero(torch.zeros(count, dtype=torch.int64), parties)
    sent = [8 * count + 21 * 8 * words(count)] * parties
    dealt_bytes = 295 * 8 * words(count) + 8 * count
    assert (run.rounds, run.sent, size) == (4, sent, dealt_bytes)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (2, 3, 5)])
def test_shapes(shape: tuple[int, ...]) -> None:
    x = torch.arange(torch.Size(shape).numel()).reshape(shape) - 7
    assert torch.equal(total(run_zero(x)[0].results), (x == 0).long())
