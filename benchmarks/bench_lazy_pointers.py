"""What a training step on a lazy worker costs: messages, bytes, and time beside the same step
here."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import syft as sy
from benchmarks.interleaved import measure
from benchmarks.recording import Amount, Ratio
from benchmarks.server_process import ServerProcess
from benchmarks.training import Task, Training, mlp

STEPS = 20
"""How many steps go before the worker is waited for."""


@pytest.fixture
def dan(hook: sy.TorchHook) -> sy.VirtualWorker:
    """A lazy worker of this process."""
    return sy.VirtualWorker(hook, id="dan", lazy=True)


@pytest.fixture
def server(hook: sy.TorchHook) -> Iterator[ServerProcess]:
    """A worker of another process."""
    process = ServerProcess("carl")
    yield process
    process.close()


def small_cnn() -> Task:
    """A small network of convolutions and a batch of images."""
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Conv2d(1, 8, 5, 2), nn.ReLU(), nn.MaxPool2d(2)]
    layers += [nn.Conv2d(8, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(256, 10)]
    return nn.Sequential(*layers), torch.randn(64, 1, 28, 28), torch.randint(10, (64,))


def each_call(training: Training) -> Training:
    """The same training, of which the optimizer's code runs at every step: it has a hook."""
    training.optimizer.register_step_post_hook(lambda *given: None)
    return training


def several(training: Training) -> Callable[[], None]:
    """Steps, and a wait for the worker."""

    def steps() -> None:
        for _ in range(STEPS):
            training.step()
        sy.synchronize()

    return steps


@pytest.mark.parametrize("name", ["SGD", "Adam"])
def bench_messages(amount: Amount, hook: sy.TorchHook, dan: sy.VirtualWorker, name: str) -> None:
    """What a step written as always sends, from the third one on."""
    training = Training(mlp(), name, dan)
    for _ in range(2):
        training.step()
    sy.synchronize()
    with hook.record() as log:
        training.step()
        sy.synchronize()
    entries = log.to("dan")
    step = f"the third step on a lazy worker, {name}"
    amount(f"{step}: requests", len(entries), at_most=1, earlier="-")
    bytes_sent = sum(entry.nbytes for entry in entries)
    amount(f"{step}: bytes", bytes_sent, at_most=100, earlier="-", unit="B")


@pytest.mark.parametrize("name", ["SGD", "Adam"])
def bench_step(ratio: Ratio, dan: sy.VirtualWorker, one_thread: None, name: str) -> None:
    """A step of an MLP, the optimizer held as one call."""
    there, here = Training(mlp(), name, dan), Training(mlp(), name)
    ratio(
        f"MLP step on a lazy worker / the same step local, {name}",
        subject=several(there),
        floor=several(here),
        at_most=1.2,
        earlier="-",
        seconds=6,
    )


def bench_step_by_calls(ratio: Ratio, dan: sy.VirtualWorker, one_thread: None) -> None:
    """The same with each call of the optimizer held by itself."""
    there, here = each_call(Training(mlp(), "SGD", dan)), Training(mlp(), "SGD")
    ratio(
        "the same, every call held, SGD",
        subject=several(there),
        floor=several(here),
        at_most=1.5,
        earlier="-",
        seconds=6,
    )


def bench_convolutions(ratio: Ratio, dan: sy.VirtualWorker, one_thread: None) -> None:
    """A step with more work in it."""
    there, here = Training(small_cnn(), "SGD", dan), Training(small_cnn(), "SGD")
    ratio(
        "CNN step on a lazy worker / the same step local, SGD",
        subject=several(there),
        floor=several(here),
        at_most=1.15,
        earlier="-",
        seconds=6,
    )


@pytest.mark.parametrize("name", ["SGD", "Adam"])
def bench_over_tcp(ratio: Ratio, server: ServerProcess, one_thread: None, name: str) -> None:
    """A worker in another process: two processes work at once, if there are two cores."""
    carl: Any = server.client(lazy=True)
    there, here = Training(mlp(), name, carl), Training(mlp(), name)
    ratio(
        f"MLP step over TCP, lazy / the same step local, {name}",
        subject=several(there),
        floor=several(here),
        at_most=1.3,
        earlier="-",
        seconds=6,
    )
    carl.close()


@pytest.mark.parametrize("calls", [False, True], ids=["whole", "calls"])
def bench_issuing(amount: Amount, server: ServerProcess, one_thread: None, calls: bool) -> None:
    """The processor time of the program that issues a repeated step."""
    lazily: Any = server.client(lazy=True, id="lazy")
    eagerly: Any = server.client(id="eager", timeout=60.0)
    subject, floor = (Training(mlp(), "SGD", worker) for worker in (lazily, eagerly))
    if calls:
        each_call(subject)
    pairs = measure(several(subject), several(floor), seconds=4, clock=time.process_time)
    what = "calls" if calls else "the optimizer as one call"
    name = f"issuing a step lazily / on pointers over TCP, processor time, {what}"
    amount(name, pairs.median, at_most=0.4 if calls else 0.25, earlier="-")
    lazily.close()
    eagerly.close()
