"""A symbolic number computes as a plain one, and its arithmetic is recorded."""

from __future__ import annotations

import copy
import math
import operator
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from syft.exceptions import OtherPath
from syft.program.lowered import Lowered
from syft.program.recording.record import record
from syft.program.recording.symbolic import (
    Origin,
    RecorderHandle,
    concrete,
    symbolic,
)

from tests.program.replaying import recorded

BINARY = [
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod,
    operator.pow,
]  # fmt: skip
UNARY: list[Callable[[Any], Any]] = [
    operator.neg, operator.pos, abs, math.floor, math.ceil, math.trunc, round,
]  # fmt: skip
PAIRS = [(7, 2), (2, 3.5), (0.5, 3), (2.5, 1.25), (-7, 2), (9, -2)]
COMPARED = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]


@pytest.mark.parametrize("function", BINARY, ids=lambda function: function.__name__)
def test_arithmetic_is_recorded(function: Callable[..., Any]) -> None:
    def compute(a: Any, b: Any) -> Any:
        return function(a, b), function(a, 2), function(3.5, b)

    lowered = Lowered(recorded(compute, 5, 2.0).program)
    for pair in PAIRS:
        result = lowered.run(pair)
        assert result == compute(*pair)
        assert list(map(type, result)) == list(map(type, compute(*pair)))


@pytest.mark.parametrize("function", UNARY, ids=lambda function: function.__name__)
def test_one_number(function: Callable[..., Any]) -> None:
    lowered = Lowered(recorded(function, 2.5).program)
    assert [lowered.run([x]) for x in (0.5, -1.75, 7)] == [function(x) for x in (0.5, -1.75, 7)]


def test_a_copy_is_the_number_itself() -> None:
    lowered = Lowered(recorded(lambda a: (copy.copy(a) * 2, copy.deepcopy([a])[0] + 1), 3).program)
    assert lowered.run([7]) == (14, 8)


@pytest.mark.parametrize(
    "decides, value",
    [
        (lambda a: a.bit_count(), 2),
        (lambda a: np.asarray(a).item(), 5),
        (lambda a: np.asarray(a, dtype=np.float64).item(), 5.0),
    ],
    ids=["bit_count", "array", "array of a dtype"],
)
def test_what_only_plain_numbers_have_decides(decides: Callable[[Any], Any], value: Any) -> None:
    lowered = Lowered(recorded(lambda a: a * decides(a), 5).program)
    assert lowered.run([5]) == 5 * value
    with pytest.raises(OtherPath):
        lowered.run([9])


def test_a_shape_behind_a_tuple_stays_free() -> None:
    lowered = Lowered(recorded(lambda x: x.new_zeros((1,) + x.shape), torch.ones(2, 3)).program)
    assert lowered.run([torch.ones(4, 5)]).shape == (1, 4, 5)


def test_the_bits_of_a_number_are_not_those_of_a_float() -> None:
    def mixed(a: Any) -> Any:
        with pytest.raises(TypeError, match="unsupported operand"):
            a & 1.5
        with pytest.raises(TypeError, match="unsupported operand"):
            1.5 | a
        return a + 1

    assert Lowered(recorded(mixed, 5).program).run([7]) == 8


def test_rounding_to_digits_and_divmod() -> None:
    lowered = Lowered(recorded(lambda a: (round(a, 1), divmod(a, 2), divmod(9, a)), 2.55).program)
    assert lowered.run([7.26]) == (7.3, divmod(7.26, 2), divmod(9, 7.26))


@pytest.mark.parametrize("function", COMPARED, ids=lambda function: function.__name__)
@pytest.mark.parametrize("start", [2, 2.5])
def test_a_comparison_that_is_an_operand_is_recorded(
    function: Callable[..., Any], start: float
) -> None:
    lowered = Lowered(recorded(lambda a: function(a, 2), start).program)
    values = [type(start)(x) for x in (1, 2, 3)]
    assert [lowered.run([x]) for x in values] == [function(x, 2) for x in values]


def test_with_tensors_the_tensor_computes() -> None:
    program = recorded(lambda x, n: (x + n, n - x, n * x, x[n], x**n), torch.ones(4), 2).program
    x = torch.arange(4.0)
    result = Lowered(program).run([x, 3])
    for got, expected in zip(result, (x + 3, 3 - x, 3 * x, x[3], x**3), strict=True):
        assert torch.equal(got, expected)


def test_what_is_no_number_is_left_to_python() -> None:
    number = symbolic(3, RecorderHandle(None), None, Origin.SIZE)
    assert number.__add__("a") is NotImplemented and number.__radd__("a") is NotImplemented
    assert number.__eq__("a") is NotImplemented and (number == "a") is False
    assert record(lambda n: (n * 1j) or None, [2], check=False).result == 2j


def test_after_the_recording_they_are_plain() -> None:
    kept: list[Any] = []
    record(lambda n, r: kept.extend([n, r, n > 1]), [3, 0.5], check=False)
    number, rate, truth = kept
    assert type(number + 1) is int and type(rate * 2) is float and (number > 1) is True
    assert (int(number), float(number), hash(number), bool(rate)) == (3, 3.0, hash(3), True)
    assert [type(concrete(value)) for value in kept] == [int, float, bool]
    assert [pickle.loads(pickle.dumps(value)) for value in kept] == [3, 0.5, True]
    assert repr(truth) == "True" and number.handle.recorder is None


def test_a_truth_from_a_tensor() -> None:
    truth = symbolic(False, RecorderHandle(None), None, Origin.VALUE)
    assert not truth and repr(truth) == "False"
    assert type(concrete(truth)) is bool
    assert symbolic(0.5, RecorderHandle(None), None, Origin.SIZE) == 0.5
