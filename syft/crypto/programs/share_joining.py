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
from collections.abc import Container, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any

import torch

from syft.crypto.programs.local_operations import LOCAL_OPERATIONS, number_of
from syft.crypto.programs.share_flow import places_of_writes, writes_in_place
from syft.crypto.programs.share_program import ShareCode, ShareProgram, outs_of
from syft.crypto.ring_products import magnitude
from syft.program.flow import reads_of
from syft.program.program import Action, Slot, numbered

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

    >>> divide = Action(ShareCode.DIVIDE, (Slot(0), 16, (2,)), {}, Slot(1))
    >>> relu = Action(ShareCode.POSITIVE, (Slot(1), 0, (2,)), {}, (Slot(2), Slot(3)))
    >>> one, = joined(ShareProgram(1, (divide, relu), (Slot(2),))).actions
    >>> one.args
    (Slot(0), 16, (2,))
    """
    rewriting = _Rewriting(program, stated, looks)
    for place, instruction in enumerate(program.actions):
        if instruction.op == ShareCode.POSITIVE and instruction.args[1] == 0:
            rewriting.join(place)
    return rewriting.program()


class _Rewriting:
    """A program whose instructions are being replaced; several may stand at one place."""

    def __init__(
        self, program: ShareProgram, stated: AbstractSet[int], looks: AbstractSet[int]
    ) -> None:
        self.stated, self.looks = stated, looks
        self.before, self.outputs = program, program.outputs
        self.constants = dict(enumerate(program.constants, program.inputs))
        self.steps: list[list[Action]] = [[one] for one in program.actions]
        self.maker = {
            slot: place for place, one in enumerate(program.actions) for slot in outs_of(one)
        }
        self.uses = Counter(program.results)
        for one in program.actions:
            if looks.isdisjoint(outs_of(one)):
                self.uses.update(reads_of(one))
        self.writes = places_of_writes(program)
        self.free = max((*self.maker, program.given - 1)) + 1

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
        inside = {outs_of(divide)[0]: raw}
        for between in reversed(path[:-1]):
            (local,) = self.steps[between]
            self.steps[between] = self._scaled(local, inside, divisor or 1)
            inside[outs_of(local)[0]] = Slot(outs_of(local)[0])
        if len(path) == 1:
            self.steps[place] = [replace(relu, args=(raw, factor, relu.args[2]))]
        self._leave_out_looks_at(inside)

    def _leave_out_looks_at(self, slots: Container[int]) -> None:
        gone = [one for one in self.looks if self._looked_at(one) in slots]
        for one in gone:
            self.steps[self.maker[one]] = []
        self.outputs = tuple(one for one in self.outputs if one.index not in gone)

    def _looked_at(self, look: int) -> int | None:
        """The slot that is copied."""
        steps = self.steps[self.maker[look]]
        return reads_of(steps[0])[0] if steps else None

    def _fits(self, between: Sequence[int], divisor: int | None, relu: int) -> bool:
        """Whether what is between a division and a relu stays in the ring before the division."""
        most = DIVIDED_END
        for place in reversed(between):
            (local,) = self.steps[place]
            if local.args[0] != ADD:
                continue
            sizes = [self._size_of(value.index, relu) for value in local.args[1]]
            known = [size for size in sizes if size is not None]
            if known and divisor is not None:
                most += known[0] * divisor
            elif divisor is None or outs_of(local)[0] not in self.stated:
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
        if one.op == ShareCode.LOCAL and one.args[0] in REPEATS:
            return self._size_of(one.args[1][0].index, before)
        if one.op != ShareCode.PUBLIC or any(place < w < before for w in self.writes):
            return None
        return magnitude(self.constants[one.args[0].index])

    def _path(self, slot: Slot, most: int = MOST_BETWEEN) -> list[int] | None:
        """The places from the maker of a slot back to a division; each made for one use."""
        place = self.maker.get(slot.index)
        if place is None or not most or self.uses[slot.index] != 1 or len(self.steps[place]) != 1:
            return None
        (one,) = self.steps[place]
        if one.op == ShareCode.DIVIDE and one.args[1] != 0:
            return [place]
        for operand in self._candidates(one):
            rest = self._path(operand, most - 1)
            if rest is not None:
                return [place, *rest]
        return None

    def _candidates(self, one: Action) -> list[Slot]:
        """The operands through which a division may be moved behind an instruction."""
        if one.op != ShareCode.LOCAL:
            return []
        number, positional, keywords = one.args
        slots = [
            value
            for value in positional
            if type(value) is Slot and value.index not in self.constants
        ]
        if number == ADD and not keywords and len(slots) == 2:
            return slots
        return slots if LOCAL_OPERATIONS[number].view and len(outs_of(one)) == 1 else []

    def _scaled(self, local: Action, inside: dict[int, Slot], divisor: int) -> list[Action]:
        """An operation on the grid of the products, where ``inside`` is already."""
        number, positional, keywords = local.args
        made: list[Action] = []
        given: list[Any] = []
        for value in positional:
            if type(value) is Slot and value.index not in inside:
                scaled = Slot(self.free)
                args = TIMES, (value, divisor), ()
                made.append(Action(ShareCode.LOCAL, args, {}, scaled))
                value = scaled
                self.free += 1
            elif type(value) is Slot:
                value = inside[value.index]
            given.append(value)
        return [*made, replace(local, args=(number, tuple(given), keywords))]

    def program(self) -> ShareProgram:
        """The program without what nobody uses; masks are named by their new places."""
        needed = {slot.index for slot in self.outputs}
        kept: list[tuple[int, Action]] = []
        for place in reversed(range(len(self.steps))):
            for one in reversed(self.steps[place]):
                stays = one.op == ShareCode.REVEAL or writes_in_place(one)
                if stays or not needed.isdisjoint(outs_of(one)):
                    kept.append((place, one))
                    needed.update(reads_of(one))
        kept.reverse()
        moved = {old: new for new, (old, one) in enumerate(kept) if one.op == ShareCode.MASK}
        actions = tuple(_renamed(one, moved) for _, one in kept)
        inputs, constants = self.before.inputs, self.before.constants
        return ShareProgram(inputs, actions, self.outputs, constants=constants)


def compacted(program: ShareProgram) -> tuple[ShareProgram, Mapping[int, Slot]]:
    """The program with its slots numbered without gaps and without constants that nobody reads;
    and what each slot became.

    >>> mask = Action(ShareCode.MASK, (Slot(0), (2,)), {}, Slot(7))
    >>> compacted(ShareProgram(1, (mask,), (Slot(7),)))[0].results
    (1,)
    """
    constants = dict(enumerate(program.constants, program.inputs))
    read = {slot for one in program.actions for slot in reads_of(one)} if constants else ()
    constants = {slot: one for slot, one in constants.items() if slot in read}
    actions, moved = numbered([*range(program.inputs), *constants], program.actions, {})
    outputs = tuple(moved[slot.index] for slot in program.outputs)
    kept = ShareProgram(program.inputs, actions, outputs, constants=tuple(constants.values()))
    return kept, moved


def _divisor_of(factor: Any) -> int | None:
    """The whole number by which all is divided; None for others."""
    if type(factor) is int:
        return 1 << factor
    return factor[0] if len(factor) == 1 and type(factor[0]) is int else None


def _renamed(one: Action, moved: dict[int, int]) -> Action:
    """A product with the masks of this program named by their new places."""
    if one.op != ShareCode.PRODUCT:
        return one
    args = list(one.args)
    for place in (4, 6):
        counter, old = args[place]
        if counter == 0:
            args[place] = (0, moved[old])
    return replace(one, args=tuple(args))
