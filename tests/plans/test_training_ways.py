"""Training steps are written in many ways; as plans they are what they are in plain PyTorch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn, optim
from torch.nn import functional as F

import syft as sy
from tests.plans.training import (
    Step,
    Tensor,
    batches,
    check_same,
    check_training,
    duplicates,
    mlp,
    plan_of,
    train_step,
)


def clear_last(model: nn.Module, optimizer: optim.Optimizer, x: Tensor, y: Tensor) -> Tensor:
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


def clear_to_zero(model: nn.Module, optimizer: optim.Optimizer, x: Tensor, y: Tensor) -> Tensor:
    optimizer.zero_grad(set_to_none=False)
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.detach()


def clear_never(model: nn.Module, optimizer: optim.Optimizer, x: Tensor, y: Tensor) -> Tensor:
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.detach()


def clear_by_the_model(
    model: nn.Module, optimizer: optim.Optimizer, x: Tensor, y: Tensor
) -> Tensor:
    model.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.detach()


def clip_norm(model: nn.Module, optimizer: optim.Optimizer, x: Tensor, y: Tensor) -> Tensor:
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.3)
    optimizer.step()
    return loss.detach()


def clip_value(model: nn.Module, optimizer: optim.Optimizer, x: Tensor, y: Tensor) -> Tensor:
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    nn.utils.clip_grad_value_(model.parameters(), 0.05)
    optimizer.step()
    return loss.detach()


def accumulate(model: nn.Module, optimizer: optim.Optimizer, x: Tensor, y: Tensor) -> Tensor:
    optimizer.zero_grad()
    total = torch.zeros(())
    for part, labels in zip(x.chunk(2), y.chunk(2), strict=True):
        loss = F.cross_entropy(model(part), labels) / 2
        loss.backward()
        total += loss.detach()
    optimizer.step()
    return total


def mixed_precision(model: nn.Module, optimizer: optim.Optimizer, x: Tensor, y: Tensor) -> Tensor:
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.detach()


def with_closure(model: nn.Module, optimizer: optim.Optimizer, x: Tensor, y: Tensor) -> Tensor:
    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss

    return optimizer.step(closure).detach()


def gradients_by_hand(model: nn.Module, optimizer: optim.Optimizer, x: Tensor, y: Tensor) -> Tensor:
    weights = list(model.parameters())
    loss = F.cross_entropy(model(x), y)
    for weight, grad in zip(weights, torch.autograd.grad(loss, weights), strict=True):
        weight.grad = grad
    optimizer.step()
    return loss.detach()


def in_two_groups_of_layers(
    model: nn.Module, optimizer: optim.Optimizer, x: Tensor, y: Tensor
) -> Tensor:
    with torch.no_grad():
        features = model[:2](x)
    optimizer.zero_grad()
    loss = F.cross_entropy(model[2](features), y)
    loss.backward()
    optimizer.step()
    return loss.detach()


WAYS = [
    clear_last,
    clear_to_zero,
    clear_never,
    clear_by_the_model,
    clip_norm,
    clip_value,
    accumulate,
    mixed_precision,
    with_closure,
    gradients_by_hand,
    in_two_groups_of_layers,
]


@pytest.mark.parametrize("step", WAYS, ids=lambda step: step.__name__)
@pytest.mark.parametrize(
    "kind, options",
    [(optim.SGD, {"lr": 0.1, "momentum": 0.9}), (optim.Adam, {"weight_decay": 0.1})],
    ids=["SGD", "Adam"],
)
def test_every_way_to_write_a_step(
    step: Step, kind: Callable[..., optim.Optimizer], options: Any
) -> None:
    pair, oracle = duplicates(mlp, kind, **options)
    check_training(step, pair, oracle, batches((4,)))


@pytest.mark.parametrize("step", WAYS, ids=lambda step: step.__name__)
def test_a_step_that_follows_others(step: Step) -> None:
    pair, oracle = duplicates(mlp, optim.Adam)
    for model, optimizer in (pair, oracle):
        for x, y in batches((4,), 3, seed=9):
            train_step(model, optimizer, x, y)
    check_training(step, pair, oracle, batches((4,), 5))


def test_a_parameter_that_is_not_used_stays_as_it_is() -> None:
    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = nn.Linear(4, 3), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.used(x)

    for step in (train_step, clear_last, clear_to_zero, clear_never):
        pair, oracle = duplicates(Half, optim.AdamW, weight_decay=0.5)
        plan = plan_of(step, *pair)
        for x, y in batches((4,), 4):
            assert torch.equal(plan(x, y), step(*oracle, x, y))
            for name, value in pair[0].state_dict().items():
                assert torch.equal(value, oracle[0].state_dict()[name]), (step.__name__, name)


def test_a_frozen_parameter_stays_as_it_is() -> None:
    pair, oracle = duplicates(mlp, optim.SGD, lr=0.1, momentum=0.9, weight_decay=0.5)
    for model, _ in (pair, oracle):
        model[0].requires_grad_(False)
    before = pair[0][0].weight.clone()
    check_training(train_step, pair, oracle, batches((4,), 4))
    assert torch.equal(pair[0][0].weight, before)


def test_parameters_in_groups() -> None:
    torch.manual_seed(1)
    model = mlp()
    groups = [
        {"params": model[0].parameters(), "lr": 0.5, "momentum": 0.9},
        {"params": model[2].parameters(), "weight_decay": 0.1},
    ]
    pair = (model, optim.SGD(groups, lr=0.1))
    check_training(train_step, pair, copy.deepcopy(pair), batches((4,)))


def test_two_optimizers() -> None:
    torch.manual_seed(1)
    model = mlp()
    matrices = optim.Muon([model[0].weight, model[2].weight])
    rest = optim.AdamW([model[0].bias, model[2].bias])
    here = (model, matrices, rest)
    there = copy.deepcopy(here)

    def step(model: nn.Module, first: Any, second: Any, x: Tensor, y: Tensor) -> Tensor:
        first.zero_grad()
        second.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        first.step()
        second.step()
        return loss.detach()

    @sy.func2plan(state=here)
    def training(x: Tensor, y: Tensor, state: Any) -> Tensor:
        return step(*state.read(), x, y)

    for x, y in batches((4,)):
        assert torch.equal(training(x, y), step(*there, x, y))
    for one in (1, 2):
        check_same((here[0], here[one]), (there[0], there[one]))


MADE: dict[str, Callable[[Any], optim.Optimizer]] = {
    "momentum": lambda given: optim.SGD(given, 0.1, momentum=0.9, nesterov=True),
    "adam": lambda given: optim.Adam(given, 0.1),
    "amsgrad": lambda given: optim.AdamW(given, 0.1, amsgrad=True),
    "rmsprop": lambda given: optim.RMSprop(given, 0.01, momentum=0.5),
    "adadelta": lambda given: optim.Adadelta(given, 0.1),
}


@pytest.mark.parametrize("outer", [None, "momentum", "adam"])
@pytest.mark.parametrize("name", MADE)
def test_an_optimizer_that_the_function_makes_begins_anew_with_each_call(
    name: str, outer: str | None
) -> None:
    """Also beside one that goes on, which was there before."""
    models = [model for model, _ in duplicates(mlp, optim.SGD)]
    x, y = next(batches((4,)))

    def trained(model: nn.Module) -> Callable[[Tensor, Tensor], Tensor]:
        kept = None if outer is None else MADE[outer](model.parameters())

        def train(x: Tensor, y: Tensor) -> Tensor:
            optimizer = MADE[name](model.parameters())
            for _ in range(3):
                optimizer.zero_grad()
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
                if kept is not None:
                    kept.step()
            return loss.detach()

        return train

    plain, plan = trained(models[0]), sy.func2plan()(trained(models[1]))
    plan.build(x, y)
    for _ in range(3):
        torch.testing.assert_close(plan(x, y), plain(x, y))
    for one, other in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(one, other)
