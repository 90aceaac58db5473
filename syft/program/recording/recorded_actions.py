"""What is left out of recorded actions, and which come first, before they become a program."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from syft.ops.nested import SCALAR_TYPES
from syft.ops.table import BY_NAME, FLAGS, METADATA, may_alter
from syft.program.held_actions import HeldAction
from syft.program.program import Program, Slot, slots_in

EXPECT: Final = BY_NAME["syft.ops.numbers.expect"]
OF_SIZES: Final = frozenset(
    number
    for name, number in BY_NAME.items()
    if FLAGS[number] & METADATA or name.startswith("syft.ops.numbers.")
)
"""Ops that read sizes, or compute with numbers and compare them: they have no effects."""
_ONLY_READS: Final = frozenset(
    number
    for name, number in BY_NAME.items()
    if (number in OF_SIZES and number != EXPECT)
    or name.endswith(".__get__")
    or name in ("torch.Tensor.item", "torch.scalar_tensor")
)
"""Ops that make numbers or look something up: dropped if nothing reads the result."""


def without_unread(actions: list[HeldAction], outputs: Any, read: set[int]) -> list[HeldAction]:
    """The actions without those that only read something for a result that nothing reads.

    If there are such actions, the slots that are read are added to ``read``.

    >>> size = HeldAction(BY_NAME["torch.Tensor.dim"], (), {}, Slot(0))
    >>> without_unread([size], None, set()), without_unread([size], size.out, set()) == [size]
    ([], True)
    """
    if not any(action.op in _ONLY_READS for action in actions):
        return actions
    read |= _slots_of(outputs)
    kept = []
    for action in reversed(actions):
        if action.op not in _ONLY_READS or not read.isdisjoint(_slots_of(action.out)):
            for operand in (*action.args, *action.kwargs.values()):
                if type(operand) not in SCALAR_TYPES:
                    read |= _slots_of(operand)
            kept.append(action)
    kept.reverse()
    return kept


def with_expectations_first(actions: list[HeldAction], given: Iterable[Slot]) -> list[HeldAction]:
    """The actions, with those first that expect something of the ``given`` slots alone.

    So a call that goes another way than the recording fails before it has changed anything.

    >>> slot, size = Slot(0), Slot(1)
    >>> add = HeldAction(BY_NAME["torch.Tensor.add_"], (slot, 1), {}, None)
    >>> read = HeldAction(BY_NAME["torch.Tensor.numel"], (slot,), {}, size)
    >>> same = HeldAction(EXPECT, ("same", size, 2, True), {}, None)
    >>> with_expectations_first([add, read, same], [slot]) == [read, same, add]
    True
    """
    if not any(action.op == EXPECT for action in actions):
        return actions
    wanted: set[int] = set()
    first: list[HeldAction] = []
    for action in reversed(_of_given_sizes(actions, given)):
        if action.op == EXPECT or not wanted.isdisjoint(_slots_of(action.out)):
            wanted.update(_slots_of(action.args))
            first.append(action)
    first.reverse()
    chosen = set(map(id, first))
    return first + [action for action in actions if id(action) not in chosen]


def _of_given_sizes(actions: list[HeldAction], given: Iterable[Slot]) -> list[HeldAction]:
    """The actions that compute with sizes and numbers that are there before the program runs."""
    known = {slot.index for slot in given}
    found: list[HeldAction] = []
    for action in actions:
        slots = _slots_of((action.args, action.kwargs))
        if action.op in OF_SIZES and slots <= known:
            found.append(action)
            known |= _slots_of(action.out)
        elif may_alter(action.op, action.kwargs) or _has_program(action):
            known -= slots
    return found


def _slots_of(operand: Any) -> set[int]:
    return {operand.index} if type(operand) is Slot else {one.index for one in slots_in(operand)}


def _has_program(action: HeldAction) -> bool:
    return any(type(operand) is Program for operand in action.args)
