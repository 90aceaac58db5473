"""What a session has recorded and not sent yet: instructions, their inputs, and what they make.

Numbers of slots are given while recording, when nobody knows how many inputs there will be: inputs
count down from -1, results up from 0.  The program has them in the order of its contract.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from syft.crypto.share_program import Instruction, ShareCode, ShareProgram, ShareSlot
from syft.tensors.shared.cells import Cell, SharedObject
from syft.workers.execution.permissions import Guard


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

    >>> InstructionList().program(())
    ShareProgram(inputs=0, instructions=(), results=())
    """

    def __init__(self) -> None:
        self.inputs: list[ProgramInput] = []
        self.instructions: list[Instruction] = []
        self.bytes = 0
        """The memory of public and fresh tensors that wait here."""
        self._slots = 0
        self._made: list[tuple[int, weakref.ref[SharedObject]]] = []

    def operand(self, value: SharedObject) -> ShareSlot:
        """The slot of a tensor or a masked value; one that is stored becomes an input."""
        if value.recording is not self:
            assert value.id is not None  # it was made by an earlier program
            self.inputs.append(value.id)
            value.recording, value.slot = self, -len(self.inputs)
        return ShareSlot(value.slot)

    def fresh(self, value: Cell, shares: FreshShares) -> None:
        """Let shares that the client made be those of ``value``."""
        self.inputs.append(shares)
        self.bytes += shares.last.nbytes
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

    def living(self) -> Iterator[SharedObject]:
        """What the instructions make and somebody still has."""
        for slot, reference in self._made:
            value = reference()
            if value is not None and value.recording is self and value.slot == slot:
                yield value

    def program(self, results: Sequence[SharedObject]) -> ShareProgram:
        """The instructions as a program with these results; slots are numbered as it has them."""
        count = len(self.inputs)

        def placed(number: int) -> int:
            return number + count if number >= 0 else -1 - number

        def renamed(value: Any) -> Any:
            if type(value) is ShareSlot:
                return ShareSlot(placed(value.number))
            return tuple(map(renamed, value)) if type(value) is tuple else value

        instructions = tuple(
            Instruction(one.code, renamed(one.args), tuple(map(placed, one.outs)))
            for one in self.instructions
        )
        return ShareProgram(count, instructions, tuple(placed(one.slot) for one in results))
