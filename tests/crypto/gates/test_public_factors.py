"""Products with public factors are the exact floors, for every word and every factor."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from syft.crypto.gates.bit_planes import words_of
from syft.crypto.gates.public_factors import (
    check_factor,
    factor_for,
    fraction,
    fractions,
    frozen_factor,
    named_factor,
    nearest,
    products,
    thawed_factor,
    whole_divisor,
)
from syft.exceptions import ProgramError

EDGES = [-(1 << 63), 1 - (1 << 63), -(1 << 62), -1, 0, 1, (1 << 62) - 1, (1 << 63) - 1]
WORDS = st.lists(st.integers(-(1 << 63), (1 << 63) - 1) | st.sampled_from(EDGES), min_size=1)
SIZES = st.floats(-19, 0).map(lambda power: 0.999 * 10.0**power)
FACTORS = (
    st.integers(2, 1_000_000).map(whole_divisor)
    | st.integers(1, 1 << 62).map(whole_divisor)
    | st.integers(0, 62)
    | SIZES.map(fraction).filter(lambda factor: factor is not None)
)


def exact(factor: Any) -> Fraction:
    if isinstance(factor, int):
        return Fraction(1, 1 << factor)
    return Fraction(1, factor[0]) if len(factor) == 1 else Fraction(factor[0], 1 << factor[1])


def word(number: int) -> int:
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


@given(WORDS, FACTORS, st.sampled_from([0, 1 << 62, 1 << 64]), st.booleans())
def test_products_are_exact_floors(
    numbers: list[int], factor: Any, less: int, torchs: bool
) -> None:
    x, by = torch.tensor(numbers), exact(factor)
    found = products(x if torchs else words_of(x), factor, less)
    assert found.tolist() == [word((one - less) * by // 1) for one in numbers]


@given(WORDS, FACTORS)
def test_the_nearest_is_exact(numbers: list[int], factor: Any) -> None:
    found, by = nearest(torch.tensor(numbers), factor), exact(factor)
    assert found.tolist() == [word((one * by + Fraction(1, 2)) // 1) for one in numbers]


@given(st.lists(st.tuples(st.integers(-(1 << 63), (1 << 63) - 1), SIZES), min_size=1))
def test_each_element_has_a_fraction(rows: list[tuple[int, float]]) -> None:
    numbers, factors = zip(*rows, strict=True)
    x, by = torch.tensor(numbers), fractions(torch.tensor(factors, dtype=torch.float64))
    kept = [one if one >= 2.0**-64 else 0 for one in factors]
    for less in (0, 1 << 62, 1 << 64):
        want = [word((n - less) * Fraction(one) // 1) for n, one in zip(numbers, kept, strict=True)]
        assert products(words_of(x), factor_for(by, x.shape), less).tolist() == want
        assert (
            products(x, tuple(map(torch.from_numpy, factor_for(by, x.shape))), less).tolist()
            == want
        )


@given(st.lists(st.tuples(st.integers(-(1 << 63), (1 << 63) - 1), st.integers(1, 1 << 62))))
def test_each_element_has_a_divisor(rows: list[tuple[int, int]]) -> None:
    x, divisors = (torch.tensor([row[at] for row in rows], dtype=torch.int64) for at in (0, 1))
    for less in (0, 1 << 62, 1 << 64):
        want = [word((number - less) // divisor) for number, divisor in rows]
        assert products(words_of(x), (words_of(divisors),), less).tolist() == want
        assert products(x, (divisors,), less).tolist() == want


@given(SIZES)
def test_a_fraction_is_the_number(number: float) -> None:
    factor = fraction(number)
    if factor is None:
        assert number < 2.0**-63
    else:
        check_factor(factor, ())
        assert abs(exact(factor) - Fraction(number)) <= Fraction(number) / 2**52


def test_the_inverse_of_a_whole_number_is_a_divisor() -> None:
    assert [fraction(1 / n) for n in (2, 3, 10, 10_001, 2**20)] == [1, (3,), (10,), (10_001,), 20]


def test_a_factor_is_told_as_bytes() -> None:
    for shape in ((3,), (2, 1, 3)):
        factor = (torch.arange(1, 7).reshape(2, 1, 3)[..., : shape[-1]],)
        frozen = frozen_factor(factor)
        assert hash(frozen) and torch.equal(thawed_factor(frozen)[0], factor[0])
        assert named_factor(frozen) == named_factor(factor) != named_factor((factor[0] + 1,))
    assert named_factor((torch.ones(6, dtype=torch.int64),)) != named_factor(
        (torch.ones(2, 3, dtype=torch.int64),)
    )


WRONG = {
    "too many bits": 63,
    "no bits": -1,
    "a float": 0.5,
    "a truth": True,
    "a zero": (0,),
    "a negative divisor": (-3,),
    "beyond": ((1 << 62) + 1,),
    "three numbers": (1, 60, 2),
    "nothing": (),
    "a long numerator": (1 << 53, 60),
    "few bits": (1, 26),
    "many bits": (1, 117),
    "zeros": (torch.tensor([3, 0]),),
    "floats": (torch.tensor([3.0]),),
    "another shape": (torch.tensor([3, 4, 5]),),
    "more dimensions": (torch.ones(1, 2, dtype=torch.int64),),
    "no elements": (torch.ones(0, dtype=torch.int64),),
    "a list": ([3, 4],),
    "a shape": (((2,), "bytes"),),
    "short bytes": (((2,), bytes(8)),),
    "a negative size": (((-1,), bytes(8)),),
    "no shape": ((8, bytes(8)),),
}


@pytest.mark.parametrize("what", WRONG)
def test_other_factors_are_refused(what: str) -> None:
    with pytest.raises(ProgramError):
        check_factor(thawed_factor(WRONG[what]), (2,))
