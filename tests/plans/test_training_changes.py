"""What plans make of schedulers, loaded state, and optimizers that a recording cannot keep."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from torch import nn, optim
from torch.nn import functional as F

import syft as sy
from tests.chain.refusal import refusal
from tests.plans.training import (
    Tensor,
    batches,
    check_same,
    check_training,
    duplicates,
    mlp,
    plan_of,
    tensors_of,
    train_step,
)


def test_a_loaded_optimizer_is_used() -> None:
    pair, oracle = duplicates(mlp, optim.Adam)
    plan = plan_of(train_step, *pair)
    data = list(batches((4,), 6))
    for x, y in data[:3]:
        assert torch.equal(plan(x, y), train_step(*oracle, x, y))
    saved = copy.deepcopy((pair[0].state_dict(), pair[1].state_dict()))
    for _ in range(2):
        for x, y in data[3:]:
            plan(x, y)
        pair[0].load_state_dict(saved[0])
        pair[1].load_state_dict(copy.deepcopy(saved[1]))
    check_same(pair, oracle)
    for x, y in data[3:]:
        assert torch.equal(plan(x, y), train_step(*oracle, x, y))
    check_same(pair, oracle)


def test_a_scheduler_between_the_steps_is_followed() -> None:
    """An option is part of the recording: when it has changed, the plan is recorded again."""
    pair, oracle = duplicates(mlp, optim.SGD, lr=0.1, momentum=0.9)
    schedules = [optim.lr_scheduler.StepLR(one[1], 4, gamma=0.5) for one in (pair, oracle)]
    plan = plan_of(train_step, *pair)
    for x, y in batches((4,), 12):
        assert torch.equal(plan(x, y), train_step(*oracle, x, y))
        for schedule, (_, optimizer) in zip(schedules, (pair, oracle), strict=True):
            optimizer._opt_called = True  # torch looks for that, and a plan calls no step()
            schedule.step()
    check_same(pair, oracle)


def test_a_scheduler_inside_the_step_is_noticed() -> None:
    model, optimizer = duplicates(mlp, optim.SGD, lr=0.1)[0]
    schedule = optim.lr_scheduler.ExponentialLR(optimizer, 0.5)

    def step(model: nn.Module, optimizer: Any, x: Tensor, y: Tensor) -> Tensor:
        loss = train_step(model, optimizer, x, y)
        schedule.step()
        return loss

    plan = plan_of(step, model, optimizer)
    with pytest.raises(sy.exceptions.CannotRecord) as caught:
        plan.build(*next(batches((4,))))
    assert re.fullmatch(
        r"A plan cannot keep a change of 'lr' of torch.optim.SGD \(.*training.py:\d+\): let a "
        "scheduler step between the calls of the plan, or hand the number over as an argument.",
        str(caught.value),
    )
    assert optimizer.param_groups[0]["lr"] == 0.1


@pytest.mark.parametrize("name", ["RAdam", "ASGD", "Adafactor", "LBFGS"])
@pytest.mark.parametrize("way", ["state", "closure"])
def test_optimizers_that_decide_by_values_are_refused_by_name(name: str, way: str) -> None:
    model = mlp()
    optimizer = getattr(optim, name)(model.parameters())
    before = copy.deepcopy(model.state_dict())
    if way == "state":
        plan = plan_of(train_step, model, optimizer)
    else:
        plan = sy.func2plan()(lambda x, y: train_step(model, optimizer, x, y))
    with pytest.raises(sy.exceptions.CannotRecord, match=f"torch.optim.{name} "):
        plan.build(*next(batches((4,))))
    assert not plan.is_built
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)
    assert all(parameter.grad is None for parameter in model.parameters())


class Careful(optim.Optimizer):
    """An optimizer of somebody's own, which decides by the value of a gradient."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 0.1})
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter]["seen"] = torch.zeros_like(parameter)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter]["seen"].add_(parameter.grad)
                if parameter.grad.norm() < 1:
                    parameter.sub_(parameter.grad, alpha=group["lr"])


def test_one_of_ones_own_that_decides_by_values_is_refused_too() -> None:
    pair, _ = duplicates(mlp, Careful)
    before = copy.deepcopy(tensors_of(*pair))
    with pytest.raises(sy.exceptions.CannotRecord, match="Careful"):
        plan_of(train_step, *pair).build(*next(batches((4,))))
    assert all(torch.equal(value, before[key]) for key, value in tensors_of(*pair).items())


class Counting(Careful):
    """One that counts its steps in Python, and computes with the number."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                state["steps"] = state.get("steps", 0) + 1
                parameter.sub_(parameter.grad, alpha=group["lr"] / state["steps"])


def test_one_of_ones_own_that_counts_in_python_is_refused_too() -> None:
    pair, _ = duplicates(mlp, Counting)
    train_step(*pair, *next(batches((4,))))
    before = copy.deepcopy(pair[0].state_dict())
    with pytest.raises(sy.exceptions.CannotRecord, match="Counting.* keeps 'steps' as a Python"):
        plan_of(train_step, *pair).build(*next(batches((4,))))
    assert {state["steps"] for state in pair[1].state.values()} == {1}
    torch.testing.assert_close(pair[0].state_dict(), before, rtol=0, atol=0)


class Plain(Careful):
    """And one that does not."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                seen = self.state[parameter]["seen"].mul_(0.5).add_(parameter.grad)
                parameter.sub_(seen / (seen.norm() + 1), alpha=group["lr"])


def test_one_of_ones_own_works() -> None:
    pair, oracle = duplicates(mlp, Plain)
    check_training(train_step, pair, oracle, batches((4,)))


def test_gradients_may_be_collected_by_one_plan_and_used_by_another() -> None:
    pair, oracle = duplicates(mlp, optim.Adam)

    @sy.func2plan(state=pair)
    def collect(x: Tensor, y: Tensor, state: Any) -> Tensor:
        model, _ = state.read()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss.detach()

    @sy.func2plan(state=pair)
    def use(state: Any) -> None:
        _, optimizer = state.read()
        optimizer.step()
        optimizer.zero_grad()

    data = list(batches((4,), 12))
    train_step(*oracle, *data[0])
    plan_of(train_step, *pair)(*data[0])
    oracle[1].zero_grad()
    pair[1].zero_grad()
    for number, (x, y) in enumerate(data):
        loss = F.cross_entropy(oracle[0](x), y)
        loss.backward()
        assert torch.equal(collect(x, y), loss.detach())
        if number % 3 == 2:
            oracle[1].step()
            oracle[1].zero_grad()
            use()
            check_same(pair, oracle)


def test_a_moving_average_of_the_weights_is_kept_beside() -> None:
    pair, oracle = duplicates(mlp, optim.SGD, lr=0.1)
    averages = [copy.deepcopy(model) for model, _ in (pair, oracle)]

    def step(average: nn.Module, model: nn.Module, optimizer: Any, x: Tensor, y: Tensor) -> Tensor:
        loss = train_step(model, optimizer, x, y)
        with torch.no_grad():
            for mean, weight in zip(average.parameters(), model.parameters(), strict=True):
                mean.mul_(0.9).add_(weight, alpha=0.1)
        return loss

    @sy.func2plan(state=(averages[0], *pair))
    def training(x: Tensor, y: Tensor, state: Any) -> Tensor:
        return step(*state.read(), x, y)

    for x, y in batches((4,)):
        assert torch.equal(training(x, y), step(averages[1], *oracle, x, y))
    check_same((averages[0], pair[1]), (averages[1], oracle[1]))
    check_same(pair, oracle)


def test_a_decision_that_changed_here_is_not_forgotten_there(
    hook: sy.TorchHook, bob: sy.VirtualWorker
) -> None:
    """The copy is the recording of one way to step: a call says so and changes nothing."""
    pair, _ = duplicates(mlp, torch.optim.SGD, lr=0.1, momentum=0.9)
    plan = plan_of(train_step, *pair)
    data = next(batches((4,)))
    plan.build(*data)
    pointer, remote = plan.send(bob), [value.send(bob) for value in data]
    pointer(*remote)
    for option, value, was in (
        ("weight_decay", 0.1, 0),
        ("momentum", 0.0, 0.9),
        ("momentum", None, 0.9),
        ("nesterov", True, False),
    ):
        pair[1].param_groups[0][option] = value
        text = refusal(lambda: pointer(*remote))
        assert f"{option} of SGD was {was} and is {value} now" in text and "send it again" in text
        pair[1].param_groups[0][option] = was
        pointer(*remote)
    remote.clear()


def _set(option: str, value: Any, group: int = 0) -> Callable[[optim.Optimizer], None]:
    def change(optimizer: optim.Optimizer) -> None:
        optimizer.param_groups[group][option] = value

    return change


def _load_and_set(optimizer: optim.Optimizer) -> None:
    optimizer.load_state_dict(optimizer.state_dict())  # it makes the groups anew
    optimizer.param_groups[0]["lr"] = 0.01


# How an optimizer was made, what has changed since its plan was sent, and what the refusal names.
CHANGES: dict[str, tuple[dict[str, Any], Callable[[Any], Any], str]] = {
    "decay": ({}, _set("weight_decay", 0.1), "weight_decay of Adam was 0 and is 0.1 now"),
    "no decay": (
        {"weight_decay": 0.1},
        _set("weight_decay", 0.0, 1),
        "weight_decay of Adam was 0.1 and is 0.0 now",
    ),
    "flag": ({}, _set("maximize", True), "maximize of Adam was False and is True now"),
    "a number to a tensor": ({}, _set("lr", torch.tensor(0.1)), "lr of Adam is another one now"),
    "tensor in place": (
        {"lr": torch.tensor(0.1)},
        lambda optimizer: optimizer.param_groups[0]["lr"].fill_(0.01),
        "lr of Adam is another one now",
    ),
    "other tensor": (
        {"lr": torch.tensor(0.1)},
        _set("lr", torch.tensor(0.01)),
        "lr of Adam is another one now",
    ),
    "loaded": ({"lr": 0.1}, _load_and_set, "param_groups of Adam is another one now"),
    "new group": (
        {},
        lambda optimizer: optimizer.add_param_group({"params": [nn.Parameter(torch.ones(1))]}),
        "the number of param_groups of Adam was 2 and is 3 now",
    ),
}


def in_two_groups(options: dict[str, Any]) -> tuple[nn.Module, optim.Optimizer]:
    """A model whose last layer has a rate of its own."""
    options = copy.deepcopy(options)
    torch.manual_seed(1)
    model = mlp()
    first, last = list(model.parameters())[:2], list(model.parameters())[2:]
    return model, optim.Adam([{"params": first}, {"params": last, "lr": 0.3}], **options)


def pointers_to(plan: sy.Plan, bob: sy.VirtualWorker, alice: sy.VirtualWorker) -> list[Any]:
    """Pointers to copies of a plan, come about in every way."""
    sent = plan.send(bob)
    copied = sent.copy()
    pointers = [sent, copied, *bob.search("#step"), plan.send(alice).move(bob)]
    pointers += [sent.copy().move(alice), plan.send(bob, alice).pointers["alice"].copy()]
    return pointers


@pytest.mark.parametrize("change", CHANGES)
def test_every_pointer_to_a_plan_of_here_knows_its_options(
    change: str, hook: sy.TorchHook, bob: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    """However it came about: no call trains with options that are not those of here any more."""
    options, alter, named = CHANGES[change]
    pair = in_two_groups(options)
    plan = plan_of(train_step, *pair).tag("#step")
    data = next(batches((4,)))
    plan.build(*data)
    pointers = pointers_to(plan, bob, alice)
    calls = [(pointer, [value.send(pointer.location) for value in data]) for pointer in pointers]
    assert len(calls) >= 6
    for pointer, remote in calls:
        pointer(*remote)
    before = [copy.deepcopy(pointer.state_dict()["0.weight"].copy().get()) for pointer, _ in calls]
    alter(pair[1])
    for (pointer, remote), weight in zip(calls, before, strict=True):
        for _ in range(2):
            text = refusal(lambda pointer=pointer, remote=remote: pointer(*remote))
            assert named in text and "send it again" in text
        assert torch.equal(pointer.state_dict()["0.weight"].copy().get(), weight)
    if change not in ("new group", "other tensor"):
        plan(*data)  # it is recorded again
        plan.send(bob)(*[value.send(bob) for value in data])


FOLLOWED: dict[str, Callable[[Any], Any]] = {
    "rate": _set("lr", 0.01),
    "whole": _set("lr", 1),
    "numpy's": _set("lr", numpy.float64(0.01)),
    "betas": _set("betas", (0.5, 0.9)),
    "betas in a list": _set("betas", [0.5, 0.9]),
    "second group": _set("lr", 0.02, 1),
    "decay": _set("weight_decay", 0.3),
}


@pytest.mark.parametrize("change", FOLLOWED)
def test_every_pointer_to_a_plan_of_here_follows_its_options(
    change: str, hook: sy.TorchHook, bob: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    """However it came about; so do copies of the plan, and one that comes back."""
    pair, oracle = in_two_groups({"weight_decay": 0.1}), in_two_groups({"weight_decay": 0.1})
    plan = plan_of(train_step, *pair).tag("#step")
    data = list(batches((4,), 3))
    plan.build(*data[0])
    pointers = pointers_to(plan, bob, alice)
    copies: dict[int, list[Any]] = {}  # a search finds some of them once more
    for pointer in pointers:
        copies.setdefault(pointer.id_at_location, []).append(pointer)
    assert max(map(len, copies.values())) == 2
    for number, (x, y) in enumerate(data):
        expected = train_step(*oracle, x, y)
        for known in copies.values():
            pointer = known[number % len(known)]
            place = pointer.location
            assert torch.equal(pointer(x.send(place), y.send(place)).get(), expected)
        assert torch.equal(plan(x, y), expected)
        if number == 0:
            FOLLOWED[change](pair[1])
            FOLLOWED[change](oracle[1])
    expected = train_step(*oracle, *data[0])
    duplicate, back = plan.copy(), pointers[0].get()
    assert torch.equal(duplicate(*data[0]), expected) and torch.equal(back(*data[0]), expected)


@pytest.mark.parametrize("change", [each for each in CHANGES if each != "new group"])
def test_a_changed_option_is_followed_here(change: str) -> None:
    """By the plan and by a copy that is made of it after the change."""
    options, alter, _ = CHANGES[change]
    pair, oracle = in_two_groups(options), in_two_groups(options)
    plan = plan_of(train_step, *pair)
    for number, (x, y) in enumerate(batches((4,), 6)):
        if number == 3:
            alter(pair[1])
            alter(oracle[1])
            duplicate = plan.copy()
        expected = train_step(*oracle, x, y)
        assert torch.equal(plan(x, y), expected)
        if number >= 3:
            assert torch.equal(duplicate(x, y), expected)
    check_same(pair, oracle)


def test_schedules_of_several_groups_are_followed_here() -> None:
    pair, oracle = in_two_groups({"lr": 0.1}), in_two_groups({"lr": 0.1})
    schedules = [optim.lr_scheduler.CosineAnnealingLR(one[1], 5) for one in (pair, oracle)]
    plan = plan_of(train_step, *pair)
    for x, y in batches((4,), 6):
        assert torch.equal(plan(x, y), train_step(*oracle, x, y))
        for schedule in schedules:
            schedule.optimizer._opt_called = True  # type: ignore[attr-defined]
            schedule.step()
    check_same(pair, oracle)


def test_a_copy_that_could_not_record_again_is_refused() -> None:
    """The state of such a plan is in the closure of its function, which has the original's."""
    model, optimizer = in_two_groups({"lr": 0.1})
    plan = sy.func2plan()(lambda x, y: train_step(model, optimizer, x, y))
    plan.build(*next(batches((4,))))
    plan.copy()
    optimizer.param_groups[0]["weight_decay"] = 0.1
    text = refusal(plan.copy)
    assert text.startswith("NotBuilt: A plan needs to be built again before being copied")
    assert "weight_decay of Adam was 0 and is 0.1 now" in text
