"""What a plan costs against the function it was recorded from, here and at another worker."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

import syft as sy
from benchmarks.interleaved import measure
from benchmarks.recording import Amount, Ratio
from benchmarks.training import Training, mlp, step

# A torch.Tensor.  Type checkers cannot know of the methods that the hook adds to it.
Tensor = Any


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


def training_step(x: Tensor, y: Tensor, state: Any) -> Tensor:
    """A step of what lies in a plan's state."""
    model, optimizer = state.read()
    return step(model, optimizer, x, y).detach()


def plan_of(training: Training) -> Any:
    """A step as a plan, built."""
    plan = sy.func2plan(state=(training.model, training.optimizer))(training_step)
    plan.build(training.x, training.y)
    return plan


@pytest.mark.parametrize("name", ["SGD", "momentum"])
def bench_training_plan_here(
    ratio: Ratio, bob: sy.VirtualWorker, one_thread: None, name: str
) -> None:
    """The same work without modules and optimizers in between."""
    training = Training(mlp(), name)
    there = copy.deepcopy(training)
    plan = plan_of(there)
    ratio(
        f"training step as a plan / the same step eager, {name}",
        subject=lambda: plan(there.x, there.y),
        floor=lambda: training.step().detach(),
        at_most=1.0,
        earlier="-",
        seconds=6,
    )


def bench_training_plan_there(
    ratio: Ratio, amount: Amount, bob: sy.VirtualWorker, one_thread: None
) -> None:
    """One small message a step, and nothing else."""
    here, training = Training(mlp(), "momentum"), Training(mlp(), "momentum")
    there = plan_of(training).send(bob)
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
        floor=lambda: here.step().detach(),
        at_most=1.2,
        earlier="8",
        seconds=6,
    )
