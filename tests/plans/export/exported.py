"""What the export tests share: models, their recorded programs, and runs of these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from syft.program.lowered import Lowered
from syft.ops.table import BY_NAME
from syft.program.program import Action, Mode, Program, Slot
from syft.program.recording.record import record

S = Slot


def act(name: str, *args: Any, out: Any = None, mode: Mode | None = None, **kwargs: Any) -> Action:
    """An action by the name of its op."""
    return Action(BY_NAME[name], args, kwargs, out, mode)


def recorded(
    function: Callable[..., Any], inputs: Sequence[Any], state: dict[str, torch.Tensor]
) -> Program:
    """The program of a function that holds this state and nothing else."""
    recording = record(function, inputs, list(state.values()))
    assert not recording.captured
    return recording.program


def state_of(model: nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers of a model, by name."""
    return dict(model.named_parameters()) | dict(model.named_buffers())


def replayed(program: Program, inputs: Sequence[Any], state: dict[str, torch.Tensor]) -> Any:
    """What the program gives."""
    return Lowered(program).run([*inputs, *state.values()])


class LastStep(nn.Module):
    """An LSTM whose last output is classified."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 5, batch_first=True)
        self.head = nn.Linear(5, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of a batch of sequences."""
        scores: torch.Tensor = self.head(self.lstm(x)[0][:, -1])
        return scores


def cnn() -> nn.Module:
    """A convolutional network with batch norm and dropout."""
    return nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(),
        nn.Linear(36, 10),
    )


def transformer() -> nn.Module:
    """One encoder layer."""
    return nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "cnn": (cnn, (1, 8, 8)),
    "lstm": (LastStep, (6, 4)),
    "transformer": (transformer, (5, 8)),
}
