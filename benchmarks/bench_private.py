"""What privacy costs: operations and training steps on private data, and public ones beside it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import syft as sy
from benchmarks.recording import Amount, Ratio
from benchmarks.training import Training, mlp

# A torch.Tensor.  Type checkers cannot know of the methods that the hook adds to it.
Tensor = Any

NOBODY_HERE = ("ann",)
"""The users who may see what is private here; the benchmarks act for nobody."""

STEPS = {
    "half a millisecond": ((784, 64, 10), 64),
    "some milliseconds": ((784, 512, 10), 256),
    "ten milliseconds": ((784, 1024, 10), 512),
}
"""Sizes of a model and a batch, by about how long a public step of them takes."""


def holder(hook: sy.TorchHook, name: str, private: bool) -> sy.VirtualWorker:
    """A worker whose owner holds a tensor, a private or a public one."""
    worker = sy.VirtualWorker(hook, id=name)
    held: Tensor = torch.ones(2)
    worker.hold(held.private_tensor(NOBODY_HERE) if private else held)
    return worker


def bench_private_operation(ratio: Ratio, hook: sy.TorchHook) -> None:
    """One operation of two numbers, messages included."""
    x: Tensor = torch.tensor([1.0, 2.0])
    public = x.send(holder(hook, "open", False))
    closed = holder(hook, "closed", True)
    private = x.clone().private_tensor(NOBODY_HERE).send(closed, user="ann")
    ratio(
        "private ptr + ptr / the public one",
        subject=lambda: private + private,
        floor=lambda: public + public,
        at_most=1.5,
        earlier="-",
        seconds=4,
    )


def bench_public_operation_beside_private_data(ratio: Ratio, hook: sy.TorchHook) -> None:
    """What those pay who have nothing private, at a worker where others have."""
    x: Tensor = torch.tensor([1.0, 2.0])
    alone, beside = (x.send(holder(hook, f"beside {flag}", flag)) for flag in (False, True))
    ratio(
        "public ptr + ptr beside private data / the same alone",
        subject=lambda: beside + beside,
        floor=lambda: alone + alone,
        at_most=1.08,
        earlier="-",
        seconds=4,
    )


@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
@pytest.mark.parametrize("length", STEPS)
def bench_private_step(ratio: Ratio, hook: sy.TorchHook, length: str, optimizer: str) -> None:
    """A public model and private data: from the second step on its parameters are private too."""
    task = STEPS[length]
    there = Training(mlp(*task), optimizer, holder(hook, "open", False))
    private = Training(mlp(*task), optimizer, holder(hook, "closed", True), NOBODY_HERE)
    private.step()
    ratio(
        f"private step of {length}, {optimizer} / the public one",
        subject=private.step,
        floor=there.step,
        at_most=1.15 if length.startswith("ten") else 1.5,
        earlier="-",
        seconds=4,
    )


def bench_copies_of_parameters(amount: Amount, hook: sy.TorchHook) -> None:
    """How many parameters get new memory in the third step on private data."""
    worker = holder(hook, "closed", True)
    training = Training(mlp((8, 4, 2), 4), "Adam", worker, NOBODY_HERE)
    objects = worker.core.store.objects

    def places() -> list[int]:
        ids = [parameter.child.id_at_location for parameter in training.model.parameters()]
        return [objects[id].data_ptr() for id in ids]

    training.step()
    training.step()
    before = places()
    training.step()
    copies = sum(one != other for one, other in zip(before, places(), strict=True))
    amount("parameters copied in a later private step", copies, at_most=0, earlier="-")
