"""A part of a batch that may be held again in another one: actions on named objects and numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from syft.callers import Place
from syft.program.held_actions import HeldAction, sign
from syft.program.program import Slot, fill_slots, slot_at, slots_in
from syft.workers.client.batch import Batch
from syft.workers.wire.definitions import InputKind

_NUMBER: Final = InputKind.NUMBER


def _slots_of(actions: Sequence[HeldAction]) -> list[int]:
    """The numbers of the slots that actions read."""
    return sorted({slot.index for one in actions for slot in slots_in((one.args, one.kwargs))})


def _ids_in(batch: Batch) -> dict[int, int]:
    """The ids of the objects in the slots of a batch, and of its results."""
    inputs = zip(batch.given, batch.inputs, batch.kinds, strict=True)
    ids = {slot.index: id for slot, id, kind in inputs if kind == InputKind.REFERENCE}
    ids.update((slot.index, batch.base + at) for at, slot in enumerate(batch.results))
    return ids


class Mark:
    """A place in a batch: what comes from here on is a part of it."""

    __slots__ = ("batch", "next", "actions", "results", "inputs")

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.next = batch.next_number
        self.actions, self.results = len(batch.actions), len(batch.results)
        self.inputs = len(batch.inputs)


class Segment:
    """What a batch held from a mark on, on objects that are told by their places in a list.

    ``numbers`` are those that it took.  None of its results has had a pointer that still lives.
    """

    __slots__ = ("numbers", "actions", "_before", "_fresh", "_length", "_made", "_start", "_last")

    def __init__(self, mark: Mark, objects: Sequence[int]) -> None:
        """Raises :class:`KeyError` if there is anything else than these objects and numbers."""
        batch, self._start = mark.batch, mark.next
        places: dict[Any, int] = {id: place for place, id in enumerate(objects)}
        self.actions = batch.actions[mark.actions :]
        inputs = list(zip(batch.given, batch.inputs, batch.kinds, strict=True))
        taken = inputs[mark.inputs :]
        self.numbers: list[float] = [value for _, value, kind in taken if kind == _NUMBER]
        self._fresh: list[tuple[int, int | None]] = [
            (slot.index - mark.next, None if kind == _NUMBER else places[value])
            for slot, value, kind in taken
        ]
        """Of each new input: how many slots after the mark, and the place of its object."""
        self._made = [slot.index - mark.next for slot in batch.results[mark.results :]]
        ids = _ids_in(batch)
        self._before = [
            (index, places[ids[index]]) for index in _slots_of(self.actions) if index < mark.next
        ]
        self._length = batch.next_number - mark.next
        self._last: Any = (None, (), ())

    def number_slots(self) -> list[Slot]:
        """The slots of its numbers, as its actions have them."""
        fresh = [offset for offset, place in self._fresh if place is None]
        return [slot_at(self._start + offset) for offset in fresh]

    def hold(
        self, batch: Batch, objects: Sequence[int], numbers: Sequence[float], where: Place
    ) -> bool:
        """Hold it again, on other objects and numbers; whether these are known there as they were
        the first time, or as new as then."""
        start = batch.next_number
        slots = [batch.known(objects[place]) for _, place in self._before]
        new = [objects[place] for _, place in self._fresh if place is not None]
        if None in slots or any(batch.known(id) is not None for id in new):
            return False
        left = iter(numbers)
        for offset, place in self._fresh:
            if place is None:
                batch.take_at(slot_at(start + offset), next(left), InputKind.NUMBER)
            else:
                batch.take_at(slot_at(start + offset), objects[place], InputKind.REFERENCE)
        made = [slot_at(start + offset) for offset in self._made]
        actions, signs = self._actions(start, slots)
        batch.hold_again(actions, signs, made, start + self._length, where)
        return True

    def _actions(
        self, start: int, slots: Sequence[Any]
    ) -> tuple[Sequence[HeldAction], Sequence[bytes]]:
        """The actions on these slots, made anew only if they are others than the last time."""
        key = start, tuple([slot.index for slot in slots])
        if self._last[0] != key:
            moved: dict[int, Any] = {
                self._start + offset: slot_at(start + offset) for offset in range(self._length)
            }
            moved.update(zip([index for index, _ in self._before], slots, strict=True))
            made = [
                HeldAction(
                    one.op,
                    fill_slots(one.args, moved),
                    fill_slots(one.kwargs, moved),
                    fill_slots(one.out, moved),
                    one.mode,
                )
                for one in self.actions
            ]
            self._last = key, made, list(map(sign, made))
        return self._last[1], self._last[2]
