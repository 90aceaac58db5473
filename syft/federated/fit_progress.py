"""How far a fit is: what a callback gets, and the line that is shown without one."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch

from syft.status_line import PAUSE, SHOWN_AFTER, StatusLine, bar, is_wanted


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
