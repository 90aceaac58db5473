"""Arithmetic in programs is Python's, on 64 bits, and never makes a number that takes long."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, strategies

from syft.exceptions import OtherPath, ProgramError
from syft.ops import numbers
from syft.ops.table import NAMES, PROGRAM_FUNCTIONS

LOW, HIGH = -(2**63), 2**63 - 1

BINARY: dict[Callable[..., Any], Callable[..., Any]] = {
    numbers.add: operator.add,
    numbers.sub: operator.sub,
    numbers.mul: operator.mul,
    numbers.truediv: operator.truediv,
    numbers.floordiv: operator.floordiv,
    numbers.mod: operator.mod,
    # Of ints, a power beyond 64 is out of range or follows from whether the exponent is even.
    numbers.pow: lambda a, b: operator.pow(
        a, b if float in (type(a), type(b)) else min(b, 64 + b % 2)
    ),
}
UNARY: dict[Callable[..., Any], Callable[..., Any]] = {
    numbers.neg: operator.neg,
    numbers.pos: operator.pos,
    numbers.abs: abs,
    numbers.floor: math.floor,
    numbers.ceil: math.ceil,
    numbers.trunc: math.trunc,
    numbers.round: round,
}
ANY = (
    strategies.integers(LOW, HIGH)
    | strategies.integers(-20, 20)
    | strategies.floats()
    | strategies.booleans()
)
FAILED = (ArithmeticError, ValueError)


def test_every_op_on_numbers_is_tested() -> None:
    named = {
        function for number, function in PROGRAM_FUNCTIONS.items() if ".numbers." in NAMES[number]
    }
    assert named == set(BINARY) | set(UNARY) | {numbers.expect}


@given(ANY, ANY)
def test_what_is_expected_is_what_python_answers(a: Any, b: Any) -> None:
    for relation, (_, compare) in numbers.RELATIONS.items():
        answer = bool(compare(a, b))
        numbers.expect(relation, a, b, answer)
        with pytest.raises(OtherPath):
            numbers.expect(relation, a, b, not answer)
    numbers.expect("same", a, a, True)
    with pytest.raises(ProgramError, match="no relation"):
        numbers.expect("is", a, b, True)


def compare(function: Callable[..., Any], oracle: Callable[..., Any], *args: Any) -> None:
    try:
        expected = oracle(*args)
    except FAILED as error:
        with pytest.raises(type(error)):
            function(*args)
        return
    if isinstance(expected, complex):
        with pytest.raises(ProgramError, match="got a complex"):
            function(*args)
    elif isinstance(expected, int) and not LOW <= expected <= HIGH:
        with pytest.raises(OverflowError, match="64 bits"):
            function(*args)
    else:
        got = function(*args)
        assert repr(got) == repr(expected) and type(got) is type(expected)


@pytest.mark.parametrize("function", BINARY, ids=lambda function: function.__name__)
@given(a=ANY, b=ANY)
@example(a=0, b=HIGH)
@example(a=-1, b=HIGH)
@example(a=True, b=True)
@example(a=-8.0, b=0.5)
@example(a=2, b=-1)
@example(a=0.5, b=65)
def test_two_numbers(function: Callable[..., Any], a: Any, b: Any) -> None:
    compare(function, BINARY[function], a, b)


@pytest.mark.parametrize("function", UNARY, ids=lambda function: function.__name__)
@given(a=ANY)
@example(a=LOW)
@example(a=1e300)
@example(a=math.inf)
@example(a=True)
def test_one_number(function: Callable[..., Any], a: Any) -> None:
    compare(function, UNARY[function], a)


@given(a=ANY, digits=strategies.integers(-400, 400))
def test_round_to_digits(a: Any, digits: int) -> None:
    compare(numbers.round, round, a, digits)


@pytest.mark.parametrize("value", [7, -2.5, True])
@pytest.mark.parametrize("sign", [1, -1])
def test_round_to_more_digits_than_there_are(value: Any, sign: int) -> None:
    # Python would compute a power of ten with so many digits.
    assert numbers.round(value, sign * HIGH) == round(value, sign * 400)


@pytest.mark.parametrize("a", [2, -3, HIGH])
@pytest.mark.parametrize("b", [64, 65, HIGH])
def test_a_large_power_is_not_computed(a: int, b: int) -> None:
    with pytest.raises(OverflowError, match="64 bits"):
        numbers.pow(a, b)


STRANGE = {"str": "1", "None": None, "complex": 1j, "list": [1], "bytes": b"1", "object": object()}


@pytest.mark.parametrize("value", STRANGE.values(), ids=STRANGE)
@pytest.mark.parametrize("function", [*BINARY, *UNARY], ids=lambda function: function.__name__)
def test_only_numbers(function: Callable[..., Any], value: Any) -> None:
    kind = type(value).__name__
    operands = [(value, 1), (1, value)] if function in BINARY else [(value,)]
    for args in operands:
        with pytest.raises(ProgramError, match=f"expected an int, a float or a bool, got a {kind}"):
            function(*args)
        with pytest.raises(OverflowError):
            function(*(2**64 if arg is value else arg for arg in args))


def test_the_digits_of_round_are_an_int() -> None:
    with pytest.raises(ProgramError, match="expected an int or None, got a float"):
        numbers.round(1.5, 2.0)  # type: ignore[arg-type]
