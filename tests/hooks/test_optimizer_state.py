"""Every optimizer on sent parameters, made before or after, and in the middle of training."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn, optim

import syft as sy
from tests.shells.child import make_worker
from tests.shells.owner import inspect

pytestmark = pytest.mark.every_shell

X, Y = torch.randn(6, 3, generator=torch.Generator().manual_seed(1)), torch.ones(6, 1)

OPTIMIZERS: dict[str, tuple[type[optim.Optimizer], dict[str, Any]]] = {
    "SGD": (optim.SGD, {"lr": 0.1}),
    "momentum": (optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    "Adam": (optim.Adam, {"lr": 0.1}),
    "amsgrad": (optim.Adam, {"lr": 0.1, "amsgrad": True}),
    "AdamW": (optim.AdamW, {"lr": 0.1}),
    "foreach": (optim.Adam, {"lr": 0.1, "foreach": True}),
    "fused": (optim.Adam, {"lr": torch.tensor(0.1), "fused": True}),
    "RMSprop": (optim.RMSprop, {"momentum": 0.5, "centered": True}),
    "Adagrad": (optim.Adagrad, {"lr": 0.1}),
    "Adadelta": (optim.Adadelta, {}),
    "Adamax": (optim.Adamax, {}),
    "NAdam": (optim.NAdam, {}),
    "RAdam": (optim.RAdam, {}),
    "ASGD": (optim.ASGD, {}),
    "Rprop": (optim.Rprop, {}),
    "LBFGS": (optim.LBFGS, {"max_iter": 3, "history_size": 2}),
    "Adafactor": (optim.Adafactor, {}),
}


@pytest.fixture(autouse=True, scope="module")
def warm() -> None:
    """Torch's first optimizer step imports its compiler, whose frames keep that optimizer alive."""
    parameter = nn.Parameter(torch.ones(1))
    parameter.grad = torch.ones(1)
    optim.SGD([parameter]).step()


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))


def train(module: nn.Module, optimizer: optim.Optimizer, x: torch.Tensor, y: torch.Tensor) -> None:
    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(module(x), y)
        loss.backward()
        return loss

    for _ in range(2):
        optimizer.step(closure)


def same(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return all(torch.allclose(mine, theirs, atol=1e-5) for mine, theirs in pairs)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_there_is_training_here(bob: sy.VirtualWorker, name: str, when: str) -> None:
    kind, options = OPTIMIZERS[name]
    module = model()
    plain = copy.deepcopy(module)
    train(plain, kind(plain.parameters(), **options), X, Y)
    if when == "before":
        optimizer = kind(module.parameters(), **options)
        module.send(bob)
    else:
        optimizer = kind(module.send(bob).parameters(), **options)
    train(module, optimizer, X.send(bob), Y.send(bob))
    assert module.location is bob
    assert same(module.get(), plain)


@pytest.mark.parametrize("name", ["momentum", "Adam", "Adagrad", "LBFGS"])
def test_the_state_follows_a_travelling_model(
    bob: sy.VirtualWorker, alice: sy.VirtualWorker, name: str
) -> None:
    kind, options = OPTIMIZERS[name]
    module = model()
    plain = copy.deepcopy(module)
    reference, optimizer = (kind(m.parameters(), **options) for m in (plain, module))
    for _ in range(4):
        train(plain, reference, X, Y)
    train(module, optimizer, X, Y)
    module.send(bob)
    train(module, optimizer, X.send(bob), Y.send(bob))
    module.move(alice)
    train(module, optimizer, X.send(alice), Y.send(alice))
    assert inspect(bob).objects == {}
    module.get()
    train(module, optimizer, X, Y)
    assert same(module, plain)
    assert inspect(alice).objects == {}


def test_a_queued_worker(hook: sy.TorchHook) -> None:
    dan = make_worker(hook, id="dan", pipelined=True)
    module = model()
    plain = copy.deepcopy(module)
    train(plain, optim.Adam(plain.parameters(), lr=0.1), X, Y)
    optimizer = optim.Adam(module.parameters(), lr=0.1)
    train(module.send(dan), optimizer, X.send(dan), Y.send(dan))
    assert same(module.get(), plain)


def test_fixed_precision_parameters_keep_their_own_state(hook: sy.TorchHook) -> None:
    module = nn.Linear(1, 1).fix_precision()
    optimizer = optim.SGD(module.parameters(), lr=0.5, momentum=0.5)
    for _ in range(2):
        optimizer.zero_grad()
        module(torch.ones(2, 1).fix_precision()).sum().backward()
        optimizer.step()
    assert all(type(state["momentum_buffer"]) is sy.Wrapper for state in optimizer.state.values())


def test_gradients_are_sent_along(bob: sy.VirtualWorker) -> None:
    module = nn.Linear(3, 1)
    module(X).sum().backward()
    expected = module.weight.detach() - module.weight.grad
    optimizer = optim.SGD(module.send(bob).parameters(), lr=1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
    assert module.weight.grad.tolist() == [[0.0] * 3]
    optimizer.zero_grad()
    assert module.weight.grad is None
    assert torch.allclose(module.get().weight, expected)
