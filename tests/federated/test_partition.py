"""Partitions: each sample once, the mixtures that are described, bits that a seed settles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import syft as sy
from syft.exceptions import UnusableSetting

LABELS = torch.arange(600) % 10
Make = Callable[..., sy.Partition]
KINDS: dict[str, Make] = {
    "iid": sy.Partition.iid,
    "dirichlet": lambda *args, **seed: sy.Partition.dirichlet(*args, 0.3, **seed),
    "shards": sy.Partition.shards,
    "label": lambda targets, clients, seed=0: sy.Partition.by_label(targets, clients),
}
DRAWN = ["iid", "dirichlet", "shards"]


@pytest.mark.parametrize("kind", KINDS)
@given(
    labels=st.lists(st.integers(-2, 4), min_size=12, max_size=40),
    clients=st.integers(1, 6),
    seed=st.integers(0, 2**40),
)
def test_each_sample_is_in_one_part(kind: str, labels: list[int], clients: int, seed: int) -> None:
    partition = KINDS[kind](torch.tensor(labels), clients, seed=seed)
    assert len(partition) == clients
    assert torch.cat(list(partition)).sort().values.tolist() == list(range(len(labels)))
    for rows in partition:
        assert rows.dtype is torch.int64 and torch.equal(rows, rows.sort().values)


def same(one: sy.Partition, other: sy.Partition) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("kind", DRAWN)
def test_a_seed_settles_every_bit_and_torchs_seed_none(kind: str) -> None:
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    first = KINDS[kind](LABELS, 7, seed=11)
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(2)
    assert same(KINDS[kind](LABELS, 7, seed=11), first)
    assert not same(KINDS[kind](LABELS, 7, seed=12), first)


@pytest.mark.parametrize("kind", DRAWN)
def test_a_generator_gives_another_partition_each_time(kind: str) -> None:
    dice = torch.Generator().manual_seed(4)
    one, other = (KINDS[kind](LABELS, 7, seed=dice) for _ in range(2))
    assert not same(one, other)
    assert same(KINDS[kind](LABELS, 7, seed=dice.manual_seed(4)), one)


def test_the_bits_are_the_same_on_every_machine() -> None:
    parts = [KINDS[kind](LABELS[:20], 3, seed=1) for kind in DRAWN]
    assert [[rows.tolist()[:4] for rows in part] for part in parts] == GOLDEN


GOLDEN = [
    [[1, 7, 10, 11], [2, 3, 4, 5], [0, 6, 9, 13]],
    [[0, 6, 7, 8], [13], [1, 2, 3, 4]],
    [[0, 1, 7, 8], [2, 3, 4, 5], [6, 9, 15, 16]],
]


def test_blind_parts_are_alike() -> None:
    counts = torch.tensor(sy.Partition.iid(LABELS, 6).counts().table)
    assert counts.sum(1).tolist() == [100] * 6
    assert counts.min() >= 2 and counts.max() <= 20, "ten of each label on average"


def largest_share(alpha: float) -> float:
    """The share of a label that its largest holder has, on average over labels and seeds."""
    shares = []
    for seed in range(20):
        counts = torch.tensor(sy.Partition.dirichlet(LABELS, 5, alpha, seed=seed).counts().table)
        shares.append((counts.max(0).values / counts.sum(0)).mean())
    return float(torch.stack(shares).mean())


def test_alpha_says_how_alike_the_parts_are() -> None:
    # Expected largest shares of symmetric Dirichlet distributions over five.
    oracle = torch.distributions.Dirichlet(torch.full((5,), 0.5)).sample((20_000,))
    assert largest_share(0.5) == pytest.approx(float(oracle.max(1).values.mean()), abs=0.03)
    assert largest_share(0.01) > 0.95
    assert largest_share(10_000.0) < 0.22


def test_of_a_label_no_client_is_preferred() -> None:
    totals = sum(
        torch.tensor(sy.Partition.dirichlet(LABELS, 4, 1.0, seed=seed).counts().table).sum(1)
        for seed in range(100)
    )
    assert (totals / 100 - 150).abs().max() < 15


def test_shards_hold_few_labels() -> None:
    partition = sy.Partition.shards(LABELS, 10, shards_per_client=2, seed=3)
    assert all(len(rows) == 60 for rows in partition)
    assert all(len(LABELS[rows].unique()) <= 2 for rows in partition)
    whole = sy.Partition.shards(LABELS, 2, shards_per_client=5)
    assert all(len(LABELS[rows].unique()) == 5 for rows in whole)


def test_labels_go_round() -> None:
    few = sy.Partition.by_label(LABELS, 3)
    assert [LABELS[rows].unique().tolist() for rows in few] == [[0, 3, 6, 9], [1, 4, 7], [2, 5, 8]]
    many = sy.Partition.by_label(LABELS, 23)
    assert [LABELS[rows].unique().tolist() for rows in many] == [[at % 10] for at in range(23)]
    assert [len(rows) for rows in many][:10] == [20, 20, 20] + [30] * 7


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_labels_may_be_a_list_or_an_array(kind: str) -> None:
    labels = torch.arange(30) % 3
    expected = [rows.tolist() for rows in KINDS[kind](labels, 2, seed=5)]
    for other in (labels.tolist(), labels.numpy()):
        partition = KINDS[kind](other, 2, seed=5)
        assert [rows.tolist() for rows in partition] == expected
        assert partition.counts() == KINDS[kind](labels, 2, seed=5).counts()


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(UnusableSetting, match="clients must be 1 or more, got 0"):
        sy.Partition.iid(LABELS, 0)
    with pytest.raises(UnusableSetting, match="alpha must be over 0, got 0"):
        sy.Partition.dirichlet(LABELS, 2, 0)
    for wrong in (0, 301):
        with pytest.raises(UnusableSetting, match=f"shards_per_client must be .*, got {wrong} for"):
            sy.Partition.shards(LABELS, 2, wrong)
    with pytest.raises(UnusableSetting, match="one number for each sample, got"):
        sy.Partition.by_label(torch.zeros(3, 2), 2)


def test_it_is_a_sequence_that_shows_itself() -> None:
    partition = sy.Partition.by_label(torch.tensor([3, 3, 8]), 2)
    assert partition[-1].tolist() == [2] and len(partition[:1]) == 1
    assert repr(partition) == "<Partition of 3 samples over 2 clients>"
    assert str(partition).splitlines()[1:] == ["client 0  █·  2", "client 1  ·▄  1"]
    assert partition._repr_html_().startswith("<svg")


def test_it_says_who_gets_what(bob: sy.VirtualWorker, alice: sy.VirtualWorker) -> None:
    data: Any = sy.BaseDataset(torch.rand(600, 1), LABELS)
    parts = sy.Partition.by_label(LABELS, 2)
    federated = data.federate((bob, alice), parts)
    assert federated["alice"].get().targets.unique().tolist() == [1, 3, 5, 7, 9]


def test_parts_are_on_the_device_of_the_labels(device: torch.device) -> None:
    partition = sy.Partition.iid(LABELS.to(device), 3)
    assert {rows.device.type for rows in partition} == {device.type}
    assert sum(map(sum, partition.counts().table)) == 600
