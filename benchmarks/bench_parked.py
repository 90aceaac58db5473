"""What it costs to start an operation at a worker where others wait for promises."""

from __future__ import annotations

from typing import Any


import syft as sy
from benchmarks.recording import Ratio

# A torch.Tensor.  Type checkers cannot know of the methods that the hook adds to it.
Tensor = Any


class Waiting:
    """A worker with so many parked operations: each on a promise of its own, or in one chain."""

    def __init__(self, hook: sy.TorchHook, count: int, chained: bool) -> None:
        self.hook, self.count, self.chained = hook, count, chained
        self.prepare()

    def prepare(self) -> None:
        """Park the operations at a new worker: those that a sample started must not count."""
        self.worker = sy.VirtualWorker(self.hook, id=f"{self.chained}-{self.count}")
        self.value: Tensor = self.worker.promise()
        self.kept = [self.value]
        for _ in range(self.count):
            if self.chained:
                self.value = self.value.view(-1)
                self.value.add_(1)
            else:
                self.kept.append(self.worker.promise() + 1)

    def renew(self) -> None:
        """Take the worker away, and prepare another one."""
        self.worker.close()
        self.prepare()

    def start(self) -> None:
        """Start one more operation that has to wait, and one that writes to what it waits for."""
        self.kept.append(self.value + 1)
        self.value.add_(1)


def _compare(ratio: Ratio, hook: sy.TorchHook, name: str, chained: bool) -> None:
    many, few = Waiting(hook, 1000, chained), Waiting(hook, 10, chained)
    ratio(
        name,
        subject=many.start,
        floor=few.start,
        before_subject=many.renew,
        before_floor=few.renew,
        at_most=1.5,
        earlier="-",
        seconds=3,
    )


def bench_start_beside_unrelated(ratio: Ratio, hook: sy.TorchHook) -> None:
    """The parked operations have nothing to do with the new ones."""
    _compare(ratio, hook, "a start beside 1,000 parked operations / beside 10", False)


def bench_start_behind_a_chain(ratio: Ratio, hook: sy.TorchHook) -> None:
    """All parked operations view and write the same memory, and the new ones do too."""
    _compare(ratio, hook, "a start behind a chain of 1,000 parked operations / of 10", True)
