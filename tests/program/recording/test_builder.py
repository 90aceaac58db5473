"""A builder gives values slots, and completes the program."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from enum import StrEnum
from http import HTTPStatus
from typing import Any

import numpy as np
import pytest
import torch

from syft.exceptions import CannotRecord
from syft.program.recording.builder import ProgramBuilder
from syft.program.held_actions import HeldAction
from syft.ops.table import BY_NAME
from syft.program.program import Slot
from syft.program.recording.environment.source_line import SourceLine

LINE = SourceLine("train.py", 1)


def add(builder: ProgramBuilder, name: str, *args: Any, out: Any = None) -> HeldAction:
    action = HeldAction(BY_NAME[name], args, {}, out, None, LINE, None)
    builder.actions.append(action)
    return action


def test_values_are_known_by_identity() -> None:
    builder, x, y = ProgramBuilder(0), torch.ones(2), torch.ones(2)
    first, second = builder.add_input(x), builder.bind(y)
    assert builder.operand({"a": (x, [y, slice(x, 1)])})["a"][0] is first
    assert builder.slot_of(x) is first and builder.slot_of(y) is second
    assert builder.slot_of(torch.ones(2)) is None
    assert builder.bind(y) is builder.slot_of(y) is not second


def test_operands_of_other_classes_are_converted_as_their_base() -> None:
    Pair = namedtuple("Pair", "one two")
    builder, x = ProgramBuilder(0), torch.ones(2)
    slot = builder.add_input(x)
    pair = builder.operand(Pair(x, OrderedDict(x=x)))
    assert type(pair) is Pair and pair == (slot, {"x": slot})
    assert builder.operand(torch.Size([2])) == (2,)
    values = [np.float64(0.5), HTTPStatus.OK, StrEnum("Kind", "A").A]  # type: ignore[call-overload]
    assert all(builder.operand(value) is value for value in values)


def test_slots_are_numbered_given_first() -> None:
    builder, x, held = ProgramBuilder(0), torch.ones(2), torch.ones(2)
    slot = builder.add_input(x)
    total = builder.new_slot()
    add(builder, "torch.add", slot, builder.operand(held), out=total)
    builder.given += [snapshot.slot for snapshot in builder.snapshots]
    program = builder.program([total, {"n": 3}], constants=(held,))
    assert program.inputs == 1 and program.outputs == [Slot(2), {"n": 3}]
    assert program.actions[0].args == (Slot(0), Slot(1))
    assert program.lines == ("train.py:1",)


def test_an_action_of_the_prelude_is_kept_only_if_what_it_serves_is() -> None:
    for used in (True, False):
        builder = ProgramBuilder(0)
        weight = builder.add_input(torch.ones(2))
        grad = builder.new_slot()
        add(builder, "torch.Tensor.grad.__get__", weight, out=grad)
        ensure = HeldAction(
            BY_NAME["syft.ops.control.ensure_grad"], (weight,), {}, None, None, LINE, None
        )
        program = builder.program(grad if used else None, prelude=[(ensure, [grad])])
        assert len(program.actions) == (2 if used else 0)


def test_writes_to_shared_memory_mark_all_tensors_of_it() -> None:
    builder, whole = ProgramBuilder(0), torch.ones(2, 2)
    row, other = whole[0], torch.ones(2)
    for tensor in (whole, other):
        builder.operand(tensor)
    builder.mark_written(row)
    late = whole[1]
    builder.operand(late)
    written = {id(snapshot.tensor): snapshot.is_written for snapshot in builder.snapshots}
    assert written == {id(whole): True, id(other): False, id(row): True, id(late): True}
    whole.add_(1)
    builder.restore()
    assert whole.eq(1).all()


def test_what_is_no_operand_is_refused() -> None:
    with pytest.raises(CannotRecord, match="an operand of the type builtins.object"):
        ProgramBuilder(0).operand([object()])
