"""What a tracer writes down of single calls, where a whole recording would hide it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from syft.exceptions import CannotRecord, FrozenPath
from syft.ops.table import NAMES
from syft.program.recording.symbolic import TracedFloat, TracedInt, plain
from syft.program.recording.tracer import Tracer, warn_frozen


def names(tracer: Tracer) -> list[str]:
    return [NAMES[noted.op] for noted in tracer.draft.noted]


def test_a_result_that_is_the_argument_gets_an_object_of_its_own() -> None:
    with Tracer() as tracer:
        x = torch.ones(2)
        y = x.contiguous()
    assert y is not x and y.data_ptr() == x.data_ptr()
    assert names(tracer) == ["torch.ones", "torch.Tensor.contiguous"]
    assert tracer.draft.place_of(x) is not tracer.draft.place_of(y)


def test_in_place_operations_have_no_result_of_their_own() -> None:
    with Tracer() as tracer:
        x = torch.ones(2)
        y = x.add_(1)
    assert y is x and tracer.draft.noted[-1].out is None


def test_a_cast_is_written_down_as_such() -> None:
    with Tracer() as tracer:
        x = torch.ones(2)
        assert x.type() == "torch.FloatTensor"
        y = x.type("torch.LongTensor")
    assert y.dtype is torch.int64 and names(tracer) == ["torch.ones", "torch.Tensor.to"]


def test_sizes_of_what_is_computed_are_traced_and_others_are_not() -> None:
    held = torch.ones(3)
    with Tracer() as tracer:
        assert type(held.shape[0]) is int
        made = torch.ones(2).shape[0]
    assert type(made) is TracedInt and names(tracer)[-1] == "torch.Tensor.shape.__get__"


def test_numbers_from_tensors_move_the_second_time() -> None:
    for again in (False, True):
        with Tracer(again):
            value = torch.ones(1).item()
        assert type(value) is TracedFloat and plain(value) == 1 + again


def test_the_second_time_no_line_is_looked_up() -> None:
    for again in (False, True):
        with Tracer(again) as tracer:
            torch.ones(1)
        assert tracer.draft.noted[0].line.file == ("" if again else __file__)


def test_a_refusal_is_remembered() -> None:
    tracer = Tracer()
    with tracer:
        with pytest.raises(CannotRecord) as caught:
            torch.ones(1).numpy()
    error = caught.value
    assert tracer.refusals == [(error.what, error.line, error.instead)]


def test_unseen_calls_are_run_and_not_noted() -> None:
    tracer = Tracer()
    with tracer, tracer.unseen():
        x: Any = torch.ones(2)
        assert (x + 1).tolist() == [2, 2]
    assert tracer.draft.noted == []


def test_a_warning_stands_at_the_line_it_names() -> None:
    with pytest.warns(FrozenPath, match="train.py:12: a branch decides") as caught:
        warn_frozen("train.py:12", "a branch")
    assert (caught[0].filename, caught[0].lineno) == ("train.py", 12)
