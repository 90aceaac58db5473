"""What a tracer records of single calls, where a whole recording would hide it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from syft.exceptions import CannotRecord
from syft.ops.table import NAMES
from syft.program.recording.symbolic import SymbolicFloat, SymbolicInt, concrete
from syft.program.recording.tracer import Tracer


def names(tracer: Tracer) -> list[str]:
    return [NAMES[action.op] for action in tracer.builder.actions]


def test_a_result_that_is_the_argument_gets_an_object_of_its_own() -> None:
    with Tracer() as tracer:
        x = torch.ones(2)
        y = x.contiguous()
    assert y is not x and y.data_ptr() == x.data_ptr()
    assert names(tracer) == ["torch.ones", "torch.Tensor.contiguous"]
    assert tracer.builder.slot_of(x) is not tracer.builder.slot_of(y)


def test_in_place_operations_have_no_result_of_their_own() -> None:
    with Tracer() as tracer:
        x = torch.ones(2)
        y = x.add_(1)
    assert y is x and tracer.builder.actions[-1].out is None


def test_a_cast_is_recorded_as_such() -> None:
    with Tracer() as tracer:
        x = torch.ones(2)
        assert x.type() == "torch.FloatTensor"
        y = x.type("torch.LongTensor")
    assert y.dtype is torch.int64 and names(tracer) == ["torch.ones", "torch.Tensor.to"]


def test_sizes_of_results_are_symbolic_and_others_are_not() -> None:
    held = torch.ones(3)
    with Tracer() as tracer:
        assert type(held.shape[0]) is int
        made = torch.ones(2).shape[0]
    assert type(made) is SymbolicInt and names(tracer)[-1] == "torch.Tensor.shape.__get__"


def test_numbers_from_tensors_are_greater_in_a_rerun() -> None:
    for rerun in (False, True):
        with Tracer(rerun):
            value = torch.ones(1).item()
        assert type(value) is SymbolicFloat and concrete(value) == 1 + rerun


def test_a_rerun_looks_up_no_lines() -> None:
    for rerun in (False, True):
        with Tracer(rerun) as tracer:
            torch.ones(1)
        assert tracer.builder.actions[0].line.file == ("" if rerun else __file__)


def test_a_refusal_is_remembered() -> None:
    tracer = Tracer()
    with tracer:
        with pytest.raises(CannotRecord) as caught:
            torch.ones(1).numpy()
    error = caught.value
    assert tracer.refusals == [(error.what, error.line, error.instead)]


def test_calls_are_run_and_not_recorded_while_paused() -> None:
    tracer = Tracer()
    with tracer, tracer.paused():
        x: Any = torch.ones(2)
        assert (x + 1).tolist() == [2, 2]
    assert tracer.builder.actions == []
