"""How the arguments of a call become the inputs of a program."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch

from syft.exceptions import WrongArguments
from syft.plans.building.interface import Interface, bound_arguments, signature_of
from syft.plans.building.template import kind_of
from syft.program.program import Slot
from tests.chain.refusal import refusal
from tests.plans.building.calls import CALLS, X, Y, interface, two


@pytest.mark.parametrize("function, args, kwargs", CALLS)
def test_inputs_go_back_to_where_they_were(function: Any, args: Any, kwargs: Any) -> None:
    taken = interface(function, *args, **kwargs)
    inputs = taken.bind(args, kwargs)
    assert [kind_of(value) for value in inputs] == list(taken.kinds)
    again_args, again_kwargs = taken.arguments(inputs)
    expected, got = function(*args, **kwargs), function(*again_args, **again_kwargs)
    assert repr(got) == repr(expected)
    assert len(taken.input_names()) == len(inputs)


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


def test_what_fits_is_seen_at_a_look() -> None:
    taken = interface(lambda x, lr: x, X, 0.1)
    assert taken.is_flat and taken.fits((Y, 2.0))
    assert not taken.fits((Y,)) and not taken.fits((Y, Y))
    assert not interface(lambda x: x, [X]).is_flat
    assert not interface(lambda *, x: x, x=X).is_flat
    assert not interface(lambda x, flag=True: x, X).is_flat


def test_results_are_put_where_the_function_had_them() -> None:
    taken = Interface("f", inspect.Signature(), {}, (), {"a": Slot(0), "b": (1, [Slot(1)])})
    assert taken.nested_results([X, Y]) == {"a": X, "b": (1, [Y])}


def test_annotations_and_named_parameters_are_left_out() -> None:
    def function(x: torch.Tensor, state: Any, n: int = 3) -> torch.Tensor:
        return x

    assert str(signature_of(function, without=("state",))) == "(x, n=3)"


def test_binding_names_the_plan() -> None:
    with pytest.raises(WrongArguments) as caught:
        bound_arguments("double", inspect.signature(lambda x: x), (), {})
    assert caught.value.plan == "double"


def with_torch(x: torch.Tensor, torch: Any = torch, scale: float = 2.0) -> torch.Tensor:
    result: torch.Tensor = torch.abs(x) * scale
    return result


def test_a_module_as_a_default_is_no_argument() -> None:
    assert str(signature_of(with_torch)) == "(x, *, scale=2.0)"
    taken = interface(with_torch, X, scale=3.0)
    assert taken.input_names() == ["x", "scale"]
    args, kwargs = taken.arguments([-X, 4.0])
    assert torch.equal(with_torch(*args, **kwargs), X.abs() * 4)
    got = "takes (x, *, scale=2.0), and got 2 arguments (got an unexpected keyword argument 'torch'"
    assert got in refusal(lambda: interface(with_torch, X, torch=torch))
    assert got.partition(",")[0] in refusal(lambda: interface(with_torch, X, 3.0))


def test_modules_that_cannot_be_left_out_stay() -> None:
    def by_place(x: Any, torch: Any = torch, /, n: int = 1) -> Any:
        return x

    def any_number(x: Any, torch: Any = torch, *rest: Any, other: Any = inspect) -> Any:
        return x

    assert list(signature_of(by_place).parameters) == ["x", "torch", "n"]
    assert list(signature_of(any_number).parameters) == ["x", "torch", "rest"]
