"""What the tests of training plans share: models, batches, a step as plan and as plain PyTorch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn, optim
from torch.nn import functional as F

import syft as sy

Tensor = Any
STEPS = 20


class Recurrent(nn.Module):
    """An LSTM whose last output is classified."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(5, 6, batch_first=True, num_layers=2)
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        outputs, _ = self.lstm(x)
        return self.head(outputs[:, -1])


class Transformer(nn.Module):
    """One encoder layer, a mean over the positions, a classifier."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(
            8, nhead=2, dim_feedforward=12, dropout=dropout, batch_first=True
        )
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(x).mean(dim=1))


def mlp(bias: bool = True) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6, bias=bias), nn.Tanh(), nn.Linear(6, 3, bias=bias))


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(4 * 2 * 2, 3),
    )


def dropping() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 16), nn.Dropout(0.5), nn.ReLU(), nn.Linear(16, 3))


# What to make, and the shape of one example.
MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (mlp, (4,)),
    "cnn": (cnn, (2, 6, 6)),
    "lstm": (Recurrent, (7, 5)),
    "transformer": (Transformer, (5, 8)),
    "dropout": (dropping, (4,)),
    "transformer with dropout": (lambda: Transformer(0.2), (5, 8)),
}


def batches(
    shape: tuple[int, ...], count: int = STEPS, size: int = 8, seed: int = 0
) -> Iterator[tuple[Tensor, Tensor]]:
    """Examples with labels, the same ones every time."""
    dice = torch.Generator().manual_seed(seed)
    for _ in range(count):
        yield (
            torch.randn(size, *shape, generator=dice),
            torch.randint(3, (size,), generator=dice),
        )


def train_step(model: nn.Module, optimizer: optim.Optimizer, x: Tensor, y: Tensor) -> Tensor:
    """A step as torch's documentation writes it."""
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.detach()


Step = Callable[..., Tensor]


def plan_of(step: Step, model: nn.Module, optimizer: optim.Optimizer) -> sy.Plan:
    """The step as a plan whose state is the model and the optimizer."""

    @sy.func2plan(state=(model, optimizer))
    def training(x: Tensor, y: Tensor, *, state: Any) -> Tensor:
        return step(*state.read(), x, y)

    return training


def duplicates(
    make: Callable[[], nn.Module], optimizer: Callable[..., optim.Optimizer], **options: Any
) -> tuple[Any, Any]:
    """Twice the same model with the same optimizer."""
    torch.manual_seed(1)
    model = make()
    pair = (model, optimizer(model.parameters(), **options))
    return pair, copy.deepcopy(pair)


def tensors_of(model: nn.Module, optimizer: optim.Optimizer) -> dict[str, Tensor]:
    """Parameters, buffers, and what the optimizer keeps."""
    found: dict[str, Tensor] = dict(model.state_dict())
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for number, parameter in enumerate(parameters):
        for key, value in optimizer.state[parameter].items():
            found[f"{number}.{key}"] = value
    return found


def check_same(planned: tuple[Any, Any], plain: tuple[Any, Any]) -> None:
    """Bit for bit the same parameters, buffers and optimizer state.

    A plan makes the state of every parameter that could be trained; of one that never got a
    gradient it is zero, where plain PyTorch has none.
    """
    left, right = tensors_of(*planned), tensors_of(*plain)
    assert right.keys() <= left.keys()
    assert not any(left[name].any() for name in left.keys() - right.keys())
    different = [name for name, value in right.items() if not torch.equal(value, left[name])]
    assert not different


def check_training(
    step: Step, pair: tuple[Any, Any], oracle: tuple[Any, Any], data: Any
) -> sy.Plan:
    """The step as a plan against the same step in plain PyTorch, batch by batch."""
    plan = plan_of(step, *pair)
    for number, (x, y) in enumerate(data):
        torch.manual_seed(number)
        expected = step(*oracle, x, y)
        torch.manual_seed(number)
        got = plan(x, y)
        assert torch.equal(got, expected), f"loss of batch {number}: {got} is not {expected}"
        check_same(pair, oracle)
    assert plan.is_built
    return plan
