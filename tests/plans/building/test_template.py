"""The inputs in the arguments of a call, found by the template of a plan."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import pytest
import torch

from syft.plans.building.template import match, template_of
from syft.program.program import Slot
from tests.chain.refusal import refusal

X, Y = torch.ones(2), torch.zeros(3)
Pair = namedtuple("Pair", "left right")


def matched(built_with: Any, called_with: Any) -> list[Any]:
    template, kinds = template_of({"x": built_with})
    return match("f", template, kinds, {"x": called_with})


def test_each_input_has_a_slot() -> None:
    arguments = {"x": {"a": [X, Y], "b": slice(1, None)}, "n": 0.5, "mode": "sum", "flag": True}
    template, kinds = template_of(arguments)
    assert kinds == ("tensor", "tensor", "int", "float")
    assert template == {
        "x": {"a": [Slot(0), Slot(1)], "b": slice(Slot(2), None)},
        "n": Slot(3),
        "mode": "sum",
        "flag": True,
    }
    assert match("f", template, kinds, arguments) == [X, Y, 1, 0.5]


@pytest.mark.parametrize(
    "other, text",
    [
        ({"a": [X], "b": slice(1, None)}, "takes a list of 2 for x['a'], and got a list of 1."),
        ({"a": (X, Y), "b": slice(1, None)}, "takes a list of 2 for x['a'], and got a tuple of 2."),
        ({"a": [X, Y]}, "takes a dict with 'a', 'b' for x, and got a dict with 'a'."),
        ({"a": [X, Y], "c": 1}, "takes a dict with 'a', 'b' for x, and got a dict with 'a', 'c'."),
        ({"a": [X, Y], "b": X}, "takes a slice for x['b'], and got a tensor."),
        ({}, "takes a dict with 'a', 'b' for x, and got a dict with no keys."),
        ({"a": [X, 1], "b": slice(1, None)}, "takes a tensor for x['a'][1], and got an int."),
        ({"a": [X, Y], "b": slice(1, 2)}, "takes x['b'].stop=None, as it was built"),
    ],
)
def test_other_structures_are_refused(other: Any, text: str) -> None:
    assert text in refusal(lambda: matched({"a": [X, Y], "b": slice(1, None)}, other))


def test_a_named_tuple_or_another_tuple_may_stand_for_a_tuple() -> None:
    assert matched((X, 3), Pair(X, 4)) == [X, 4]
    assert matched(Pair(X, 3), (Y, 4)) == [Y, 4]


def test_keys_of_one_name_are_different_keys() -> None:
    assert matched({1: X, "1": Y}, {"1": X, 1: Y}) == [Y, X]
