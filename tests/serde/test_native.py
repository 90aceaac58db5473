"""Python's own values cross the wire as what they are."""

from __future__ import annotations

import collections
import enum
import math
from typing import Any

import numpy as np
import pytest

from syft.exceptions import MalformedMessage, NotSendable
from syft.serde import Packer, Unpacker, deserialize, pack, serialize, unpack
from tests.serde.samples import Colour, same

Point = collections.namedtuple("Point", "x y")


class Name(enum.StrEnum):
    """A string enumeration."""

    MEAN = "mean"


class Option(enum.IntFlag):
    """A flag enumeration."""

    A = 1
    B = 2


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        False,
        0,
        -(2**63),
        2**64 - 1,
        2**64,
        -(2**63) - 1,
        10**400,
        -(10**400),
        0.0,
        -0.0,
        math.inf,
        -math.inf,
        math.nan,
        5e-324,
        "",
        "text",
        "żółć 雪 \U0001f40d \x00",
        "\udc80",
        b"",
        b"\x00\xff",
        complex(math.nan, -0.0),
        (),
        ((),),
        {1: {2: {3}}},
        {frozenset({1}): (2,), None: 3},
        slice(None),
        slice("a", (1,), 2.5),
        range(0),
    ],
    ids=repr,
)
def test_round_trip(value: Any) -> None:
    assert same(value, deserialize(serialize(value)))


@pytest.mark.parametrize(
    ("value", "arrives"),
    [
        (Colour.RED, 3),
        (Option.A | Option.B, 3),
        (Name.MEAN, "mean"),
        (Point(1, [2]), (1, [2])),
        (np.float64(1.5), 1.5),
        (np.float32(0.5), 0.5),
        (np.int8(-3), -3),
        (np.uint64(2**64 - 1), 2**64 - 1),
        (np.bool_(True), True),
        (np.complex64(1 + 2j), 1 + 2j),
        (np.str_("mean"), "mean"),
        (np.bytes_(b"x"), b"x"),
    ],
    ids=repr,
)
def test_subclasses_that_arrive_as_their_base(value: Any, arrives: Any) -> None:
    assert same(arrives, deserialize(serialize(value)))


class MyList(list[int]):
    """A subclass that would be lost."""


@pytest.mark.parametrize(
    ("value", "instead"),
    [
        (MyList(), "send list(value)"),
        (collections.defaultdict(int), "send dict(value), or an OrderedDict"),
        (collections.Counter(), "send dict(value), or an OrderedDict"),
        (np.ones(2), "send torch.from_numpy(array)"),
        (np.longdouble(1), "send a Python number"),
        (np.datetime64("2020-01-01"), "send a Python number"),
        (np.timedelta64(3, "D"), "send a Python number"),
        (str, "of the classes only bool, int, float and complex travel (as dtypes)"),
        (Colour, "of the classes only bool, int, float and complex travel (as dtypes)"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_subclasses_that_are_refused(value: Any, instead: str) -> None:
    with pytest.raises(NotSendable) as caught:
        pack(value, Packer())
    assert caught.value.instead == instead


@pytest.mark.parametrize(
    ("operand", "text"),
    [
        ([11, 3], "$.digits: expected bytes, got an int"),
        ([11], "$: expected 1 fields after type code 11, got 0"),
        ([12, "x"], "$.data: expected bytes, got a str"),
        ([13, b"\xff"], "$.text: expected UTF-8 with surrogates, got a bytes"),
        ([13, "x"], "$.text: expected bytes, got a str"),
        ([10, 1, 2.0], "$.real: expected a float, got an int"),
        ([10, 1.0, None], "$.imag: expected a float, got nil"),
        ([4, 1], "$: expected a value for every key, got 1 fields"),
        ([4, [3], 1], "$: expected keys that can be hashed, got unhashable type: 'list'"),
        ([4, 1, 2, 1, 3], "$: expected distinct keys, got a key twice"),
        ([5, [4]], "$: expected items that can be hashed, got unhashable type: 'dict'"),
        ([6, 1, 1], "$: expected distinct items, got an item twice"),
        ([9, 1, 2, 0], "$[2]: expected a step other than 0, got 0"),
        ([9, 1, 2.5, 1], "$[1]: expected an int, got a float"),
        ([7, 1], "$: expected 3 fields after type code 7, got 1"),
        ([8, 1], "$: expected 0 fields after type code 8, got 1"),
        ([17, 9], "$.type: expected an int from 0 to 3, got 9"),
        ([17, True], "$.type: expected an int, got a bool"),
        ([14, "a"], "$: expected a value for every key, got 1 fields"),
    ],
    ids=repr,
)
def test_malformed(operand: Any, text: str) -> None:
    with pytest.raises(MalformedMessage) as caught:
        unpack(operand, Unpacker([]))
    assert str(caught.value) == f"Malformed message at {text}."
