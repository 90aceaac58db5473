"""Inputs grow so that functions take them: equal sizes together, with copies of what is there."""

from __future__ import annotations

import pytest
import torch

from syft.program.recording.input_sizes import (
    UNCHANGED,
    Variation,
    axes_of,
    axis_groups,
    row_variations,
    vary_all_axes,
)


def test_rows_are_copies_of_those_there() -> None:
    grown = Variation({(0, 0): 5, (1, 0): 3})([torch.tensor([4, 2]), torch.tensor([1.0])])
    assert grown[0].tolist() == [4, 2, 4, 2, 4] and grown[1].tolist() == [1, 1, 1]


def test_an_empty_batch_grows_by_zeros() -> None:
    assert Variation({(0, 0): 1})([torch.ones(0, 2)])[0].tolist() == [[0, 0]]


@pytest.mark.parametrize("numbers", [False, True])
def test_numbers_grow_if_they_are_to(numbers: bool) -> None:
    assert Variation({}, numbers)([1, 2.5, True, None]) == [1 + numbers, 2.5 + numbers, True, None]


def test_gradients_are_wanted_as_before() -> None:
    x = torch.ones(2, requires_grad=True)
    grown = Variation({(0, 0): 3})([x, x])
    assert [value.requires_grad for value in grown] == [True, True]
    assert all(value.is_leaf for value in grown)


def test_nothing_grows_by_nothing() -> None:
    x = torch.ones(2, 3)
    assert torch.equal(UNCHANGED([x])[0], x)


def test_no_two_lengths_become_the_same() -> None:
    axes = axes_of([torch.ones(4, 3), torch.ones(2), torch.ones(3, 8)])
    new = vary_all_axes(axes).lengths
    assert new.keys() == axes.keys() and new[0, 1] == new[2, 0]
    assert len(set(new.values())) == len(set(axes.values())) == 4
    assert set(new.values()).isdisjoint(axes.values())
    assert all((new[axis] - axes[axis]) % 2 and (new[axis] - axes[axis]) % 3 for axis in axes)


def test_without_rows_only_numbers_grow() -> None:
    assert [variation.numbers for variation in row_variations({})] == [True]


def test_one_axis_is_tried_once() -> None:
    axes = axes_of([torch.ones(2, 3)])
    assert list(axis_groups(axes, {(0, 1)})) == [[[(0, 1)]]]
