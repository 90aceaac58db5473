"""A plan at a worker: checked data with tensors of its own, and no Python function.

What arrives is a program that its codec has checked, an interface that fits it, and the state.
It is kept like a tensor: found by its tags, fetched, copied, moved and dropped, and it is as
private as the most private of its state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from syft.codes import TypeCode
from syft.exceptions import MalformedMessage, PlansNotAllowed
from syft.plans.building.blueprint import Blueprint, with_constants
from syft.plans.building.interface import Interface
from syft.plans.remote.travelling_state import travelling
from syft.program.lowered import Lowered
from syft.program.program import Program, Slot
from syft.serde.expect import expect_fields, expect_type, malformed
from syft.serde.packer import Packer, Unpacker
from syft.serde.registry import Operand, pack, pack_items, register, unpack_at, unpack_items
from syft.workers.core.holders import Holder
from syft.workers.core.objects import copy_of
from syft.workers.core.programs import lowered

_PLAIN = (torch.Tensor, nn.Parameter, nn.Buffer)


class StoredPlan(Holder):
    """A plan in a worker's store: its blueprint, and the state it works on there.

    >>> import inspect
    >>> nothing = Blueprint(Interface("f", inspect.Signature(), {}, ()), Program(0, (), ()))
    >>> StoredPlan(nothing, [], set(), None)
    <StoredPlan f>
    """

    def __init__(
        self,
        blueprint: Blueprint,
        state: Sequence[torch.Tensor],
        tags: set[str],
        description: str | None,
    ) -> None:
        super().__init__(tags, description)
        self.blueprint = blueprint
        self.state = list(state)
        self._lowered: Lowered | None = None

    def __repr__(self) -> str:
        return f"<StoredPlan {self.blueprint.interface.name}>"

    @property
    def lowered(self) -> Lowered:
        """The program, ready to run for others."""
        if self._lowered is None:
            self._lowered = lowered(self.blueprint.program)
        return self._lowered

    def tensors(self) -> Sequence[torch.Tensor]:
        """The state and the constants."""
        return [*self.state, *self.blueprint.program.constants]

    def duplicate(self) -> StoredPlan:
        """The same plan with copies of its state, and of its constants: it may write to both."""
        state = list(map(copy_of, self.state))
        constants = tuple(map(copy_of, self.blueprint.program.constants))
        blueprint = with_constants(self.blueprint, constants)
        return StoredPlan(blueprint, state, self.tags, self.description)

    def card(self) -> Any:
        """How the plan is called, as plain values."""
        return self.blueprint.interface.fields()

    def admit(self, worker: str, allow_plans: bool) -> None:
        """Raise :class:`~syft.exceptions.PlansNotAllowed` where the owner allows no plans."""
        if not allow_plans:
            raise PlansNotAllowed(worker)


def _pack(plan: StoredPlan, packer: Packer) -> Operand:
    return (
        int(TypeCode.PLAN),
        pack(plan.blueprint.interface.fields(), packer),
        pack(plan.blueprint.program, packer),
        pack_items(travelling(plan.blueprint.program, plan.state), packer),
        tuple(sorted(plan.tags)),
        plan.description,
    )


def _unpack(operand: Sequence[Any], unpacker: Unpacker) -> StoredPlan:
    """The plan that was sent, whole: nothing in it names an object of the worker, here or behind a
    pointer, which would be handed over with the plan."""
    worker, unpacker.worker = unpacker.worker, None
    try:
        return _unpacked(operand, unpacker)
    finally:
        unpacker.worker = worker


def _unpacked(operand: Sequence[Any], unpacker: Unpacker) -> StoredPlan:
    expect_fields(operand, 5)
    interface = Interface.of_fields(unpack_at(operand[1], unpacker, ".interface"))
    program = unpack_at(operand[2], unpacker, ".program")
    if not isinstance(program, Program):
        raise malformed("a program", operand[2], ".program")
    state = unpack_items(expect_type(operand[3], (list, tuple), "an array", ".state"), unpacker)
    for index, tensor in enumerate(state):
        if type(tensor) not in _PLAIN:
            raise MalformedMessage(f"$.state[{index}]", "a plain tensor", type(tensor).__name__)
    tags = expect_type(operand[4], (list, tuple), "an array of tags", ".tags")
    for index, tag in enumerate(tags):
        expect_type(tag, str, "a text", f".tags[{index}]")
    description = expect_type(operand[5], (str, type(None)), "a text or nil", ".description")
    _check_fit(interface, program, len(state))
    return StoredPlan(Blueprint(interface, program), state, set(tags), description)


def _check_fit(interface: Interface, program: Program, state: int) -> None:
    """Refuse an interface that does not belong to the program."""
    outputs = program.outputs
    if type(outputs) is not tuple or not all(type(slot) is Slot for slot in outputs):
        raise MalformedMessage("$.program.outputs", "a flat tuple of slots", "something else")
    for what, expected, got in (
        ("inputs", program.inputs, len(interface.kinds)),
        ("outputs", len(outputs), len(interface.results)),
        ("state", program.state, len(interface.state)),
        ("state", program.state, state),
    ):
        if expected != got:
            raise MalformedMessage(f"$.{what}", f"{expected}, as in the program", str(got))


register(TypeCode.PLAN, StoredPlan, _pack, _unpack)
