"""What a session has recorded and not sent yet: instructions, their inputs, and what they make.

Numbers of slots are given while recording, when nobody knows how many inputs there will be: inputs
count down from -1, results up from 0.  The program has them in the order of its contract.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from syft.crypto.programs.share_joining import joined
from syft.crypto.programs.share_program import Instruction, ShareCode, ShareProgram, ShareSlot
from syft.tensors.shared.cells import Cell, MaskedCell, SharedObject
from syft.workers.labels.guards import Guard


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


class InstructionList:
    """The instructions that a session will send with its next program.

    >>> InstructionList().program()
    (ShareProgram(inputs=0, instructions=(), results=()), [])
    """

    def __init__(self) -> None:
        self.inputs: list[ProgramInput] = []
        self.shapes: list[tuple[int, ...]] = []
        """The shapes of the inputs."""
        self.instructions: list[Instruction] = []
        self.stated: set[int] = set()
        """The slots of results that fit on the grid of products, as is stated of what made them."""
        self.looks: set[int] = set()
        """The slots of copies that are made for a look alone."""
        self.nbytes = 0
        """The memory of public and fresh tensors that wait here."""
        self._slots = 0
        self._made: list[tuple[int, weakref.ref[SharedObject]]] = []

    def operand(self, value: Cell | MaskedCell) -> ShareSlot:
        """The slot of a tensor or a masked value; one that is stored becomes an input."""
        if value.recording is not self:
            assert value.id is not None  # it was made by an earlier program
            self.inputs.append(value.id)
            self.shapes.append(value.shape)
            value.recording, value.slot = self, -len(self.inputs)
        return ShareSlot(value.slot)

    def fresh(self, value: Cell, shares: FreshShares) -> None:
        """Let shares that the client made be those of ``value``."""
        self.inputs.append(shares)
        self.shapes.append(value.shape)
        self.nbytes += shares.last.nbytes
        value.recording, value.slot = self, -len(self.inputs)
        self._made.append((value.slot, weakref.ref(value)))

    def add(self, code: ShareCode, args: tuple[Any, ...], outs: Sequence[SharedObject]) -> int:
        """Add an instruction that makes these; returns its place."""
        slots = tuple(range(self._slots, self._slots + max(len(outs), 1)))
        self._slots += len(slots)
        for slot, out in zip(slots, outs, strict=False):
            out.recording, out.slot = self, slot
            self._made.append((slot, weakref.ref(out)))
        self.instructions.append(Instruction(code, args, slots))
        return len(self.instructions) - 1

    def program(self, opening: bool = False) -> tuple[ShareProgram, list[SharedObject]]:
        """The instructions as a program, and what its results are for.

        The results are the shares that somebody still has.  What nobody needs is left out, also
        what would be opened for it (``joined``).  Masked values that the program makes all the same
        are results too, if somebody may use them again; with ``opening`` it makes all of those.
        A look at what is joined away is no result.
        """
        instructions = tuple(
            Instruction(one.code, self._renamed(one.args), tuple(map(self._placed, one.outs)))
            for one in self.instructions
        )
        cells, masked = self._living()
        asked = [*cells, *masked] if opening else cells
        wanted = tuple(self._placed(one.slot) for one in asked)
        stated, looks = set(map(self._placed, self.stated)), set(map(self._placed, self.looks))
        program = joined(ShareProgram(len(self.inputs), instructions, wanted), stated, looks)
        opened = _places_of_masks(program)
        for value in masked:
            value.place = opened.get(self._placed(value.slot), value.place)
        there = {*program.results, *opened}
        results = [one for one in (*cells, *masked) if self._placed(one.slot) in there]
        slots = tuple(self._placed(one.slot) for one in results)
        return replace(program, results=slots), results

    def _living(self) -> tuple[list[SharedObject], list[MaskedCell]]:
        """What the instructions make and somebody still has: shares, and masked values."""
        made = [(slot, reference()) for slot, reference in self._made]
        found = [one for slot, one in made if one and one.recording is self and one.slot == slot]
        masked = [one for one in found if isinstance(one, MaskedCell)]
        return [one for one in found if not isinstance(one, MaskedCell)], masked

    def _placed(self, number: int) -> int:
        """A slot as the program numbers it."""
        return number + len(self.inputs) if number >= 0 else -1 - number

    def _renamed(self, value: Any) -> Any:
        if type(value) is ShareSlot:
            return ShareSlot(self._placed(value.number))
        return tuple(map(self._renamed, value)) if type(value) is tuple else value


def _places_of_masks(program: ShareProgram) -> dict[int, int]:
    """The place of the instruction that fills each slot of a masked value."""
    return {
        one.outs[0]: place
        for place, one in enumerate(program.instructions)
        if one.code is ShareCode.MASK
    }
