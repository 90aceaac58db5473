"""Optimizer state follows its parameters.

Momentum buffers, running averages and the like are tensors beside the parameters, and only the
optimizer knows them: ``model.send(bob)`` cannot take them along.  So before each step of an
optimizer, through torch's own global hook for that, the state of every parameter that has gone
elsewhere is brought to where the parameter is.  For an optimizer of plain parameters this is one
look at the class of each.
"""

from __future__ import annotations

import functools
import weakref
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from syft.ops.nested import replace
from syft.chain.wrapper import Wrapper
from syft.hooks import tensor_methods
from syft.workers.shells.virtual import VirtualWorker


class StateFollower:
    """Brings the state of optimizers to their parameters, until it is closed.

    ``owner`` is the worker that sends what lies here.
    """

    def __init__(self, owner: VirtualWorker) -> None:
        self._owner = owner
        self._away: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._handle = register_optimizer_step_pre_hook(self._before_step)

    def close(self) -> None:
        """Take the hook back from torch."""
        self._handle.remove()

    def _before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if _any_away(optimizer):
            self._away.add(optimizer)
        elif optimizer not in self._away:
            return
        else:
            self._away.discard(optimizer)
        for parameter, state in optimizer.state.items():
            for name, value in state.items():
                state[name] = replace(value, functools.partial(self._beside, parameter))

    def _beside(self, parameter: torch.Tensor, value: Any) -> Any:
        """The same value where the parameter is; numbers (of no dimension) may stay here."""
        if not isinstance(value, torch.Tensor):
            return value
        here, there = tensor_methods.pointer_of(value), tensor_methods.pointer_of(parameter)
        if there is None:
            return value if here is None else tensor_methods.get(value)
        if here is not None:
            return tensor_methods.move(value, there.location)
        if value.dim() == 0 or type(value) is Wrapper:
            return value
        return tensor_methods.send(value, there.location, owner=self._owner)


def _any_away(optimizer: Optimizer) -> bool:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if type(parameter) is Wrapper:
                return True
    return False
