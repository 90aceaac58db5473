"""Where the state of a plan lives, and how a plan reads it at each call."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from syft.exceptions import StateMismatch
from syft.plans.building.optimizers import prepare
from syft.plans.building.state import BoundState, Source, State, check_entries, places_of
from tests.chain.refusal import refusal


class Scaled(nn.Module):
    """A module with a parameter, buffers and a plain tensor, and another module inside."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 1)
        self.scale = nn.Parameter(torch.ones(1))
        self.register_buffer("seen", torch.zeros(1))
        self.register_buffer("passing", torch.zeros(1), persistent=False)
        self.shift = torch.ones(3)


def source(entry: Any, name: str = "model") -> Source:
    return Source.of(name, entry)


def bound_state(*entries: Any) -> BoundState:
    return BoundState("f", places_of([source(entry) for entry in entries]))


def test_the_elements_are_read_in_order() -> None:
    tensor, model = torch.ones(2), nn.Linear(2, 1)
    adam = torch.optim.Adam(model.parameters())
    state = State((tensor, model, adam))
    assert state.read()[0] is tensor and state.read()[1:] == (model, adam)
    assert [id(t) for t in state.tensors()] == [id(t) for t in (tensor, model.weight, model.bias)]


@pytest.mark.parametrize(
    "entries, got",
    [
        (torch.ones(1), "one Tensor: write state=(it,)"),
        (3, "an int"),
        ([3], "an int in it"),
        ([[torch.ones(1)]], "an array of 1 in it"),
    ],
)
def test_what_is_no_state_is_refused(entries: Any, got: str) -> None:
    expected = (
        f"WrongArguments: Plan 'f' takes a tuple of tensors, modules and optimizers as state, "
        f"and got {got}."
    )
    assert refusal(lambda: check_entries("f", entries)) == expected


def test_an_only_module_keeps_its_names() -> None:
    module = Scaled()
    names = [place.name for place in places_of([source(module)])]
    persistent = list(module.state_dict())
    assert sorted(names) == sorted([*persistent, "passing", "shift"])
    assert names[:3] == ["scale", "inner.weight", "inner.bias"]


def test_several_modules_are_told_apart() -> None:
    one, two = nn.Linear(2, 1), nn.Linear(2, 1)
    names = [place.name for place in places_of([source(one, "one"), source(two, "two")])]
    assert names == ["one.weight", "one.bias", "two.weight", "two.bias"]


def test_equal_names_get_numbers_and_a_shared_tensor_one_place() -> None:
    one, two = nn.Linear(2, 1), nn.Linear(2, 1)
    two.weight = one.weight
    names = [place.name for place in places_of([source(one, "m"), source(two, "m")])]
    assert names == ["m.weight", "m.bias", "m.bias_2"]


def test_an_optimizer_lends_its_state() -> None:
    model = nn.Linear(2, 1)
    adam = torch.optim.Adam(model.parameters())
    prepare(adam)
    places = places_of([source(model), source(adam, "adam")])
    assert [place.name for place in places][2:5] == [
        "optimizer.0.step",
        "optimizer.0.exp_avg",
        "optimizer.0.exp_avg_sq",
    ]
    other = torch.optim.SGD([nn.Parameter(torch.ones(1))], momentum=0.5)
    prepare(other)
    names = [place.name for place in places_of([source(adam, "adam"), source(other, "sgd")])]
    assert names[0].startswith("adam.") and names[-1].startswith("sgd.")


def test_a_tensor_is_read_from_where_it_lives() -> None:
    module = Scaled()
    state = bound_state(module)
    by_name = dict(zip(state.names, state.read(), strict=True))
    assert by_name["inner.weight"] is module.inner.weight and by_name["shift"] is module.shift
    module.inner.weight = nn.Parameter(torch.zeros(1, 2))
    module.shift = torch.zeros(3)
    by_name = dict(zip(state.names, state.read(), strict=True))
    assert by_name["inner.weight"] is module.inner.weight and by_name["shift"] is module.shift


@pytest.mark.parametrize(
    "tensor, now",
    [
        (torch.ones(4), "float32 (4,)"),
        (torch.ones(3, dtype=torch.float64), "float64 (3,)"),
        (torch.ones(3, device="meta"), "float32 (3,) on meta"),
        (None, "a NoneType"),
        (torch.ones(3).as_subclass(type("Other", (torch.Tensor,), {})), "a Other"),
    ],
)
def test_a_tensor_that_does_not_fit_is_refused(tensor: Any, now: str) -> None:
    module = Scaled()
    state = bound_state(module)
    module.shift = tensor
    with pytest.raises(StateMismatch) as caught:
        state.read()
    assert (caught.value.name, caught.value.expected) == ("shift", "float32 (3,)")
    assert caught.value.got == now


def test_a_tensor_that_is_gone_is_missed() -> None:
    module = Scaled()
    state = bound_state(module)
    del module.shift
    assert "state 'shift' was recorded as float32 (3,) and is now a NoneType" in refusal(state.read)


def test_it_holds_while_all_is_there_and_requires_grad_as_before() -> None:
    module = Scaled()
    state = bound_state(module)
    assert state.holds() and state.change() is None
    module.shift = torch.zeros(3)
    assert state.holds()  # another tensor of the same kind
    module.scale.requires_grad_(False)
    assert not state.holds()
    assert state.change() == "requires_grad of 'scale' was True and is False now"
    module.scale.requires_grad_(True)
    module.shift = None  # type: ignore[assignment]
    assert not state.holds() and state.change() == "state 'shift' is gone"
    del module.shift
    assert not state.holds() and state.change() == "state 'shift' is gone"
