"""One run of a function: what comes of it, and that the user's things are as before."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from torch import nn

from syft.exceptions import CannotRecord
from syft.ops.control import RECORDING
from syft.program.recording.trace import trace_function
from syft.program.recording.symbolic import SymbolicInt


def test_the_tensors_from_outside_come_in_order() -> None:
    named, read, learns, written = (torch.full((2,), float(index)) for index in range(4))
    learns.requires_grad_()

    def function(x: torch.Tensor) -> torch.Tensor:
        y = x + read + learns
        written.add_(1)
        return y + named

    trace = trace_function(function, [torch.ones(2)], [named])
    assert trace.captured == (learns, written)
    assert [snapshot.tensor for snapshot in trace.snapshots] == [read, learns, written]
    assert trace.program.state == 3 and len(trace.program.constants) == 1
    assert torch.equal(trace.program.constants[0], read) and trace.program.constants[0] is not read
    assert written.tolist() == [3, 3]


def test_the_function_gets_clones_and_traced_numbers() -> None:
    given: list[Any] = []
    x = torch.ones(2, requires_grad=True)
    trace = trace_function(lambda *values: given.extend(values), [x, 3, 0.5, True, None], [])
    assert torch.equal(given[0], x) and given[0] is not x and given[0].requires_grad
    assert type(given[1]) is SymbolicInt and given[1] == 3 and given[3:] == [True, None]
    assert trace.program.inputs == 5 and trace.result is None
    assert type(given[1] + 1) is int  # it is over


def test_the_second_time_numbers_from_tensors_are_moved() -> None:
    x = torch.tensor([2.0])
    assert trace_function(lambda x: x.item(), [x], []).result == 2
    assert trace_function(lambda x: x.item(), [x], [], rerun=True).result == 3


def test_an_error_of_the_function_leaves_nothing() -> None:
    model = nn.BatchNorm1d(2)
    state = torch.get_rng_state()

    def function(x: torch.Tensor) -> None:
        torch.rand(3)
        model(x)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        trace_function(function, [torch.ones(3, 2)], [])
    assert model.num_batches_tracked is not None and model.num_batches_tracked.item() == 0
    assert model.running_mean is not None and model.running_mean.tolist() == [0, 0]
    assert torch.equal(torch.get_rng_state(), state)
    assert RECORDING.get() is None
    assert type(torch.ones(1).shape[0]) is int


@pytest.mark.parametrize("again", [False, True])
def test_a_refusal_that_the_function_catches_is_raised_again(again: bool) -> None:
    def function(x: torch.Tensor) -> Any:
        try:
            return x.numpy()
        except CannotRecord as error:
            raise ValueError from error

    with pytest.raises(CannotRecord, match="torch.Tensor.numpy"):
        trace_function(function, [torch.ones(2)], [], rerun=again)


def test_nothing_is_kept_alive() -> None:
    made: list[weakref.ref[Any]] = []

    def function(x: torch.Tensor) -> torch.Tensor:
        y = x * x.shape[0]
        made.append(weakref.ref(y))
        return y + 1

    gc.disable()
    try:
        trace_function(function, [torch.ones(2)], [])
        with pytest.raises(CannotRecord):
            trace_function(lambda x: (function(x), x.numpy()), [torch.ones(2)], [])
        assert [ref() for ref in made] == [None, None]
    finally:
        gc.enable()
