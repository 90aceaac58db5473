"""A training at one worker: the plan that is there, the state that it trains, and its losses.

The plan is recorded when the first data set is known, because a recording needs to know what a
batch looks like; what is trained is the model as it was when the configuration was sent.

The two plans of a training at a worker: one step of it, and one batch of a measurement.

A plan takes the whole data and the numbers of its rows, so a call says which rows and nothing else.
It picks them by ``index_select``, whose result has a size that follows from that of the numbers: so
a worker looks at the sizes of a step once.  Sums over the batches go from call to call, there:
nothing is read before the end.
"""

from __future__ import annotations

import copy
import functools
import inspect
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import torch
from torch import nn
from torch.func import functional_call

from syft.exceptions import UnusableSetting
from syft.federated.local_batches import LocalBatches, seed_of
from syft.hooks import bulk
from syft.plans.function_plan import as_python, func2plan
from syft.workers.shells.named_datasets import DATA, TARGET, key_tag

# A torch.Tensor.  Type checkers cannot know of the methods that the hook adds to it.
Tensor = Any


_AHEAD: Final = 64
"""For so many batches the rows are sent in one message."""


@dataclass(frozen=True)
class TrainSettings:
    """What a ``sy.TrainConfig`` says, ready to be used."""

    model: nn.Module
    loss: Loss
    optimizer: Callable[[Any], torch.optim.Optimizer]
    batches: LocalBatches
    seed: int | None


class SentTraining:
    """A training at one worker.

    >>> config = sy.TrainConfig(model=nn.Linear(2, 1), loss_fn=nn.MSELoss()).send(bob)
    >>> training = SentTraining.at(bob)
    >>> training.worker is bob, training.losses
    (True, [])
    """

    _latest: ClassVar[weakref.WeakKeyDictionary[Any, weakref.ref[SentTraining]]] = (
        weakref.WeakKeyDictionary()
    )
    """What was sent to each worker last.  A configuration that is gone takes it along, and so the
    plan at the worker."""

    def __init__(self, settings: TrainSettings, worker: Any) -> None:
        self.settings = settings
        self.worker = worker
        self.model: nn.Module = copy.deepcopy(as_python(settings.model)).train()
        self.losses: list[Tensor] = []
        """The mean loss of each epoch; of private data a pointer to it."""
        self.fits = 0
        self._optimizer = settings.optimizer(self.model.parameters())
        self._step: Any = None
        self._names: dict[str, str] = {}
        self._score: tuple[ScorePlan, Any] | None = None
        SentTraining._latest[worker] = weakref.ref(self)

    @classmethod
    def at(cls, worker: Any) -> SentTraining:
        """What was sent to a worker last; raises :class:`~syft.exceptions.UnusableSetting`."""
        latest = cls._latest.get(worker)
        training = None if latest is None else latest()
        if training is None:
            wanted = f"sent to {worker.id} before (config.send), and kept"
            raise UnusableSetting("a TrainConfig", wanted, "none")
        return training

    def orders(self, count: int) -> list[torch.Tensor]:
        """The samples of the next fit, in the order of their use, a tensor for each epoch.

        They follow from the seed and the number of the fit, or else from torch's generator.
        """
        seed = self.settings.seed
        if seed is None:
            drawn = int(torch.randint(2**63 - 1, ()))
        else:
            drawn = seed_of("fit", seed, self.fits)
        self.fits += 1
        return self.settings.batches.orders(count, drawn)

    def step_at(self, data: Tensor, targets: Tensor) -> Any:
        """The plan of a step at the worker, recorded for data like this and sent, if it is not."""
        if self._step is None:
            examples = self._examples(data, targets)
            plan = step_plan(self.model, self._optimizer, self.settings.loss, *examples)
            held = {**dict(plan.named_parameters()), **dict(plan.named_buffers())}
            names = {id(tensor): name for name, tensor in held.items()}
            self._names = {name: names[id(tensor)] for name, tensor in state_of(self.model).items()}
            self._step = plan.send(self.worker)
        return self._step

    def score_at(self, data: Tensor, targets: Tensor) -> tuple[ScorePlan, Any]:
        """The plan that measures, and a pointer to it."""
        if self._score is None:
            model = copy.deepcopy(self.model).eval()
            score = ScorePlan(model, self.settings.loss, *self._examples(data, targets))
            self._score = score, score.plan.send(self.worker)
        return self._score

    def _examples(self, data: Tensor, targets: Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rows = self.settings.batches.batch_size + 1
        return example_batch(data, rows), example_batch(targets, rows)

    def sent(self, tensors: list[torch.Tensor]) -> list[Tensor]:
        """Pointers to copies of tensors at the worker, sent in one message."""
        return bulk.send_all(tensors, self.worker, self.worker.network.local)

    def sent_rows(self, order: torch.Tensor) -> Iterator[Tensor]:
        """Pointers to the numbers of the rows of each batch, many of them sent in one message."""
        batches = torch.split(order, self.settings.batches.batch_size)
        for start in range(0, len(batches), _AHEAD):
            yield from self.sent(list(batches[start : start + _AHEAD]))

    def state_there(self) -> list[Tensor]:
        """Pointers to the state of the model at the worker, in the order of ``state_of``; it is
        sent, if nothing was trained yet."""
        if self._step is None:
            return self.sent([tensor.detach() for tensor in state_of(self.model).values()])
        there = self._step.state_dict()
        return [there[self._names[name]] for name in state_of(self.model)]

    def trained(self, user: str | None) -> nn.Module:
        """A copy of the model as it is at the worker now, in this process."""
        model = copy.deepcopy(self.model)
        if self._step is not None:
            values = bulk.get_all(self.state_there(), user, keep=True)
            with torch.no_grad():
                for mine, new in zip(state_of(model).values(), values, strict=True):
                    mine.copy_(new)
        return _as_before(model, self.settings.model)


def _as_before(model: nn.Module, original: nn.Module) -> nn.Module:
    """A module of the kind that the user gave: of a script, a script with the same values."""
    if type(model) is type(original):
        for part, given in zip(model.modules(), original.modules(), strict=True):
            part.training = given.training
        return model
    script: Any = copy.deepcopy(original)
    script.load_state_dict(model.state_dict())
    return script  # type: ignore[no-any-return]


def dataset_at(worker: Any, key: str) -> tuple[Tensor, Tensor]:
    """Pointers to the data and the targets that a worker offers under a key.

    Raises :class:`~syft.exceptions.UnusableSetting`, with the keys that there are.

    >>> bob.add_dataset(sy.BaseDataset(torch.eye(2), torch.arange(2)), key="two")
    >>> dataset_at(bob, "two")[1].get()
    tensor([0, 1])
    >>> dataset_at(bob, "three")
    Traceback (most recent call last):
    ...
    syft.exceptions.UnusableSetting: dataset_key must be one of those at bob ('two'), got 'three'.
    """
    found = [worker.search(part, key_tag(key)) for part in (DATA, TARGET)]
    if all(len(pointers) == 1 for pointers in found):
        return found[0][0], found[1][0]
    if all(found):
        counts = f"{len(found[0])} and {len(found[1])} of them"
        wanted = f"that of one tensor with {DATA} and one with {TARGET} at {worker.id}"
        raise UnusableSetting("dataset_key", wanted, f"{counts} with {key!r}")
    tags = {tag for pointer in worker.search(DATA) for tag in pointer.tags}
    offered = ", ".join(repr(tag.removeprefix("#")) for tag in sorted(tags - {DATA}))
    wanted = f"one of those at {worker.id} ({offered or 'there are none: see add_dataset'})"
    raise UnusableSetting("dataset_key", wanted, repr(key))


# A torch.Tensor.  Type checkers cannot know of the methods that the hook adds to it.
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
