"""What ``worker.fit``, ``async_fit`` and ``evaluate`` do: the caller drives a loop over plans.

So the worker needs to trust nothing but plans, and an answer that is late never stops what follows:
some steps are under way at any time, and only the end of an epoch is waited for.  The loop is a
generator of what it waits for; a plain call runs it through, and a coroutine leaves turns between.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import torch

from syft.chain.wrapper import Wrapper
from syft.exceptions import PermissionDenied, UnusableSetting
from syft.federated.fit_progress import FitProgress, TrainingBar
from syft.federated.sent_training import SentTraining, dataset_at
from syft.hooks import bulk
from syft.workers.client.handles import Handle
from syft.workers.shells.training_calls import OnProgress, Trainer, TrainingCalls

# A torch.Tensor.  Type checkers cannot know of the methods that the hook adds to it.
Tensor = Any

_UNDER_WAY: Final = 32
"""How many steps may be on their way, or waiting at the worker, at any time."""


class Fit:
    """One fit under way: the steps of some epochs at one worker.

    >>> config = sy.TrainConfig(model=torch.nn.Linear(2, 2), loss_fn=torch.nn.MSELoss()).send(bob)
    >>> bob.add_dataset(sy.BaseDataset(torch.eye(2), torch.eye(2)), key="same")
    >>> fit = Fit(bob, "same", None, None)
    >>> waited_for = [handle.done() for handle in fit.steps()]
    >>> fit.loss.shape
    torch.Size([])
    """

    def __init__(self, worker: Any, key: str, user: str | None, report: OnProgress | None) -> None:
        self.training = SentTraining.at(worker)
        # Objects of the caller's own over the owner's memory: a step may set their gradients.
        self.data, self.targets = (tensor.detach() for tensor in dataset_at(worker, key))
        self.loss: Tensor = None
        """The loss of the last step, when all are done."""
        self._user = user
        self._report: OnProgress = TrainingBar() if report is None else report

    def steps(self) -> Iterator[Handle]:
        """Train; what is given is to be waited for, or not, before it goes on."""
        training = self.training
        step = training.step_at(self.data, self.targets)
        orders = [each for each in training.orders(_rows(self.data)) if len(each)]
        size = training.settings.batches.batch_size
        batches = sum(-(-len(order) // size) for order in orders)
        self._progress = FitProgress(training.worker.id, batches, len(orders))
        last: Tensor = None
        for number, order in enumerate(orders, start=1):
            self._progress = replace(self._progress, epoch=number)
            (total,) = training.sent([torch.zeros(())])
            under_way: deque[Handle] = deque()
            for rows in training.sent_rows(order):
                last, total = step(self.data, self.targets, rows, total)
                under_way.append(last.child.handle)
                yield from self._done(under_way, _UNDER_WAY)
            yield from self._done(under_way, 0)
            mean = yield from self._read(total / len(order))
            training.losses.append(mean)
            seen = None if type(mean) is Wrapper else mean
            self._progress = replace(self._progress, loss=seen)
        self.loss = yield from self._read(last)

    def _done(self, under_way: deque[Handle], most: int) -> Iterator[Handle]:
        """Wait until no more steps are under way, and say of each that it is done."""
        while len(under_way) > most:
            handle = under_way.popleft()
            yield handle
            handle.wait()
            self._progress = replace(self._progress, batch=self._progress.batch + 1)
            self._report(self._progress)

    def _read(self, pointer: Tensor) -> Any:
        """A value, or the pointer to it where the user may not read it."""
        handle = pointer.get(user=self._user, wait=False)
        yield handle
        try:
            return handle.result()
        except PermissionDenied:
            return pointer


class PlanTrainer(Trainer):
    """Trains by plans at the worker; there is one for all workers.

    >>> isinstance(bob.trainer, PlanTrainer)
    True
    """

    def fit(self, worker: Any, key: str, user: str | None, report: OnProgress | None) -> Any:
        """Train, and return the loss of the last step."""
        fit = Fit(worker, key, user, report)
        deque(fit.steps(), maxlen=0)
        return fit.loss

    async def async_fit(
        self, worker: Any, key: str, user: str | None, report: OnProgress | None
    ) -> Any:
        """The same, leaving turns to other coroutines."""
        fit = Fit(worker, key, user, report)
        for handle in fit.steps():
            with contextlib.suppress(Exception):  # raised by what goes on
                await handle
            await asyncio.sleep(0)
        return fit.loss

    def evaluate(self, worker: Any, key: str, user: str | None, **wanted: Any) -> dict[str, Any]:
        """Measure the model as it is now."""
        training = SentTraining.at(worker)
        data, targets = dataset_at(worker, key)
        count = _rows(data)
        score, there = training.score_at(data, targets)
        if wanted["histograms"] and not score.classes:
            raise UnusableSetting("return_histograms", "False: the targets are no labels", "True")
        state = training.state_there()
        sums = training.sent(score.nothing())
        for rows in training.sent_rows(torch.arange(count)):
            sums = there(data, targets, rows, *sums, *state)
        total, right, predicted, present = bulk.get_all(sums, user)
        found: dict[str, Any] = {"loss": total / count} if wanted["loss"] else {}
        if wanted["accuracy"]:
            found["nr_predictions"] = count
            if score.classes:
                found["nr_correct_predictions"] = int(right)
        if wanted["histograms"]:
            bins = score.classes if wanted["bins"] < 0 else wanted["bins"]
            found["histogram_predictions"] = predicted[:bins]
            found["histogram_target"] = present[:bins]
        return found


def _rows(data: Tensor) -> int:
    """How many samples there are; raises :class:`~syft.exceptions.UnusableSetting` for none."""
    rows = len(data)
    if not rows:
        raise UnusableSetting("dataset_key", "that of one sample or more", "that of none")
    return rows


TrainingCalls.trainer = PlanTrainer()
