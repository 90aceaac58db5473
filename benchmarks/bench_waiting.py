"""What a training step waits for, and what it costs beside the same step here."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import syft as sy
from benchmarks.recording import Amount, Ratio
from benchmarks.training import OPTIMIZERS, Task, Training, mlp
from syft.workers.shells.message_trace import MessageLog

# A torch.Tensor.  Type checkers cannot know of the methods that the hook adds to it.
Tensor = Any


CLASSES = 3


class Last(nn.Module):
    """The last item of a sequence."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Take it."""
        return x[:, -1]


def small_mlp() -> Task:
    """An MLP and a batch."""
    return mlp((8, 4, CLASSES), 5)


def cnn() -> Task:
    """A network of convolutions and a batch."""
    layers = [nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.1)]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(18, CLASSES))
    return model, torch.randn(5, 1, 8, 8), torch.randint(CLASSES, (5,))


def transformer() -> Task:
    """A transformer layer and a batch."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = nn.Sequential(layer, Last(), nn.Linear(8, CLASSES))
    return model, torch.randn(5, 4, 8), torch.randint(CLASSES, (5,))


def waiting(log: MessageLog, worker: str) -> int:
    """How many requests to a worker were waited for."""
    sent = [entry.message for entry in log.to(worker)]
    return sum(getattr(message, "failures", None) is not None for message in sent)


def bench_waiting(amount: Amount, hook: sy.TorchHook) -> None:
    """The requests of a repeated step that wait, in the worst of nine cases."""
    bob = sy.VirtualWorker(hook, id="bob", pipelined=True)
    most = 0
    for make in (small_mlp, cnn, transformer):
        for optimizer in OPTIMIZERS:
            training = Training(make(), optimizer, bob)
            for _ in range(3):
                with hook.record() as log:
                    training.step().get()
            most = max(most, waiting(log, "bob"))
    name = "a repeated training step, loss fetched: requests that wait"
    amount(name, most, at_most=2, earlier="-")


def bench_grouped_step(amount: Amount, hook: sy.TorchHook, bob: sy.VirtualWorker) -> None:
    """The messages of a repeated step in a group."""
    training = Training(small_mlp(), worker=bob)
    for _ in range(3):
        with hook.record() as log, bob.group():
            training.step()
    name = "a repeated training step in a group: messages"
    amount(name, len(log.to("bob")), at_most=1, earlier="-")


@pytest.mark.parametrize(
    ("name", "sizes", "batch", "at_most"),
    [("784-64-10", (784, 64, 10), 64, 1.6), ("of 200 parameters", (16, 10, 3), 8, 2.5)],
)
def bench_adam(
    ratio: Ratio,
    bob: sy.VirtualWorker,
    name: str,
    sizes: tuple[int, int, int],
    batch: int,
    at_most: float,
) -> None:
    """A step of Adam on pointers, with a large model and a small one."""
    there = Training(mlp(sizes, batch), "Adam", bob)
    here = Training(mlp(sizes, batch), "Adam")
    ratio(
        f"Adam step of an MLP {name} on pointers / local",
        subject=there.step,
        floor=here.step,
        at_most=at_most,
        earlier="-",
        seconds=4,
    )


def bench_queued_operations(ratio: Ratio, hook: sy.TorchHook) -> None:
    """Fifty operations through a queue, and fifty that are answered at once."""
    here: Tensor = torch.ones(2)
    queued = here.send(sy.VirtualWorker(hook, id="queued", pipelined=True))
    immediate = here.send(sy.VirtualWorker(hook, id="immediate"))

    def through_the_queue() -> None:
        for _ in range(50):
            torch.add(queued, queued)
        sy.synchronize()

    def at_once() -> None:
        for _ in range(50):
            torch.add(immediate, immediate)

    ratio(
        "50 operations at a queued worker / at an immediate one",
        subject=through_the_queue,
        floor=at_once,
        at_most=1.2,
        earlier="-",
    )
