"""What a round of federated averaging costs, beside a plain loop over the same batches.

The loop is what one writes without a library: a copy of the model for each client, its steps, the
mean of the copies.  Its batches are cut beforehand, and the simulated clients choose theirs within
the round.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import syft as sy
from benchmarks.recording import Ratio
from benchmarks.training import Tensor, step

CLASSES, BATCH, STEPS = 10, 10, 5
LR, MOMENTUM = 0.01, 0.9

Clients = list[list[tuple[Tensor, Tensor]]]
"""The batches of each client."""


def small_mlp() -> nn.Module:
    """For digits of 8 by 8 pixels."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, CLASSES))


def wide_mlp(hidden: int = 256) -> nn.Module:
    """For digits of 28 by 28 pixels; a client's copy has 0.8 MB."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, hidden), nn.ReLU(), nn.Linear(hidden, CLASSES)
    )


def widest_mlp() -> nn.Module:
    """The same with 3.2 MB, which are trained one client after another."""
    return wide_mlp(1024)


def small_cnn(side: int = 8) -> nn.Module:
    """Two convolutions for digits of so many pixels by as many."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * (side // 4) ** 2, CLASSES),
    )


def large_cnn() -> nn.Module:
    """The same for digits of 28 by 28 pixels."""
    return small_cnn(28)


def momentum(parameters: Any) -> torch.optim.Optimizer:
    """The optimizer of every client."""
    return torch.optim.SGD(parameters, lr=LR, momentum=MOMENTUM)


def batches(clients: int, side: int = 8) -> Clients:
    """As many batches for each client, of images of noise."""
    torch.manual_seed(0)
    return [
        [
            (torch.randn(BATCH, 1, side, side), torch.randint(CLASSES, (BATCH,)))
            for _ in range(STEPS)
        ]
        for _ in range(clients)
    ]


def plain_round(model: nn.Module, clients: Clients) -> None:
    """A round as a loop; the model becomes the mean."""
    state = model.state_dict()
    sums = {name: torch.zeros_like(value) for name, value in state.items()}
    for own in clients:
        local = copy.deepcopy(model)
        optimizer = momentum(local.parameters())
        for x, y in own:
            step(local, optimizer, x, y)
        for name, value in local.state_dict().items():
            sums[name] += value / len(clients)
    model.load_state_dict(sums)


@pytest.mark.parametrize(
    "make, count, at_most, name",
    [
        (small_mlp, 100, 0.15, "MLP"),
        (small_cnn, 20, 0.45, "CNN"),
        (large_cnn, 20, 0.45, "CNN of 28 × 28"),
        (wide_mlp, 20, 1.25, "MLP of 0.8 MB"),
        (widest_mlp, 20, 1.25, "MLP of 3.2 MB"),
    ],
    ids=["MLP", "CNN", "CNN of 28 × 28", "MLP of 0.8 MB", "MLP of 3.2 MB"],
)
def bench_simulated_clients(
    ratio: Ratio,
    one_thread: None,
    make: Callable[[], nn.Module],
    count: int,
    at_most: float,
    name: str,
) -> None:
    """All clients of a step at once."""
    own = batches(count, 8 if make in (small_mlp, small_cnn) else 28)
    data = [tuple(map(torch.cat, zip(*client, strict=True))) for client in own]
    clients = sy.SimulatedClients(make(), data, F.cross_entropy, momentum, batch_size=BATCH)
    model = make()
    ratio(
        f"round of {count} simulated clients, {name} / a plain loop",
        subject=clients.round,
        floor=lambda: plain_round(model, own),
        at_most=at_most,
        earlier="-",
        seconds=6,
    )


def training_step(x: Tensor, y: Tensor, state: Any) -> Tensor:
    """A step of what lies in a plan's state."""
    model, optimizer = state.read()
    return step(model, optimizer, x, y).detach()


class AtWorkers:
    """A client at each worker, with a training plan and batches that lie there."""

    def __init__(self, hook: sy.TorchHook, clients: Clients) -> None:
        workers = [sy.VirtualWorker(hook, id=f"worker {number}") for number in range(len(clients))]
        model = small_mlp()
        plan: Any = sy.func2plan(state=(model, momentum(model.parameters())))(training_step)
        plan.build(*clients[0][0])
        self.model = model
        self.plans = [plan.send(worker) for worker in workers]
        self.batches = [
            [(x.send(worker), y.send(worker)) for x, y in own]
            for worker, own in zip(workers, clients, strict=True)
        ]

    def round(self) -> None:
        """Train at each worker, average, and send each the mean."""
        for plan, own in zip(self.plans, self.batches, strict=True):
            for x, y in own:
                plan(x, y)
        states = [list(plan.parameters()) for plan in self.plans]
        mean = sy.federated_average(states)
        for plan, state in zip(self.plans, states, strict=True):
            new = sy.send_all(mean, plan.location)
            with plan.location.group():
                for old, value in zip(state, new, strict=True):
                    old.data.copy_(value)


def bench_clients_at_workers(ratio: Ratio, hook: sy.TorchHook, one_thread: None) -> None:
    """Ten virtual workers: a plan at each, a message a step, and the mean of what they have."""
    own = batches(10)
    there, model = AtWorkers(hook, own), small_mlp()
    ratio(
        "round of 10 virtual workers with plans, MLP / a plain loop",
        subject=there.round,
        floor=lambda: plain_round(model, own),
        at_most=1.3,
        earlier="-",
        seconds=6,
    )
