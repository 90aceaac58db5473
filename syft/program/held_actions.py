"""Actions that are held until somebody wants a program of them: what every builder of programs is.

Plans while they are recorded, groups of messages, and sessions of shares hold actions.  Their slots
are numbered as they come, since nobody knows how many inputs there will be while the first actions
are held.  A program has them as every program does (:func:`syft.program.program.numbered`).

What is held again and again has the same *key* each time, so that the program of the first time can
be found by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from syft.ops.nested import SCALAR_TYPES
from syft.program.program import Action, RoleMark, Mode, Slot, numbered, slot_at
from syft.serde.packer import Packer
from syft.serde.registry import pack

_AS_IT_IS = SCALAR_TYPES | {Slot}
_encode = msgspec.msgpack.encode


class HeldAction:
    """An action, where in the source it was asked for, the optimizer that was taking a step, and
    what is known of the role that takes it."""

    __slots__ = ("op", "args", "kwargs", "out", "mode", "line", "optimizer", "mark")

    def __init__(
        self,
        op: int,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        out: Any,
        mode: Mode | None = None,
        line: Any = None,
        optimizer: str | None = None,
        mark: RoleMark | None = None,
    ) -> None:
        self.op, self.args, self.kwargs, self.out = op, args, kwargs, out
        self.mode, self.line, self.optimizer, self.mark = mode, line, optimizer, mark


class HeldActions:
    """The slots of a program in the making, and its actions so far.

    ``scope`` tells its slots from those of others.

    >>> from syft.ops.table import BY_NAME
    >>> held = HeldActions()
    >>> x = held.input(0.5)
    >>> held.actions.append(HeldAction(BY_NAME["torch.neg"], (x,), {}, held.new_slot()))
    >>> held.numbered(held.given)[0][0].out
    Slot(1)
    """

    __slots__ = ("scope", "given", "inputs", "actions", "_next")

    def __init__(self, scope: int = 0) -> None:
        self.scope = scope
        self.given: list[Slot] = []
        """The slots that have a value before the program runs."""
        self.inputs: list[Any] = []
        """What is in those that :meth:`input` has made."""
        self.actions: list[HeldAction] = []
        self._next = scope << 32

    def new_slot(self) -> Slot:
        """A slot for the next value."""
        slot = slot_at(self._next)
        self._next += 1
        return slot

    def input(self, value: Any = None) -> Slot:
        """The slot of a value that is there before the program runs."""
        slot = self.new_slot()
        self.given.append(slot)
        self.inputs.append(value)
        return slot

    def is_own(self, slot: Slot) -> bool:
        """Whether it made a slot.

        >>> HeldActions(2).is_own(HeldActions(1).new_slot())
        False
        """
        return slot.index >> 32 == self.scope

    def key(self) -> bytes:
        """What is equal for the same actions on slots of the same numbers, and for no others."""
        return b"".join(map(sign, self.actions))

    def numbered(self, given: Iterable[Slot]) -> tuple[tuple[Action, ...], Mapping[int, Slot]]:
        """The actions of a program in which these slots come first, and what each slot became."""
        return numbered([slot.index for slot in given], self.actions, {})


def sign(one: HeldAction) -> bytes:
    """An action as bytes, which no other one has.

    >>> from syft.ops.table import BY_NAME
    >>> neg = BY_NAME["torch.neg"]
    >>> sign(HeldAction(neg, (Slot(0),), {}, None)) == sign(HeldAction(neg, (Slot(1),), {}, None))
    False
    """
    told = _told(one.args), _told(one.kwargs.values()), tuple(one.kwargs)
    return _encode((one.op, *told, one.out, one.mode))


def _told(operands: Iterable[Any]) -> Sequence[Any]:
    """Operands as bytes can be made of them that differ for different ones."""
    return [
        (
            one
            if type(one) in _AS_IT_IS or type(one) is tuple and _AS_IT_IS.issuperset(map(type, one))
            else _encode(pack(one, Packer()))
        )
        for one in operands
    ]
