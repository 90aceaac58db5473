"""A plan at a worker: checked data with tensors of its own, and no Python function.

What arrives is a program that its codec has checked, an interface that fits it, and the state.
It is kept like a tensor: found by its tags, fetched, copied, moved and dropped, and it is as
private as the most private tensor of its state.

Its state is sent without gradients that the program would not read.  After a training step the
parameters still have the gradients of the last batch.  These are as large as the parameters, and
single examples can be read off them.  Nearly every step clears them before it uses any, so nothing
is lost.  A step that does not clear them (it adds up gradients over several calls) takes them
along.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Final

import torch
from torch import nn

from syft.codes import TypeCode
from syft.exceptions import MalformedMessage, PlansNotAllowed
from syft.ops.table import (
    ADDING_GRADIENTS,
    COND,
    FLAGS,
    READS_GRADIENT,
    SETS_GRADIENT,
    WHILE_LOOP,
)
from syft.plans.building.interface import Blueprint, Interface
from syft.plans.remote.interface_codec import pack_interface, unpack_interface
from syft.program.lowered import Lowered
from syft.program.program import Action, Program, Slot, slots_in
from syft.serde.expect import expect_fields, expect_type, malformed
from syft.serde.packer import Packer, Unpacker
from syft.serde.registry import Operand, pack, pack_items, register, unpack_at, unpack_items
from syft.workers.handlers.programs import lowered
from syft.workers.labels.holders import Holder
from syft.workers.labels.memory_labels import copy_of

_TENSOR_CLASSES: Final = (torch.Tensor, nn.Parameter, nn.Buffer)


class StoredPlan(Holder):
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
        super().__init__(tags, description, copy_of)
        self.blueprint = blueprint
        self.state = list(state)

    def __repr__(self) -> str:
        return f"<StoredPlan {self.blueprint.interface.name}>"

    @cached_property
    def lowered(self) -> Lowered:
        """The program, made ready to run for the users of the worker."""
        return lowered(self.blueprint.program)

    def tensors(self) -> Sequence[torch.Tensor]:
        """The state and the constants."""
        return [*self.state, *self.blueprint.program.constants]

    def exchange(self, successor: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """Put the successor of each tensor in its place."""
        self.state = list(map(successor, self.state))
        constants = self.blueprint.program.constants
        successors = tuple(map(successor, constants))
        if any(old is not new for old, new in zip(constants, successors, strict=True)):
            self.blueprint = self.blueprint.with_constants(successors)
            self.__dict__.pop("lowered", None)

    def duplicate(self) -> StoredPlan:
        """The same plan with copies of its state and of its constants: it may write to both."""
        state = list(map(copy_of, self.state))
        constants = tuple(map(copy_of, self.blueprint.program.constants))
        blueprint = self.blueprint.with_constants(constants)
        return StoredPlan(blueprint, state, self.tags, self.description, self.copy_of)

    def summary(self) -> Any:
        """The interface of the plan, as plain values."""
        return pack_interface(self.blueprint.interface)

    def admit(self, worker: str, allow_plans: bool) -> None:
        """Raise :class:`~syft.exceptions.PlansNotAllowed` where the owner allows no plans."""
        if not allow_plans:
            raise PlansNotAllowed(worker)


# -------------------------------------------------------------------------------------- gradients

_MAY_USE_ANY_GRAD: Final = ADDING_GRADIENTS | {COND, WHILE_LOOP}
"""Operations that may add to gradients, or read them, without naming the tensors."""


def without_unread_gradients(program: Program, state: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The state of a plan, without the gradients that its program would not read.

    >>> weight = nn.Parameter(torch.ones(2))
    >>> weight.grad = torch.ones(2)
    >>> program = Program(0, (), None, state=1)
    >>> [sent.grad for sent in without_unread_gradients(program, [weight])]
    [None]
    """
    kept = _slots_with_read_gradients(program)
    return [
        (
            tensor
            if tensor.grad is None or program.inputs + index in kept
            else _without_gradient(tensor)
        )
        for index, tensor in enumerate(state)
    ]


def _slots_with_read_gradients(program: Program) -> set[int]:
    """The state slots whose gradients the program uses before it has replaced them."""
    read = {slot for action in program.actions for slot in slots_in((action.args, action.kwargs))}
    read.update(slots_in(program.outputs))
    not_replaced = set(range(program.inputs, program.inputs + program.state))
    found: set[int] = set()
    for action in program.actions:
        if action.op in _MAY_USE_ANY_GRAD:
            return found | not_replaced
        slot = _first_operand(action)
        if FLAGS[action.op] & SETS_GRADIENT:
            not_replaced.discard(slot)
        elif FLAGS[action.op] & READS_GRADIENT and slot in not_replaced and action.out in read:
            found.add(slot)
    return found


def _first_operand(action: Action) -> int:
    """The slot of the first operand, which a method or accessor is called on; -1 if it has none."""
    first = action.args[0] if action.args else None
    return first.index if type(first) is Slot else -1


def _without_gradient(tensor: torch.Tensor) -> torch.Tensor:
    """The same values and the same memory, without a gradient."""
    values = tensor.detach()
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(values, tensor.requires_grad)
    return values.requires_grad_(tensor.requires_grad)


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
    """Unpack the plan without access to the worker.

    A reference in it would make an object of the worker, or one behind a pointer, part of the plan,
    and a fetch of the plan would reveal it.
    """
    worker, unpacker.worker = unpacker.worker, None
    try:
        return _unpacked(operand, unpacker)
    finally:
        unpacker.worker = worker


def _unpacked(operand: Sequence[Any], unpacker: Unpacker) -> StoredPlan:
    expect_fields(operand, 6)
    interface = unpack_interface(unpack_at(operand[1], unpacker, ".interface"))
    program = unpack_at(operand[2], unpacker, ".program")
    if type(program) is not Program:
        raise malformed("a program", operand[2], ".program")
    state = unpack_items(expect_type(operand[3], (list, tuple), "an array", ".state"), unpacker)
    for index, tensor in enumerate(state):
        if type(tensor) not in _TENSOR_CLASSES:
            raise MalformedMessage(f"$.state[{index}]", "a plain tensor", type(tensor).__name__)
    tags = expect_type(operand[4], (list, tuple), "an array of tags", ".tags")
    for index, tag in enumerate(tags):
        expect_type(tag, str, "a text", f".tags[{index}]")
    description = expect_type(operand[5], (str, type(None)), "a text or nil", ".description")
    original = expect_type(operand[6], (str, type(None)), "a text or nil", ".copy_of")
    _check_fit(interface, program, len(state))
    return StoredPlan(Blueprint(interface, program), state, set(tags), description, original)


def _check_fit(interface: Interface, program: Program, state: int) -> None:
    """Refuse an interface whose counts differ from those of the program."""
    outputs = program.outputs
    if type(outputs) is not tuple or not all(type(slot) is Slot for slot in outputs):
        raise MalformedMessage("$.program.outputs", "a flat tuple of slots", "something else")
    for what, expected, got in (
        ("inputs", program.inputs, len(interface.kinds) + len(interface.options)),
        ("outputs", len(outputs), len(interface.results)),
        ("state", program.state, len(interface.state)),
        ("state", program.state, state),
    ):
        if expected != got:
            raise MalformedMessage(f"$.{what}", f"{expected}, as in the program", str(got))


register(TypeCode.PLAN, StoredPlan, _pack, _unpack)
