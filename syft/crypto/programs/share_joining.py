"""Rewriting share programs before they are sent: fewer instructions, fewer rounds, same results.

A layer on a fixed grid is a product, a division back to the grid, an addition of the bias and a
relu.  The division and the relu open the same number, so they are joined: the bias is moved to the
grid of the products instead, and one opening serves both.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import torch

from syft.crypto.programs.local_operations import LOCAL_OPERATIONS, number_of
from syft.crypto.programs.share_flow import operands_of, writes_in_place
from syft.crypto.programs.share_program import Instruction, ShareCode, ShareProgram, ShareSlot

ADD = number_of(torch.ops.aten.add.Tensor)
MOST_BETWEEN = 16
"""Operations between a division and a relu."""
TIMES = number_of(torch.ops.aten.mul.Scalar)


def joined(program: ShareProgram) -> ShareProgram:
    """An equivalent program with divisions joined to relus, and without what nobody uses.

    ``DIVIDE(x, bits)``, then views and additions, then ``POSITIVE(.., 0)`` becomes ``POSITIVE(..,
    bits)`` of the same with each addend times 2^bits, where nobody else uses what is between.  Like
    x, this must be below 2^62; on a fixed grid it is, if the result can be decoded.  Instructions
    whose results nobody uses are left out, but for those that write in place and reveals.

    >>> divide = Instruction(ShareCode.DIVIDE, (ShareSlot(0), 16, (2,)), (1,))
    >>> relu = Instruction(ShareCode.POSITIVE, (ShareSlot(1), 0, (2,)), (2, 3))
    >>> one, = joined(ShareProgram(1, (divide, relu), (2,))).instructions
    >>> one.args
    (ShareSlot(number=0), 16, (2,))
    """
    rewriting = _Rewriting(program)
    for place, instruction in enumerate(program.instructions):
        if instruction.code is ShareCode.POSITIVE and instruction.args[1] == 0:
            rewriting.join(place)
    return rewriting.program()


class _Rewriting:
    """A program whose instructions are being replaced; several may stand at one place."""

    def __init__(self, program: ShareProgram) -> None:
        self.inputs, self.results = program.inputs, program.results
        self.steps: list[list[Instruction]] = [[one] for one in program.instructions]
        self.maker = {
            slot: place for place, one in enumerate(program.instructions) for slot in one.outs
        }
        self.uses = Counter(program.results)
        for one in program.instructions:
            self.uses.update(operands_of(one))
        self.writes = [
            place for place, one in enumerate(program.instructions) if writes_in_place(one)
        ]
        self.free = max((*self.maker, program.inputs - 1), default=-1) + 1

    def join(self, place: int) -> None:
        """Join the relu at a place to the division before it, if there is one."""
        (relu,) = self.steps[place]
        path = self._path(relu.args[0])
        if path is None or any(path[-1] < write < place for write in self.writes):
            return
        (divide,) = self.steps[path[-1]]
        raw, bits, _ = divide.args
        self.steps[path[-1]] = []
        self.steps[place] = [replace(relu, args=(relu.args[0], bits, relu.args[2]))]
        inside = {divide.outs[0]: raw}
        for between in reversed(path[:-1]):
            (local,) = self.steps[between]
            self.steps[between] = self._scaled(local, inside, bits)
            inside[local.outs[0]] = ShareSlot(local.outs[0])
        if len(path) == 1:
            self.steps[place] = [replace(relu, args=(raw, bits, relu.args[2]))]

    def _path(self, slot: ShareSlot, most: int = MOST_BETWEEN) -> list[int] | None:
        """The places from the maker of a slot back to a division; each made for one use."""
        place = self.maker.get(slot.number)
        if place is None or not most or self.uses[slot.number] != 1 or len(self.steps[place]) != 1:
            return None
        (one,) = self.steps[place]
        if one.code is ShareCode.DIVIDE and one.args[1]:
            return [place]
        for operand in _candidates(one):
            rest = self._path(operand, most - 1)
            if rest is not None:
                return [place, *rest]
        return None

    def _scaled(
        self, local: Instruction, inside: dict[int, ShareSlot], bits: int
    ) -> list[Instruction]:
        """An operation on the grid of the products, where ``inside`` is already."""
        number, positional, keywords = local.args
        made: list[Instruction] = []
        given: list[Any] = []
        for value in positional:
            if type(value) is ShareSlot and value.number not in inside:
                made.append(
                    Instruction(ShareCode.LOCAL, (TIMES, (value, 1 << bits), ()), (self.free,))
                )
                value = ShareSlot(self.free)
                self.free += 1
            elif type(value) is ShareSlot:
                value = inside[value.number]
            given.append(value)
        return [*made, replace(local, args=(number, tuple(given), keywords))]

    def program(self) -> ShareProgram:
        """The program without what nobody uses; masks are named by their new places."""
        needed = set(self.results)
        kept: list[tuple[int, Instruction]] = []
        for place in reversed(range(len(self.steps))):
            for one in reversed(self.steps[place]):
                stays = one.code is ShareCode.REVEAL or writes_in_place(one)
                if stays or not needed.isdisjoint(one.outs):
                    kept.append((place, one))
                    needed.update(operands_of(one))
        kept.reverse()
        moved = {old: new for new, (old, one) in enumerate(kept) if one.code is ShareCode.MASK}
        return ShareProgram(
            self.inputs, tuple(_renamed(one, moved) for _, one in kept), self.results
        )


def _candidates(one: Instruction) -> list[ShareSlot]:
    """The operands through which a division may be moved behind an instruction."""
    if one.code is not ShareCode.LOCAL:
        return []
    number, positional, keywords = one.args
    slots = [value for value in positional if type(value) is ShareSlot]
    if number == ADD and not keywords and len(slots) == 2:
        return slots
    return slots if LOCAL_OPERATIONS[number].view and len(one.outs) == 1 else []


def _renamed(one: Instruction, moved: dict[int, int]) -> Instruction:
    """A product with the masks of this program named by their new places."""
    if one.code is not ShareCode.PRODUCT:
        return one
    args = list(one.args)
    for place in (4, 6):
        counter, old = args[place]
        if counter == 0:
            args[place] = (0, moved[old])
    return replace(one, args=tuple(args))
