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
from syft.ops.table import BY_NAME, FLAGS, METADATA
from syft.program.program import Action, Mode, Slot
from syft.program.recording.environment.source_line import SourceLine

_ONLY_READS: Final = frozenset(
    number
    for name, number in BY_NAME.items()
    if FLAGS[number] & METADATA
    or name.startswith("syft.ops.numbers.")
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
