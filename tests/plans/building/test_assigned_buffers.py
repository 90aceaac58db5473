"""A module that assigns its buffers anew is as a plan what it is in plain torch, at each call."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import syft as sy
from syft.exceptions import CannotRecord

Forward = Callable[[Any, torch.Tensor], torch.Tensor]
XS = [torch.randn(4, 3, generator=torch.Generator().manual_seed(seed)) for seed in range(3)]


class Model(nn.Module):
    """Two buffers of three numbers, and weights."""

    def __init__(self, forward: Forward) -> None:
        super().__init__()
        self.register_buffer("h", torch.zeros(3))
        self.register_buffer("g", torch.ones(3))
        self.w = nn.Parameter(torch.ones(3))
        self.run = [forward]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.run[0](self, x)


def used_before_and_after(model: Any, x: torch.Tensor) -> Any:
    before = x * model.w * model.h
    model.h = model.h + x.mean(0)
    return before + x * model.w * model.h


def old_one_returned(model: Any, x: torch.Tensor) -> Any:
    old = model.h
    model.h = old * 0.5 + x.mean(0) * model.w.detach()
    return old


def exchanged(model: Any, x: torch.Tensor) -> Any:
    model.h, model.g = model.g, model.h + x.mean(0)
    return x + model.h * model.w


def written_and_assigned(model: Any, x: torch.Tensor) -> Any:
    model.h += 1
    model.g = model.g + model.h
    model.g.mul_(2)
    return x * model.g * model.w


def assigned_twice(model: Any, x: torch.Tensor) -> Any:
    for row in x[:2]:
        model.h = model.h * 0.5 + row
    return x * model.w + model.h


KEPT = [used_before_and_after, old_one_returned, exchanged, written_and_assigned, assigned_twice]


@pytest.mark.parametrize("forward", KEPT)
def test_each_call_goes_on_with_what_the_last_one_left(
    forward: Forward, bob: sy.VirtualWorker
) -> None:
    model = Model(forward)
    plain, there = copy.deepcopy(model), copy.deepcopy(model)
    plan = sy.func2plan()(model)
    buffers = model.h, model.g
    plan.build(XS[0])
    assert model.h is buffers[0] and model.g is buffers[1] and model.h.tolist() == [0, 0, 0]
    pointer = sy.func2plan(args_shape=[(-1, 3)])(there).send(bob)
    for x in XS:
        want, got, far = plain(x), plan(x), pointer(x.send(bob))
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(far.get(), want.detach() if not want.requires_grad else want)
        torch.testing.assert_close(dict(model.named_buffers()), dict(plain.named_buffers()))
        if want.requires_grad:  # the old and the new buffer are needed for it
            grads = [torch.autograd.grad(y.sum(), m.w) for y, m in ((want, plain), (got, model))]
            torch.testing.assert_close(*grads)
    state = pointer.get().state_dict()
    torch.testing.assert_close(state["h"], plain.h)


def input_kept(model: Any, x: torch.Tensor) -> Any:
    model.h = x[0]
    return x + model.h


def shared_by_two(model: Any, x: torch.Tensor) -> Any:
    model.h = model.g = x.mean(0)
    return x + model.h


def with_a_graph(model: Any, x: torch.Tensor) -> Any:
    model.h = (x * model.w).mean(0)
    return x + model.h


def of_another_shape(model: Any, x: torch.Tensor) -> Any:
    model.h = x * 2
    return x + model.h


def weights_kept(model: Any, x: torch.Tensor) -> Any:
    model.h = model.w.detach()
    return x + model.h


def taken_away(model: Any, x: torch.Tensor) -> Any:
    model.h = None
    return x + 1


REFUSED = {
    input_kept: "something else shares",
    shared_by_two: "something else shares",
    weights_kept: "something else shares",
    with_a_graph: "requires grad",
    of_another_shape: "another kind",
    taken_away: "another kind",
}


@pytest.mark.parametrize("forward", REFUSED)
def test_what_no_write_gives_is_refused(forward: Forward) -> None:
    model = Model(forward)
    buffer = model.h
    with pytest.raises(CannotRecord, match=REFUSED[forward]):
        sy.func2plan()(model).build(XS[0])
    assert model.h is buffer and buffer.tolist() == [0, 0, 0]


class Cache(nn.Module):
    """A buffer that is there once it was computed."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.scale is None:
            self.scale = x.mean()
        return x * self.scale


def registering(model: Any, x: torch.Tensor) -> Any:
    model.register_buffer("mean", x.mean(0))
    return x + model.mean


def failing(model: Any, x: torch.Tensor) -> Any:
    model.register_buffer("mean", x.mean(0))
    model.h = None
    raise ValueError("it is late")


def test_a_buffer_where_there_was_none_is_refused() -> None:
    """The first call would have used what was there when the plan was built."""
    model = Cache()
    with pytest.raises(CannotRecord, match="the buffer 'scale' assigned where there was none"):
        sy.func2plan()(model).build(XS[0])
    assert model.scale is None
    other = Model(registering)
    with pytest.raises(CannotRecord, match="the buffer 'mean' assigned where there was none"):
        sy.func2plan()(other).build(XS[0])
    assert list(other._buffers) == ["h", "g"]
    model.scale = torch.tensor(2.0)
    assert torch.equal(sy.func2plan()(model)(XS[0]), XS[0] * 2)


def test_buffers_are_what_they_were_after_a_failure() -> None:
    model = Model(failing)
    before = dict(model._buffers)
    with pytest.raises(ValueError, match="it is late"):
        sy.func2plan()(model).build(XS[0])
    assert list(model._buffers) == list(before)
    assert all(model._buffers[key] is before[key] for key in before)


@pytest.mark.parametrize("part", [lambda h: h, lambda h: h[:2], lambda h: h.detach()])
def test_an_old_buffer_that_the_function_has_from_elsewhere_is_refused(
    part: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    """Plain torch leaves the old tensor as it was, and a plan writes to it."""

    def forward(model: Any, x: torch.Tensor) -> Any:
        model.h = model.h + x.mean(0)
        return x + held.sum()

    model = Model(forward)
    held = part(model.h)
    with pytest.raises(CannotRecord, match="'h' assigned anew, which the function has from else"):
        sy.func2plan()(model).build(XS[0])
    held = part(model.h).clone()
    plain = copy.deepcopy(model)
    plan = sy.func2plan()(model)
    for x in XS:
        torch.testing.assert_close(plan(x), plain(x))


def test_a_buffer_at_two_places_is_refused() -> None:
    """Plain torch puts another tensor at one of them."""
    model = Model(used_before_and_after)
    model.g = model.h
    with pytest.raises(CannotRecord, match="'h' assigned anew, which the function has") as caught:
        sy.func2plan()(model).build(XS[0])
    assert caught.value.line.startswith(__file__)
    holder = nn.Module()
    holder.register_buffer("kept", model.h)
    model.g, model.holder = torch.ones(3), holder
    with pytest.raises(CannotRecord, match="'h' assigned anew, which the function has"):
        sy.func2plan()(model).build(XS[0])
    holder.kept = model.h.clone()
    sy.func2plan()(model).build(XS[0])
