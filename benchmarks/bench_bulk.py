"""What messages in bulk save: groups of operations, and what is known at the other worker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import syft as sy
from benchmarks.recording import Amount, Ratio

# A torch.Tensor.  Type checkers cannot know of the methods that the hook adds to it.
Tensor = Any


@pytest.fixture
def bob() -> Iterator[sy.VirtualWorker]:
    """A worker in this process that answers at once."""
    hook = sy.TorchHook(torch)
    yield sy.VirtualWorker(hook, id="bob")
    hook.close()


def twenty(x: Tensor, y: Tensor, factor: float) -> Tensor:
    """Twenty operations, ten of them with a float."""
    for _ in range(10):
        x = x * factor + y
    return x


def grouped(bob: sy.VirtualWorker, x: Tensor, y: Tensor, factor: float) -> Tensor:
    """The same, held back and sent together."""
    with bob.group():
        return twenty(x, y, factor)


def bench_group_messages(amount: Amount, bob: sy.VirtualWorker) -> None:
    """A repeated group is one message: its number, and the ids and floats that differ."""
    x: Tensor = torch.tensor([1.0, 2.0])
    p, q = x.send(bob), x.send(bob)
    kept = grouped(bob, p, q, 0.5)
    name = "20 pointer ops in a repeated group"
    for what, factor in (("", 0.5), (", all floats new", 0.7)):
        with sy.trace() as trace:
            kept = grouped(bob, p, q, factor)
        sent = [line for line in trace if line.receiver == "bob"]
        amount(f"{name}{what}: messages", len(sent), at_most=1, earlier="20")
        size = sum(line.nbytes for line in sent)
        amount(f"{name}{what}: bytes", size, at_most=200, earlier="over 2000")
    del kept


def bench_constant_in_a_group(amount: Amount, bob: sy.VirtualWorker) -> None:
    """A tensor that is sent in each turn of a group travels once."""
    x: Tensor = torch.randn(1000)
    sizes = []
    for _ in range(2):
        with sy.trace() as trace, bob.group():
            y = x.send(bob) * 2
        sizes.append(trace[0].nbytes)
    amount("a 4 kB tensor sent in a repeated group: bytes", sizes[1], at_most=100, earlier="4 kB")
    del y


def bench_group_time(ratio: Ratio, bob: sy.VirtualWorker) -> None:
    """Held back and sent together, against one message each: both in this process."""
    x: Tensor = torch.tensor([1.0, 2.0])
    p, q = x.send(bob), x.send(bob)
    ratio(
        "20 pointer ops in a repeated group / the same one by one",
        subject=lambda: grouped(bob, p, q, 0.5),
        floor=lambda: twenty(p, q, 0.5),
        at_most=1.5,
        earlier="-",
        seconds=4,
    )


def bench_constants(amount: Amount, bob: sy.VirtualWorker) -> None:
    """A constant that is at the worker already."""
    x: Tensor = torch.randn(10_000)
    first = x.send(bob, id=sy.ids.content)
    with sy.trace() as trace:
        second = x.send(bob, id=sy.ids.content)
    name = "sending 40 kB again under its content: bytes"
    amount(name, trace.nbytes, at_most=100, earlier="40 kB")
    del first, second
