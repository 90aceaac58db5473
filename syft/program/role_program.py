"""What one role of a protocol computes: a program, and where its inputs come from and results go.

A protocol is recorded as one computation of several roles and cut into one program per role.  What
crosses from role to role is the output of one and the input of another.  It is numbered per pair of
roles, so both ends know which value a letter holds, whatever the order of arrival.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from syft.program.program import Program


@dataclass(frozen=True)
class RoleProgram:
    """A role of a protocol as data: ``name``, ``program``, ``sources`` and ``targets``.

    ``sources`` has an entry per input of the program: the rank of the role that sends it, or None
    for what a user gives.  ``targets`` has one per output: the rank of the role to which it goes,
    or None for an output of the protocol, which stays at this role.  Ranks count the roles of a
    protocol.  The n-th input that role b has from role a is the n-th output of a for b.

    >>> from syft.program.program import Slot
    >>> role = RoleProgram("alice", Program(2, (), (Slot(0), Slot(1))), (None, 2), (2, None))
    >>> role.user_inputs, role.kept_outputs, role.letters_to
    ((0,), (1,), {2: (0,)})
    """

    name: str
    program: Program
    sources: tuple[int | None, ...]
    targets: tuple[int | None, ...]

    @property
    def is_idle(self) -> bool:
        """Whether it has nothing to do, to give or to keep."""
        program = self.program
        return not (program.actions or program.inputs or program.outputs or program.state)

    @cached_property
    def user_inputs(self) -> tuple[int, ...]:
        """The places of the inputs that users give."""
        return tuple(place for place, rank in enumerate(self.sources) if rank is None)

    @cached_property
    def kept_outputs(self) -> tuple[int, ...]:
        """The places of the outputs that stay at the role."""
        return tuple(place for place, rank in enumerate(self.targets) if rank is None)

    @cached_property
    def answers(self) -> bool:
        """Whether its worker says when the role has run: of one that only sends to others, what it
        sends says so."""
        return bool(self.kept_outputs or self.program.state or not self.letters_to)

    @cached_property
    def partners(self) -> frozenset[int]:
        """The ranks of the roles from which inputs come, or to which outputs go."""
        return frozenset(rank for rank in (*self.sources, *self.targets) if rank is not None)

    @cached_property
    def letters_from(self) -> dict[int, tuple[int, ...]]:
        """The places of the inputs that come from each role."""
        return _by_rank(self.sources)

    @cached_property
    def letters_to(self) -> dict[int, tuple[int, ...]]:
        """The places of the outputs that go to each role."""
        return _by_rank(self.targets)


def _by_rank(ranks: tuple[int | None, ...]) -> dict[int, tuple[int, ...]]:
    found: dict[int, list[int]] = {}
    for place, rank in enumerate(ranks):
        if rank is not None:
            found.setdefault(rank, []).append(place)
    return {rank: tuple(places) for rank, places in found.items()}
