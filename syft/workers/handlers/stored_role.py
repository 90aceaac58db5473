"""A role of a protocol at its worker: a checked program with the state of the role.

It is stored in one message, found, copied and dropped as a plan is.  A copy has a state of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from typing import Any, Final

import torch

from syft.codes import TypeCode
from syft.exceptions import MalformedMessage
from syft.program.codec import digest_of
from syft.program.program import Program
from syft.program.role_program import RoleProgram
from syft.program.unread_gradients import without_unread_gradients
from syft.serde.expect import expect_fields, expect_type, malformed
from syft.serde.packer import Packer, Unpacker
from syft.serde.registry import Operand, pack, pack_items, register, unpack_at
from syft.workers.core.shares import Turns
from syft.workers.handlers.accesses import Effects, effects_of
from syft.workers.handlers.programs import facts_changed
from syft.workers.handlers.role_parts import PartedProgram, parted
from syft.workers.handlers.stored_program import (
    StoredProgram,
    flat_outputs,
    unpack_state,
    without_objects,
)
from syft.workers.labels.memory_labels import full_guard_of

MOST_ROLES: Final = 1 << 10
"""The most roles of a protocol."""


@dataclass(frozen=True, slots=True)
class Output:
    """An output of a role: its place and slot, the rank of the role ``to`` which it goes, and its
    ``number`` among those that go there (None: that stay); the parts ``after`` which it is there,
    and whether its memory is nobody else's."""

    place: int
    slot: int
    to: int | None
    number: int
    after: frozenset[int]
    alone: bool


class StoredRole(StoredProgram):
    """A role in a worker's store: its program, and its state at the worker.

    >>> StoredRole(RoleProgram("alice", Program(0, (), ()), (), ()), [])
    <StoredRole alice>
    """

    def __init__(
        self,
        role: RoleProgram,
        state: Sequence[torch.Tensor],
        tags: set[str] | None = None,
        description: str | None = None,
        digest: bytes | None = None,
    ) -> None:
        super().__init__(state, tags or set(), description)
        self.role = role
        self.digest = digest or digest_of(role.program, (role.name, role.sources, role.targets))
        """What stands for all that the role computes and sends as it was stored, but for the
        elements of its state: who approves it approves it with any state.  A program may write to
        its constants, with private values too, and these are not in it."""
        self.turns = Turns()
        """Where executions that change the state wait for those before."""

    def __repr__(self) -> str:
        return f"<StoredRole {self.role.name}>"

    @property
    def program(self) -> Program:
        """The program of the role."""
        return self.role.program

    def put_constants(self, constants: Sequence[torch.Tensor]) -> None:
        """Have the program use other constants of the same kinds."""
        self.role = replace(self.role, program=self.program.on(constants))

    @cached_property
    def parted(self) -> PartedProgram:
        """The program in parts, made ready to run for the users of the worker."""
        return parted(self.program, self.role.user_inputs)

    @cached_property
    def letters(self) -> dict[tuple[int, int], int]:
        """The inputs that come from other roles: the place of each by the rank of its sender, and
        its number among those that come from there."""
        return {
            (rank, number): place
            for rank, places in self.role.letters_from.items()
            for number, place in enumerate(places)
        }

    @cached_property
    def outputs(self) -> tuple[Output, ...]:
        """The outputs, by place."""
        role, cut = self.role, self.parted
        numbers: dict[int | None, count[int]] = defaultdict(count)
        return tuple(
            Output(place, slot.index, to, next(numbers[to]), cut.outputs[place], cut.alone[place])
            for place, (slot, to) in enumerate(zip(role.program.outputs, role.targets, strict=True))
        )

    @cached_property
    def waits(self) -> bool:
        """Whether nothing can run or leave before an input is there."""
        given, parts = self.program.inputs, self.parted.parts
        early = [one for one in self.outputs if one.slot >= given and not one.after]
        return not early and all(part.needs or part.after for part in parts)

    @cached_property
    def effects(self) -> Effects:
        """What the program does to its inputs and to the state."""
        return effects_of(self.program)

    @cached_property
    def alters(self) -> int:
        """What it may change of tensors: kinds, gradients, or both."""
        return facts_changed(self.program)

    def duplicate(self) -> StoredRole:
        """The same role with a copy of its state, and of its constants."""
        state, constants = self.copies()
        role = replace(self.role, program=self.program.on(constants))
        return StoredRole(role, state, self.tags, self.description, self.digest)

    def summary(self) -> Any:
        """Its name, where inputs come from and outputs go, and the digest; None for that if its
        constants are private, as they may have been when it came."""
        private = any(full_guard_of(one) is not None for one in self.program.constants)
        digest = None if private else self.digest
        return self.role.name, self.role.sources, self.role.targets, digest


def _pack(stored: StoredRole, packer: Packer) -> Operand:
    role = stored.role
    return (
        int(TypeCode.ROLE),
        role.name,
        pack(role.program, packer),
        role.sources,
        role.targets,
        pack_items(without_unread_gradients(role.program, stored.state), packer),
        tuple(sorted(stored.tags)),
        stored.description,
    )


def _unpack(operand: Sequence[Any], unpacker: Unpacker) -> StoredRole:
    with without_objects(unpacker):
        return _unpacked(operand, unpacker)


def _unpacked(operand: Sequence[Any], unpacker: Unpacker) -> StoredRole:
    expect_fields(operand, 7)
    name = expect_type(operand[1], str, "a text", ".name")
    program = unpack_at(operand[2], unpacker, ".program")
    if type(program) is not Program:
        raise malformed("a program", operand[2], ".program")
    outputs = flat_outputs(program)
    sources = _ranks(operand[3], program.inputs, ".sources")
    targets = _ranks(operand[4], len(outputs), ".targets")
    state = unpack_state(operand[5], unpacker)
    if len(state) != program.state:
        raise MalformedMessage("$.state", f"{program.state}, as in the program", str(len(state)))
    tags = expect_type(operand[6], (list, tuple), "an array of tags", ".tags")
    for index, tag in enumerate(tags):
        expect_type(tag, str, "a text", f".tags[{index}]")
    description = expect_type(operand[7], (str, type(None)), "a text or nil", ".description")
    role = RoleProgram(name, program, sources, targets)
    return StoredRole(role, state, set(tags), description)


def _ranks(items: Any, count: int, where: str) -> tuple[int | None, ...]:
    """A rank or nil for each input, or output, of a program."""
    expect_type(items, (list, tuple), "an array", where)
    if len(items) != count:
        raise MalformedMessage(f"${where}", f"{count}, as in the program", str(len(items)))
    for index, rank in enumerate(items):
        if rank is not None and (type(rank) is not int or not 0 <= rank < MOST_ROLES):
            raise MalformedMessage(f"${where}[{index}]", "the rank of a role or nil", repr(rank))
    return tuple(items)


register(TypeCode.ROLE, StoredRole, _pack, _unpack)
