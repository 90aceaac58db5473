"""Models that are trained at workers and here, and the loop that they are compared with."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from syft.federated.sent_training import SentTraining


class Images(nn.Module):
    """Convolution, batch norm, max-pool and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.3)
        self.out = nn.Linear(36, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.norm(self.conv(x))), 2)
        return F.log_softmax(self.out(self.drop(x.view(x.size(0), -1))), dim=1)


class Series(nn.Module):
    """A recurrent network."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 4, batch_first=True)
        self.out = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.log_softmax(self.out(self.lstm(x)[0][:, -1]), dim=1)


class Words(nn.Module):
    """An embedding, two layers that share their weight, and a tensor that is no parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(7, 4)
        self.norm = nn.LayerNorm(4)
        self.out, self.twin = nn.Linear(4, 3), nn.Linear(4, 3)
        self.twin.weight = self.out.weight
        self.scale = torch.full((4,), 2.0)
        self.count = 3

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.words(x).mean(1) * self.scale)
        if self.count > 2:
            y = y + 1
        return F.log_softmax(self.out(y) + self.twin(y), dim=1)


def layers() -> nn.Module:
    """A small network of layers."""
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3), nn.LogSoftmax(dim=1))


def images(rows: int) -> torch.Tensor:
    """Noise for :class:`Images`."""
    return torch.randn(rows, 1, 8, 8)


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], torch.Tensor]]] = {
    "layers": (layers, lambda rows: torch.randn(rows, 4)),
    "images": (Images, images),
    "series": (Series, lambda rows: torch.randn(rows, 5, 3)),
    "words": (Words, lambda rows: torch.randint(7, (rows, 2))),
}
"""Each model, and data for it."""


def made(name: str, rows: int = 11, seed: int = 0) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """A model with data and labels for it."""
    torch.manual_seed(seed)
    make, data = MODELS[name]
    return make(), data(rows), torch.randint(3, (rows,))


def nll(target: torch.Tensor, pred: torch.Tensor) -> torch.Tensor:
    """A loss as programs for earlier versions write it: the target first."""
    return F.nll_loss(input=pred, target=target)


def orders_of(worker: Any, rows: int) -> list[torch.Tensor]:
    """The samples of the next fit there, which is none: with a seed it goes through the same."""
    training = SentTraining.at(worker)
    orders = training.orders(rows)
    training.fits -= 1
    return orders


def plain_loop(
    model: nn.Module,
    data: torch.Tensor,
    targets: torch.Tensor,
    orders: Iterable[torch.Tensor],
    size: int,
    make: Callable[[Any], torch.optim.Optimizer],
) -> tuple[nn.Module, list[list[float]]]:
    """What a fit is to do, written with torch alone: the trained copy, and its losses by epoch."""
    model = copy.deepcopy(model).train()
    optimizer, losses = make(model.parameters()), []
    for order in orders:
        losses.append([])
        for rows in order.split(size):
            optimizer.zero_grad()
            loss = nll(targets[rows], model(data[rows]))
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            losses[-1].append(loss.item())
    return model, losses


def same_state(one: nn.Module, other: nn.Module) -> bool:
    """Whether two modules have the same values under the same names, to the last bit but few."""
    left, right = one.state_dict(), other.state_dict()
    return left.keys() == right.keys() and all(
        torch.allclose(left[name], right[name], rtol=1e-5, atol=1e-7) for name in left
    )
