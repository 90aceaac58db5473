"""Optimizer state follows its parameters.

Momentum buffers, running averages and the like are tensors that only the optimizer knows, so
``model.send(bob)`` cannot send them.  Instead, a hook that torch calls before each step of any
optimizer brings the state of every parameter to where the parameter is.  For an optimizer of plain
parameters this costs one look at the class of each parameter (0.3 µs of a step).
"""

from __future__ import annotations

import functools
import weakref
from typing import Any

import torch
from torch.optim import Optimizer

from syft.chain.wrapper import Wrapper, first_link
from syft.hooks import sending, tensor_methods
from syft.hooks.lazy_parts import beside_lazy, run_step
from syft.hooks.listed_steps import ListedSteps
from syft.ops.nested import replace
from syft.tensors.lazy.lazy_link import LazyTensor
from syft.tensors.pointer import PointerTensor
from syft.workers.client.transport import Location, Owner


class StateFollower:
    """Brings the state of optimizers to their parameters.

    ``owner`` is the worker that sends what is in this process.
    """

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._lists = ListedSteps()
        self._away: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._ever_away = False  # asking the set takes longer

    def before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """Bring the state of one optimizer to its parameters: torch calls this before a step."""
        away = False
        for group in optimizer.param_groups:
            if Wrapper in map(type, group["params"]):
                away = self._ever_away = True
        if self._ever_away:
            self._follow(optimizer, away)
            self._lists.before_step(optimizer)

    def after_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """Leave the choice of lists to torch again: torch calls this after a step."""
        if self._ever_away:
            self._lists.after_step(optimizer)
            run_step(optimizer)

    def _follow(self, optimizer: Optimizer, away: bool) -> None:
        if away:
            self._away.add(optimizer)
        elif optimizer in self._away:  # its parameters came back since the last step
            self._away.discard(optimizer)
        else:
            return
        for parameter, state in optimizer.state.items():
            for name, value in state.items():
                if not _surely_beside(value, parameter):
                    state[name] = replace(value, functools.partial(self._beside, parameter))

    def _beside(self, parameter: torch.Tensor, value: Any) -> Any:
        """The same value where the parameter is; numbers (of no dimension) may stay here."""
        if not isinstance(value, torch.Tensor):
            return value
        lazy = beside_lazy(parameter, value)
        if lazy is not None:
            return lazy
        here, there = _single_place(value), _single_place(parameter)
        if here is there:
            return value
        if there is None:
            return tensor_methods.get(value)
        if here is not None:
            return tensor_methods.move(value, there)
        if value.dim() == 0 or type(value) is Wrapper:
            return value
        return sending.send(value, there, owner=self._owner)


def encode_optimizer(optimizer: Optimizer) -> Optimizer:
    """The optimizer itself: its rates are public numbers, and its steps follow the parameters.

    So this call may be left out.  It is taken for programs of earlier versions, in which a rate
    had to be encoded before it could meet shared gradients.

    >>> hook = sy.TorchHook(torch)
    >>> model = torch.nn.Linear(2, 1)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> optimizer.fix_precision() is optimizer
    True
    """
    return optimizer


def _single_place(tensor: torch.Tensor) -> Location | None:
    """The one worker that holds the tensor; None if it is here, or at several."""
    link = first_link(tensor)
    return None if link.id_at_location is None else link.location


def _surely_beside(value: Any, parameter: torch.Tensor) -> bool:
    """Whether a value needs no closer look: nearly always, and it is looked for at each step."""
    if type(value) is not Wrapper:
        return type(value) is torch.Tensor and value.dim() == 0
    link, other = value.child, first_link(parameter)
    if type(link) is LazyTensor:
        return type(other) is LazyTensor
    if type(link) is not PointerTensor or type(other) is not PointerTensor:
        return False
    return link.connection is other.connection
