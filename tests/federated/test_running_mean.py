"""Means of what comes one after the other, or many at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from syft.exceptions import UnusableSetting
from syft.federated.running_mean import RunningMean


def test_one_by_one_and_stacked_are_the_same() -> None:
    tables = [{"w": torch.randn(2, 3), "n": torch.tensor(number)} for number in range(4)]
    weights = [1.0, 5.0, 2.0, 4.0]
    single, stacked = RunningMean(12), RunningMean(12)
    for table, weight in zip(tables, weights, strict=True):
        single.add(table, weight, "bob")
    for part in (slice(0, 1), slice(1, 4)):
        chunk = tables[part]
        stacked.add_stacked(
            {name: torch.stack([table[name] for table in chunk]) for name in ("w", "n")},
            weights[part],
            ["bob"] * len(chunk),
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
        mean = RunningMean(6)
        mean.add_stacked({"x": laid}, [1.0, 2.0, 3.0], ["bob", "alice", "carol"])
        weights = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64).view(3, 1, 1, 1)
        torch.testing.assert_close(mean.values()["x"], (stacked * weights).sum(0) / 6)


def test_what_is_no_tensor_is_passed_over() -> None:
    mean = RunningMean(2)
    mean.add({"x": torch.ones(1), "name": "y"}, 2, "bob")
    assert list(mean.values()) == ["x"]


def mean_of(values: list[torch.Tensor], weights: list[float], chunk: int = 0) -> torch.Tensor:
    """The mean of tensors that are added one by one, or stacked as ``chunk`` at once."""
    mean = RunningMean(sum(weights))
    if not chunk:
        for number, (value, weight) in enumerate(zip(values, weights, strict=True)):
            mean.add({"x": value}, weight, str(number))
        return mean.values()["x"]
    for start in range(0, len(values), chunk):
        part = slice(start, start + chunk)
        names = [str(start + number) for number in range(len(values[part]))]
        mean.add_stacked({"x": torch.stack(values[part])}, weights[part], names)
    return mean.values()["x"]


ways = pytest.mark.parametrize("chunk", [0, 1, 2, 64], ids=["one by one", "1", "2", "stacked"])
numbers = st.floats(width=32, allow_nan=False, allow_infinity=False)


@ways
@given(pairs=st.lists(st.tuples(numbers, st.integers(1, 1000)), min_size=1, max_size=8))
def test_numbers_of_any_size_have_the_mean_of_float64(
    chunk: int, pairs: list[tuple[float, int]]
) -> None:
    values = [torch.tensor([value, -value]) for value, _ in pairs]
    weights = [float(weight) for _, weight in pairs]
    made = mean_of(values, weights, chunk)
    rows = np.array([[value, -value] for value, _ in pairs], dtype=np.float64)
    expected = np.average(rows, axis=0, weights=weights)
    size = float(np.abs(rows).max())
    assert made.dtype is torch.float32 and bool(made.isfinite().all())
    # Rounding is that of float32, relative to the largest number; the smallest are subnormal.
    np.testing.assert_allclose(made.double().numpy(), expected, rtol=0, atol=size * 1e-6 + 1e-44)


@ways
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=str)
def test_the_largest_numbers_do_not_overflow(chunk: int, dtype: torch.dtype) -> None:
    limits = torch.finfo(dtype)
    lower = float(torch.nextafter(torch.tensor(limits.max, dtype=torch.float64), torch.zeros(())))
    for several in ([limits.max, limits.max, lower], [limits.min] * 2 + [-lower]):
        values = [torch.tensor([value], dtype=torch.float64).to(dtype) for value in several]
        for weights in ([1.0, 1.0, 1.0], [300.0, 7.0, 11.0], [0.1, 0.7, 0.2]):
            made = mean_of(values, weights, chunk)
            torch.testing.assert_close(made, values[0], rtol=limits.eps * 4, atol=0)


@given(
    st.one_of(
        st.floats(allow_nan=False).map(lambda value: torch.tensor([value, 1.0]).double()),
        st.floats(allow_nan=False, width=32).map(lambda value: torch.tensor([value, 1.0])),
        st.integers(-(2**63), 2**63 - 1).map(lambda value: torch.tensor([value, 1])),
        st.floats(allow_nan=False).map(lambda value: torch.tensor([complex(1.0, value)])),
        st.booleans().map(lambda value: torch.tensor([value, True])),
    ),
    st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=7),
)
def test_what_all_hold_is_its_own_mean(value: torch.Tensor, weights: list[float]) -> None:
    made = mean_of([value.clone() for _ in weights], weights)
    assert made.dtype is value.dtype and torch.equal(made, value)


@ways
def test_infinities_in_the_same_places_are_in_the_mean(chunk: int) -> None:
    infinite = [torch.tensor([x, -torch.inf, torch.inf]) for x in (1.0, 2.0, 6.0)]
    made = mean_of(infinite, [1.0, 1.0, 1.0], chunk)
    assert torch.equal(made, torch.tensor([3.0, -torch.inf, torch.inf]))


@ways
@pytest.mark.parametrize(
    "rows, named",
    [
        ([[1.0, torch.nan], [1.0, 1.0], [1.0, torch.nan]], [0, 2]),
        ([[1.0, 1.0], [1.0, 1.0], [1.0, torch.inf]], [2]),
        ([[1.0, torch.inf], [1.0, 1.0], [1.0, 1.0]], [0]),
        ([[1.0, torch.inf], [1.0, torch.inf], [1.0, 1.0]], [0, 1]),
        ([[1.0, torch.inf], [1.0, -torch.inf], [1.0, torch.inf]], [0, 1, 2]),
        ([[1.0, -torch.inf], [torch.nan, -torch.inf], [1.0, -torch.inf]], [1]),
        ([[torch.nan, 1.0]] * 3, [0, 1, 2]),
    ],
    ids=str,
)
def test_what_has_no_mean_is_named(chunk: int, rows: list[list[float]], named: list[int]) -> None:
    with pytest.raises(UnusableSetting) as caught:
        mean_of([torch.tensor(row) for row in rows], [1.0, 2.0, 3.0], chunk)
    clients = "; ".join(f"'x' of update {number}" for number in named)
    assert str(caught.value) == (
        "updates must be finite, or infinite where all of them are, got NaN or Inf in "
        f"{clients}."
    )


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_complex_infinities_have_no_mean(dtype: torch.dtype) -> None:
    values = [torch.tensor([complex(x, torch.inf), x], dtype=dtype) for x in (1.0, 2.0)]
    with pytest.raises(UnusableSetting, match="NaN or Inf in 'x' of update 0; 'x' of update 1."):
        mean_of(values, [1.0, 1.0])
    large = torch.full((3,), torch.finfo(dtype).max / 2, dtype=dtype)  # no sum of them is finite
    assert mean_of([large, large * 0.5], [1.0, 1.0]).isfinite().all()


@ways
def test_integers_that_float64_has_not_are_refused(chunk: int) -> None:
    made = mean_of([torch.tensor([2**53 - 1]), torch.tensor([2**53 - 3])], [1.0, 1.0], chunk)
    assert made.item() == 2**53 - 2
    for value in (2**53, 2**53 + 1, -(2**63), 2**63 - 1):
        with pytest.raises(UnusableSetting) as caught:
            mean_of([torch.tensor([0]), torch.tensor([value])], [1.0, 1.0], chunk)
        assert str(caught.value) == (
            "updates must be alike, or of integers under 2^53, got integers from 2^53 on in 'x' of "
            "update 1."
        )


def test_an_error_names_twenty_of_thousands() -> None:
    with pytest.raises(UnusableSetting, match="'x' of update 19; 980 more.$"):
        mean_of([torch.tensor(torch.nan)] * 1000, [1.0] * 1000, chunk=100)


def test_sparse_tensors_have_a_dense_mean() -> None:
    for made in (torch.eye(3).to_sparse(), torch.eye(3).to_sparse().to_dense()):
        assert torch.equal(mean_of([made, 3 * made], [1.0, 1.0]), 2 * torch.eye(3))
        values: list[Any] = [made, made * torch.inf]
        with pytest.raises(UnusableSetting, match="'x' of update 1"):
            mean_of(values, [1.0, 1.0])
