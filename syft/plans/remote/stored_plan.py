"""A plan at a worker: checked data with tensors of its own, and no Python function.

What arrives is a program that its codec has checked, an interface that fits it, and the state.
It is kept like a tensor: found by its tags, fetched, copied, moved and dropped, and it is as
private as the most private tensor of its state.

Its state is sent without gradients that the program would not read.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch

from syft.codes import TypeCode
from syft.exceptions import MalformedMessage
from syft.plans.building.interface import Blueprint, Interface
from syft.plans.remote.interface_codec import pack_interface, unpack_interface
from syft.program.lowered import Lowered
from syft.program.program import Program
from syft.program.unread_gradients import without_unread_gradients
from syft.serde.expect import expect_fields, expect_type, malformed
from syft.serde.packer import Packer, Unpacker
from syft.serde.registry import Operand, pack, pack_items, register, unpack_at
from syft.workers.handlers.programs import lowered
from syft.workers.handlers.stored_program import (
    StoredProgram,
    flat_outputs,
    unpack_state,
    without_objects,
)


class StoredPlan(StoredProgram):
    """A plan in a worker's store: its blueprint, and its state at the worker.

    >>> import inspect
    >>> blueprint = Blueprint(Interface("f", inspect.Signature(), {}, ()), Program(0, (), ()))
    >>> StoredPlan(blueprint, [], set(), None)
    <StoredPlan f>
    """

    def __init__(
        self,
        blueprint: Blueprint,
        state: Sequence[torch.Tensor],
        tags: set[str],
        description: str | None,
        copy_of: str | None = None,
    ) -> None:
        super().__init__(state, tags, description, copy_of)
        self.blueprint = blueprint

    def __repr__(self) -> str:
        return f"<StoredPlan {self.blueprint.interface.name}>"

    @cached_property
    def lowered(self) -> Lowered:
        """The program, made ready to run for the users of the worker."""
        return lowered(self.blueprint.program)

    @property
    def program(self) -> Program:
        """The program of the blueprint."""
        return self.blueprint.program

    def put_constants(self, constants: Sequence[torch.Tensor]) -> None:
        """Have the blueprint's program use other constants of the same kinds."""
        self.blueprint = self.blueprint.with_constants(tuple(constants))
        self.__dict__.pop("lowered", None)

    def duplicate(self) -> StoredPlan:
        """The same plan with copies of its state and of its constants: it may write to both."""
        state, constants = self.copies()
        blueprint = self.blueprint.with_constants(constants)
        return StoredPlan(blueprint, state, self.tags, self.description, self.copy_of)

    def summary(self) -> Any:
        """The interface of the plan, as plain values."""
        return pack_interface(self.blueprint.interface)


# ------------------------------------------------------------------------------------------ codec


def _pack(plan: StoredPlan, packer: Packer) -> Operand:
    return (
        int(TypeCode.PLAN),
        pack(pack_interface(plan.blueprint.interface), packer),
        pack(plan.blueprint.program, packer),
        pack_items(without_unread_gradients(plan.blueprint.program, plan.state), packer),
        tuple(sorted(plan.tags)),
        plan.description,
        plan.copy_of,
    )


def _unpack(operand: Sequence[Any], unpacker: Unpacker) -> StoredPlan:
    with without_objects(unpacker):
        return _unpacked(operand, unpacker)


def _unpacked(operand: Sequence[Any], unpacker: Unpacker) -> StoredPlan:
    expect_fields(operand, 6)
    interface = unpack_interface(unpack_at(operand[1], unpacker, ".interface"))
    program = unpack_at(operand[2], unpacker, ".program")
    if type(program) is not Program:
        raise malformed("a program", operand[2], ".program")
    state = unpack_state(operand[3], unpacker)
    tags = expect_type(operand[4], (list, tuple), "an array of tags", ".tags")
    for index, tag in enumerate(tags):
        expect_type(tag, str, "a text", f".tags[{index}]")
    description = expect_type(operand[5], (str, type(None)), "a text or nil", ".description")
    original = expect_type(operand[6], (str, type(None)), "a text or nil", ".copy_of")
    _check_fit(interface, program, len(state))
    return StoredPlan(Blueprint(interface, program), state, set(tags), description, original)


def _check_fit(interface: Interface, program: Program, state: int) -> None:
    """Refuse an interface whose counts differ from those of the program."""
    outputs = flat_outputs(program)
    for what, expected, got in (
        ("inputs", program.inputs, len(interface.kinds) + len(interface.options)),
        ("outputs", len(outputs), len(interface.results)),
        ("state", program.state, len(interface.state)),
        ("state", program.state, state),
    ):
        if expected != got:
            raise MalformedMessage(f"$.{what}", f"{expected}, as in the program", str(got))


register(TypeCode.PLAN, StoredPlan, _pack, _unpack)
