"""What each role does, as people read it: its inputs, its actions in order, and where they go.

A tape holds actions of two kinds: an operation that the role computes, and a value that it sends.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from syft.notebook_html import block, counted, line
from syft.program.code import code_of
from syft.program.flow import reads_of
from syft.program.program import Slot, slots_in
from syft.program.role_program import RoleProgram
from syft.protocols.cutting import Cut

_SENT = re.compile(r"(\s*)\S+ = (.*)\.clone\(\)  # (\d+): torch\.Tensor\.clone")


@dataclass(frozen=True, eq=False)
class RoleAction:
    """Something that a role does; ``line`` is where it was written, and ``number`` where it stands
    in the whole protocol.

    ``waits_for`` are the actions, also of other roles, that make what it needs.  It starts when
    they are done and the inputs of the execution that it reads are there.
    """

    number: int
    line: str
    waits_for: tuple[RoleAction, ...] = field(repr=False)


@dataclass(frozen=True, eq=False)
class ComputationAction(RoleAction):
    """An operation: its name, the names of the values that it reads, and of those that it makes."""

    inputs: tuple[str, ...]
    op: str
    outputs: tuple[str, ...]

    def __str__(self) -> str:
        made = f"{', '.join(self.outputs)} = " if self.outputs else ""
        return f"{made}{self.op}({', '.join(self.inputs)})"


@dataclass(frozen=True, eq=False)
class CommunicationAction(RoleAction):
    """A value that goes from the role ``origin`` to the role ``target``."""

    origin: str
    target: str
    what: str

    def __str__(self) -> str:
        return f"{self.what} -> {self.target}"


class Role:
    """A role of a protocol that has been built: what it takes, does, sends and keeps.

    ``inputs`` and ``outputs`` are the names of what users give it and of what stays with it, with
    what each was like when the protocol was built.  ``actions`` is its tape.

    >>> @sy.protocol(carol=sy.RoleWorker())
    ... def foo(x):
    ...     return x.send(carol).abs()
    >>> _ = foo.build(torch.ones(2))
    >>> role = foo.plans["carol"]
    >>> role
    <Role carol takes () keeps (_1: float32 (2,))>
    def carol(from_local):
        _1 = from_local.abs()  # 0: torch.Tensor.abs
        return _1
    >>> print(role.code == repr(role).partition("\\n")[2], role.is_idle)
    True False
    """

    def __init__(self, program: RoleProgram, inputs: dict[str, str], names: Sequence[str]) -> None:
        self.name = program.name
        self.program = program
        self.inputs = inputs
        self.outputs: dict[str, str] = {}
        self.actions: tuple[ComputationAction | CommunicationAction, ...] = ()
        self._roles = names
        given, come = iter(inputs), {rank: 0 for rank in range(len(names))}
        self.arguments: list[str] = []
        """The names of all inputs of its program."""
        for source in program.sources:
            if source is None:
                self.arguments.append(next(given))
            else:
                come[source] += 1
                number = f"_{come[source]}" if come[source] > 1 else ""
                self.arguments.append(f"from_{names[source]}{number}")

    @property
    def is_idle(self) -> bool:
        """Whether it has nothing to do, to give or to keep."""
        return self.program.is_idle

    @cached_property
    def _sends(self) -> dict[int, str]:
        """The slots that go to other roles, and to which."""
        pairs = zip(self.program.program.outputs, self.program.targets, strict=True)
        return {slot.index: self._roles[to] for slot, to in pairs if to is not None}

    def _name_of(self, slot: int) -> str:
        """How the code calls a slot."""
        program = self.program.program
        if slot < program.inputs:
            return self.arguments[slot]
        if slot < program.given:
            place = slot - program.inputs
            kind = "state" if place < program.state else "constant"
            return f"{kind}_{place if place < program.state else place - program.state}"
        return f"_{slot}"

    @property
    def code(self) -> str:
        """What it does as Python source, with ``value -> role`` where it sends."""
        program = self.program.program
        kept = [program.outputs[place] for place in self.program.kept_outputs]
        actions = [
            replace(one, mode=None) if self._target_of(one) else one for one in program.actions
        ]
        outputs = kept[0] if len(kept) == 1 else tuple(kept)
        shown = replace(program, actions=tuple(actions), outputs=outputs)
        state = [f"state_{place}" for place in range(program.state)]
        lines = code_of(shown, self.name, self.arguments, state).splitlines()
        if not kept:
            lines[-1:] = [] if len(lines) > 2 else ["    pass"]
        return "\n".join(map(self._with_target, lines))

    def _with_target(self, text: str) -> str:
        """A line of code, where it sends with the role to which it does."""
        found = _SENT.fullmatch(text)
        target = self._target_of(self.program.program.actions[int(found[3])]) if found else None
        if found is None or target is None:
            return text
        return f"{found[1]}{found[2]} -> {target}  # {found[3]}"

    def _target_of(self, action: Any) -> str | None:
        """The role to which the copy goes that an action makes."""
        return self._sends.get(action.out.index) if type(action.out) is Slot else None

    def __repr__(self) -> str:
        takes = ", ".join(f"{name}: {kind}" for name, kind in self.inputs.items())
        keeps = ", ".join(f"{name}: {kind}" for name, kind in self.outputs.items())
        return f"<Role {self.name} takes ({takes}) keeps ({keeps})>\n{self.code}"

    def _repr_html_(self) -> str:
        """A notebook shows this: what it takes and keeps, and its code."""
        facts = f"takes {', '.join(self.inputs) or 'nothing'}", counted(len(self.actions), "action")
        return line(self.name, "Role", *facts) + block(self.code, summary="code")


def roles_of(
    cut: Cut, names: Sequence[str], kinds: Sequence[str], results: Sequence[str]
) -> list[Role]:
    """The roles of a cut, with their tapes; ``names`` and ``kinds`` are of the inputs of the
    protocol, ``results`` tells what each of its outputs was like."""
    roles = [
        Role(
            program,
            {names[at]: kinds[at] for at in cut.inputs[rank]},
            [each.name for each in cut.roles],
        )
        for rank, program in enumerate(cut.roles)
    ]
    _write_tapes(cut, roles)
    for rank, role in enumerate(roles):
        kept = [role.program.program.outputs[place] for place in role.program.kept_outputs]
        for (owner, place), text in zip(cut.outputs, results, strict=True):
            if owner == rank:
                role.outputs[role._name_of(kept[place].index)] = text
    return roles


def _write_tapes(cut: Cut, roles: Sequence[Role]) -> None:
    """Give each role its actions, in the order of the whole, so that those waited for are there."""
    made: list[dict[int, RoleAction]] = [{} for _ in roles]
    letters = [list(map(list, _letters_of(role))) for role in roles]
    steps = [(at, rank, n) for rank, order in enumerate(cut.order) for n, at in enumerate(order)]
    for at, rank, number in sorted(steps):
        role = roles[rank]
        action = _action_of(role, at, number, made[rank])
        role.actions = (*role.actions, action)
        if type(action) is CommunicationAction:
            to = role._roles.index(action.target)
            made[to][letters[to][rank].pop(0)] = action
        else:
            one = role.program.program.actions[number]
            outs = [slot.index for slot in slots_in(one.out)]
            made[rank].update(dict.fromkeys(outs or reads_of(one)[:1], action))  # or in place


def _letters_of(role: Role) -> list[tuple[int, ...]]:
    """The places of the inputs that come from each role, by its rank."""
    return [role.program.letters_from.get(rank, ()) for rank in range(len(role._roles))]


def _action_of(
    role: Role, at: int, number: int, made: Mapping[int, RoleAction]
) -> ComputationAction | CommunicationAction:
    """An action of a role, given those that made what it may read."""
    program = role.program.program
    one = program.actions[number]
    line = program.lines[number] if program.lines else ""
    reads = list(dict.fromkeys(reads_of(one)))
    waits = tuple(dict.fromkeys(made[slot] for slot in reads if slot in made))
    target = role._target_of(one)
    if target is not None:
        return CommunicationAction(at, line, waits, role.name, target, role._name_of(reads[0]))
    outs = tuple(role._name_of(slot.index) for slot in slots_in(one.out))
    return ComputationAction(at, line, waits, tuple(map(role._name_of, reads)), one.name, outs)
