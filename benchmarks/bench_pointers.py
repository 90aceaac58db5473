"""What it costs to work on a tensor that lives on another worker of this process."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch

import syft as sy
from syft import c_extension
from benchmarks.memory import FORTY_MEGABYTES, memcpy, resident
from benchmarks.recording import Amount, Ratio
from benchmarks.training import Training, mlp

# A torch.Tensor.  Type checkers cannot know of the methods that the hook adds to it.
Tensor = Any


def bench_pointer_add(ratio: Ratio, bob: sy.VirtualWorker) -> None:
    """One command to another worker and its answer, with nearly no work in it."""
    x: Tensor = torch.tensor([1.0, 2.0])
    pointer = x.send(bob)
    ratio(
        "ptr + ptr / native add, 2 floats",
        subject=lambda: pointer + pointer,
        floor=lambda: x + x,
        at_most=6 if c_extension.EXTENSION is None else 4.5,
        earlier="55-110",
        seconds=4,
    )


def bench_pointer_add_in_python(ratio: Ratio, bob: sy.VirtualWorker) -> None:
    """The same without the extension in C; facts were asked, as in every training."""
    x: Tensor = torch.tensor([1.0, 2.0])
    pointer = x.send(bob)
    assert pointer.dim() == 1
    before = c_extension.use(False)
    ratio(
        "the same without the extension in C, after facts were asked",
        subject=lambda: pointer + pointer,
        floor=lambda: x + x,
        at_most=7,
        earlier="55-110",
        seconds=4,
    )
    c_extension.use(before)


def bench_pointer_add_in_c(ratio: Ratio, bob: sy.VirtualWorker) -> None:
    """What the extension is worth, both ways in turns."""
    if c_extension.EXTENSION is None:
        pytest.skip("the extension in C was not built")
    x: Tensor = torch.tensor([1.0, 2.0])
    pointer = x.send(bob)
    assert pointer.dim() == 1
    ratio(
        "ptr + ptr with the extension in C / without",
        subject=lambda: pointer + pointer,
        floor=lambda: pointer + pointer,
        at_most=0.65,
        earlier="-",
        before_subject=lambda: c_extension.use(True),
        before_floor=lambda: c_extension.use(False),
        seconds=4,
    )
    c_extension.use(True)


def bench_federated_step(ratio: Ratio, bob: sy.VirtualWorker) -> None:
    """Thirty commands and some real work."""
    there, here = Training(mlp(), worker=bob), Training(mlp())
    ratio(
        "federated training step / the same step local",
        subject=there.step,
        floor=here.step,
        at_most=1.5,
        earlier="8",
        seconds=6,
    )


def bench_federated_step_on_one_thread(
    ratio: Ratio, bob: sy.VirtualWorker, one_thread: None
) -> None:
    """The same, with torch on one thread."""
    there, here = Training(mlp(), worker=bob), Training(mlp())
    ratio(
        "the same on one thread",
        subject=there.step,
        floor=here.step,
        at_most=1.5,
        earlier="8",
        seconds=6,
    )


def bench_send_get(ratio: Ratio, bob: sy.VirtualWorker) -> None:
    """Large data there and back, held against memcpy into memory that is there already."""
    x: Tensor = torch.randn(FORTY_MEGABYTES)
    copy = memcpy(x)

    def copy_twice() -> None:
        copy()
        copy()

    ratio(
        "send + get of 40 MB / two memcpy of 40 MB",
        subject=lambda: x.send(bob).get(),
        floor=copy_twice,
        at_most=1.5,
        earlier="over 15",
        seconds=5,
    )


def bench_send_get_against_clone(ratio: Ratio, bob: sy.VirtualWorker) -> None:
    """The same, held against copies that make their own memory, as send and get have to."""
    x: Tensor = torch.randn(FORTY_MEGABYTES)

    def clone_twice() -> None:
        x.clone()
        x.clone()

    ratio(
        "send + get of 40 MB / two x.clone()",
        subject=lambda: x.send(bob).get(),
        floor=clone_twice,
        at_most=1.5,
        earlier="over 15",
        seconds=5,
    )


def bench_many_pointers(amount: Amount, bob: sy.VirtualWorker) -> None:
    """Pointers are made and dropped all the time: nothing of them may stay."""
    x: Tensor = torch.ones(2)
    pointer = x.send(bob)
    for _ in range(10_000):  # what the process needs for good, it has after these
        torch.add(pointer, pointer)
    gc.collect()
    gc.disable()
    before = resident()
    for _ in range(100_000):
        torch.add(pointer, pointer)
    grown = resident() - before
    gc.enable()
    left = bob.objects_count() - 1
    name = "100,000 pointers made and dropped"
    amount(f"{name}: objects left", left, at_most=0, earlier="0")
    amount(f"{name}: memory grown", max(grown, 0) / 1e6, at_most=5, earlier="36 MB", unit="MB")
