"""A training step that is recorded once trains as the step itself does, from the first call on."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from syft.exceptions import CannotRecord
from syft.program.recording.control_flow import cond, while_loop
from syft.program.lint import lint
from syft.program.lowered import Lowered
from syft.program.recording.record import record

from tests.program.replaying import assert_same, assert_unchanged, snapshot, tensors

ZERO: dict[str, Callable[[torch.optim.Optimizer], Any]] = {
    "to_none": lambda optimizer: optimizer.zero_grad(),
    "to_zero": lambda optimizer: optimizer.zero_grad(set_to_none=False),
    "never": lambda optimizer: None,
}
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "SGD": {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
    "Adam": {"amsgrad": True},
    "AdamW": {},
    "RMSprop": {"centered": True, "momentum": 0.5},
    "Adagrad": {"lr_decay": 0.1},
    "Adadelta": {},
    "Adamax": {},
    "NAdam": {},
    "Rprop": {},
}
READ = "torch.Tensor.grad.__get__"
LABELS = torch.tensor([0, 2, 1, 1, 0, 2])


def make_model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3)
    )


def batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
    rows = [6, 5, 6, 4]
    drawn = tensors(*[(count, 4) for count in rows])
    return [(x, LABELS[: len(x)]) for x in drawn]


def trains_alike(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    step: Callable[..., Any],
    cleared: bool = True,
) -> list[str]:
    """Record a step, train with it and without, compare bit for bit; returns the op names."""
    first = batches()[0]
    step(*first)
    for parameter in model.parameters():
        if cleared:
            parameter.grad = None
    grads = [copy.deepcopy(parameter.grad) for parameter in model.parameters()]
    start = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    before = snapshot(model)
    recording = record(step, first)
    lint(recording.program)
    assert_unchanged(model, before)
    lowered = Lowered(recording.program)
    torch.manual_seed(5)
    replayed = [lowered.run([*batch, *recording.captured]).detach() for batch in batches()]
    replayed += [tensor.clone() for tensor in model.state_dict().values()]
    model.load_state_dict(start[0])
    optimizer.load_state_dict(start[1])
    for parameter, grad in zip(model.parameters(), grads, strict=True):
        parameter.grad = grad
    torch.manual_seed(5)
    eager = [step(*batch).detach() for batch in batches()]
    eager += list(model.state_dict().values())
    assert_same(replayed, eager)
    return [action.name for action in recording.program.actions]


@pytest.mark.parametrize("cleared", [True, False], ids=["no_gradients", "gradients"])
@pytest.mark.parametrize("place", ["first", "last"])
@pytest.mark.parametrize("how", ZERO)
def test_gradients_are_cleared_as_written(how: str, place: str, cleared: bool) -> None:
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if place == "first":
            ZERO[how](optimizer)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        if place == "last":
            ZERO[how](optimizer)
        return loss

    names = trains_alike(model, optimizer, step, cleared)
    ensured = "syft.ops.control.ensure_grad" in names
    assert ensured is (how == "to_zero" and place == "first")


@pytest.mark.parametrize("variant", ["foreach", "fused", "plain"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name: str, variant: str) -> None:
    model = make_model()
    options = {**OPTIMIZERS[name], "lr": 0.01}
    if variant == "fused" and name not in ("SGD", "Adam", "AdamW", "Adagrad"):
        pytest.skip(f"{name} has no fused form")
    options |= {"foreach": variant == "foreach"} if variant != "fused" else {"fused": True}
    optimizer = getattr(torch.optim, name)(model.parameters(), **options)

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        return loss

    names = trains_alike(model, optimizer, step)
    assert names.count(READ) == len(list(model.parameters()))
    assert "syft.ops.control.ensure_grad" not in names


@pytest.mark.parametrize("to_none", [True, False])
def test_a_parameter_the_loss_does_not_reach_stays(to_none: bool) -> None:
    model = make_model()
    model.append(nn.Linear(3, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.5)

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad(set_to_none=to_none)
        loss = F.cross_entropy(model[:5](x), y)
        loss.backward()
        optimizer.step()
        return loss

    trains_alike(model, optimizer, step)


def test_a_gradient_that_is_only_read_is_made_sure_of() -> None:
    weight = torch.ones(2, requires_grad=True)
    recording = record(lambda x: weight.grad + x, [torch.ones(2)])
    assert weight.grad is None
    assert [action.name for action in recording.program.actions] == [
        "syft.ops.control.ensure_grad",
        "torch.Tensor.grad.__get__",
        "torch.Tensor.add",
    ]
    assert Lowered(recording.program).run([torch.ones(2), weight]).tolist() == [1, 1]


def test_autograd_grad_makes_no_gradient() -> None:
    weight = torch.ones(2, requires_grad=True)

    def function(x: torch.Tensor) -> Any:
        return torch.autograd.grad((weight * x).sum(), weight)

    recording = record(function, [torch.ones(2)])
    (grad,) = Lowered(recording.program).run([torch.full((2,), 3.0), weight])
    assert grad.tolist() == [3, 3] and weight.grad is None


def test_a_missing_gradient_after_backward_is_missing() -> None:
    used, unused = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)

    def function(x: torch.Tensor) -> Any:
        (used * x).sum().backward()
        return used.grad, unused.grad

    recording = record(function, [torch.ones(2)])
    assert recording.program.outputs[1] is None
    assert recording.result[1] is None


def names_of(function: Callable[..., Any], *inputs: Any) -> list[str]:
    return [action.name for action in record(function, inputs).program.actions]


def test_a_gradient_is_read_once_until_something_changes_it() -> None:
    weight = torch.ones(2, requires_grad=True)

    def function(x: torch.Tensor) -> Any:
        (weight * x).sum().backward()
        first = weight.grad + weight.grad * 2
        weight.grad.mul_(3)
        second = weight.grad * 2
        (weight * x).sum().backward()
        third = weight.grad * 2
        weight.grad = x.clone()
        fourth = weight.grad * 2
        del weight.grad
        return first, second, third, fourth, weight.grad

    assert names_of(function, torch.ones(2)).count(READ) == 3
    recording = record(function, [torch.ones(2)])
    x = torch.tensor([1.0, -2.0])
    replayed = Lowered(recording.program).run([x, weight])
    assert_same(replayed[:4], function(x)[:4])
    assert replayed[4] is None and weight.grad is None


def test_getters_whose_result_nobody_uses_are_dropped() -> None:
    weight = torch.ones(2, requires_grad=True)

    def function(x: torch.Tensor) -> Any:
        if weight.grad is not None and x.T is not x.data:
            x.real.add_(1)
        return x

    names = names_of(function, torch.ones(2, 2))
    assert names == ["torch.Tensor.real.__get__", "torch.Tensor.add_"]


def test_a_branch_may_use_a_gradient_that_is_there() -> None:
    weight = torch.ones(2, requires_grad=True)

    def clipped(x: torch.Tensor) -> Any:
        weight.grad = None
        (weight * x).sum().backward()
        return cond(weight.grad.sum() > 1, lambda: weight.grad.clamp_(max=1), lambda: weight.grad)

    recording = record(clipped, [torch.ones(2)])
    assert weight.grad is None
    for x in (torch.tensor([5.0, -1.0]), torch.tensor([5.0, -7.0])):
        got = Lowered(recording.program).run([x, weight]).clone()
        assert torch.equal(got, clipped(x))


def test_a_branch_may_read_a_gradient_that_was_read_before() -> None:
    weight = torch.ones(2, requires_grad=True)

    def function(x: torch.Tensor) -> Any:
        if weight.grad is None:
            raise AssertionError("a gradient of zeros is lent")
        return cond(x.sum() > 0, lambda: weight.grad + 1, lambda: x + 2)

    recording = record(function, [torch.ones(2)])
    assert recording.program.actions[0].name == "syft.ops.control.ensure_grad"
    assert Lowered(recording.program).run([torch.ones(2), weight]).tolist() == [1, 1]
    assert Lowered(recording.program).run([-torch.ones(2), weight]).tolist() == [1, 1]


def test_a_branch_may_differentiate_what_it_computes() -> None:
    weight = torch.ones(2, requires_grad=True)

    def slope(x: torch.Tensor) -> Any:
        return torch.autograd.grad((weight * x * x).sum(), weight)[0]

    recording = record(lambda x: cond(x.sum() > 0, slope, torch.neg, x), [torch.ones(2)])
    for x in (torch.tensor([3.0, 1.0]), torch.tensor([-3.0, 1.0])):
        expected = slope(x) if x.sum() > 0 else -x
        assert torch.equal(Lowered(recording.program).run([x, weight]), expected)


LEARNT = torch.ones(2, requires_grad=True)


def backward(x: torch.Tensor) -> torch.Tensor:
    (LEARNT * x).sum().backward()
    return x


def clear(x: torch.Tensor) -> torch.Tensor:
    LEARNT.grad = None
    return x


def remove(x: torch.Tensor) -> torch.Tensor:
    LEARNT.grad = x
    del LEARNT.grad
    return x


REFUSED: dict[str, tuple[Callable[[torch.Tensor], Any], str]] = {
    "backward": (backward, "torch.Tensor.backward inside a branch or a loop"),
    "set": (clear, "torch.Tensor.grad.__set__ inside a branch or a loop"),
    "delete": (remove, "torch.Tensor.grad.__set__ inside a branch or a loop"),
    "read": (lambda x: LEARNT.grad + x, "a gradient that only a branch reads"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_branch_may_not_do_with_gradients(name: str) -> None:
    branch, what = REFUSED[name]
    ways: list[Callable[[torch.Tensor], Any]] = [
        lambda x: cond(x.sum() > 0, branch, torch.clone, x),
        lambda x: cond(x.sum() > 9, torch.clone, branch, x),
        lambda x: while_loop(lambda x: x.sum() < 0, branch, x),
    ]
    for way in ways:
        with pytest.raises(CannotRecord) as caught:
            record(way, [torch.ones(2)])
        assert caught.value.what == what and caught.value.line.startswith(__file__)
        assert LEARNT.grad is None
