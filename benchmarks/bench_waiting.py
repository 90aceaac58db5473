"""What a training step waits for, and what it costs beside the same step here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import syft as sy
from benchmarks.recording import Amount, Ratio
from syft.workers.shells.message_log import MessageLog

# A torch.Tensor.  Type checkers cannot know of the methods that the hook adds to it.
Tensor = Any


@pytest.fixture
def hook() -> Iterator[sy.TorchHook]:
    """A hook of this benchmark's own."""
    hook = sy.TorchHook(torch)
    yield hook
    hook.close()


class Last(nn.Module):
    """The last item of a sequence."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Take it."""
        return x[:, -1]


def mlp() -> tuple[nn.Module, torch.Tensor]:
    """An MLP and a batch."""
    return nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 3)), torch.randn(5, 8)


def cnn() -> tuple[nn.Module, torch.Tensor]:
    """A network of convolutions and a batch."""
    layers = [nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.1)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(18, 3)), torch.randn(5, 1, 8, 8)


def transformer() -> tuple[nn.Module, torch.Tensor]:
    """A transformer layer and a batch."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return nn.Sequential(layer, Last(), nn.Linear(8, 3)), torch.randn(5, 4, 8)


Optimizers = dict[str, Callable[[Any], torch.optim.Optimizer]]
OPTIMIZERS: Optimizers = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.01),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9),
    "Adam": lambda parameters: torch.optim.Adam(parameters),
}


class Steps:
    """Training steps of one model on one batch, here or at a worker."""

    def __init__(self, model: Any, x: Any, optimizer: str, worker: Any = None) -> None:
        self.model = model
        y: Any = torch.randint(3, (len(x),))
        self.x, self.y = x, y
        if worker is not None:
            self.model.send(worker)
            self.x, self.y = self.x.send(worker), self.y.send(worker)
        self.optimizer = OPTIMIZERS[optimizer](self.model.parameters())

    def step(self) -> Any:
        """Zero the gradients, run forward and backward, step; returns the loss."""
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(self.x), self.y)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return loss


def waiting(log: MessageLog, worker: str) -> int:
    """How many requests to a worker were waited for."""
    sent = [entry.message for entry in log.to(worker)]
    return sum(getattr(message, "failures", None) is not None for message in sent)


def bench_waiting(amount: Amount, hook: sy.TorchHook) -> None:
    """The requests of a repeated step that wait, in the worst of nine cases."""
    bob = sy.VirtualWorker(hook, id="bob", pipelined=True)
    most = 0
    for make in (mlp, cnn, transformer):
        for optimizer in OPTIMIZERS:
            steps = Steps(*make(), optimizer, bob)
            for _ in range(3):
                with hook.record() as log:
                    steps.step().get()
            most = max(most, waiting(log, "bob"))
    name = "a repeated training step, loss fetched: requests that wait"
    amount(name, most, at_most=2, earlier="-")


def bench_grouped_step(amount: Amount, hook: sy.TorchHook) -> None:
    """The messages of a repeated step in a group."""
    bob = sy.VirtualWorker(hook, id="bob")
    steps = Steps(*mlp(), "SGD", bob)
    for _ in range(3):
        with hook.record() as log, bob.group():
            steps.step()
    name = "a repeated training step in a group: messages"
    amount(name, len(log.to("bob")), at_most=2, earlier="-")


@pytest.mark.parametrize(
    ("name", "sizes", "batch", "at_most"),
    [("784-64-10", (784, 64, 10), 64, 1.6), ("of 200 parameters", (16, 10, 3), 8, 2.5)],
)
def bench_adam(
    ratio: Ratio,
    hook: sy.TorchHook,
    name: str,
    sizes: tuple[int, int, int],
    batch: int,
    at_most: float,
) -> None:
    """A step of Adam on pointers, with a large model and a small one."""
    bob = sy.VirtualWorker(hook, id="bob")

    def steps(worker: Any) -> Steps:
        torch.manual_seed(0)
        first, second = nn.Linear(sizes[0], sizes[1]), nn.Linear(sizes[1], sizes[2])
        return Steps(
            nn.Sequential(first, nn.ReLU(), second), torch.randn(batch, sizes[0]), "Adam", worker
        )

    there, here = steps(bob), steps(None)
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
