"""What messages in bulk save: groups of operations, and what is known at the other worker."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

import syft as sy
from benchmarks.recording import Amount, Ratio

# A torch.Tensor.  Type checkers cannot know of the methods that the hook adds to it.
Tensor = Any


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


def _small_tensors() -> list[Tensor]:
    return [torch.randn(10) for _ in range(10_000)]


def bench_sending_small_tensors(ratio: Ratio, amount: Amount, bob: sy.VirtualWorker) -> None:
    """Ten thousand tensors of ten floats in one message, against a copy of each."""
    values, pointers = _small_tensors(), list[Tensor]()

    def send() -> None:
        pointers[:] = sy.send_all(values, bob)

    ratio(
        "send_all of 10,000 tensors of 10 floats / clone of each",
        subject=send,
        before_subject=pointers.clear,
        floor=lambda: [value.clone() for value in values],
        at_most=8,
        earlier="-",
    )
    with sy.trace() as trace:
        sy.get_all(sy.send_all(values, bob))
    sent = [line for line in trace if line.receiver == "bob"]
    amount("10,000 tensors sent and fetched: messages", len(sent), at_most=2, earlier="20,000")


def bench_fetching_small_tensors(ratio: Ratio, bob: sy.VirtualWorker) -> None:
    """The same on the way back; what is fetched stays, to be fetched again."""
    values = _small_tensors()
    pointers = sy.send_all(values, bob)
    ratio(
        "get_all of 10,000 tensors of 10 floats / clone of each",
        subject=lambda: sy.get_all(pointers, keep=True),
        floor=lambda: [value.clone() for value in values],
        at_most=8,
        earlier="-",
    )


def bench_module_messages(amount: Amount, bob: sy.VirtualWorker) -> None:
    """A module of 200 parameters, there and back."""
    model: Any = nn.Sequential(*(nn.Linear(3, 3) for _ in range(100)))
    with sy.trace() as trace:
        model.send(bob)
        model.get()
    sent = [line for line in trace if line.receiver == "bob"]
    amount(
        "a module of 200 parameters, there and back: messages", len(sent), at_most=2, earlier="400"
    )


def bench_state_dict_messages(amount: Amount, bob: sy.VirtualWorker) -> None:
    """The state_dict of a remote module of 200 parameters, and its values."""
    model: Any = nn.Sequential(*(nn.Linear(3, 3) for _ in range(100)))
    model.send(bob)
    with sy.trace() as trace, bob.group():
        state = model.state_dict()
    name = "state_dict() of 200 remote parameters in a group: messages"
    amount(name, sum(line.receiver == "bob" for line in trace), at_most=1, earlier="200")
    with sy.trace() as trace:
        sy.get_all(state)
    name = "get_all of that state_dict: messages"
    amount(name, sum(line.receiver == "bob" for line in trace), at_most=1, earlier="200")


def bench_constants(amount: Amount, bob: sy.VirtualWorker) -> None:
    """A constant that is at the worker already."""
    x: Tensor = torch.randn(10_000)
    first = x.send(bob, id=sy.ids.content)
    with sy.trace() as trace:
        second = x.send(bob, id=sy.ids.content)
    name = "sending 40 kB again under its content: bytes"
    amount(name, trace.nbytes, at_most=100, earlier="40 kB")
    del first, second
