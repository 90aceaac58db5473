"""Steps of optimizers whose parameters are all at one worker, with a message for each operation
and not for each parameter.

Torch's optimizers can work on lists (``foreach=True``), one operation for all parameters, and do so
by themselves on devices where a call costs more than the arithmetic.  That is true of a worker as
well.  So a hook that torch calls before each step turns it on where the user left the choice to
torch, and another turns it off again after the step.  A worker holds a few more temporary tensors
meanwhile, each of the size of a parameter; ``foreach=False`` declines.

It is left alone wherever a list might give other values than a loop: in optimizers that round
otherwise, in dtypes of low precision, for parameters of which two may be one tensor.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, Final

import torch
from torch.optim import (
    SGD,
    Adadelta,
    Adagrad,
    Adam,
    Adamax,
    AdamW,
    Optimizer,
    RMSprop,
)

from syft.chain.wrapper import Wrapper
from syft.tensors.pointer import own_leaf
from syft.workers.client.connection import Connection

_SAME_ON_LISTS: Final = (SGD, Adam, AdamW, Adamax, Adagrad, Adadelta, RMSprop)
"""The optimizers that compute the same on lists, to the last bit."""
_SAME_DTYPES: Final = frozenset((torch.float32, torch.float64))
"""The dtypes in which they do."""
_OTHERWISE: Final = ("fused", "differentiable", "capturable")
"""Choices of the user that exclude lists."""


class ListedSteps:
    """Has optimizers of remote parameters work on lists.

    >>> layers = [torch.nn.Linear(2, 2) for _ in range(3)]
    >>> model = torch.nn.Sequential(*layers).send(bob)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> model(torch.ones(1, 2).send(bob)).sum().backward()
    >>> with hook.record() as log:
    ...     optimizer.step()
    >>> len(log.to("bob")), optimizer.param_groups[0]["foreach"]  # a question, and one addition
    (2, None)
    """

    def __init__(self) -> None:
        self._chosen: weakref.WeakKeyDictionary[Optimizer, list[dict[str, Any]]] = (
            weakref.WeakKeyDictionary()
        )

    def before_step(self, optimizer: Optimizer) -> None:
        """Choose lists where they are faster."""
        self.after_step(optimizer)  # if the last step failed
        if not isinstance(optimizer, _SAME_ON_LISTS):
            return
        chosen = [group for group in optimizer.param_groups if _worth_listing(group)]
        if chosen:
            self._chosen[optimizer] = chosen
            for group in chosen:
                group["foreach"] = True

    def after_step(self, optimizer: Optimizer) -> None:
        """Leave the choice to torch again."""
        for group in self._chosen.pop(optimizer, ()):
            group["foreach"] = None


def _worth_listing(group: dict[str, Any]) -> bool:
    """Whether the user left the choice to torch, and a list is right and faster."""
    parameters = group["params"]
    if len(parameters) < 2 or type(parameters[0]) is not Wrapper:
        return False
    if group.get("foreach", False) is not None or any(map(group.get, _OTHERWISE)):
        return False
    if group.get("nesterov") and not (group["weight_decay"] or group["maximize"]):
        return False  # torch's lists write to the gradients then
    if any(isinstance(value, torch.Tensor) for value in (group["lr"], *group.get("betas", ()))):
        return False  # torch has no lists for these
    return _are_plain(parameters)


def _are_plain(parameters: Sequence[torch.Tensor]) -> bool:
    """Whether all are known to be tensors of their own at one worker, in a dtype that will do."""
    connection: Connection | None = None
    ids: list[int] = []
    for parameter in parameters:
        link = own_leaf(parameter)
        if link is None or connection not in (None, link.connection):
            return False
        if link.pending is not None and link.pending.parked:
            return False  # it would hold back the others
        connection = link.connection
        ids.append(link.id_at_location)
    return connection is not None and connection.operations.are_of_dtypes(ids, _SAME_DTYPES)
