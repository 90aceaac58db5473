"""Modules, optimizers and whole models made of lazy tensors train as ordinary ones, bit for bit."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import syft as sy
from syft.tensors.lazy.lazy_trace import TRACE


@pytest.fixture(autouse=True)
def hooked(hook: sy.TorchHook) -> Iterator[None]:
    """Torch knows ``to_lazy``."""
    yield
    TRACE.pending.clear()


class Residual(nn.Module):
    """A block as those of ResNet, with in-place activations."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))
        self.norms = nn.ModuleList([nn.BatchNorm2d(channels) for _ in range(2)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norms[0](self.first(x)), inplace=True)
        return F.relu(self.norms[1](self.second(y)) + x, inplace=True)


class Block(nn.Module):
    """A block as those of GPT-2: causal attention, then two layers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(2)])
        self.mixed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.layers = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.register_buffer("mask", torch.ones(8, 8).tril().bool())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        size, length, width = x.shape
        parts = (
            self.mixed(self.norms[0](x)).view(size, length, 3, 2, width // 2).permute(2, 0, 3, 1, 4)
        )
        weights = (parts[0] @ parts[1].transpose(-2, -1)) / (width // 2) ** 0.5
        weights = weights.masked_fill(~self.mask[:length, :length], float("-inf")).softmax(-1)
        mixed = F.dropout(weights, 0.1, self.training) @ parts[2]
        x = x + self.out(mixed.transpose(1, 2).reshape(size, length, width))
        return x + self.layers(self.norms[1](x))


class Language(nn.Module):
    """Words, positions, two blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(11, 8), nn.Embedding(6, 8)
        self.blocks, self.out = nn.Sequential(Block(8), Block(8)), nn.Linear(8, 11)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.words(x) + self.places(torch.arange(x.shape[1]))
        return self.out(self.blocks(y)).mean(1)


class Recurrent(nn.Module):
    """An LSTM of two layers, both ways."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 5, num_layers=2, bidirectional=True, batch_first=True, dropout=0.1)
        self.out = nn.Linear(10, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.lstm(x)[0][:, -1])


def perceptron() -> nn.Module:
    return nn.Sequential(
        nn.Linear(4, 8), nn.Dropout(0.2), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 3)
    )


def convolutional() -> nn.Module:
    layers = [nn.Conv2d(1, 4, 3, padding=1), Residual(4), Residual(4), nn.AdaptiveAvgPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(16, 3))


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], torch.Tensor]]] = {
    "perceptron": (perceptron, lambda: torch.randn(6, 4)),
    "ResNet": (convolutional, lambda: torch.randn(6, 1, 8, 8)),
    "GPT": (Language, lambda: torch.randint(0, 11, (6, 5))),
    "LSTM": (Recurrent, lambda: torch.randn(6, 5, 4)),
}
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD": lambda weights: torch.optim.SGD(weights, lr=0.1, momentum=0.9, nesterov=True),
    "Adam": lambda weights: torch.optim.Adam(weights, amsgrad=True),
    "AdamW on lists": lambda weights: torch.optim.AdamW(weights, foreach=True),
    "RMSprop": lambda weights: torch.optim.RMSprop(weights, centered=True),
}


def step(
    model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, labels: torch.Tensor
) -> torch.Tensor:
    """One training step as torch's documentation writes it."""
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), labels)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.detach()


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("asks", [True, False], ids=["asked", "not asked"])
def test_training(model: str, optimizer: str, asks: bool) -> None:
    torch.manual_seed(0)
    net, inputs = MODELS[model][0](), MODELS[model][1]()
    labels = torch.randint(0, 3, (6,))
    lazy = copy.deepcopy(net).to_lazy()
    assert all(one.is_lazy() for one in lazy.state_dict().values())
    known = OPTIMIZERS[optimizer](net.parameters()), OPTIMIZERS[optimizer](lazy.parameters())
    torch.manual_seed(1)
    want = [step(net, known[0], inputs, labels) for _ in range(5)]
    torch.manual_seed(1)
    got, lowered = [], []
    for _ in range(5):
        loss = step(lazy, known[1], inputs.to_lazy(), labels.to_lazy())
        got.append(loss.item() if asks else loss)
        lowered.append(TRACE.programs.lowered)
    assert lowered[-1] == lowered[-2] == lowered[-3], "a step that was seen is found again"
    assert [one.item() for one in want] == [float(one) for one in got]
    back = lazy.to_eager().state_dict()
    assert all(torch.equal(one, back[name]) for name, one in net.state_dict().items())
    assert all(type(one) is nn.Parameter for one in lazy.parameters())
    step(lazy, known[1], inputs, labels)  # its state has come back with it


def test_a_model_becomes_lazy_between_steps() -> None:
    torch.manual_seed(0)
    net, x, labels = perceptron().eval(), torch.randn(6, 4), torch.randint(0, 3, (6,))
    other = copy.deepcopy(net)
    optimizers = [torch.optim.Adam(one.parameters()) for one in (net, other)]
    for change in (None, "to_lazy", "to_eager", "to_lazy"):
        if change:
            getattr(other, change)()
            assert all(one.is_lazy() is (change == "to_lazy") for one in other.parameters())
            assert all(one.grad is not None for one in other.parameters())
        losses = [step(one, it, x, labels) for one, it in zip((net, other), optimizers)]
        assert losses[0].item() == losses[1].item()


def test_a_parameter_stays_the_object_that_it_was() -> None:
    model = nn.LSTM(2, 3)
    before = [id(one) for one in model.parameters()]
    model.to_lazy()
    assert [id(one) for one in model.parameters()] == before
    assert model(torch.ones(2, 1, 2))[0].is_lazy()
    assert [id(one) for one in model.to_eager().parameters()] == before
    assert model.to_eager()(torch.ones(2, 1, 2))[0].shape == (2, 1, 3)


def test_a_step_is_one_program_where_no_value_is_asked() -> None:
    net = perceptron().to_lazy()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    x, labels = torch.randn(6, 4).to_lazy(), torch.randint(0, 3, (6,)).to_lazy()
    for _ in range(4):
        step(net, optimizer, x, labels)
    found = TRACE.programs.found
    for _ in range(3):
        optimizer.zero_grad()
        F.cross_entropy(net[2:](net[0](x)), labels).backward()
        optimizer.step()
    found = TRACE.programs.found
    optimizer.zero_grad()
    F.cross_entropy(net[2:](net[0](x)), labels).backward()
    optimizer.step()
    assert TRACE.programs.found == found + 1 and not TRACE.pending


# ------------------------------------------------------------------------------------- the scope


def test_new_tensors_are_lazy_in_the_scope() -> None:
    with sy.lazy():
        made = [torch.ones(2), torch.tensor([1.0, 2.0]), torch.arange(3), torch.rand(2) * 2]
        model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    assert all(one.is_lazy() for one in (*made, *model.state_dict().values()))
    assert all(isinstance(one, nn.Parameter) for one in model.parameters())
    assert not torch.ones(2).is_lazy() and (made[0] + 1).is_lazy()


def test_the_scope_draws_what_eager_draws() -> None:
    torch.manual_seed(3)
    want = nn.Sequential(nn.Linear(4, 4), nn.Conv2d(1, 2, 3)).state_dict()
    torch.manual_seed(3)
    with sy.lazy():
        model = nn.Sequential(nn.Linear(4, 4), nn.Conv2d(1, 2, 3))
    assert all(torch.equal(want[name], one.to_eager()) for name, one in model.state_dict().items())


def test_training_in_the_scope() -> None:
    def train() -> list[float]:
        torch.manual_seed(0)
        net = perceptron()
        optimizer = torch.optim.Adam(net.parameters())
        x, labels = torch.randn(6, 4), torch.randint(0, 3, (6,))
        return [step(net, optimizer, x, labels).item() for _ in range(4)]

    want = train()
    with sy.lazy():
        assert train() == want


def test_each_operation_runs_at_its_line_where_laziness_is_off() -> None:
    x = torch.ones(3).to_lazy()
    with sy.lazy(False):
        y = x * 2
        assert y.is_lazy() and y.child.is_constant and not torch.ones(1).is_lazy()
        with pytest.raises(IndexError):
            F.embedding(torch.tensor([9]).to_lazy(), torch.ones(3, 2))
        with sy.lazy():
            assert torch.ones(2).is_lazy()
    assert not (x * 2).child.is_constant
