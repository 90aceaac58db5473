"""What many objects and many workers cost those who do not use them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import syft as sy
from benchmarks.recording import Amount, Ratio

# A torch.Tensor.  Type checkers cannot know of the methods that the hook adds to it.
Tensor = Any


def holding(hook: sy.TorchHook, count: int) -> sy.VirtualWorker:
    """A worker that holds so many objects, and a private one."""
    worker = sy.VirtualWorker(hook, id=f"holder of {count}")
    private: Tensor = torch.ones(2)
    private = private.private_tensor(["ann"])
    worker.hold(private, *(torch.zeros(2) for _ in range(count)))
    return worker


def backward_at(worker: sy.VirtualWorker) -> Callable[[], None]:
    """A forward and backward pass over public data at a worker."""
    model: Any = nn.Linear(4, 4)
    x: Tensor = torch.ones(8, 4)
    model.send(worker)
    pointer = x.send(worker)
    return lambda: model(pointer).sum().backward()


def bench_backward_among_many(ratio: Ratio, hook: sy.TorchHook) -> None:
    """A backward pass looks at its graph, and not at what else the worker holds."""
    ratio(
        "backward at a worker with 100,000 objects, one private / with 10",
        subject=backward_at(holding(hook, 100_000)),
        floor=backward_at(holding(hook, 10)),
        at_most=1.1,
        earlier="-",
    )


def bench_operations_among_many_workers(ratio: Ratio, hook: sy.TorchHook) -> None:
    """A hundred queued operations and the wait for them: idle workers are not asked for work."""
    x: Tensor = torch.ones(2)
    pointer = x.send(sy.VirtualWorker(hook, id="dan", pipelined=True))
    others: list[sy.VirtualWorker] = []

    def compute() -> None:
        results = [pointer + pointer for _ in range(100)]
        sy.synchronize()
        del results

    def populate() -> None:
        for number in range(len(others), 1000):
            others.append(sy.VirtualWorker(hook, id=f"worker {number}", pipelined=True))

    def depopulate() -> None:
        while others:
            others.pop().close()

    ratio(
        "queued operations with 1,000 workers around / with one",
        subject=compute,
        before_subject=populate,
        floor=compute,
        before_floor=depopulate,
        at_most=1.1,
        earlier="-",
        seconds=4,
    )


MILLION = 10**6


def milliseconds(action: Callable[[], object]) -> float:
    """The median time of an action."""
    taken = []
    for _ in range(15):
        start = time.perf_counter()
        action()
        taken.append(time.perf_counter() - start)
    return 1000 * statistics.median(taken)


def bench_a_million_objects(amount: Amount, bob: sy.VirtualWorker) -> None:
    """A search looks at tagged objects only, and a repr at none."""
    x: Tensor = torch.ones(2)
    bob.core.store.put_all({id: torch.zeros(1) for id in range(MILLION)})
    pointers = [x.tag("#digits").send(bob) for _ in range(3)]
    name = "search by tag among 1,000,000 objects"
    amount(name, milliseconds(lambda: bob.search("#digits")), at_most=1, earlier="-", unit="ms")
    name = "repr of a worker with 1,000,000 objects"
    amount(name, milliseconds(lambda: repr(bob)), at_most=0.1, earlier="-", unit="ms")
    assert len(bob.search("#digits")) == len(pointers)
