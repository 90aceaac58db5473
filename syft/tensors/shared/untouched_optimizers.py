"""Optimizers that a rehearsal steps are afterwards as they were.

A step of training writes to parameters, which a rehearsal takes back, and leaves more: gradients,
what momentum remembers, counts of steps.  Shared tensors among these have no values, and nothing
could go on from them; counts would be too high, and no one would notice.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from syft.chain.wrapper import Wrapper
from syft.tensors.shared.shared_values import shared_cell

State = dict[str, Any]


class UntouchedOptimizers:
    """A context that takes back what steps in it leave in optimizers.

    Gradients that were made in it are dropped; what they replaced is not known.

    >>> weight = torch.ones(2, requires_grad=True)
    >>> optimizer = torch.optim.SGD([weight], lr=0.5, momentum=0.9)
    >>> with UntouchedOptimizers():
    ...     weight.sum().backward()
    ...     optimizer.step()
    >>> len(optimizer.state)
    0
    """

    def __init__(self) -> None:
        self._before: dict[Optimizer, dict[torch.Tensor, State]] = {}

    def __enter__(self) -> UntouchedOptimizers:
        self._handle = register_optimizer_step_pre_hook(self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._handle.remove()
        for optimizer, before in self._before.items():
            optimizer.state.clear()
            optimizer.state.update(before)
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    drop_unreal_gradient(parameter)

    def _note(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if optimizer not in self._before:
            self._before[optimizer] = {
                parameter: {name: _kept(value) for name, value in state.items()}
                for parameter, state in optimizer.state.items()
            }


def drop_unreal_gradient(tensor: torch.Tensor) -> None:
    """Drop a gradient that a rehearsal has made; any other stays.

    >>> drop_unreal_gradient(torch.ones(2))
    """
    cell = None if tensor.grad is None else shared_cell(tensor.grad)
    if cell is not None and not cell.session.is_real(cell):
        tensor.grad = None


def _kept(value: Any) -> Any:
    """What a step does not write to: a copy, but of shared tensors, which a rehearsal restores."""
    plain = isinstance(value, torch.Tensor) and type(value) is not Wrapper
    return value.clone() if plain else value
