"""Optimizers work on lists where that is right and faster, and nobody sees a difference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn, optim

import syft as sy

pytestmark = pytest.mark.every_shell

LAYERS = 5
Make = Callable[[Any], optim.Optimizer]

CASES: dict[str, Make] = {
    "SGD": lambda p: optim.SGD(p, lr=0.1),
    "SGD nesterov alone": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "SGD nesterov": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
    "SGD dampened": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.1, maximize=True),
    "SGD decay": lambda p: optim.SGD(p, lr=0.1, weight_decay=0.1),
    "Adam": lambda p: optim.Adam(p),
    "Adam amsgrad": lambda p: optim.Adam(p, amsgrad=True, weight_decay=0.1),
    "AdamW": lambda p: optim.AdamW(p, maximize=True),
    "Adamax": lambda p: optim.Adamax(p, weight_decay=0.1),
    "Adagrad": lambda p: optim.Adagrad(p, lr_decay=0.1, weight_decay=0.1),
    "Adadelta": lambda p: optim.Adadelta(p, weight_decay=0.1),
    "RMSprop": lambda p: optim.RMSprop(p, centered=True, momentum=0.9),
}


def make(dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(3, 3), nn.Tanh()) for _ in range(LAYERS)]
    return nn.Sequential(*layers).to(dtype)


def train(model: nn.Module, optimizer: optim.Optimizer, x: torch.Tensor, steps: int = 4) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()


def data(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(4, 3, generator=torch.Generator().manual_seed(1), dtype=dtype)


def messages_of_a_step(
    hook: sy.TorchHook, model: nn.Module, optimizer: optim.Optimizer, x: torch.Tensor
) -> int:
    """How many messages a step is, after the one that asks for the gradients."""
    optimizer.zero_grad()
    model(x).square().sum().backward()
    model[0][0].weight.grad  # noqa: B018
    sy.synchronize()
    with hook.record() as log:
        optimizer.step()
        sy.synchronize()
    names = [type(entry.message).__name__ for entry in log.to("worker")]
    del log
    return len([name for name in names if name != "Drop"])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("name", CASES)
def test_the_parameters_are_those_of_a_loop_to_the_last_bit(
    hook: sy.TorchHook, worker: sy.VirtualWorker, name: str, dtype: torch.dtype
) -> None:
    there, here = make(dtype).send(worker), make(dtype)
    optimizer = CASES[name](there.parameters())
    x = data(dtype).send(worker)
    train(there, optimizer, x)
    local = CASES[name](here.parameters())
    assert local.param_groups[0]["foreach"] is None, "a loop, on a CPU"
    train(here, local, data(dtype))
    for mine, other in zip(there.parameters(), here.parameters(), strict=True):
        assert torch.equal(mine.grad.copy().get(), other.grad), "a step writes to no gradient"
    count = messages_of_a_step(hook, there, optimizer, x)
    if name != "SGD nesterov alone":  # which torch's lists compute in the gradients
        assert count < 2 * LAYERS * 2
    assert [group["foreach"] for group in optimizer.param_groups] == [None]
    messages_of_a_step(hook, here, local, data(dtype))
    for mine, theirs in zip(here.parameters(), there.parameters(), strict=True):
        assert torch.equal(mine, theirs.copy().get())


def one_by_one(hook: sy.TorchHook, worker: sy.VirtualWorker, make_optimizer: Make) -> bool:
    model = make().send(worker)
    count = messages_of_a_step(hook, model, make_optimizer(model.parameters()), data().send(worker))
    assert count in (1, 2 * LAYERS)
    return count > 1


def test_one_message_updates_all_parameters(hook: sy.TorchHook, worker: sy.VirtualWorker) -> None:
    assert not one_by_one(hook, worker, CASES["SGD"])


class Own(optim.Optimizer):
    """An optimizer of the user's, with an option of that name."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"foreach": None})

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            assert group["foreach"] is None
            for parameter in group["params"]:
                parameter.sub_(parameter.grad)


DECLINED: dict[str, Make] = {
    "the user said so": lambda p: optim.SGD(p, lr=0.1, foreach=False),
    "another optimizer": Own,
}


@pytest.mark.parametrize("name", DECLINED)
def test_lists_are_declined(hook: sy.TorchHook, worker: sy.VirtualWorker, name: str) -> None:
    assert one_by_one(hook, worker, DECLINED[name])


@pytest.mark.parametrize(
    "options", [{"lr": torch.tensor(0.1)}, {"betas": (torch.tensor(0.9), torch.tensor(0.99))}]
)
def test_options_that_are_tensors_work_as_in_a_loop(
    worker: sy.VirtualWorker, options: dict[str, Any]
) -> None:
    there, here = make().send(worker), make()
    train(there, optim.Adam(there.parameters(), **options), data().send(worker))
    train(here, optim.Adam(here.parameters(), **options), data())
    for mine, theirs in zip(here.parameters(), there.parameters(), strict=True):
        assert torch.equal(mine, theirs.copy().get())


def test_bfloat16_is_rounded_as_in_a_loop(hook: sy.TorchHook, worker: sy.VirtualWorker) -> None:
    dtype = torch.bfloat16
    there, here = make(dtype).send(worker), make(dtype)
    train(there, CASES["SGD nesterov"](there.parameters()), data(dtype).send(worker))
    train(here, CASES["SGD nesterov"](here.parameters()), data(dtype))
    for mine, theirs in zip(here.parameters(), there.parameters(), strict=True):
        assert torch.equal(mine, theirs.copy().get())


def test_a_tuple_is_a_list_to_operations_on_lists(worker: sy.VirtualWorker) -> None:
    here = (torch.tensor([1.0, 4.0]), torch.tensor([9.0]))
    there = tuple(tensor.clone().send(worker) for tensor in here)
    roots = torch._foreach_sqrt(there)
    assert type(roots) is tuple
    assert torch._foreach_add_(roots, 1.0) is roots
    torch._foreach_addcdiv_(list(there), roots, roots, [2.0, 3.0])
    expected = torch._foreach_sqrt(here)
    torch._foreach_add_(expected, 1.0)
    torch._foreach_addcdiv_(list(here), expected, expected, [2.0, 3.0])
    for link, tensor in zip((*roots, *there), (*expected, *here)):
        assert torch.equal(link.get(), tensor)


def test_a_parameter_that_waits_holds_back_no_other(worker: sy.VirtualWorker) -> None:
    model = make().send(worker)
    optimizer = CASES["SGD"](model.parameters())
    train(model, optimizer, data().send(worker), steps=1)
    promise = worker.promise()
    with torch.no_grad():
        model[4][0].bias.copy_(promise)
    bias = model[0][0].bias.copy().get()
    optimizer.step()
    assert not torch.equal(model[0][0].bias.copy().get(), bias)
    kept = torch.zeros(3).send(worker, id=promise.id_at_location)
    expected = model[4][0].bias.grad.copy().get() * -0.1
    assert torch.equal(model[4][0].bias.copy().get(), expected)
    del kept


def test_parameters_at_two_workers(hook: sy.TorchHook, worker: sy.VirtualWorker) -> None:
    other = sy.VirtualWorker(hook, id="other")
    parts = nn.ModuleList([make().send(worker), make().send(other), make()])
    optimizer = optim.SGD(parts.parameters(), lr=0.1)
    duplicate = make()
    train(duplicate, optim.SGD(duplicate.parameters(), lr=0.1), data(), steps=1)
    for part, place in zip(parts, (worker, other, None), strict=True):
        x = data() if place is None else data().send(place)
        part(x).square().sum().backward()
    optimizer.step()
    for part in parts:
        for mine, theirs in zip(duplicate.parameters(), part.parameters(), strict=True):
            there = theirs.copy().get() if theirs.location else theirs
            assert torch.equal(mine, there)


def test_a_parameter_without_a_gradient_stays(worker: sy.VirtualWorker) -> None:
    model = make().send(worker)
    before = model[0][0].weight.copy().get()
    optimizer = optim.Adam(model.parameters())
    model[1:](data().send(worker)).sum().backward()
    optimizer.step()
    assert torch.equal(before, model[0][0].weight.copy().get())
    assert not torch.equal(make()[1][0].weight, model[1][0].weight.copy().get())


def test_a_step_that_fails_leaves_the_choice_to_torch(worker: sy.VirtualWorker) -> None:
    model = make().send(worker)
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    def closure() -> float:
        assert optimizer.param_groups[0]["foreach"] is True
        raise KeyError("of the user")

    with pytest.raises(KeyError):
        optimizer.step(closure)
    optimizer.param_groups[0]["foreach"] = True  # as it is after a failure
    train(model, optimizer, data().send(worker), steps=1)
    assert optimizer.param_groups[0]["foreach"] is None
