"""What a session has recorded and not sent yet: instructions, their inputs, and what they make.

A model asks for the same each time, so what became of the last lists is kept by what they were.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import torch

from syft.crypto.programs.share_joining import compacted, joined
from syft.crypto.programs.share_program import ShareCode, ShareProgram
from syft.crypto.ring_products import magnitude
from syft.program.held_actions import HeldAction, HeldActions
from syft.program.program import Slot
from syft.tensors.shared.cells import Cell, MaskedCell, SharedObject
from syft.workers.labels.guards import Guard

_MOST_KEPT: Final = 64


@dataclass(frozen=True, slots=True)
class FreshShares:
    """Shares that the client makes: seeds from which all parties but the last draw theirs, and the
    share of the last."""

    seeds: tuple[bytes, ...]
    last: torch.Tensor
    guard: Guard | None = None
    """Who may read what is computed from them."""


ProgramInput = int | FreshShares
"""The id of what the parties have stored, or shares that they get."""


@dataclass(frozen=True, slots=True)
class FinishedList:
    """What a list of instructions became: the program but for its public tensors, the slots of
    these in the list, those of the results, and the places of the masks by theirs."""

    program: ShareProgram
    constants: tuple[int, ...]
    results: tuple[int, ...]
    masks: dict[int, int]


_FINISHED: Final[OrderedDict[Any, FinishedList]] = OrderedDict()
"""What the last lists became, by their instructions and by what of their results was wanted."""


class InstructionList(HeldActions):
    """The instructions that a session will send with its next program.

    >>> InstructionList().program()
    (ShareProgram(inputs=0, actions=(), outputs=(), state=0, constants=()), [])
    """

    def __init__(self) -> None:
        super().__init__()
        self.stated: set[int] = set()
        """The slots of results that fit on the grid of products, as is stated of what made them."""
        self.looks: set[int] = set()
        """The slots of copies that are made for a look alone."""
        self.nbytes = 0
        """The memory of public and fresh tensors that wait here."""
        self._constants: dict[int, torch.Tensor] = {}
        self._made: list[tuple[Slot, weakref.ref[SharedObject]]] = []

    def operand(self, value: Cell | MaskedCell) -> Slot:
        """The slot of a tensor or a masked value; one that is stored becomes an input."""
        if value.recording is not self:
            assert value.id is not None  # it was made by an earlier program
            value.recording, value.slot = self, self.input(value.id)
        return value.slot

    def public(self, tensor: torch.Tensor) -> Slot:
        """The slot of a public tensor, which goes with the program."""
        self.nbytes += tensor.nbytes
        slot = self.new_slot()
        self._constants[slot.index] = tensor
        return slot

    def fresh(self, value: Cell, shares: FreshShares) -> None:
        """Let shares that the client made be those of ``value``."""
        self.nbytes += shares.last.nbytes
        self._make(value, self.input(shares))

    def add(self, code: ShareCode, args: tuple[Any, ...], outs: Sequence[SharedObject]) -> int:
        """Add an instruction that makes these; returns its place."""
        slots = tuple([self.new_slot() for _ in range(max(len(outs), 1))])
        for slot, out in zip(slots, outs, strict=False):
            self._make(out, slot)
        self.actions.append(HeldAction(code, args, {}, slots if len(slots) > 1 else slots[0]))
        return len(self.actions) - 1

    def _make(self, value: SharedObject, slot: Slot) -> None:
        value.recording, value.slot = self, slot
        self._made.append((slot, weakref.ref(value)))

    def program(self, opening: bool = False) -> tuple[ShareProgram, list[SharedObject]]:
        """The instructions as a program, and what its results are for.

        The results are the shares that somebody still has.  What nobody needs is left out, also
        what would be opened for it (``joined``).  Masked values that the program makes all the same
        are results too, if somebody may use them again; with ``opening`` it makes all of those.
        A look at what is joined away is no result.
        """
        living = self._living()
        masked = tuple([slot for slot, one in living.items() if isinstance(one, MaskedCell)])
        key = self._key(tuple(living), masked, opening)
        finished = _FINISHED.get(key)
        if finished is None:
            finished = _FINISHED[key] = self._finished(tuple(living), masked, opening)
            if len(_FINISHED) > _MOST_KEPT:
                _FINISHED.popitem(last=False)
        for slot, place in finished.masks.items():
            living[slot].place = place  # type: ignore[attr-defined]
        program = finished.program.on([self._constants[at] for at in finished.constants])
        return program, [living[slot] for slot in finished.results]

    def _living(self) -> dict[int, SharedObject]:
        """What the instructions make and somebody still has, by slots: shares, then masked
        values."""
        made = [(slot, reference()) for slot, reference in self._made]
        found = {
            slot.index: one
            for slot, one in made
            if one is not None and one.recording is self and one.slot is slot
        }
        masked = {slot: one for slot, one in found.items() if isinstance(one, MaskedCell)}
        return {slot: one for slot, one in found.items() if slot not in masked} | masked

    def _key(self, living: tuple[int, ...], masked: tuple[int, ...], opening: bool) -> Any:
        """What the program follows from; of public tensors their kinds and sizes."""
        public = [
            (one.dtype, one.shape, magnitude(one) if one.dtype is torch.int64 else 0)
            for one in self._constants.values()
        ]
        given = tuple([slot.index for slot in self.given]), tuple(self._constants)
        known = self.key(), tuple(public), tuple(self.stated), tuple(self.looks)
        return given, living, masked, opening, *known

    def _finished(
        self, living: tuple[int, ...], masked: tuple[int, ...], opening: bool
    ) -> FinishedList:
        """Find what the list becomes."""
        whole, moved = self._whole()
        place = {slot: one.index for slot, one in moved.items()}
        asked = living if opening else living[: len(living) - len(masked)]
        outputs = tuple([moved[slot] for slot in asked])
        stated, looks = (set(map(place.__getitem__, some)) for some in (self.stated, self.looks))
        shorter = joined(replace(whole, outputs=outputs), stated, looks)
        opened = _places_of_masks(shorter)
        there = {*shorter.results, *opened}
        results = tuple([slot for slot in living if place[slot] in there])
        outputs = tuple([moved[slot] for slot in results])
        program, left = compacted(replace(shorter, outputs=outputs))
        kept = [slot for slot in self._constants if place[slot] in left]
        masks = {slot: opened[place[slot]] for slot in masked if slot in results}
        return FinishedList(program.on(()), tuple(kept), results, masks)

    def _whole(self) -> tuple[ShareProgram, Mapping[int, Slot]]:
        """All instructions as a program without results, and what each slot became."""
        actions, moved = self.numbered([*self.given, *map(Slot, self._constants)])
        constants = tuple(self._constants.values())
        return ShareProgram(len(self.given), actions, (), constants=constants), moved


def _places_of_masks(program: ShareProgram) -> dict[int, int]:
    """The place of the instruction that fills each slot of a masked value."""
    return {
        one.out.index: place
        for place, one in enumerate(program.actions)
        if one.op == ShareCode.MASK
    }
