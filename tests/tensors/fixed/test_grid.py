"""The grid: what goes in and out, how exactly, and what is refused with which words."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from syft.exceptions import EncodingError, UnsupportedOperation
from syft.tensors.fixed.grid import (
    CEILING,
    FLOOR,
    Excess,
    decode,
    encode,
    encode_number,
    forbid_decoding,
    make_grid,
    rescale_,
)
from syft.tensors.fixed.precision import choose_grid, fix_precision, float_precision
from syft.crypto.kernels import Kernel, KernelCode
from syft.crypto.ring_products import by_limbs, magnitude
from syft.tensors.fixed.ring import multiply, product, rounded

MATMUL = Kernel(KernelCode.MATMUL)

GRIDS = [make_grid(2, 16), make_grid(10, 3), make_grid(2, 0), make_grid(3, 7)]
BINARY, DECIMAL = GRIDS[:2]

values = st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=8)
integers = st.integers(-(2**63), 2**63 - 1)


@settings(deadline=None)
@given(values, st.sampled_from(GRIDS))
def test_a_round_trip_is_off_by_half_a_step_at_most(numbers, grid):
    encoded = encode(torch.tensor(numbers, dtype=torch.float64), grid).tolist()
    for number, held in zip(numbers, encoded, strict=True):
        assert abs(Fraction(number) * grid.scale - held) <= Fraction(1, 2) + Fraction(1, 10**4)
    held = torch.tensor(encoded)
    assert torch.equal(encode(decode(held, grid, torch.float64), grid), held)


@settings(deadline=None)
@given(values, values)
def test_addition_is_exact(one, other):
    size = min(len(one), len(other))
    x, y = (fix_precision(torch.tensor(numbers[:size])) for numbers in (one, other))
    assert torch.equal((x + y).child.child, x.child.child + y.child.child)
    assert torch.equal((x - y).child.child, x.child.child - y.child.child)


@settings(deadline=None)
@given(values, values, st.sampled_from([None, 3]))
def test_a_product_is_off_by_half_a_step(one, other, digits):
    size = min(len(one), len(other))
    x, y = (
        fix_precision(torch.tensor(numbers[:size]).clamp(-4e4, 4e4), digits)
        for numbers in (one, other)
    )
    scale = x.child.grid.scale
    for a, b, c in zip(*(t.child.child.tolist() for t in (x, y, x * y)), strict=True):
        assert abs(c * scale - a * b) * 2 <= scale


@settings(deadline=None)
@given(
    st.lists(integers, min_size=1, max_size=5),
    st.sampled_from([(2, 16), (2, 2), (2, 1), (2, 0), (10, 3)]),
)
@example([2**63 - 1, -(2**63)], (2, 1))
@example([2**63 - 1, -(2**63)], (2, 2))
def test_products_are_rescaled_to_the_nearest(numbers, grid):
    scale = make_grid(*grid).scale
    found = rescale_(torch.tensor(numbers), make_grid(*grid)).tolist()
    assert found == [(2 * number + scale) // (2 * scale) for number in numbers]


def test_halves_round_upwards():
    assert rescale_(torch.tensor([1, -1, 3, -3]), make_grid(2, 1)).tolist() == [1, 0, 2, -1]
    assert rescale_(torch.tensor([500, -500]), DECIMAL).tolist() == [1, 0]
    assert rescale_(torch.tensor([7]), make_grid(2, 0)).tolist() == [7]


@pytest.mark.parametrize(
    "dtype",
    [
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.uint8,
        torch.bool,
        torch.uint16,
        torch.uint32,
        torch.uint64,
    ],
)
def test_every_real_dtype_is_encoded(dtype):
    x = torch.tensor([0, 1, 1]).to(dtype)
    assert encode(x, DECIMAL).tolist() == [0, 1000, 1000]
    assert encode(x[:0], DECIMAL).tolist() == []


def test_float64_is_not_narrowed():
    x = torch.tensor([1 + 2**-40], dtype=torch.float64)
    assert encode(x, make_grid(2, 40)).item() == 2**40 + 1
    assert decode(encode(x, make_grid(2, 40)), make_grid(2, 40), torch.float64).item() == x.item()


FEWER = "Instead, use fewer fractional digits (precision_fractional) or scale the data down."
NO_NAN = "Instead, replace infinities and NaN first, for example with torch.nan_to_num."
RANGE = "the range is -1.407e+14 to 1.407e+14."


@pytest.mark.parametrize(
    ("x", "value", "instead"),
    [
        (torch.tensor([1.0, 2.0**48, 1e30]), "281474976710656.0", FEWER),
        (torch.tensor([-(2.0**47)]), "-140737488355328.0", FEWER),
        (torch.tensor([1.0, math.nan]), "nan", NO_NAN),
        (torch.tensor([-math.inf, math.nan]), "-inf", NO_NAN),
        (torch.tensor([2**47]), "140737488355328", FEWER),
        (torch.tensor([-(2**62)]), "-4611686018427387904", FEWER),
        (torch.tensor([2**63 + 5], dtype=torch.uint64), "9223372036854775813", FEWER),
    ],
)
def test_the_first_value_out_of_range_is_named(x, value, instead):
    with pytest.raises(EncodingError) as caught:
        fix_precision(x)
    assert str(caught.value) == f"Cannot encode {value} in fixed precision: {RANGE} {instead}"


@pytest.mark.parametrize("number", [2.0**47, -(2**60), math.nan, math.inf])
def test_numbers_out_of_range_are_refused(number):
    with pytest.raises(EncodingError):
        encode_number(number, BINARY)


def test_what_becomes_of_excess():
    assert encode_number(-math.inf, BINARY, Excess.ENDS) == FLOOR
    assert encode_number(torch.finfo(torch.float32).max, BINARY, Excess.ENDS) == CEILING
    assert encode_number(-1e20, BINARY, Excess.CLAMP) == FLOOR
    for excess in Excess:
        with pytest.raises(EncodingError):
            encode_number(math.nan, BINARY, excess)
    with pytest.raises(EncodingError):
        encode_number(1e20, BINARY, Excess.ENDS)
    x = torch.tensor([-math.inf, 1.0, 1e20])
    assert encode(x, BINARY, Excess.CLAMP).tolist() == [FLOOR, 65536, CEILING]
    assert encode(x[:2], BINARY, Excess.ENDS).tolist() == [FLOOR, 65536]
    with pytest.raises(EncodingError, match="1.0000000200408773e\\+20"):
        encode(x, BINARY, Excess.ENDS)


def test_complex_numbers_are_refused():
    with pytest.raises(UnsupportedOperation) as caught:
        fix_precision(torch.tensor([1j]))
    assert str(caught.value) == (
        "FixedPrecisionTensor has no rule for complex numbers: "
        "encode the real and the imaginary part."
    )


@pytest.mark.parametrize(
    ("digits", "base", "text"),
    [
        (
            3,
            1,
            "Cannot encode with base 1 in fixed precision: the range is bases 2 to 16. "
            "Instead, choose base 2 or base 10.",
        ),
        (
            -1,
            None,
            "Cannot encode with -1 fractional digits in fixed precision: the range is 0 to 18 "
            "digits of base 10. Instead, choose in it.",
        ),
        (
            61,
            2,
            "Cannot encode with 61 fractional digits in fixed precision: the range is 0 to 60 "
            "digits of base 2. Instead, choose in it.",
        ),
        (
            None,
            17,
            "Cannot encode with base 17 in fixed precision: the range is bases 2 to 16. "
            "Instead, choose base 2 or base 10.",
        ),
    ],
)
def test_a_grid_that_makes_no_sense_is_refused(digits, base, text):
    with pytest.raises(EncodingError) as caught:
        fix_precision(torch.ones(1), digits, base)
    assert str(caught.value) == text


def test_a_base_alone_gets_sixteen_bits_worth_of_digits():
    assert [choose_grid(None, base).digits for base in (2, 4, 10, 16)] == [16, 8, 4, 4]


def test_forbidden_decoding_is_an_error_and_ends():
    x = fix_precision(torch.ones(1))
    with forbid_decoding(), pytest.raises(UnsupportedOperation, match="forbid_decoding"):
        x.exp()
    assert float_precision(x).item() == 1.0


# ----------------------------------------------------------------------------------------- the ring

matrices = st.integers(0, 62).flatmap(
    lambda bits: st.lists(st.integers(-(2**bits), 2**bits), min_size=6, max_size=6)
)


@settings(deadline=None)
@given(matrices, matrices)
def test_limb_products_wrap_as_the_ring_does(one, other):
    a, b = torch.tensor(one).view(2, 3), torch.tensor(other).view(3, 2)
    assert torch.equal(by_limbs(MATMUL, a, b), torch.mm(a, b))


@given(matrices, matrices)
@settings(max_examples=200, deadline=None)
def test_checked_products_are_exact_or_refused(one, other):
    a, b = torch.tensor(one).view(2, 3), torch.tensor(other).view(3, 2)
    exact = [
        [sum(x * y for x, y in zip(r, c, strict=True)) for c in zip(*b.tolist(), strict=True)]
        for r in a.tolist()
    ]
    largest = max(abs(v) for row in exact for v in row)
    try:
        assert product(MATMUL, a, b, 1).tolist() == exact
    except EncodingError:
        assert largest >= 2**63 * (1 - 2**-40)


def test_large_products_of_small_numbers_go_through_float64():
    a = torch.randint(-(2**19), 2**19, (64, 64))
    assert torch.equal(product(MATMUL, a, a, 1), a @ a)


def test_magnitudes_know_the_smallest_integer_and_the_empty_tensor():
    assert magnitude(torch.tensor([-(2**63)])) == 2**63
    assert magnitude(torch.empty(0, dtype=torch.int64)) == 0


def test_a_cautious_bound_does_not_refuse_what_fits():
    a = torch.tensor([2**40, 1])
    assert multiply(a, a.flip(0), 1).tolist() == [2**40, 2**40]


def test_rounding_knows_the_range_and_the_empty_tensor():
    assert rounded(torch.empty(0, dtype=torch.float64), 1).tolist() == []
    with pytest.raises(EncodingError) as caught:
        rounded(torch.tensor([2.0**64], dtype=torch.float64), 2**16)
    assert (
        str(caught.value)
        == f"Cannot encode the result 2.815e+14 in fixed precision: {RANGE} {FEWER}"
    )
