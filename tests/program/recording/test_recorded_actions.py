"""Recorded actions become those of a program without those that nothing needs."""

from __future__ import annotations

from typing import Any

from syft.ops.table import BY_NAME
from syft.program.held_actions import HeldAction
from syft.program.program import Slot, numbered
from syft.program.recording.environment.source_line import SourceLine
from syft.program.recording.recorded_actions import with_expectations_first, without_unread


def recorded(name: str, *args: Any, out: Any = None) -> HeldAction:
    return HeldAction(BY_NAME[name], args, {}, out, None, SourceLine("train.py", 1), None)


def test_an_action_that_only_reads_is_dropped_with_what_it_needs() -> None:
    x, rows, double, count = map(Slot, range(4))
    shape = recorded("torch.Tensor.shape.__get__", x, out=(rows,))
    mul = recorded("syft.ops.numbers.mul", rows, 2, out=double)
    numel = recorded("torch.Tensor.numel", x, out=count)
    add = recorded("torch.Tensor.add_", x, count)
    assert without_unread([shape, mul, numel, add], x, set()) == [numel, add]


def test_an_action_that_only_reads_is_kept_for_the_outputs() -> None:
    x, rows = Slot(0), Slot(1)
    shape = recorded("torch.Tensor.shape.__get__", x, out=(rows, None))
    read: set[int] = set()
    assert without_unread([shape], {"rows": [rows]}, read) == [shape]
    assert read == {x.index, rows.index}


def test_slots_are_numbered_in_the_order_of_the_actions() -> None:
    x, values, indices, last = (Slot(number << 32 | 7) for number in range(4))
    sort = recorded("torch.sort", x, out=(values, (None, indices)))
    add = recorded("torch.add", [values, indices], out=last)
    zero = recorded("torch.Tensor.zero_", x)
    actions, moved = numbered([x.index], [sort, zero, add], {})
    assert actions[0].out == (Slot(1), (None, Slot(2)))
    assert actions[2].args == ([Slot(1), Slot(2)],) and actions[2].out == Slot(3)
    assert moved[x.index] == Slot(0)


def test_a_size_after_a_change_of_its_tensor_is_expected_where_it_is_read() -> None:
    """What a program changes may have another size by then, so nothing is known of it before."""
    x, y, before, after, other = map(Slot, range(5))
    resize = recorded("torch.Tensor.resize_", x, 4)
    reads = [
        recorded("torch.Tensor.numel", one, out=size)
        for one, size in ((x, before), (x, after), (y, other))
    ]
    expected = [
        recorded("syft.ops.numbers.expect", "same", size, 4, True)
        for size in (before, after, other)
    ]
    actions = [reads[0], expected[0], resize, reads[1], expected[1], reads[2], expected[2]]
    first = [reads[0], expected[0], reads[2], expected[2]]
    rest = [resize, reads[1], expected[1]]
    assert with_expectations_first(actions, [x, y]) == first + rest
