"""Recorded actions, and how they become the actions of a program.

The slots of a program are numbered at the end of a recording: captured tensors (parameters of a
closure, constants) come before the results, and their number is not known earlier.  Until then a
:class:`PendingSlot` stands for each slot.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any, Final

from syft.ops.nested import SCALAR_TYPES, leaves, replace
from syft.ops.table import BY_NAME, FLAGS, METADATA, may_alter
from syft.program.program import Action, Mode, Program, Slot
from syft.program.recording.environment.source_line import SourceLine

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


class PendingSlot:
    """Stands for a slot until the slots are numbered.

    ``scope`` is that of the builder it belongs to.  ``data_dependent`` says that the shape of the
    value follows from values.
    """

    __slots__ = ("scope", "slot", "data_dependent", "is_read")

    def __init__(self, scope: int, data_dependent: bool = False) -> None:
        self.scope = scope
        self.slot: Slot | None = None
        self.data_dependent = data_dependent
        self.is_read = False


class RecordedAction:
    """An action with pending slots, its line, and the optimizer that was taking a step."""

    __slots__ = ("op", "args", "kwargs", "out", "mode", "line", "optimizer")

    def __init__(
        self,
        op: int,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        out: Any,
        mode: Mode | None,
        line: SourceLine,
        optimizer: str | None,
    ) -> None:
        self.op, self.args, self.kwargs, self.out = op, args, kwargs, out
        self.mode, self.line, self.optimizer = mode, line, optimizer


def without_unread(actions: list[RecordedAction], outputs: Any) -> list[RecordedAction]:
    """The actions without those that only read something for a result that nothing reads.

    >>> size = RecordedAction(BY_NAME["torch.Tensor.dim"], (), {}, PendingSlot(0), None, "", None)
    >>> without_unread([size], outputs=None), without_unread([size], size.out) == [size]
    ([], True)
    """
    if not any(action.op in _ONLY_READS for action in actions):
        return actions
    _mark_read(outputs)
    kept = []
    for action in reversed(actions):
        if action.op not in _ONLY_READS or is_read(action.out):
            for operand in (*action.args, *action.kwargs.values()):
                if type(operand) not in SCALAR_TYPES:
                    _mark_read(operand)
            kept.append(action)
    kept.reverse()
    return kept


def _mark_read(operand: Any) -> None:
    if type(operand) is PendingSlot:
        operand.is_read = True
        return
    for leaf in leaves(operand):
        if type(leaf) is PendingSlot:
            leaf.is_read = True


def is_read(pattern: Any) -> bool:
    """Whether :func:`without_unread` found that something reads a slot of a pattern of results."""
    if type(pattern) is PendingSlot:
        return pattern.is_read
    return any(type(leaf) is PendingSlot and leaf.is_read for leaf in leaves(pattern))


def with_expectations_first(
    actions: list[RecordedAction], given: Iterable[PendingSlot]
) -> list[RecordedAction]:
    """The actions, with those first that expect something of the ``given`` slots alone.

    So a call that goes another way than the recording fails before it has changed anything.

    >>> slot, size = PendingSlot(0), PendingSlot(0)
    >>> add = RecordedAction(BY_NAME["torch.Tensor.add_"], (slot, 1), {}, None, None, "", None)
    >>> read = RecordedAction(BY_NAME["torch.Tensor.numel"], (slot,), {}, size, None, "", None)
    >>> same = RecordedAction(EXPECT, ("same", size, 2, True), {}, None, None, "", None)
    >>> with_expectations_first([add, read, same], [slot]) == [read, same, add]
    True
    """
    if not any(action.op == EXPECT for action in actions):
        return actions
    wanted: set[PendingSlot] = set()
    first: list[RecordedAction] = []
    for action in reversed(_of_given_sizes(actions, given)):
        if action.op == EXPECT or not wanted.isdisjoint(_slots_of(action.out)):
            wanted.update(_slots_of(action.args))
            first.append(action)
    first.reverse()
    chosen = set(map(id, first))
    return first + [action for action in actions if id(action) not in chosen]


def _of_given_sizes(
    actions: list[RecordedAction], given: Iterable[PendingSlot]
) -> list[RecordedAction]:
    """The actions that compute with sizes and numbers that are there before the program runs."""
    known = set(given)
    found: list[RecordedAction] = []
    for action in actions:
        slots = _slots_of((action.args, action.kwargs))
        if action.op in OF_SIZES and slots <= known:
            found.append(action)
            known |= _slots_of(action.out)
        elif may_alter(action.op, action.kwargs) or _has_program(action):
            known -= slots
    return found


def _slots_of(operand: Any) -> set[PendingSlot]:
    return {leaf for leaf in leaves(operand) if type(leaf) is PendingSlot}


def _has_program(action: RecordedAction) -> bool:
    return any(type(operand) is Program for operand in action.args)


def number_slots(given: Sequence[PendingSlot], actions: Iterable[RecordedAction]) -> None:
    """Number the slots that have a value before the program runs, then those of the results."""
    index = 0
    for pending in given:
        pending.slot = _slot(index)
        index += 1
    for action in actions:
        out = action.out
        for leaf in (out,) if type(out) is PendingSlot else leaves(out):
            if type(leaf) is PendingSlot:
                leaf.slot = _slot(index)
                index += 1


def with_slots(operand: Any) -> Any:
    """The operand with slots in place of pending ones."""
    return replace(operand, _slot_or_leaf)


def _slot_or_leaf(leaf: Any) -> Any:
    return leaf.slot if type(leaf) is PendingSlot else leaf


def completed(action: RecordedAction) -> Action:
    """The action of the program, with slots in place of pending ones."""
    out = action.out
    return Action(
        action.op,
        tuple([arg.slot if type(arg) is PendingSlot else with_slots(arg) for arg in action.args]),
        {key: with_slots(arg) for key, arg in action.kwargs.items()} if action.kwargs else {},
        out.slot if type(out) is PendingSlot else with_slots(out),
        action.mode,
    )


@functools.lru_cache(maxsize=4096)
def _slot(index: int) -> Slot:
    """The slot of a number: the same object each time, which compares faster."""
    return Slot(index)
