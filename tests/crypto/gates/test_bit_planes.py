"""Bit planes against the bits of Python's integers."""

from __future__ import annotations

import pytest
import torch

from syft.crypto.gates.bit_planes import (
    bit_masks,
    column_parts,
    element_parts,
    module_of,
    plane_length,
    rows_of,
    tensor_of,
    transpose,
    unpack,
    words_of,
)
from tests.crypto.parties import shared

COUNTS = [0, 1, 2, 63, 64, 65, 1000, 64 * 600, 33_000]


def random(count: int) -> torch.Tensor:
    return shared(torch.zeros(count, dtype=torch.int64))[0]


@pytest.mark.parametrize("count", COUNTS)
def test_planes_hold_the_bits_of_all_elements(count: int) -> None:
    elements = random(count)
    planes = rows_of(words_of(elements)) ^ 0
    transpose(planes)
    assert planes.shape == (64, plane_length(count))
    for bit in (0, 1, 5, 31, 32, 62, 63):
        assert torch.equal(unpack(tensor_of(planes)[bit], count), (elements >> bit) & 1)
    transpose(planes)
    assert torch.equal(tensor_of(planes).reshape(-1)[:count], elements)


@pytest.mark.parametrize("count", [1, 64, 1000, 33_000])
def test_torch_makes_the_same_planes(count: int) -> None:
    elements = random(count)
    mine, other = rows_of(words_of(elements)) ^ 0, rows_of(elements) ^ 0
    transpose(mine)
    transpose(other)
    assert module_of(mine) is not module_of(other) is torch
    assert torch.equal(tensor_of(mine), other)
    found = torch.cat([masks for _, masks in bit_masks(other[7], count)])
    assert torch.equal(-found, (elements >> 7) & 1)


def test_what_fills_up_is_zero() -> None:
    rows = tensor_of(rows_of(words_of(torch.full((65,), -1))))
    assert rows.sum() == -65 and rows.shape == (64, 2)


@pytest.mark.parametrize("length", [0, 1, 3071, 3072, 3073, 10_000])
def test_parts_cover_everything_once(length: int) -> None:
    planes = torch.zeros(2, length, dtype=torch.int64)
    for words in (words_of(planes), planes):
        for part in column_parts(words):
            words[:, part] += 1
    assert bool((planes == 2).all())


@pytest.mark.parametrize("count", [0, 1, 32_768, 32_769, 100_000])
def test_parts_of_elements_cover_everything_once(count: int) -> None:
    elements = torch.zeros(count, dtype=torch.int64)
    for words in (words_of(elements), elements):
        for part in element_parts(words):
            words[part] += 1
    assert bool((elements == 2).all())


@pytest.mark.parametrize("count", [2_100_000, 64 * 32_768, 64 * 32_768 + 1])
def test_masks_of_long_planes_come_in_parts_of_rows(count: int) -> None:
    plane = random(plane_length(count))
    seen = torch.zeros(count, dtype=torch.int64)
    for where, masks in bit_masks(words_of(plane), count):
        seen[where] += 1
        row, column = divmod(where.start, len(plane))
        assert masks[0] == -((int(plane[column]) >> row) & 1)
    assert bool((seen == 1).all())
