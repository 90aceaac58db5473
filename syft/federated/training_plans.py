"""The two plans of a training at a worker: one step of it, and one batch of a measurement.

A plan takes the whole data and the numbers of its rows, so a call says which rows and nothing else.
It picks them by ``index_select``, whose result has a size that follows from that of the numbers: so
a worker looks at the sizes of a step once.  Sums over the batches go from call to call, there:
nothing is read before the end.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.func import functional_call

from syft.plans.function_plan import func2plan

# A torch.Tensor.  Type checkers cannot know of the methods that the hook adds to it.
Tensor = Any
Loss = Callable[[Tensor, Tensor], Tensor]
"""Takes the prediction and the target, in this order."""


def loss_in_order(loss_fn: Callable[..., Tensor]) -> Loss:
    """A loss that is called with the prediction and the target, whatever its parameters are called.

    One with parameters ``pred`` and ``target`` gets them by these names, in whatever order they
    are.  Any other is called as torch's own losses are: prediction first.

    >>> late = loss_in_order(lambda target, pred: pred - target)
    >>> torchs = loss_in_order(torch.nn.functional.mse_loss)
    >>> late(torch.ones(1), torch.zeros(1)), torchs(torch.ones(1), torch.zeros(1))
    (tensor([1.]), tensor(1.))
    """
    if {"pred", "target"} <= _parameters_of(loss_fn):

        def by_name(pred: Tensor, target: Tensor) -> Tensor:
            return loss_fn(pred=pred, target=target)

        return by_name
    return loss_fn


def _parameters_of(loss_fn: Any) -> set[str]:
    called = loss_fn.forward if isinstance(loss_fn, nn.Module) else loss_fn
    try:
        return set(inspect.signature(called).parameters)
    except (TypeError, ValueError):  # a function in C
        return set()


def example_batch(tensor: Tensor, rows: int) -> torch.Tensor:
    """Zeros like some rows of a data set, in the memory of this machine: a recording needs no more.

    A batch is brought to the device of the model, wherever the data is.

    >>> example_batch(torch.ones(9, 2, dtype=torch.int64), 3).shape
    torch.Size([3, 2])
    """
    return torch.zeros((rows, *tensor.shape[1:]), dtype=tensor.dtype, device="cpu")


def step_plan(
    model: nn.Module, optimizer: Any, loss: Loss, data: torch.Tensor, targets: torch.Tensor
) -> Any:
    """A plan of a step: ``(data, targets, rows, total)`` gives the loss of the batch of these rows,
    and ``total`` with that added for each of them.  ``data`` and ``targets`` are examples.

    >>> model = nn.Linear(2, 1)
    >>> sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> plan = step_plan(model, sgd, nn.MSELoss(), torch.zeros(3, 2), torch.zeros(3, 1))
    >>> plan.name, len(plan.state_dict())
    ('training_step', 2)
    """

    device = device_of(model)

    def training_step(
        data: Tensor,
        targets: Tensor,
        rows: Tensor,
        total: Tensor,
        state: Any,
    ) -> tuple[Tensor, Tensor]:
        called, its_optimizer = state.read()
        x, y = data.index_select(0, rows), targets.index_select(0, rows)
        its_optimizer.zero_grad()
        value = loss(called(x.to(device)), y.to(device))
        value.backward()
        its_optimizer.step()
        value = value.detach()
        return value, total + value * rows.shape[0]

    plan = func2plan(state=(model, optimizer))(training_step)
    plan.build(
        data, targets, torch.arange(len(data) - 1, device="cpu"), torch.zeros((), device="cpu")
    )
    return plan


class ScorePlan:
    """A plan that measures a batch with the state of a model that lies elsewhere, under ``names``.

    It is called with data, targets, the numbers of rows, the sums so far, and the state; the sums
    are the loss, the right predictions, and how often each label was predicted and is there.

    >>> score = ScorePlan(nn.Linear(2, 3), nn.CrossEntropyLoss(), torch.zeros(4, 2),
    ...     torch.zeros(4, dtype=torch.int64))
    >>> score.classes, score.names
    (3, ['weight', 'bias'])
    """

    def __init__(
        self, model: nn.Module, loss: Loss, data: torch.Tensor, targets: torch.Tensor
    ) -> None:
        state = state_of(model)
        self.names = list(state)
        self._device = device = device_of(model)
        with torch.no_grad():
            found = model(data.to(device))
        self.classes = _classes(found, targets)
        """How many classes there are; 0 if the targets are no labels."""

        def score(
            data: Tensor, targets: Tensor, rows: Tensor, *sums_and_state: Tensor
        ) -> list[Tensor]:
            sums, values = sums_and_state[:4], sums_and_state[4:]
            with torch.no_grad():
                x = data.index_select(0, rows).to(device)
                y = targets.index_select(0, rows).to(device)
                found = functional_call(model, dict(zip(self.names, values, strict=True)), (x,))
                return self._added(sums, loss(found, y) * rows.shape[0], found, y)

        self.plan = func2plan()(score)
        rows = torch.arange(len(data) - 1, device="cpu")
        self.plan.build(data, targets, rows, *self.nothing(), *state.values())

    def nothing(self) -> list[torch.Tensor]:
        """The sums before the first batch."""
        zeros = functools.partial(torch.zeros, device=self._device)
        labels = functools.partial(zeros, self.classes, dtype=torch.int64)
        return [zeros(()), zeros((), dtype=torch.int64), labels(), labels()]

    def _added(
        self, sums: Sequence[Tensor], loss: Tensor, found: Tensor, targets: Tensor
    ) -> list[Tensor]:
        total, right, predicted, present = sums
        if not self.classes:
            return [total + loss, right + 0, predicted + 0, present + 0]
        chosen, labels = found.argmax(dim=1), torch.arange(self.classes, device=found.device)
        return [
            total + loss,
            right + (chosen == targets).sum(),
            predicted + (chosen.flatten().unsqueeze(1) == labels).sum(dim=0),
            present + (targets.flatten().unsqueeze(1) == labels).sum(dim=0),
        ]


def _classes(found: Tensor, targets: torch.Tensor) -> int:
    """How many classes a model tells apart, if the targets are labels of them."""
    if targets.dtype.is_floating_point or not isinstance(found, torch.Tensor):
        return 0
    alike = found.dim() > 1 and found.shape[:1] + found.shape[2:] == targets.shape
    return found.shape[1] if alike else 0


def device_of(model: nn.Module) -> torch.device:
    """The device of a module: that of its first parameter or buffer.

    >>> device_of(nn.Linear(2, 1))
    device(type='cpu')
    """
    return next((tensor.device for tensor in state_of(model).values()), torch.device("cpu"))


def state_of(model: nn.Module) -> dict[str, Any]:
    """Every parameter and buffer of a module by name, each once.

    >>> list(state_of(nn.BatchNorm1d(2)))
    ['weight', 'bias', 'running_mean', 'running_var', 'num_batches_tracked']
    """
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}
