"""Rewriting share programs before they are sent: fewer instructions, fewer rounds, same results.

A layer on a fixed grid is a product, a division back to the grid, an addition of the bias and a
relu.  The division and the relu open the same number, so they are joined: the bias is moved to the
grid of the products instead, and one opening serves both.

What is added before the division must stay in the ring there, where it has less room than after it.
So this is done only where it is known to: what is divided is below 2^62, the divisor times a public
addend is as large as it is, and the result of an operation may be *stated* to be on the grid of
products, as that of a linear layer with a shared bias is (``fixed.domains``).  A shared number of
unknown size is added where it is written: that takes the opening of the division, and its round.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any

import torch

from syft.crypto.programs.local_operations import LOCAL_OPERATIONS, number_of
from syft.crypto.programs.share_flow import operands_of, writes_in_place
from syft.crypto.programs.share_program import Instruction, ShareCode, ShareProgram, ShareSlot
from syft.crypto.ring_products import magnitude

ADD = number_of(torch.ops.aten.add.Tensor)
MOST_BETWEEN = 16
"""Operations between a division and a relu."""
REPEATS = {
    number_of(torch.ops.aten.repeat.default),
    *(number for number, one in enumerate(LOCAL_OPERATIONS) if one.view and not one.several),
}
"""What makes nothing larger than it was."""
TIMES = number_of(torch.ops.aten.mul.Scalar)


RING_END = 1 << 63
DIVIDED_END = 1 << 62
"""What is divided is below this, or its quotient is wrong already."""


def joined(
    program: ShareProgram,
    stated: AbstractSet[int] = frozenset(),
    looks: AbstractSet[int] = frozenset(),
) -> ShareProgram:
    """An equivalent program with divisions joined to relus, and without what nobody uses.

    ``DIVIDE(x, factor)``, then views and additions, then ``POSITIVE(.., 0)`` becomes ``POSITIVE(..,
    factor)`` of the same with each addend times the divisor, where nobody else uses what is
    between, and where this is below 2^63 for every x below 2^62: public addends are known, and the
    slots in ``stated`` hold results that are below 2^62 over the divisor.  Instructions whose
    results nobody uses are left out, but for those that write in place and reveals.  The slots in
    ``looks`` are results that change nothing of this, and are left out if what they copy is.

    >>> divide = Instruction(ShareCode.DIVIDE, (ShareSlot(0), 16, (2,)), (1,))
    >>> relu = Instruction(ShareCode.POSITIVE, (ShareSlot(1), 0, (2,)), (2, 3))
    >>> one, = joined(ShareProgram(1, (divide, relu), (2,))).instructions
    >>> one.args
    (ShareSlot(number=0), 16, (2,))
    """
    rewriting = _Rewriting(program, stated, looks)
    for place, instruction in enumerate(program.instructions):
        if instruction.code is ShareCode.POSITIVE and instruction.args[1] == 0:
            rewriting.join(place)
    return rewriting.program()


class _Rewriting:
    """A program whose instructions are being replaced; several may stand at one place."""

    def __init__(
        self, program: ShareProgram, stated: AbstractSet[int], looks: AbstractSet[int]
    ) -> None:
        self.stated, self.looks = stated, looks
        self.inputs, self.results = program.inputs, program.results
        self.steps: list[list[Instruction]] = [[one] for one in program.instructions]
        self.maker = {
            slot: place for place, one in enumerate(program.instructions) for slot in one.outs
        }
        self.uses = Counter(program.results)
        for one in program.instructions:
            if looks.isdisjoint(one.outs):
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
        raw, factor, _ = divide.args
        divisor = _divisor_of(factor)
        if not self._fits(path[:-1], divisor, place):
            return
        self.steps[path[-1]] = []
        self.steps[place] = [replace(relu, args=(relu.args[0], factor, relu.args[2]))]
        inside = {divide.outs[0]: raw}
        for between in reversed(path[:-1]):
            (local,) = self.steps[between]
            self.steps[between] = self._scaled(local, inside, divisor or 1)
            inside[local.outs[0]] = ShareSlot(local.outs[0])
        if len(path) == 1:
            self.steps[place] = [replace(relu, args=(raw, factor, relu.args[2]))]
        self._leave_out_looks_at(inside)

    def _leave_out_looks_at(self, slots: Container[int]) -> None:
        gone = [one for one in self.looks if self._looked_at(one) in slots]
        for one in gone:
            self.steps[self.maker[one]] = []
        self.results = tuple(one for one in self.results if one not in gone)

    def _looked_at(self, look: int) -> int | None:
        """The slot that is copied."""
        steps = self.steps[self.maker[look]]
        return operands_of(steps[0])[0] if steps else None

    def _fits(self, between: Sequence[int], divisor: int | None, relu: int) -> bool:
        """Whether what is between a division and a relu stays in the ring before the division."""
        most = DIVIDED_END
        for place in reversed(between):
            (local,) = self.steps[place]
            if local.args[0] != ADD:
                continue
            sizes = [self._size_of(value.number, relu) for value in local.args[1]]
            known = [size for size in sizes if size is not None]
            if known and divisor is not None:
                most += known[0] * divisor
            elif divisor is None or local.outs[0] not in self.stated:
                return False
            else:
                most = DIVIDED_END
        return most <= RING_END

    def _size_of(self, slot: int, before: int) -> int | None:
        """The largest size of a public number in a slot; None if it is not known, also because
        something was written in place since it was made."""
        place = self.maker.get(slot)
        if place is None or len(self.steps[place]) != 1:
            return None
        (one,) = self.steps[place]
        if one.code is ShareCode.LOCAL and one.args[0] in REPEATS:
            return self._size_of(one.args[1][0].number, before)
        if one.code is not ShareCode.PUBLIC or any(place < w < before for w in self.writes):
            return None
        return magnitude(one.args[0])

    def _path(self, slot: ShareSlot, most: int = MOST_BETWEEN) -> list[int] | None:
        """The places from the maker of a slot back to a division; each made for one use."""
        place = self.maker.get(slot.number)
        if place is None or not most or self.uses[slot.number] != 1 or len(self.steps[place]) != 1:
            return None
        (one,) = self.steps[place]
        if one.code is ShareCode.DIVIDE and one.args[1] != 0:
            return [place]
        for operand in _candidates(one):
            rest = self._path(operand, most - 1)
            if rest is not None:
                return [place, *rest]
        return None

    def _scaled(
        self, local: Instruction, inside: dict[int, ShareSlot], divisor: int
    ) -> list[Instruction]:
        """An operation on the grid of the products, where ``inside`` is already."""
        number, positional, keywords = local.args
        made: list[Instruction] = []
        given: list[Any] = []
        for value in positional:
            if type(value) is ShareSlot and value.number not in inside:
                made.append(
                    Instruction(ShareCode.LOCAL, (TIMES, (value, divisor), ()), (self.free,))
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


def _divisor_of(factor: Any) -> int | None:
    """The whole number by which all is divided; None for others."""
    if type(factor) is int:
        return 1 << factor
    return factor[0] if len(factor) == 1 and type(factor[0]) is int else None


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
