"""Means of what comes one after the other, or many at once."""

from __future__ import annotations

import torch

from syft.federated.running_mean import RunningMean


def test_one_by_one_and_stacked_are_the_same() -> None:
    tables = [{"w": torch.randn(2, 3), "n": torch.tensor(number)} for number in range(4)]
    weights = [1.0, 5.0, 2.0, 4.0]
    single, stacked = RunningMean(), RunningMean()
    for table, weight in zip(tables, weights, strict=True):
        single.add(table, weight)
    for part in (slice(0, 1), slice(1, 4)):
        chunk = tables[part]
        stacked.add_stacked(
            {name: torch.stack([table[name] for table in chunk]) for name in ("w", "n")},
            weights[part],
        )
    expected = sum(
        (weight * table["w"] for table, weight in zip(tables, weights, strict=True)),
        torch.zeros(()),
    )
    for mean in (single, stacked):
        torch.testing.assert_close(mean.values()["w"], expected / 12)
        assert mean.values()["n"].item() == 2 and mean.values()["n"].dtype is torch.int64


def test_any_order_in_memory_has_the_same_mean() -> None:
    stacked = torch.randn(3, 4, 2, 5, dtype=torch.float64)
    for laid in (stacked, stacked.transpose(1, 3).contiguous().transpose(1, 3)):
        mean = RunningMean()
        mean.add_stacked({"x": laid}, [1.0, 2.0, 3.0])
        weights = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64).view(3, 1, 1, 1)
        torch.testing.assert_close(mean.values()["x"], (stacked * weights).sum(0) / 6)


def test_what_is_no_tensor_is_passed_over() -> None:
    mean = RunningMean()
    mean.add({"x": torch.ones(1), "name": "y"}, 2)
    assert list(mean.values()) == ["x"]
