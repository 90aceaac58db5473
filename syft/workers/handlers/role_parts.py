"""A role's program cut into parts, each of which runs as soon as the inputs it needs are there.

Inputs of a role come from users and from other roles, in any order.  Actions that need the same
inputs are one part.  An action needs what its operands need, and what those actions need that have
to run before it: an action that writes to memory runs after all that read it before, and before all
that read it afterwards; random numbers are drawn in order; and whatever works on gradients runs
after everything before it.  So a part never runs before one on which it depends, and every order of
arrival gives the same results.
"""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import or_
from typing import Any, Final

from syft.ops.table import (
    FLAGS,
    FRESH,
    GRADIENT,
    JOINS,
    RANDOM,
    READS_GRADIENT,
    SETS_GRADIENT,
)
from syft.program.flow import reads_in
from syft.program.lowered import Lowered
from syft.program.program import Action, Program, Slot, numbered, slots_in
from syft.workers.core.access import Access
from syft.workers.handlers.accesses import Effects, actions_inside, effects_of, written_by
from syft.workers.handlers.programs import lowered

_IN_ORDER: Final = GRADIENT | SETS_GRADIENT | READS_GRADIENT | JOINS
"""Flags of the operations that run after everything before them, and before all after them."""
_MOST_FOLLOWED: Final = 1 << 27
"""The most inputs times actions of a program that is cut; one of more is one part."""
_OF_USERS: Final = -1
"""The one place in memory of the inputs of users."""
_MOST_STEPS: Final = 1 << 22
"""The most places in memory that the actions of a program touch, all together, if it is cut.  What
is recorded touches a few for each action: a program cannot take long to cut."""


@dataclass(frozen=True)
class Part:
    """The actions of a program that need the same inputs, as a program of their own.

    It ``takes`` the values of slots of the whole program and ``makes`` others.  ``needs`` are the
    places of the inputs among what it takes, and ``after`` those of the parts that run before it,
    which may need others.
    """

    needs: frozenset[int]
    takes: tuple[int, ...]
    makes: tuple[int, ...]
    after: frozenset[int]
    program: Lowered

    @cached_property
    def effects(self) -> Effects:
        """What it does to the values that it takes, by their places."""
        return effects_of(self.program.program)

    @cached_property
    def access(self) -> Access:
        """What it does to the values that it takes, by their slots."""
        return self.effects.access(self.takes)


@dataclass(frozen=True, slots=True)
class PartedProgram:
    """The parts of a program in an order in which they may run; and for each output the parts after
    which it is what it is at the end, and whether its memory is nobody else's."""

    parts: tuple[Part, ...]
    outputs: tuple[frozenset[int], ...]
    alone: tuple[bool, ...]
    in_order: bool
    """Whether a run changes the state, so that runs follow one another."""


def parted(program: Program, of_users: Container[int]) -> PartedProgram:
    """Cut a program, whose outputs are a flat tuple of slots.  Inputs ``of_users``, by place, may
    be one tensor, or views of one.

    >>> from syft.ops.table import BY_NAME
    >>> absolute = BY_NAME["torch.abs"]
    >>> both = [Action(absolute, (Slot(place),), {}, Slot(place + 2)) for place in (0, 1)]
    >>> cut = parted(Program(2, tuple(both), (Slot(2), Slot(3))), [0])
    >>> [sorted(part.needs) for part in cut.parts], [sorted(parts) for parts in cut.outputs]
    ([[0], [1]], [[0], [1]])
    """
    if program.inputs * len(program.actions) <= _MOST_FOLLOWED:
        with contextlib.suppress(_TooLong):
            return _cut_by(program, _Order(program, of_users))
    return _cut_by(program, _Whole(program))


def _cut_by(program: Program, order: _Order | _Whole) -> PartedProgram:
    groups: dict[int, list[int]] = defaultdict(list)
    for index, needs in enumerate(order.needs):
        groups[needs].append(index)
    keys = sorted(groups, key=lambda needs: (needs.bit_count(), groups[needs][0]))
    cut = _Cut(program, order, [groups[needs] for needs in keys])
    parts = tuple(map(cut.part, range(len(keys))))
    outputs = tuple(map(cut.after_output, program.outputs))
    return PartedProgram(parts, outputs, tuple(map(cut.is_alone, program.outputs)), order.changes)


def _slots(operands: Iterable[Any]) -> set[int]:
    return {slot.index for slot in slots_in(tuple(operands))}


def _written(action: Action) -> set[int]:
    return _slots(written_by(action))


class _Cut:
    """The parts of a program, as lists of the places of their actions."""

    def __init__(
        self, program: Program, order: _Order | _Whole, groups: Sequence[Sequence[int]]
    ) -> None:
        self._program, self._order, self._groups = program, order, groups
        self._part_of = {index: place for place, group in enumerate(groups) for index in group}
        self._users: dict[int, set[int]] = defaultdict(set)
        """The parts that read each slot; -1 stands for the outputs."""
        for index, slots in enumerate(reads_in(program)):
            for slot in slots:
                self._users[slot].add(self._part_of[index])
        self._times = Counter(output.index for output in program.outputs)
        for slot in self._times:
            self._users[slot].add(-1)

    def after_output(self, output: Slot) -> frozenset[int]:
        """The parts after which an output is what it is at the end: if nothing else refers to its
        memory, nothing writes to it, and it is what it is once it is made."""
        maker = self._own_maker(output)
        if maker is not None:
            return frozenset({self._part_of[maker]})
        return frozenset(map(self._part_of.__getitem__, self._order.before_end(output.index)))

    def is_alone(self, output: Slot) -> bool:
        """Whether the memory of an output is nobody else's: it was made for it."""
        return self._own_maker(output) is not None

    def _own_maker(self, output: Slot) -> int | None:
        """The action that made an output whose memory is nobody else's; None for any other."""
        once = self._times[output.index] == 1
        if once and self._users[output.index] == {-1}:
            return self._order.own_maker(output.index)
        return None

    def part(self, place: int) -> Part:
        """The part of a place."""
        order, picked = self._order, self._groups[place]
        actions = [self._program.actions[index] for index in picked]
        made = _slots(action.out for action in actions)
        takes = sorted(_slots((action.args, action.kwargs) for action in actions) - made)
        makes = [slot for slot in sorted(made) if self._users[slot] - {place}]
        before: set[int] = set().union(*map(order.before.__getitem__, picked))
        after = frozenset(map(self._part_of.__getitem__, before)) - {place}
        needs = frozenset(slot for slot in takes if slot < self._program.inputs)
        own = self._program_of(picked, takes, makes)
        return Part(needs, tuple(takes), tuple(makes), after, lowered(own))

    def _program_of(
        self, picked: Sequence[int], takes: Sequence[int], makes: Sequence[int]
    ) -> Program:
        """A program of some actions that returns some slots.  Constants are inputs, as all that a
        run may move to other memory."""
        program = self._program
        actions = [program.actions[index] for index in picked]
        moved_actions, moved = numbered(takes, actions, {})
        lines = tuple(program.lines[index] for index in picked) if program.lines else ()
        outputs = tuple(map(moved.__getitem__, makes))
        return Program(len(takes), moved_actions, outputs, 0, (), lines)


class _TooLong(Exception):
    """To say what the actions of a program wait for would take long."""


class _Whole:
    """The order of a program that is one part: each action needs all inputs."""

    def __init__(self, program: Program) -> None:
        count = len(program.actions)
        self.needs = [0] * count
        self.before: list[set[int]] = [set()] * count
        self.changes = program.given > program.inputs
        self._last = {count - 1} if count else set()

    def before_end(self, slot: int) -> set[int]:
        """The actions after which the elements of a slot are what they are at the end."""
        return self._last

    def own_maker(self, slot: int) -> int | None:
        """The action that made the memory of a slot for it: that is not known."""
        return None


class _Order:
    """What each action of a program has to wait for.  Sets of inputs are numbers, each member a
    bit.  A place in memory is called by the slot that it was made for.

    Raises :class:`_TooLong`.
    """

    def __init__(self, program: Program, of_users: Container[int]) -> None:
        self._program = program
        self._makers: dict[int, int] = {}
        self._memory: dict[int, frozenset[int]] = {}
        """For each slot the places in which it may lie."""
        self._written: dict[int, int] = {}
        """For each place in memory, the last action that wrote to it."""
        self._read: dict[int, list[int]] = defaultdict(list)
        """For each place, the actions that have read it since."""
        self._barrier: int | None = None
        self._random: int | None = None
        self._joined: int | None = None
        self._steps = 0
        self.needs: list[int] = []
        self.before: list[set[int]] = []
        self.changes = False
        of_any_user = frozenset({_OF_USERS})
        for slot in range(program.given):
            shared = slot < program.inputs and slot in of_users
            self._memory[slot] = of_any_user if shared else frozenset({slot})
        for index, action in enumerate(program.actions):
            self._follow(index, action)

    def _follow(self, index: int, action: Action) -> None:
        inside = [*actions_inside((action.args, action.kwargs))]
        flags = reduce(or_, (FLAGS[step.op] for step in inside), FLAGS[action.op])
        operands = _slots((action.args, action.kwargs))
        touched = self._behind(operands)
        written = self._behind(operands if any(map(written_by, inside)) else _written(action))
        before = {self._makers[slot] for slot in operands if slot in self._makers}
        before |= self._orders(index, flags, touched, written)
        self._count(len(touched) + len(before))
        needs = reduce(or_, (1 << slot for slot in operands if slot < self._program.inputs), 0)
        self.needs.append(reduce(or_, map(self.needs.__getitem__, before), needs))
        self.before.append(before)
        self._note_changes(flags, written)
        fresh = FLAGS[action.op] & FRESH and not written
        self._make(index, action, frozenset() if fresh else touched)

    def _make(self, index: int, action: Action, touched: frozenset[int]) -> None:
        """Note the results of an action, which may be views of what it has touched: what touches
        them touches that."""
        for made in _slots((action.out,)):
            self._memory[made] = touched or frozenset({made})
            self._makers[made] = index

    def _count(self, steps: int) -> None:
        self._steps += steps
        if self._steps > _MOST_STEPS:
            raise _TooLong

    def _behind(self, slots: Iterable[int]) -> frozenset[int]:
        """The places in which some slots may lie."""
        found = {self._memory[slot] for slot in slots}
        self._count(sum(map(len, found)))
        return found.pop() if len(found) == 1 else frozenset().union(*found)

    def _orders(
        self, index: int, flags: int, touched: frozenset[int], written: frozenset[int]
    ) -> set[int]:
        """The actions that have to run before this one, besides those that make its operands."""
        before: set[int] = set()
        if flags & _IN_ORDER:
            before.update(range(self._barrier or 0, index))
            self._barrier = index
            self._joined = index if flags & JOINS else self._joined
        elif self._barrier is not None:
            before.add(self._barrier)
        if flags & RANDOM:
            if self._random is not None:
                before.add(self._random)
            self._random = index
        for place in touched:
            if place in self._written:
                before.add(self._written[place])
            if place in written:
                before.update(self._read.pop(place, ()))
                self._written[place] = index
            else:
                self._read[place].append(index)
        before.discard(index)
        return before

    def _note_changes(self, flags: int, written: frozenset[int]) -> None:
        program = self._program
        works = flags & (GRADIENT | SETS_GRADIENT | JOINS) and program.given > program.inputs
        kept = range(program.inputs, program.given)
        self.changes |= bool(works) or any(place in kept for place in written)

    def before_end(self, slot: int) -> set[int]:
        """The actions after which the elements of a slot are what they are at the end."""
        self._count(len(self._memory[slot]))
        places = filter(self._written.__contains__, self._memory[slot])
        found = {self._written[place] for place in places}
        found.update(() if self._joined is None else (self._joined,))
        return found | ({self._makers[slot]} if slot in self._makers else set())

    def own_maker(self, slot: int) -> int | None:
        """The action that made the memory of a slot for it; None if that is another's too."""
        return self._makers.get(slot) if self._memory[slot] == {slot} else None
