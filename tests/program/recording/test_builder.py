"""A draft gives values places, and knows which actions are only there for a result."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from syft.exceptions import CannotRecord
from syft.program.recording.builder import Draft, Noted, Place
from syft.ops.table import BY_NAME
from syft.program.program import Slot
from syft.program.recording.source_line import SourceLine

LINE = SourceLine("train.py", 1)


def note(draft: Draft, name: str, *args: Any, out: Any = None) -> Noted:
    noted = Noted(BY_NAME[name], args, {}, out, None, LINE, None)
    draft.noted.append(noted)
    return noted


def test_values_are_known_by_identity() -> None:
    draft, x, y = Draft(0), torch.ones(2), torch.ones(2)
    first, second = draft.give(x), draft.bind(y)
    assert draft.operand({"a": (x, [y, slice(x, 1)])})["a"][0] is first
    assert draft.place_of(x) is first and draft.place_of(y) is second
    assert draft.knows(y) and not draft.knows(torch.ones(2))
    assert draft.bind(y) is draft.place_of(y) is not second


def test_slots_are_numbered_given_first() -> None:
    draft, x, held = Draft(0), torch.ones(2), torch.ones(2)
    place = draft.give(x)
    total = Place(0)
    note(draft, "torch.add", place, draft.operand(held), out=total)
    draft.given += [snapshot.place for snapshot in draft.snapshots]
    program = draft.program([total, {"n": 3}], constants=(held,))
    assert program.inputs == 1 and program.outputs == [Slot(2), {"n": 3}]
    assert program.actions[0].args == (Slot(0), Slot(1))
    assert program.lines == ("train.py:1",)


def test_what_only_reads_is_dropped_with_what_it_needs() -> None:
    draft = Draft(0)
    x = draft.give(torch.ones(2))
    rows, double, kept = Place(0), Place(0), Place(0)
    note(draft, "torch.Tensor.shape.__get__", x, out=(rows,))
    note(draft, "syft.ops.numbers.mul", rows, 2, out=double)
    note(draft, "torch.Tensor.numel", x, out=kept)
    note(draft, "torch.Tensor.add_", x, kept)
    program = draft.program(x)
    names = [action.name for action in program.actions]
    assert names == ["torch.Tensor.numel", "torch.Tensor.add_"]


def test_an_opening_action_is_there_only_if_what_it_serves_is() -> None:
    for used in (True, False):
        draft = Draft(0)
        weight = draft.give(torch.ones(2))
        grad = Place(0)
        note(draft, "torch.Tensor.grad.__get__", weight, out=grad)
        ensure = Noted(
            BY_NAME["syft.ops.control.ensure_grad"], (weight,), {}, None, None, LINE, None
        )
        program = draft.program(grad if used else None, opening=[(ensure, [grad])])
        assert len(program.actions) == (2 if used else 0)


def test_writes_to_shared_memory_mark_all_who_show_it() -> None:
    draft, whole = Draft(0), torch.ones(2, 2)
    row, other = whole[0], torch.ones(2)
    for tensor in (whole, other):
        draft.operand(tensor)
    draft.write(row)
    late = whole[1]
    draft.operand(late)
    written = {id(snapshot.tensor): snapshot.written for snapshot in draft.snapshots}
    assert written == {id(whole): True, id(other): False, id(row): True, id(late): True}
    whole.add_(1)
    draft.restore()
    assert whole.eq(1).all()


def test_what_is_no_operand_is_refused() -> None:
    with pytest.raises(CannotRecord, match="an operand of the type builtins.object"):
        Draft(0).operand([object()])
