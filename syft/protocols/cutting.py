"""Cuts the program of several roles into one program per role, and finds out who has which value.

A value lies with the role where it was sent, with the role whose state it is, or where the values
lie that it is computed from.  So places are found by joining: what an action reads and what it
makes is at one place, and a place is known once any of its values is.  A place that is not known is
that of whoever runs the protocol.

Constants, numbers and what is computed from them alone have no place: each role that needs them
makes them itself.  Random numbers have one, since two roles would draw different ones.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final

from syft.exceptions import ProtocolError
from syft.ops.table import (
    BY_NAME,
    FLAGS,
    FRESH,
    GRADIENT,
    INPLACE,
    INPLACE_OPTION,
    MUTATES_OTHERS,
    RANDOM,
    READS_GRADIENT,
    SETS_GRADIENT,
    UNINITIALIZED,
)
from syft.program.flow import reads_of
from syft.program.lint import lint
from syft.program.program import Action, RoleMark, Program, numbered, slots_in
from syft.program.recording.recorded_actions import OF_SIZES
from syft.program.role_program import RoleProgram

_HAS_PLACE: Final = RANDOM | GRADIENT | UNINITIALIZED | READS_GRADIENT
"""Operations of which it matters where they run, besides those that write."""
_NUMBERS: Final = OF_SIZES | {BY_NAME["torch.Tensor.item"]}
"""Operations that make numbers."""
_RANDOM: Final = frozenset(op for op, flags in enumerate(FLAGS) if flags & RANDOM)
_WRITES: Final = INPLACE | INPLACE_OPTION | MUTATES_OTHERS | SETS_GRADIENT


@dataclass(frozen=True, slots=True)
class Cut:
    """A program cut into roles, by rank.

    ``inputs`` are, for each role, the numbers of the program's inputs that users give it, in the
    order of the inputs of the role without source.  ``state`` are the numbers of the program's
    state tensors that it has.  ``outputs`` says for each output of the program who has it, and
    which of the outputs that stay there it is.  ``order`` has, for each role, where each of its
    actions stands in the whole program.
    """

    roles: tuple[RoleProgram, ...]
    inputs: tuple[tuple[int, ...], ...]
    state: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[int, int], ...]
    order: tuple[tuple[int, ...], ...]

    def takers(self, number: int) -> list[tuple[int, int]]:
        """The roles that take an input of the program, and its place among all their inputs: there
        may be several, also at one role."""
        return [
            (rank, place)
            for rank, inputs in enumerate(self.inputs)
            for one, place in zip(inputs, self.roles[rank].user_inputs, strict=True)
            if one == number
        ]


class RecordedAction:
    """An action of the whole program: what it reads and makes, and its mark."""

    __slots__ = ("index", "action", "line", "mark", "reads", "makes", "writes")

    def __init__(self, index: int, action: Action, line: str, mark: RoleMark | None) -> None:
        self.index, self.action, self.line, self.mark = index, action, line, mark
        self.reads = reads_of(action)
        self.makes = [slot.index for slot in slots_in(action.out)]
        flags = FLAGS[action.op]
        written = self.reads if flags & MUTATES_OTHERS else self.reads[: bool(flags & _WRITES)]
        out = [slot.index for slot in slots_in(action.kwargs.get("out"))]
        self.writes = [*written, *out]

    @property
    def crosses(self) -> bool:
        """Whether it is a copy on its way to another role."""
        return self.mark is not None and self.mark.crosses

    def floats(self, floating: Collection[int]) -> bool:
        """Whether it is about values without a place, and no copy on its way."""
        return not self.crosses and all(slot in floating for slot in (*self.reads, *self.makes))

    @property
    def is_fresh(self) -> bool:
        """Whether what it makes lies in new memory."""
        return bool(FLAGS[self.action.op] & FRESH) and not self.writes

    @property
    def has_place(self) -> bool:
        """Whether it matters where it runs."""
        return bool(self.mark or self.writes or FLAGS[self.action.op] & _HAS_PLACE)


def split(
    program: Program,
    names: Sequence[str],
    input_roles: Sequence[int | None],
    numbers: Iterable[int],
    state_roles: Sequence[int | None],
) -> Cut:
    """Cut a program with flat outputs into roles called ``names``, the first that of the caller.

    ``input_roles`` and ``state_roles`` are the ranks of the roles that have inputs and state, where
    that is known.  ``numbers`` are the inputs that are no tensors.

    Raises :class:`~syft.exceptions.ProtocolError` for an action on values of several roles.

    >>> from syft.ops.table import BY_NAME
    >>> from syft.program.program import Slot
    >>> clone, neg = BY_NAME["torch.Tensor.clone"], BY_NAME["torch.neg"]
    >>> actions = Action(clone, (Slot(0),), {}, Slot(1)), Action(neg, (Slot(1),), {}, Slot(2))
    >>> marks = RoleMark(1, crosses=True), None
    >>> whole = Program(1, actions, (Slot(2),), lines=("a.py:1", "a.py:2"), marks=marks)
    >>> cut = split(whole, ["local", "alice"], [None], [], [])
    >>> [(role.name, role.sources, role.targets) for role in cut.roles], cut.outputs
    ([('local', (None,), (1,)), ('alice', (0,), (None,))], ((1, 0),))
    """
    return _Cutting(program, names, input_roles, numbers, state_roles).cut()


class _Cutting:
    """One cut in the making: the place of each slot, by joining slots."""

    def __init__(
        self,
        program: Program,
        names: Sequence[str],
        input_roles: Sequence[int | None],
        numbers: Iterable[int],
        state_roles: Sequence[int | None],
    ) -> None:
        self.program, self.names = program, names
        marks = program.marks or (None,) * len(program.actions)
        lines = program.lines or ("",) * len(program.actions)
        self.actions = list(map(RecordedAction, count(), program.actions, lines, marks))
        self.first_constant = program.inputs + program.state
        self._parent: dict[int, int] = {}
        known = enumerate([*input_roles, *state_roles])
        self._rank: dict[int, int] = {slot: rank for slot, rank in known if rank is not None}
        given = {*numbers, *range(self.first_constant, program.given)}
        self.floating = self._floating(given)
        self._join_all()
        self.outputs = [slot.index for slot in slots_in(program.outputs)]
        self.crossing = list(filter(self._leaves, self.actions))
        self.needed: list[set[int]] = [set() for _ in names]
        """The slots that each role reads or keeps."""

    # ---------------------------------------------------------------------------------- places

    def _floating(self, given: set[int]) -> set[int]:
        """The slots that have no place: each role makes them that needs them.

        What shares memory with something that is written to has a place, whatever it is made of.
        """
        written: set[int] = set()
        while True:
            floating = given - written
            for one in self.actions:
                if not one.has_place and floating.issuperset(one.reads):
                    floating.update(set(one.makes) - written)
            more = self._written(floating, written)
            if not more:
                return floating
            written |= more

    def _written(self, floating: set[int], written: set[int]) -> set[int]:
        """The floating slots that are written to, and those of which something was made that is."""
        more: set[int] = set()
        for one in self.actions:
            more.update(floating.intersection(one.writes))
        for one in reversed(self.actions):
            if one.is_fresh:  # a write to what it makes is none to what it reads
                continue
            if not more.isdisjoint(one.makes) or not written.isdisjoint(one.makes):
                more.update(floating.intersection(one.reads))
        return more

    def _find(self, slot: int) -> int:
        while (above := self._parent.get(slot, slot)) != slot:
            self._parent[slot] = slot = self._parent.get(above, above)
        return slot

    def _join(self, one: int, other: int, action: RecordedAction) -> None:
        one, other = self._find(one), self._find(other)
        if one == other:
            return
        first, second = self._rank.get(one), self._rank.get(other)
        self._agree(first, second, action)
        self._parent[other] = one
        if first is None and second is not None:
            self._rank[one] = second

    def _pin(self, slot: int, rank: int, action: RecordedAction) -> None:
        self._agree(self._rank.setdefault(self._find(slot), rank), rank, action)

    def _join_all(self) -> None:
        sources = [one.reads[0] for one in self.actions if one.crosses]
        for one in self.actions:
            if one.crosses:
                self._join_crossing(one, sources)
            else:
                placed = [slot for slot in (*one.reads, *one.makes) if slot not in self.floating]
                for slot in placed[1:]:
                    self._join(placed[0], slot, one)
                self._pin_marked(one, one.makes or placed[:1])

    def _join_crossing(self, one: RecordedAction, sources: Sequence[int]) -> None:
        if one.mark is not None and one.mark.back is not None:
            self._join(sources[one.mark.back], one.makes[0], one)
        self._pin_marked(one, one.makes)

    def _pin_marked(self, one: RecordedAction, slots: Iterable[int]) -> None:
        if one.mark is not None and one.mark.role is not None:
            for slot in slots:
                self._pin(slot, one.mark.role, one)

    def _agree(self, first: int | None, second: int | None, action: RecordedAction) -> None:
        """Raise if an action uses values of two roles."""
        if first is None or second is None or first == second:
            return
        one, other = sorted((first, second))
        a, b = self.names[one], self.names[other]
        text = f"{action.line}: {action.action.name} uses values of {a} and of {b}"
        if self._reads_of(action, _RANDOM):
            drawn = f"noise = {b}.torch.rand(...), and noise.move({a}) for the other"
            raise ProtocolError(f"{text}, one of them random numbers", f"draw at one role: {drawn}")
        if self._reads_of(action, _NUMBERS):
            instead = f"let {a} send the tensor, and read the number at {b}"
            raise ProtocolError(f"{text}, one of them a number that was read there", instead)
        raise ProtocolError(text, f"send one of them first: .send({b}), .move({b}) or .get()")

    def _reads_of(self, action: RecordedAction, ops: Collection[int]) -> bool:
        """Whether an action reads what one of these operations has made."""
        made = (one.makes for one in self.actions if one.action.op in ops)
        return any(not set(makes).isdisjoint(action.reads) for makes in made)

    def place(self, slot: int) -> int:
        """The rank of the role that has a slot; that of the caller if nothing says otherwise."""
        return 0 if slot in self.floating else self._rank.get(self._find(slot), 0)

    def _leaves(self, one: RecordedAction) -> bool:
        """Whether an action is a copy that really goes to another role."""
        if not one.crosses or one.reads[0] in self.floating:
            return False
        return self.place(one.reads[0]) != self.place(one.makes[0])

    # --------------------------------------------------------------------------------- programs

    def cut(self) -> Cut:
        """The program of each role."""
        for slot in self.outputs:
            self.needed[self.place(slot)].add(slot)
        picked = self._picked()
        roles = [self._role(rank, actions) for rank, actions in enumerate(picked)]
        kept = list(map(self._kept, range(len(self.names))))
        owners = list(map(self.place, self.outputs))
        found = zip(owners, self.outputs, strict=True)
        return Cut(
            tuple(roles),
            tuple(
                tuple(self._given(rank, range(self.program.inputs))) for rank in range(len(roles))
            ),
            tuple(tuple(self._state(rank)) for rank in range(len(roles))),
            tuple((rank, kept[rank].index(slot)) for rank, slot in found),
            tuple(tuple(one.index for one in actions) for actions in picked),
        )

    def _picked(self) -> list[list[RecordedAction]]:
        """The actions of each role, in order."""
        picked: list[list[RecordedAction]] = [[] for _ in self.names]
        expecting = [one for one in self.actions if not one.makes and one.floats(self.floating)]
        for one in filter(lambda one: not one.floats(self.floating), reversed(self.actions)):
            rank = self._actor(one)
            picked[rank].append(one)
            self.needed[rank].update(one.reads)
        for mine, needed in zip(picked, self.needed, strict=True):
            if mine:  # who does anything checks what is expected of the numbers of the call
                mine += expecting
                needed.update(slot for one in expecting for slot in one.reads)
            for one in filter(lambda one: one.floats(self.floating), reversed(self.actions)):
                if not needed.isdisjoint(one.makes):
                    mine.append(one)
                    needed.update(one.reads)
        return [sorted(mine, key=lambda one: one.index) for mine in picked]

    def _actor(self, one: RecordedAction) -> int:
        """The role that takes an action: a copy is made by the role that sends it."""
        slots = [*one.reads, *one.makes] if self._leaves(one) else [*one.makes, *one.reads]
        return next((self.place(slot) for slot in slots if slot not in self.floating), 0)

    def _given(self, rank: int, slots: Iterable[int]) -> list[int]:
        """Those of some slots that a role has before it runs, and has use for."""
        needed = self.needed[rank]
        return [
            slot
            for slot in slots
            if (slot in needed if slot in self.floating else self.place(slot) == rank)
        ]

    def _state(self, rank: int) -> list[int]:
        """The numbers of the state tensors of a role."""
        first = self.program.inputs
        return [slot - first for slot in self._given(rank, range(first, self.first_constant))]

    def _kept(self, rank: int) -> list[int]:
        """The outputs that stay at a role."""
        return list(dict.fromkeys(slot for slot in self.outputs if self.place(slot) == rank))

    def _role(self, rank: int, picked: list[RecordedAction]) -> RoleProgram:
        """A role with the actions that were picked for it."""
        program, first = self.program, self.first_constant
        inputs = self._given(rank, range(program.inputs))
        arriving = [one for one in self.crossing if self.place(one.makes[0]) == rank]
        going = [one for one in self.crossing if self.place(one.reads[0]) == rank]
        state = self._given(rank, range(program.inputs, first))
        constants = self._given(rank, range(first, program.given))
        kept = self._kept(rank)
        given = [*inputs, *(one.makes[0] for one in arriving), *state, *constants]
        actions, moved = numbered(given, (one.action for one in picked), {})
        results = (*kept, *(one.makes[0] for one in going))
        made = Program(
            len(inputs) + len(arriving),
            actions,
            tuple(map(moved.__getitem__, results)),
            len(state),
            tuple(program.constants[slot - first] for slot in constants),
            tuple(one.line for one in picked),
        )
        lint(made)
        sources = [self.place(one.reads[0]) for one in arriving]
        targets = [self.place(one.makes[0]) for one in going]
        return RoleProgram(
            self.names[rank],
            made,
            (*[None] * len(inputs), *sources),
            (*[None] * len(kept), *targets),
        )
