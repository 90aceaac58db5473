"""How the arguments of a call become the inputs of a program."""

from __future__ import annotations

import inspect
from collections import namedtuple
from typing import Any

import pytest
import torch

from syft.exceptions import MalformedMessage, WrongArguments
from syft.plans.building.interface import Interface, bound, interface_of, kind_of, plain_signature
from syft.program.program import Slot
from syft.serde.packer import Packer, Unpacker
from syft.serde.registry import pack, unpack
from tests.chain.refusal import refusal

X, Y = torch.ones(2), torch.zeros(3)
Pair = namedtuple("Pair", "left right")


def interface(function: Any, *args: Any, **kwargs: Any) -> Interface:
    return interface_of("f", plain_signature(function), args, kwargs)


def two(x: Any, y: Any = 2.0, *, flag: bool = True) -> Any:
    return x, y, flag


def many(x: Any, *rest: Any, scale: float = 1.0, **more: Any) -> Any:
    return x, rest, scale, more


CALLS: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
    (two, (X,), {}),
    (two, (X, 3.5), {}),
    (two, (), {"y": 1.5, "x": X}),
    (two, ([X, (Y, None)],), {"flag": False}),
    (two, ({"a": X, "b": {"c": [1, 2.0]}},), {}),
    (two, (Pair(X, 3),), {}),
    (two, (slice(X, None, 2),), {}),
    (two, ("text", None), {}),
    (many, (X, Y, 3), {"scale": 0.5, "other": Y}),
    (many, (X,), {}),
    (lambda: (), (), {}),
]


@pytest.mark.parametrize("function, args, kwargs", CALLS)
def test_inputs_go_back_to_where_they_were(function: Any, args: Any, kwargs: Any) -> None:
    taken = interface(function, *args, **kwargs)
    inputs = taken.bind(args, kwargs)
    assert [kind_of(value) for value in inputs] == list(taken.kinds)
    again_args, again_kwargs = taken.arguments(inputs)
    expected, got = function(*args, **kwargs), function(*again_args, **again_kwargs)
    assert repr(got) == repr(expected)
    assert len(taken.input_names()) == len(inputs)


@pytest.mark.parametrize("function, args, kwargs", CALLS)
def test_an_interface_travels(function: Any, args: Any, kwargs: Any) -> None:
    taken = interface(function, *args, **kwargs)
    arrived = Interface.of_fields(unpack(pack(taken.fields(), Packer()), Unpacker([])))
    assert arrived.fields() == taken.fields()
    values = arrived.bind(args, kwargs)
    assert all(mine is theirs for mine, theirs in zip(values, taken.bind(args, kwargs)))
    assert arrived.is_plain is taken.is_plain


def test_numbers_are_inputs_and_bools_are_not() -> None:
    taken = interface(lambda x, n, lr, flag, text: x, X, 3, 0.1, True, "sum")
    assert taken.kinds == ("tensor", "int", "float")
    assert taken.template["flag"] is True and taken.template["text"] == "sum"
    assert taken.bind((X, 4, 5, True, "sum"), {}) == [X, 4, 5]


@pytest.mark.parametrize(
    "args, kwargs, text",
    [
        ((), {}, "takes (x, y=2.0, *, flag=True), and got 0 arguments (missing a required"),
        ((X, 1.0, 2), {}, "and got 3 arguments (too many positional arguments)."),
        ((X,), {"z": 1}, "and got 2 arguments (got an unexpected keyword argument 'z')."),
        ((3.0,), {}, "takes a tensor for x, and got a float."),
        ((X, X), {}, "takes a float for y, and got a tensor."),
        ((X, True), {}, "takes a float for y, and got a bool."),
        ((X, None), {}, "takes a float for y, and got None."),
        (([X],), {}, "takes a tensor for x, and got a list of 1."),
        (({"a": X},), {}, "takes a tensor for x, and got a dict with 'a'."),
        (
            (X,),
            {"flag": False},
            "takes flag=True, as it was built (build it again for another value), and got "
            "flag=False.",
        ),
        ((X,), {"flag": X}, "and got flag=a tensor."),
        ((X,), {"flag": 1}, "and got flag=an int."),
    ],
)
def test_other_arguments_are_refused(args: Any, kwargs: Any, text: str) -> None:
    taken = interface(two, X)
    assert text in refusal(lambda: taken.bind(args, kwargs))
    assert not taken.fits(args) or kwargs


def test_other_structures_are_refused() -> None:
    taken = interface(two, {"a": [X, Y], "b": slice(1, None)})
    for other, text in [
        ({"a": [X], "b": slice(1, None)}, "takes a list of 2 for x['a'], and got a list of 1."),
        ({"a": (X, Y), "b": slice(1, None)}, "takes a list of 2 for x['a'], and got a tuple of 2."),
        ({"a": [X, Y]}, "takes a dict with 'a', 'b' for x, and got a dict with 'a'."),
        ({"a": [X, Y], "b": X}, "takes a slice for x['b'], and got a tensor."),
        ({}, "takes a dict with 'a', 'b' for x, and got a dict with no keys."),
        ({"a": [X, 1], "b": slice(1, None)}, "takes a tensor for x['a'][1], and got an int."),
        ({"a": [X, Y], "b": slice(1, 2)}, "takes x['b'].stop=None, as it was built"),
    ]:
        assert text in refusal(lambda other=other: taken.bind((other,), {}))


def test_a_named_tuple_or_another_tuple_may_stand_for_a_tuple() -> None:
    taken = interface(two, (X, 3))
    assert taken.bind((Pair(X, 4),), {})[:2] == [X, 4]


def test_what_fits_is_seen_at_a_look() -> None:
    taken = interface(lambda x, lr: x, X, 0.1)
    assert taken.is_plain and taken.fits((Y, 2.0))
    assert not taken.fits((Y,)) and not taken.fits((Y, Y))
    assert not interface(lambda x: x, [X]).is_plain
    assert not interface(lambda *, x: x, x=X).is_plain
    assert not interface(lambda x, flag=True: x, X).is_plain


def test_results_are_put_where_the_function_had_them() -> None:
    taken = Interface("f", inspect.Signature(), {}, (), {"a": Slot(0), "b": (1, [Slot(1)])})
    assert taken.filled([X, Y]) == {"a": X, "b": (1, [Y])}


def test_annotations_and_named_parameters_are_left_out() -> None:
    def function(x: torch.Tensor, state: Any, n: int = 3) -> torch.Tensor:
        return x

    assert str(plain_signature(function, without=("state",))) == "(x, n=3)"


def test_binding_names_the_plan() -> None:
    with pytest.raises(WrongArguments) as caught:
        bound("double", inspect.signature(lambda x: x), (), {})
    assert caught.value.plan == "double"


FIELDS = interface(two, X).fields()


@pytest.mark.parametrize(
    "position, value, where",
    [
        (0, 5, "$.interface.name"),
        (8, (1,), "$.interface.modes[0]"),
        (9, (("dim", ()),), "$.interface.fixed[0]"),
        (1, 5, "$.interface.signature"),
        (1, ((1, 2),), "$.interface.signature"),
        (1, (("x",),), "$.interface.signature"),
        (1, (("not a name", 1),), "$.interface.signature"),
        (1, (("x", 9),), "$.interface.signature"),
        (1, (("x", 1, 5), ("y", 1)), "$.interface.signature"),
        (1, (("x", [])), "$.interface.signature"),
        (2, 5, "$.interface.template"),
        (2, {"x": Slot(1)}, "$.interface.template"),
        (2, {"z": Slot(0), "y": Slot(1)}, "$.interface.template"),
        (3, ("tensor", "float", "bool"), "$.interface.kinds"),
        (3, ("tensor", 5), "$.interface.kinds[1]"),
        (3, "tensor", "$.interface.kinds"),
        (4, Slot(3), "$.interface.outputs"),
        (5, ("tensor",), "$.interface.outputs"),
        (6, ("a",), "$.interface.state"),
        (7, (True,), "$.interface.state"),
        (7, (1,), "$.interface.parameters[0]"),
    ],
)
def test_what_arrives_is_checked(position: int, value: Any, where: str) -> None:
    fields = (*FIELDS[:position], value, *FIELDS[position + 1 :])
    with pytest.raises(MalformedMessage) as caught:
        Interface.of_fields(fields)
    assert caught.value.path == where


@pytest.mark.parametrize("fields", [None, (), FIELDS[:-1], [*FIELDS]])
def test_fields_are_a_tuple_of_eight(fields: Any) -> None:
    with pytest.raises(MalformedMessage):
        Interface.of_fields(fields)


def test_two_state_tensors_have_two_names() -> None:
    fields = (*FIELDS[:6], ("a", "a"), (True, True))
    with pytest.raises(MalformedMessage):
        Interface.of_fields(fields)
