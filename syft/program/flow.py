"""How values flow through a program: which slots an action reads, and which it reads last.

Constants are left out: they are there as long as the program is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from syft.ops.nested import SCALAR_TYPES
from syft.program.program import Action, Program, Slot, slots_in


def reads_of(action: Action) -> list[int]:
    """The slots that an action reads, as often as it does.

    >>> reads_of(Action(0, (Slot(4), [Slot(2), 1]), {"out": Slot(4)}, Slot(5)))
    [4, 2, 4]
    """
    found: list[int] = []
    for operand in (*action.args, *action.kwargs.values()):
        if type(operand) is Slot:
            found.append(operand.index)
        elif type(operand) not in SCALAR_TYPES:
            found.extend([slot.index for slot in slots_in(operand)])
    return found


def reads_in(program: Program) -> Sequence[Sequence[int]]:
    """The slots that each action of a program reads, constants not counted; found once.

    >>> neg = Action(0, (Slot(0),), {}, Slot(1))
    >>> reads_in(Program(1, (neg,), Slot(1)))
    [[0]]
    """
    known: list[list[int]] | None = program.facts.get("reads")
    if known is None:
        known = list(map(reads_of, program.actions))
        if program.constants:
            constant = range(program.given - len(program.constants), program.given)
            known = [[slot for slot in slots if slot not in constant] for slots in known]
        program.facts["reads"] = known
    return known


@dataclass(frozen=True, slots=True)
class Liveness:
    """When the values of a program are read."""

    last_reads: dict[int, list[int]]
    """For each action, the slots that nothing reads after it."""
    read: set[int]
    """All slots but constants that an action or the outputs read."""


def liveness_of(program: Program) -> Liveness:
    """Find out when each slot is read for the last time.

    State and constants are left out of ``last_reads``: others hold them longer than the run.

    >>> neg = Action(0, (Slot(0),), {}, Slot(1))
    >>> liveness_of(Program(1, (neg, neg), Slot(1)))
    Liveness(last_reads={1: [0]}, read={0, 1})
    """
    last: dict[int, int] = {}
    for index, slots in enumerate(reads_in(program)):
        last.update(dict.fromkeys(slots, index))
    outputs = {slot.index for slot in slots_in(program.outputs)}
    never_freed = outputs.union(range(program.inputs, program.given))
    last_reads: dict[int, list[int]] = {}
    for read_slot, index in last.items():
        if read_slot not in never_freed:
            last_reads.setdefault(index, []).append(read_slot)
    return Liveness(last_reads, outputs.union(last))
