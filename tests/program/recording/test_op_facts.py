"""A size counts as a value only if it follows from one; properties are ones that tensors have."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

from syft.ops.table import FLAGS, METADATA, NAMES
from syft.program.recording.op_facts import FIXED, PROPERTIES_OF
from syft.program.recording.record import record
from syft.program.recording.symbolic import Origin

X = torch.tensor([[1.0, -2.0, 3.0], [4.0, 5.0, -6.0]])
LENGTHS = torch.tensor([1, 2])

BY_SIZES: dict[str, Callable[[torch.Tensor], Any]] = {
    "where": lambda x: torch.where(x > 0, x, -x),
    "where_named": lambda x: torch.where(x > 0, input=x, other=-x),
    "where_method": lambda x: x.where(x > 0, -x),
    "arange": lambda x: x + torch.arange(x.shape[1]),
    "index": lambda x: x[:, torch.tensor([0, 2, 1])],
    "repeat": lambda x: x.repeat_interleave(2, dim=1)[:, ::2],
    "repeat_named": lambda x: torch.repeat_interleave(x, repeats=1, dim=1),
    "repeat_by_size": lambda x: x.repeat_interleave(x.shape[1], dim=1)[:, ::3],
    "split": lambda x: torch.tensor_split(x, [3], dim=1)[0],
    "split_named": lambda x: x.tensor_split(indices=(3,), dim=1)[0],
    "after": lambda x: (x[x > 0], x + 1)[1],
}

BY_VALUES: dict[str, Callable[[torch.Tensor], Any]] = {
    "where": lambda x: torch.where(x > 0)[0],
    "arange": lambda x: torch.arange(x[0, 0].item()),
    "range": lambda x: torch.arange(0, end=x.sum().item()),
    "mask": lambda x: x[x > 0],
    "mask_in_tuple": lambda x: x[:, x[0] > 0],
    "nonzero": lambda x: x.nonzero() + 1,
    "repeat": lambda x: torch.repeat_interleave(LENGTHS),
    "repeat_named": lambda x: torch.repeat_interleave(LENGTHS, repeats=LENGTHS),
    "repeat_item": lambda x: LENGTHS.repeat_interleave(LENGTHS[0].item()),
    "split": lambda x: torch.tensor_split(x, torch.tensor([1]))[0],
}


def origin_of_size(made: Callable[[torch.Tensor], Any]) -> Origin:
    """Where the last size of what a function makes comes from."""
    found: list[Any] = []

    def function(x: torch.Tensor) -> Any:
        y = made(x)
        found.append(y.shape[-1].origin)
        return y

    record(function, [X], check=False)
    return Origin(found[0])


@pytest.mark.parametrize("name", BY_SIZES)
def test_a_size_that_follows_from_sizes_is_one(name: str) -> None:
    assert origin_of_size(BY_SIZES[name]) is Origin.SIZE


@pytest.mark.parametrize("name", BY_VALUES)
def test_a_size_that_follows_from_values_counts_as_a_value(name: str) -> None:
    assert origin_of_size(BY_VALUES[name]) is Origin.VALUE


def test_a_decision_by_the_size_of_what_was_chosen_does_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        record(lambda x: torch.masked.var(x, 0, mask=x > 0), [X])


def test_each_property_is_one_of_a_tensor() -> None:
    x = torch.ones(2)
    assert all(getattr(x, name) is not None for name in FIXED)


def test_each_property_is_read_by_metadata() -> None:
    assert all(FLAGS[number] & METADATA for number in PROPERTIES_OF)
    assert not any("size" in NAMES[number].split(".") for number in PROPERTIES_OF)
