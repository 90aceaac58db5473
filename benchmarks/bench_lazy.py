"""What it costs to record operations of this process and run them when a value is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import syft as sy
from benchmarks.recording import Amount, Ratio
from syft.tensors.lazy.lazy_trace import TRACE

# A torch.Tensor.  Type checkers cannot know of the methods that the hook adds to it.
Tensor = Any

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def nothing_pending(hook: sy.TorchHook) -> Iterator[None]:
    """Torch knows ``to_lazy``, and the trace is empty."""
    TRACE.pending.clear()
    yield
    TRACE.pending.clear()


def _forget() -> None:
    TRACE.pending.clear()


def bench_record_add(ratio: Ratio) -> None:
    """Recording alone: what was recorded is thrown away between two samples."""
    x: Tensor = torch.ones(4)
    lazy = x.to_lazy()
    ratio(
        "record one add / native add",
        subject=lambda: lazy + lazy,
        floor=lambda: x + x,
        at_most=5,
        earlier="-",
        before_subject=_forget,
    )


def _chain(x: Tensor) -> Tensor:
    for _ in range(50):
        x = x * 1.01 + 0.5
    return x


def bench_chain(ratio: Ratio) -> None:
    """A hundred operations on four numbers, to the value."""
    x: Tensor = torch.ones(4)
    lazy = x.to_lazy()
    ratio(
        "chain of 100 tiny operations, to its value / native",
        subject=lambda: _chain(lazy).to_eager(),
        floor=lambda: _chain(x),
        at_most=4,
        earlier="-",
    )


def lazy_or_not(value: Any, lazy: bool) -> Any:
    """A tensor or a module, made lazy."""
    return value.to_lazy() if lazy else value


class Step:
    """A training step of a perceptron of three layers, and the loss as a number."""

    def __init__(self, width: int, lazy: bool) -> None:
        torch.manual_seed(0)
        layers = [nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()]
        self.model = lazy_or_not(nn.Sequential(*layers, nn.Linear(width, 10)), lazy)
        self.inputs: Any = lazy_or_not(torch.randn(128, 64), lazy)
        self.labels: Any = lazy_or_not(torch.randint(0, 10, (128,)), lazy)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def __call__(self) -> float:
        """One step."""
        self.optimizer.zero_grad()
        loss: Any = F.cross_entropy(self.model(self.inputs), self.labels)
        loss.backward()
        self.optimizer.step()
        return float(loss.item())


@pytest.mark.parametrize(("width", "bar"), [(1024, 1.05), (32, 3)])
def bench_training_step(ratio: Ratio, width: int, bar: float) -> None:
    """Whole training steps, run by the loop."""
    ratio(
        f"training step of a perceptron of width {width}, lazily / native",
        subject=Step(width, lazy=True),
        floor=Step(width, lazy=False),
        at_most=bar,
        earlier="-",
    )


def bench_compiled(ratio: Ratio) -> None:
    """Twenty operations on each of a million numbers, compiled by inductor; and a large step."""
    x: Tensor = torch.randn(1_000_000)
    lazy = x.to_lazy()

    def compute(x: Tensor) -> float:
        for _ in range(9):
            x = x * 1.01 + 0.5
        return x.sin().exp().sum().item()  # type: ignore[no-any-return]

    with sy.lazy(False, backend="inductor"):
        for _ in range(6):
            compute(lazy)
        ratio(
            "20 pointwise operations on a million numbers, compiled / native",
            subject=lambda: compute(lazy),
            floor=lambda: compute(x),
            at_most=0.25,
            earlier="-",
        )
        step, floor = Step(1024, lazy=True), Step(1024, lazy=False)
        for _ in range(6):
            step()
        ratio(
            "training step of a perceptron of width 1024, compiled / native",
            subject=step,
            floor=floor,
            at_most=1.0,
            earlier="-",
        )


def bench_peak_memory(amount: Amount) -> None:
    """The most memory of tensors that lives at once in a step, counted by torch's profiler."""
    peaks = [_peak(Step(512, lazy=lazy)) for lazy in (True, False)]
    name = "peak memory of a lazy training step / native"
    amount(name, peaks[0] / peaks[1], at_most=1.1, earlier="-")


def _peak(step: Callable[[], float]) -> int:
    for _ in range(4):
        step()
    with torch.profiler.profile(profile_memory=True) as profile:
        step()
    now = most = 0
    for event in sorted(profile.profiler.kineto_results.events(), key=lambda one: one.start_ns()):
        if event.name() == "[memory]":
            now += event.nbytes()
            most = max(most, now)
    return most
