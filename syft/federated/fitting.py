"""What ``worker.fit`` and ``worker.evaluate`` do: the caller drives a loop over plans.

So the worker needs to trust nothing but plans, and an answer that is late never stops what follows:
some steps are under way at any time, and only the end of an epoch is waited for.  The loop is a
generator of what it waits for; a plain call runs it through, and a coroutine (``async_fit``,
``async_evaluate``) leaves turns between.

How far a fit is: what a callback gets, and the line that is shown without one.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import torch

from syft.chain.wrapper import Wrapper
from syft.exceptions import PermissionDenied, UnusableSetting
from syft.federated.sent_training import SentTraining, dataset_at
from syft.hooks import bulk
from syft.status_line import PAUSE, SHOWN_AFTER, StatusLine, bar, is_wanted
from syft.workers.client.handles import Handle
from syft.workers.shells.training_calls import OnProgress, Steps, Trainer, Wanted, trained_by

# A torch.Tensor.  Type checkers cannot know of the methods that the hook adds to it.
Tensor = Any

_UNDER_WAY: Final = 32
"""How many steps may be on their way, or waiting at the worker, at any time."""


class StepsUnderWay:
    """The steps that a worker was asked for and that nobody has waited for yet.

    >>> done = []
    >>> under_way = StepsUnderWay(lambda: done.append(True))
    >>> under_way.add(torch.ones(2).send(bob) + 1)
    >>> waited_for = list(under_way.but_for(0))
    >>> done
    [True]
    """

    def __init__(self, done: Callable[[], None] = lambda: None) -> None:
        self._handles: deque[Handle] = deque()
        self._done = done

    def add(self, pointer: Tensor) -> None:
        """Take in the step that makes what a pointer points to."""
        self._handles.append(pointer.child.handle)

    def but_for(self, most: int) -> Iterator[Handle]:
        """Wait until no more are under way, and say of each that it is done.

        Steps that are done already are told of too: at a virtual worker each of them, so that it is
        seen how far that is.
        """
        handles = self._handles
        while len(handles) > most or (handles and handles[0].done()):
            handle = handles.popleft()
            yield handle
            handle.wait()
            self._done()


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

    def steps(self) -> Steps[Any]:
        """Train; what is given is to be waited for, or not, before it goes on. Returns the loss of
        the last step."""
        training = self.training
        step = training.step_at(self.data, self.targets)
        orders = [each for each in training.orders(_rows(self.data)) if len(each)]
        size = training.settings.batches.batch_size
        batches = sum(-(-len(order) // size) for order in orders)
        self._progress = FitProgress(training.worker.id, batches, len(orders))
        under_way = StepsUnderWay(self._step_done)
        last: Tensor = None
        for number, order in enumerate(orders, start=1):
            self._progress = replace(self._progress, epoch=number)
            (total,) = training.sent([torch.zeros((), device="cpu")])
            for rows in training.sent_rows(order):
                last, total = step(self.data, self.targets, rows, total)
                under_way.add(last)
                yield from under_way.but_for(_UNDER_WAY)
            yield from under_way.but_for(0)
            mean = yield from self._read(total / len(order))
            training.losses.append(mean)
            seen = None if type(mean) is Wrapper else mean
            self._progress = replace(self._progress, loss=seen)
        self.loss = yield from self._read(last)
        return self.loss

    def _step_done(self) -> None:
        self._progress = replace(self._progress, batch=self._progress.batch + 1)
        self._report(self._progress)

    def _read(self, pointer: Tensor) -> Steps[Any]:
        """A value, or the pointer to it where the user may not read it."""
        handle = pointer.get(user=self._user, wait=False)
        yield handle
        try:
            return handle.result()
        except PermissionDenied:
            return pointer


@trained_by
class PlanTrainer(Trainer):
    """Trains by plans at the worker; there is one for all workers.

    >>> isinstance(bob.trainer, PlanTrainer)
    True
    """

    def fit(self, worker: Any, key: str, user: str | None, report: OnProgress | None) -> Steps[Any]:
        """Train; the steps return the loss of the last one."""
        return Fit(worker, key, user, report).steps()

    def evaluate(
        self, worker: Any, key: str, user: str | None, wanted: Wanted
    ) -> Steps[dict[str, Any]]:
        """Measure the model as it is now; the steps return what was measured."""
        training = SentTraining.at(worker)
        data, targets = dataset_at(worker, key)
        count = _rows(data)
        score, there = training.score_at(data, targets)
        if wanted.histograms and not score.classes:
            raise UnusableSetting("return_histograms", "False: the targets are no labels", "True")
        state = training.state_there()
        sums = training.sent(score.nothing())
        under_way = StepsUnderWay()
        for rows in training.sent_rows(torch.arange(count, device="cpu")):
            sums = there(data, targets, rows, *sums, *state)
            under_way.add(sums[0])
            yield from under_way.but_for(_UNDER_WAY)
        yield from under_way.but_for(0)
        total, right, predicted, present = bulk.get_all(sums, user)
        found: dict[str, Any] = {"loss": total / count} if wanted.loss else {}
        if wanted.accuracy:
            found["nr_predictions"] = count
            if score.classes:
                found["nr_correct_predictions"] = int(right)
        if wanted.histograms:
            bins = score.classes if wanted.bins < 0 else wanted.bins
            found["histogram_predictions"] = predicted[:bins]
            found["histogram_target"] = present[:bins]
        return found


def _rows(data: Tensor) -> int:
    """How many samples there are; raises :class:`~syft.exceptions.UnusableSetting` for none."""
    rows = len(data)
    if not rows:
        raise UnusableSetting("dataset_key", "that of one sample or more", "that of none")
    return rows


@dataclass(frozen=True, slots=True)
class FitProgress:
    """How far a fit is: ``batch`` of all ``batches`` are done, the last of them in ``epoch``.

    ``loss`` is the mean of the last epoch that is through: None before, and of private data.

    >>> FitProgress("bob", batches=4, epochs=2).batch
    0
    """

    worker: str
    batches: int
    epochs: int
    batch: int = 0
    epoch: int = 1
    loss: torch.Tensor | None = None


class TrainingBar:
    """Shows a fit that takes over a second, in one line; fits at the same time take turns in it.

    >>> progress = FitProgress("bob", batches=4, epochs=2, batch=1, loss=torch.tensor(0.5))
    >>> TrainingBar.text(progress, seconds=3.0)
    'bob: epoch 1 of 2 [######..................] 25 %, loss 0.5, 9 s left'
    """

    _line: ClassVar[StatusLine] = StatusLine()

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since = clock()
        self._next = self._since + SHOWN_AFTER
        self._shown = False

    def __call__(self, progress: FitProgress) -> None:
        """Show how far it is, if it is time to."""
        now, ends = self._clock(), progress.batch == progress.batches
        if (now < self._next and not (ends and self._shown)) or not is_wanted():
            return
        self._next, self._shown = now + PAUSE, True
        self._line.write(self.text(progress, now - self._since), "\n" if ends else "")

    @staticmethod
    def text(progress: FitProgress, seconds: float) -> str:
        """The line, after so many seconds."""
        done, whole = progress.batch, progress.batches
        loss = "" if progress.loss is None else f", loss {progress.loss.item():.4g}"
        left = f", {(whole - done) * seconds / done:.0f} s left" if 0 < done < whole else ""
        head = f"{progress.worker}: epoch {progress.epoch} of {progress.epochs}"
        return f"{head} {bar(done / whole)}{loss}{left}"
