"""A training at one worker: the plan that is there, the state that it trains, and its losses.

The plan is recorded when the first data set is known, because a recording needs to know what a
batch looks like; what is trained is the model as it was when the configuration was sent.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import torch
from torch import nn

from syft.exceptions import UnusableSetting
from syft.federated.local_batches import LocalBatches, seed_of
from syft.federated.training_plans import Loss, ScorePlan, example_batch, state_of, step_plan
from syft.hooks import bulk
from syft.plans.building.script_module import UnpackedScript, as_python
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
    if not isinstance(model, UnpackedScript):
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
