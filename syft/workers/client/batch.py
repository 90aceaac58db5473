"""Commands to one worker that will travel together: a program in the making.

What is done again and again (the gradients taken away, an optimizer's step) is put together once,
and held again as it was if it comes at the same place.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final

from syft.callers import Place
from syft.ids import new_id
from syft.ops.control import NO_GRADIENT
from syft.ops.returns import ONE_TENSOR, Returns
from syft.ops.table import BY_NAME
from syft.program.held_actions import HeldAction, HeldActions, sign
from syft.program.program import Mode, Program, Slot
from syft.workers.wire.definitions import Group, InputKind
from syft.workers.wire.messages import GRAD_MODE
from syft.workers.wire.numbering import weight_of

_EXPECT: Final = BY_NAME["syft.ops.numbers.expect"]
_GRADIENT: Final = BY_NAME["torch.Tensor.grad.__get__"]
_GRADIENT_KIND: Final = BY_NAME["syft.ops.control.gradient_kind"]
_MOST_REPEATED: Final = 256

Operands = tuple[Any, ...]


class Repeated:
    """What a batch held at a place, to hold it again: actions, results, and the next slot."""

    __slots__ = ("actions", "results", "next", "signs")

    def __init__(self, actions: Sequence[HeldAction], results: Sequence[Slot], next: int) -> None:
        self.actions, self.results, self.next = actions, results, next
        self.signs = list(map(sign, actions))


class Batch(HeldActions):
    """Commands that will travel together: a program in the making."""

    __slots__ = (
        "base",
        "flags",
        "autocast",
        "kinds",
        "places",
        "results",
        "links",
        "bytes",
        "lines",
        "unwanted",
        "_signs",
        "first_pass",
        "passes",
        "user",
    )

    def __init__(self, flags: int, autocast: Any) -> None:
        super().__init__()
        self.base = new_id()
        self.flags = flags
        self.autocast = autocast
        self.kinds = bytearray()
        self.places: dict[int, Slot] = {}
        self.results: list[Slot] = []
        self.links: list[weakref.ref[Any]] = []
        self.bytes = 0
        self.lines: list[Place] = []
        """Where each action was asked for."""
        self.unwanted: set[int] = set()
        """The places of results to which there was never a pointer."""
        self._signs: list[bytes] = []
        self.first_pass = self.passes = 0
        """How many backward passes it has, and how often gradients had changed before."""
        self.user: str | None = None
        """For whom it is."""

    @property
    def count(self) -> int:
        """How many commands it has, those included that send a tensor."""
        return len(self.actions) + len({*self.results}.intersection(self.given))

    def holds(self, id: int) -> bool:
        """Whether an object of that id will be one of the results."""
        return 0 <= id - self.base < len(self.results)

    def is_used(self, operands: Any) -> bool:
        """Whether one of the results is among operands as they are sent."""
        if type(operands) in (tuple, list):
            return any(map(self.is_used, operands))
        return type(operands) is int and self.holds(operands)

    def add(
        self,
        op: int,
        args: Operands,
        kwargs: dict[str, Any],
        flags: int,
        made: Returns | None,
        where: Place,
    ) -> None:
        """Add an action that returns what ``made`` says; None if it makes no tensor."""
        mode = None if flags == self.flags else Mode(grad=bool(flags & GRAD_MODE))
        out: Any = None
        if made is ONE_TENSOR:
            out = self.new_slot()
            self.results.append(out)
        elif made is not None and made.present:
            slots = [self.new_slot() if here else None for here in made.present]
            self.results += filter(None, slots)
            out = slots[0] if made.container is None else tuple(slots)
        self.actions.append(HeldAction(op, args, kwargs, out, mode))
        self.lines.append(where)

    def expect(self, leaf: Slot, kind: int, flags: int, where: Place) -> None:
        """Compare the kind of a leaf's gradient, and add the gradient as a result if there is
        one."""
        found = self.new_slot()
        self.actions.append(HeldAction(_GRADIENT_KIND, (leaf,), {}, found))
        self.lines.append(where)
        self.add(_EXPECT, ("eq", found, kind, True), {}, flags, None, where)
        if kind != NO_GRADIENT:
            self.add(_GRADIENT, (leaf,), {}, flags, ONE_TENSOR, where)

    def key(self) -> bytes:
        """As every builder of programs has it; here it is asked for on the way too."""
        signs = self._signs
        signs += map(sign, self.actions[len(signs) :])
        return b"".join(signs)

    @property
    def next_number(self) -> int:
        """The number of the next slot."""
        return self._next

    def known(self, id: int) -> Slot | None:
        """The slot of an object, if it has one."""
        place = id - self.base
        return self.results[place] if 0 <= place < len(self.results) else self.places.get(id)

    def take_at(self, slot: Slot, value: Any, kind: InputKind) -> None:
        """Take a new input in a slot that :meth:`hold_again` counts."""
        self.kinds.append(kind)
        self.given.append(slot)
        self.inputs.append(value)
        if kind == InputKind.REFERENCE:
            self.places[value] = slot

    def hold_again(
        self,
        actions: Sequence[HeldAction],
        signs: Sequence[bytes],
        made: Sequence[Slot],
        next: int,
        where: Place,
    ) -> None:
        """Hold actions that were put together before; nobody has pointers to the results."""
        if len(self._signs) == len(self.actions):
            self._signs += signs
        self.actions += actions
        self.unwanted.update(range(len(self.results), len(self.results) + len(made)))
        self.results += made
        self.lines += [where] * len(actions)
        self._next = next

    def repeat(
        self,
        known: dict[Hashable, Repeated],
        key: Hashable,
        where: Place,
        add: Callable[[], object],
    ) -> None:
        """Have ``add()`` hold actions, or hold those again that it has made of the same ``key`` at
        a place of the same number: the key says all else that they follow from."""
        key = key, self._next, self.flags
        before, first = known.get(key), len(self.actions)
        if before is None:
            results = len(self.results)
            add()
            if len(known) >= _MOST_REPEATED:
                known.clear()
            known[key] = Repeated(self.actions[first:], self.results[results:], self._next)
            return
        if len(self._signs) == first:
            self._signs += before.signs
        self.actions += before.actions
        self.results += before.results
        self.lines += [where] * len(before.actions)
        self._next = before.next

    def taken(self, value: Any, kind: InputKind) -> Slot:
        """The slot of a new input."""
        self.kinds.append(kind)
        if kind == InputKind.VALUE:
            self.bytes += weight_of(value)
        return self.input(value)

    def object(self, id: int) -> Slot:
        """The slot of an object of the other worker, or of a result."""
        slot = self.known(id)
        if slot is None:
            slot = self.places[id] = self.taken(id, InputKind.REFERENCE)
        return slot

    def program(self, wanted: list[bool]) -> Group:
        """The batch with only the wanted results."""
        actions, moved = self.numbered(self.given)
        outputs = tuple(
            moved[slot.index] if want else None
            for slot, want in zip(self.results, wanted, strict=True)
        )
        return Group(tuple(map(InputKind, self.kinds)), Program(len(self.given), actions, outputs))
