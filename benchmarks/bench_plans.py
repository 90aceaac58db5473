"""What a plan costs against the function it was recorded from, here and at another worker."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import syft as sy
from benchmarks.interleaved import measure
from benchmarks.recording import Amount, Ratio

# A torch.Tensor.  Type checkers cannot know of the methods that the hook adds to it.
Tensor = Any


@pytest.fixture
def bob() -> Iterator[sy.VirtualWorker]:
    """A worker in this process that answers at once."""
    hook = sy.TorchHook(torch)
    yield sy.VirtualWorker(hook, id="bob")
    hook.close()


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Torch on one thread: steadier where others use the machine too."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def twenty(x: Tensor) -> Tensor:
    """Twenty operations on a tensor of any shape."""
    for _ in range(4):
        y = torch.abs(x + x)
        x = torch.tanh(y * x) - y
    return x


def fifty(x: Tensor) -> Tensor:
    """Fifty operations on a tensor of any shape."""
    for _ in range(10):
        y = torch.abs(x + x)
        x = torch.tanh(y * x) - y
    return x


def built(function: Any, *arguments: Tensor) -> Any:
    """The function as a plan."""
    plan = sy.func2plan()(function)
    plan.build(*arguments)
    return plan


# ----------------------------------------------------------------------------- twenty operations


def bench_plan_here(ratio: Ratio, bob: sy.VirtualWorker) -> None:
    """The runner's loop against Python's own."""
    x = torch.tensor([1.0, 2.0])
    plan = built(twenty, x)
    ratio(
        "20-op plan / the function, 2 floats",
        subject=lambda: plan(x),
        floor=lambda: twenty(x),
        at_most=1.1,
        earlier="-",
        seconds=4,
    )


def bench_plan_there(ratio: Ratio, amount: Amount, bob: sy.VirtualWorker) -> None:
    """One message, whatever the plan does."""
    x: Tensor = torch.tensor([1.0, 2.0])
    there, pointer = built(twenty, x).send(bob), x.send(bob)
    there(pointer)
    with sy.TorchHook.current().record() as log:
        there(pointer)
    amount("20-op plan through a pointer: messages", len(log.to("bob")), at_most=1, earlier="-")
    ratio(
        "20-op plan through a pointer / the function here",
        subject=lambda: there(pointer),
        floor=lambda: twenty(x),
        at_most=2.0,
        earlier="-",
        seconds=4,
    )


def bench_plan_there_and_back(ratio: Ratio, bob: sy.VirtualWorker) -> None:
    """The same with the result brought here."""
    x: Tensor = torch.tensor([1.0, 2.0])
    there, pointer = built(twenty, x).send(bob), x.send(bob)
    ratio(
        "20-op plan through a pointer, get / the function here",
        subject=lambda: there(pointer).get(),
        floor=lambda: twenty(x),
        at_most=2.5,
        earlier="14",
        seconds=4,
    )


def bench_build(amount: Amount, bob: sy.VirtualWorker) -> None:
    """All that comes before the second call: recorded twice, packed, checked, lowered, run."""
    x: Tensor = torch.tensor([1.0, 2.0])
    pointer = x.send(bob)
    pairs = measure(lambda: built(fifty, x).send(bob)(pointer), lambda: fifty(x), seconds=4)
    milliseconds = 1e3 * min(pairs.subject)  # others on the machine can only add to it
    name = "build, serialize, deserialize, lower and run a 50-op plan"
    amount(name, milliseconds, at_most=3, earlier="-", unit="ms")


# --------------------------------------------------------------------------------- training steps


class Training:
    """An MLP 784-64-10 on 64 samples, with a step as a plan and as it is written."""

    def __init__(self, **options: Any) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, **options)
        self.x: Tensor = torch.randn(64, 784)
        self.y: Tensor = torch.randint(10, (64,))

    def plan(self) -> Any:
        """A step as a plan, built."""
        plan = sy.func2plan(state=(self.model, self.optimizer))(training_step)
        plan.build(self.x, self.y)
        return plan

    def step(self) -> Tensor:
        """A step without a plan."""
        return step(self.model, self.optimizer, self.x, self.y)


def step(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor) -> Tensor:
    """Zero the gradients, run forward and backward, step."""
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return loss.detach()


def training_step(x: Tensor, y: Tensor, state: Any) -> Tensor:
    """A step of what lies in a plan's state."""
    model, optimizer = state.read()
    return step(model, optimizer, x, y)


@pytest.mark.parametrize("name, options", [("SGD", {}), ("momentum", {"momentum": 0.9})])
def bench_training_plan_here(
    ratio: Ratio, bob: sy.VirtualWorker, one_thread: None, name: str, options: dict[str, Any]
) -> None:
    """The same work without modules and optimizers in between."""
    training = Training(**options)
    there = copy.deepcopy(training)
    plan = there.plan()
    ratio(
        f"training step as a plan / the same step eager, {name}",
        subject=lambda: plan(there.x, there.y),
        floor=training.step,
        at_most=1.0,
        earlier="-",
        seconds=6,
    )


def bench_training_plan_there(
    ratio: Ratio, amount: Amount, bob: sy.VirtualWorker, one_thread: None
) -> None:
    """One small message a step, and nothing else."""
    here, training = Training(momentum=0.9), Training(momentum=0.9)
    there = training.plan().send(bob)
    x, y = training.x.send(bob), training.y.send(bob)
    there(x, y)
    with sy.TorchHook.current().record() as log:
        there(x, y)
    (message,) = log.to("bob")
    name = "training-step plan through a pointer, the second call"
    amount(name, message.nbytes, at_most=120, earlier="-", unit="B")
    ratio(
        "training-step plan through a pointer / the same step eager",
        subject=lambda: there(x, y),
        floor=here.step,
        at_most=1.2,
        earlier="8",
        seconds=6,
    )
