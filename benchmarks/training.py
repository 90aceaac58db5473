"""What the benchmarks train: a model on one batch, here or at a worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

import syft as sy

# A torch.Tensor.  Type checkers cannot know of the methods that the hook adds to it.
Tensor = Any

Task = tuple[nn.Module, Tensor, Tensor]
"""A model, a batch of what it reads, and the classes it is to say."""


def mlp(sizes: tuple[int, int, int] = (784, 64, 10), batch: int = 64) -> Task:
    """An MLP of one hidden layer and a batch, the same at each call."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(*sizes[:2]), nn.ReLU(), nn.Linear(*sizes[1:]))
    return model, torch.randn(batch, sizes[0]), torch.randint(sizes[2], (batch,))


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.01),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9),
    "Adam": lambda parameters: torch.optim.Adam(parameters),
}


def step(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor) -> Tensor:
    """Zero the gradients, run forward and backward, step; returns the loss."""
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return loss


class Training:
    """Training steps of one model on one batch, all of it here or at a worker; the batch is private
    if only some ``users`` may see it."""

    def __init__(
        self,
        task: Task,
        optimizer: str = "SGD",
        worker: sy.VirtualWorker | None = None,
        users: tuple[str, ...] | None = None,
    ) -> None:
        self.model: Any
        self.x: Tensor
        self.y: Tensor
        self.model, self.x, self.y = task
        if worker is not None:
            self.model.send(worker)
            self.y = self.y.send(worker)
            if users is None:
                self.x = self.x.send(worker)
            else:
                self.x = self.x.private_tensor(users).send(worker, user=users[0])
        self.optimizer = OPTIMIZERS[optimizer](self.model.parameters())

    def step(self) -> Tensor:
        """One step; returns the loss."""
        return step(self.model, self.optimizer, self.x, self.y)
