"""What the role of the caller only sends on, the caller can give to who gets it.

A role that does nothing else with its arguments would be a worker's part of its own, for which a
start, letters and a run are paid.  It is left out here, with what belongs to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Final

from syft.ops.table import BY_NAME
from syft.program.lint import lint
from syft.program.program import Program, numbered, slots_in
from syft.program.role_program import RoleProgram
from syft.protocols.cutting import Cut, RecordedAction

_CLONE: Final = BY_NAME["torch.Tensor.clone"]


def given_directly(cut: Cut) -> Cut:
    """The same with all that the caller's role only sends on given by users to who gets it.

    >>> from syft.program.program import Action, RoleMark, Slot
    >>> from syft.protocols.cutting import split
    >>> actions = (
    ...     Action(_CLONE, (Slot(0),), {}, Slot(1)),
    ...     Action(BY_NAME["torch.neg"], (Slot(1),), {}, Slot(2)),
    ... )
    >>> marks = RoleMark(1, crosses=True), None
    >>> program = Program(1, actions, (Slot(2),), lines=("", ""), marks=marks)
    >>> cut = given_directly(split(program, ["local", "alice"], [0], [], []))
    >>> [(role.name, role.sources, role.targets) for role in cut.roles], cut.inputs
    ([('local', (), ()), ('alice', (None,), (None,))], ((), (0,)))
    """
    passing = _PassingOn(cut.roles[0], cut.inputs[0])
    if not passing.passed:
        return cut
    left, inputs = passing.left()
    found = [(left, inputs)]
    for rank, role in enumerate(cut.roles[1:], 1):
        found.append(passing.taken_by(rank, role, cut.inputs[rank]))
    roles, given = zip(*found, strict=True)
    return replace(cut, roles=roles, inputs=given)


class _PassingOn:
    """The role of the caller, whose users give it inputs of these ``numbers``."""

    def __init__(self, role: RoleProgram, numbers: tuple[int, ...]) -> None:
        self.role, self.program = role, role.program
        self._numbers = dict(zip(role.user_inputs, numbers, strict=True))
        self._slots = [slot.index for slot in slots_in(role.program.outputs)]
        self._actions = [
            RecordedAction(at, action, line, None)
            for at, (action, line) in enumerate(
                zip(self.program.actions, self.program.lines, strict=True)
            )
        ]
        copies = self._copies()
        self.passed = {
            place: copies[self._slots[place]]
            for place, to in enumerate(role.targets)
            if to is not None and self._slots[place] in copies
        }
        """The outputs, by their places, that are copies of what users give: of which number."""

    def _copies(self) -> dict[int, int]:
        """The slots of copies of inputs that nothing has written to before, and that nothing here
        uses; with the numbers of the inputs."""
        copies = {
            one.makes[0]: self._numbers[one.reads[0]]
            for one in takewhile(lambda one: not one.writes, self._actions)
            if one.action.op == _CLONE and one.reads[0] in self._numbers
        }
        used = {slot for one in self._actions for slot in one.reads}
        return {
            slot: number
            for slot, number in copies.items()
            if slot not in used and self._slots.count(slot) == 1
        }

    def left(self) -> tuple[RoleProgram, tuple[int, ...]]:
        """The role without what is passed on, and the numbers of the inputs that it needs still."""
        kept = [place for place in range(len(self._slots)) if place not in self.passed]
        actions, inputs = self._needed_for([self._slots[place] for place in kept])
        made = self._program(actions, inputs, kept)
        lint(made)
        sources = tuple(self.role.sources[place] for place in inputs)
        targets = tuple(self.role.targets[place] for place in kept)
        numbers = tuple(self._numbers[place] for place in inputs if place in self._numbers)
        return RoleProgram(self.role.name, made, sources, targets), numbers

    def _needed_for(self, outputs: Sequence[int]) -> tuple[list[RecordedAction], list[int]]:
        """The actions that do more than pass on, and the inputs that these or outputs use."""
        dropped = {self._slots[place] for place in self.passed}
        actions = [one for one in self._actions if dropped.isdisjoint(one.makes)]
        used = {slot for one in actions for slot in one.reads}.union(outputs)
        return actions, [place for place in range(self.program.inputs) if place in used]

    def _program(
        self, actions: Sequence[RecordedAction], inputs: Sequence[int], kept: Sequence[int]
    ) -> Program:
        program = self.program
        given = [*inputs, *range(program.inputs, program.given)]
        numbered_actions, moved = numbered(given, (one.action for one in actions), {})
        outputs = tuple(moved[self._slots[place]] for place in kept)
        fixed = program.state, program.constants, tuple(one.line for one in actions)
        return Program(len(inputs), numbered_actions, outputs, *fixed)

    def taken_by(
        self, rank: int, role: RoleProgram, numbers: tuple[int, ...]
    ) -> tuple[RoleProgram, tuple[int, ...]]:
        """A role that gets directly what would come from the caller's, and the numbers of all
        inputs that users give it."""
        arriving = zip(
            role.letters_from.get(0, ()), self.role.letters_to.get(rank, ()), strict=True
        )
        given = dict(zip(role.user_inputs, numbers, strict=True))
        given.update((place, self.passed[out]) for place, out in arriving if out in self.passed)
        sources = tuple(
            None if place in given else source for place, source in enumerate(role.sources)
        )
        return replace(role, sources=sources), tuple(given[place] for place in sorted(given))
