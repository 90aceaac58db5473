"""``fit`` and ``evaluate`` of a worker, and their asynchronous forms: the calls, which another room
carries out.

How a model is trained is not a worker's to know: the caller drives the loop with plans, and a
worker at the other end sees nothing but them.  The room of federated learning puts its trainer here
when it is imported.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from syft.workers.client.handles import Handle

OnProgress = Callable[[Any], object]
"""Is called with a :class:`~syft.federated.fitting.FitProgress` after each step."""


T = TypeVar("T")

Steps = Generator[Handle, None, T]
"""Work at a worker that the caller drives: it gives what it is about to wait for, and returns the
result."""


@dataclass(frozen=True)
class Wanted:
    """What a measurement is to give.

    >>> Wanted(loss=True, accuracy=True, histograms=False, bins=-1).loss
    True
    """

    loss: bool
    accuracy: bool
    histograms: bool
    bins: int
    """How many labels a histogram has; all of them if this is negative."""


class Trainer(ABC):
    """What carries out the training calls of a worker. Abstract.

    >>> sorted(Trainer.__abstractmethods__)
    ['evaluate', 'fit']
    """

    @abstractmethod
    def fit(self, worker: Any, key: str, user: str | None, report: OnProgress | None) -> Steps[Any]:
        """Train; the steps return the loss of the last one."""

    @abstractmethod
    def evaluate(
        self, worker: Any, key: str, user: str | None, wanted: Wanted
    ) -> Steps[dict[str, Any]]:
        """Measure the model as it is now; the steps return what was measured."""


Trains = TypeVar("Trains", bound=Trainer)


def _run(steps: Steps[T]) -> T:
    """The result of steps that wait themselves for what they give."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


async def _run_in_turns(steps: Steps[T]) -> T:
    """The same, leaving turns to other coroutines."""
    while True:
        try:
            handle = next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        with contextlib.suppress(Exception):  # raised by what goes on
            await handle
        await asyncio.sleep(0)


class TrainingCalls:
    """Training what was sent by ``sy.TrainConfig(...).send(worker)``; part of every worker."""

    trainer: ClassVar[Trainer]
    """What carries the calls out."""

    def fit(
        self,
        dataset_key: str,
        return_ids: Iterable[int] | None = None,
        *,
        user: str | None = None,
        on_progress: OnProgress | None = None,
    ) -> Any:
        """Train the model of the ``sy.TrainConfig`` that was sent here on a data set of the
        worker; returns the loss of the last step.

        The data set is two tensors there with the tags ``#data`` and ``#target`` and that of the
        key: what the owner gave to ``add_dataset``, or whatever else is tagged so.  The training
        step travels once, as a plan, when the first data set is known; then each step is a message
        of a few dozen bytes.  Another call goes on with the model and optimizer as they are there.

        The loss is a tensor here.  Of private data it may be read on behalf of ``user`` alone;
        otherwise a pointer to it is returned, and training goes on all the same.
        ``on_progress`` is called after each step that is done; without it a line on the terminal
        (or in a notebook) shows what takes over a second, unless the environment says
        ``SYFT_PROGRESS=0``.  ``return_ids`` is taken for programs written for earlier versions.

        Raises :class:`~syft.exceptions.UnusableSetting` if no configuration was sent (or it is
        gone: keep the ``TrainConfig``), and for a key that the worker does not offer, with those
        that it does; :class:`~syft.exceptions.CannotRecord` for a model that no plan can keep;
        :class:`~syft.exceptions.PlansNotAllowed` if the owner of the worker lets nobody run plans;
        and what the step raises at the worker.

        >>> bob.add_dataset(sy.BaseDataset(torch.eye(2), torch.tensor([[1.0], [0.0]])), key="xor")
        >>> model, loss = torch.nn.Linear(2, 1), torch.nn.MSELoss()
        >>> config = sy.TrainConfig(model=model, loss_fn=loss, batch_size=2, epochs=30).send(bob)
        >>> first = bob.fit(dataset_key="xor")
        >>> bool(bob.fit(dataset_key="xor") < first)
        True
        """
        return _run(self.trainer.fit(self, dataset_key, user, on_progress))

    async def async_fit(
        self,
        dataset_key: str,
        return_ids: Iterable[int] | None = None,
        *,
        user: str | None = None,
        on_progress: OnProgress | None = None,
    ) -> Any:
        """:meth:`fit`, for several workers at the same time: ``await asyncio.gather(...)`` in one
        event loop.

        >>> import asyncio
        >>> configs = []
        >>> for worker in (bob, alice):
        ...     worker.add_dataset(sy.BaseDataset(torch.eye(2), torch.eye(2)), key="same")
        ...     config = sy.TrainConfig(model=torch.nn.Linear(2, 2), loss_fn=torch.nn.MSELoss())
        ...     configs.append(config.send(worker))
        >>> async def both():
        ...     return await asyncio.gather(*(each.async_fit("same") for each in (bob, alice)))
        >>> [loss.shape for loss in asyncio.run(both())]
        [torch.Size([]), torch.Size([])]
        """
        return await _run_in_turns(self.trainer.fit(self, dataset_key, user, on_progress))

    def evaluate(
        self,
        dataset_key: str,
        return_histograms: bool = False,
        nr_bins: int = -1,
        return_loss: bool = True,
        return_raw_accuracy: bool = True,
        *,
        user: str | None = None,
    ) -> dict[str, Any]:
        """Measure the model of the ``sy.TrainConfig`` that was sent here, as trained so far, on a
        data set of the worker; the data stays there.

        Gives a dictionary: ``"loss"``, the mean over the samples; ``"nr_correct_predictions"`` and
        ``"nr_predictions"``, if the targets are labels and the model gives a number for each class;
        with ``return_histograms`` ``"histogram_predictions"`` and ``"histogram_target"``, how often
        each of the first ``nr_bins`` labels (by default, of all classes) occurs.

        Raises what :meth:`fit` does, and :class:`~syft.exceptions.PermissionDenied` if the results
        are private and ``user`` may not read them.

        >>> bob.add_dataset(sy.BaseDataset(torch.eye(2), torch.arange(2)), key="two")
        >>> model, loss = torch.nn.Softmax(1), torch.nn.CrossEntropyLoss()
        >>> model.weight = torch.nn.Parameter(torch.ones(1))
        >>> config = sy.TrainConfig(model=model, loss_fn=loss).send(bob)
        >>> bob.evaluate(dataset_key="two", return_loss=False)
        {'nr_predictions': 2, 'nr_correct_predictions': 2}
        """
        wanted = Wanted(return_loss, return_raw_accuracy, return_histograms, nr_bins)
        return _run(self.trainer.evaluate(self, dataset_key, user, wanted))

    async def async_evaluate(
        self,
        dataset_key: str,
        return_histograms: bool = False,
        nr_bins: int = -1,
        return_loss: bool = True,
        return_raw_accuracy: bool = True,
        *,
        user: str | None = None,
    ) -> dict[str, Any]:
        """:meth:`evaluate`, for several workers at the same time, as :meth:`async_fit` is.

        >>> import asyncio
        >>> bob.add_dataset(sy.BaseDataset(torch.eye(2), torch.arange(2)), key="two")
        >>> model, loss = torch.nn.Linear(2, 2), torch.nn.CrossEntropyLoss()
        >>> config = sy.TrainConfig(model=model, loss_fn=loss).send(bob)
        >>> asyncio.run(bob.async_evaluate("two"))["nr_predictions"]
        2
        """
        wanted = Wanted(return_loss, return_raw_accuracy, return_histograms, nr_bins)
        return await _run_in_turns(self.trainer.evaluate(self, dataset_key, user, wanted))


def trained_by(kind: type[Trains]) -> type[Trains]:
    """Have the decorated class of trainers carry out the training calls of all workers."""
    TrainingCalls.trainer = kind()
    return kind
