"""A call of a stored plan: what a number of a connection stands for when it stands for such a call.

The first message with the number says which plan it is, and the kind of each input; later ones hold
only the number, ids and numbers.  A call without inputs, for *the state*, stores the plan's state
tensors themselves under new ids: that is how pointers to its parameters are made.

:class:`PlanCall` is the data that travels.  :func:`arrive` and :func:`perform` are what a worker
does with it.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from syft.codes import TypeCode
from syft.exceptions import MalformedMessage, PlansNotAllowed, ProgramError
from syft.plans.building.input_properties import check_fixed
from syft.plans.remote.stored_plan import StoredPlan
from syft.serde.expect import expect_int
from syft.serde.packer import Packer, Unpacker
from syft.serde.registry import Operand, register
from syft.workers.core.programs import (
    Definition,
    InputKind,
    may_write,
    run_program,
    runs_backward,
    unpack_kinds,
)
from syft.workers.core.state_machine import Peer, WorkerCore


class PlanCall(Definition):
    """A call of plan ``id``.  ``kinds`` are the kinds of its inputs; None asks for its state.

    >>> PlanCall(5, (InputKind.REFERENCE,)).objects
    (5,)
    """

    def __init__(self, id: int, kinds: tuple[InputKind, ...] | None) -> None:
        self.id = id
        self.kinds = kinds or ()
        self.asks_state = kinds is None
        self.objects = (id,)

    def arrive(self, core: WorkerCore) -> None:
        """Look the plan up, as :func:`arrive` does."""
        self._arrived = arrived = arrive(core, self)
        self.results, self.writes, self.barrier = arrived.results, arrived.writes, arrived.barrier

    def perform(self, core: WorkerCore, inputs: list[Any], peer: Peer) -> Sequence[Any]:
        """Run the plan, as :func:`perform` does."""
        return perform(core, self._arrived, inputs, peer)


@dataclass(frozen=True, slots=True)
class ArrivedPlanCall:
    """A plan call at the worker that has the plan, with what the worker found out about it.

    ``plan`` is a weak reference: only the store keeps the plan alive, or a call that waits.
    """

    call: PlanCall
    plan: weakref.ref[StoredPlan]
    results: int
    writes: bool
    barrier: bool


def arrive(core: WorkerCore, call: PlanCall) -> ArrivedPlanCall:
    """Look up the plan of a call that has arrived.

    Raises :class:`~syft.exceptions.ObjectNotFound`, and
    :class:`~syft.exceptions.MalformedMessage` for an object that is not a plan or takes other
    inputs.
    """
    plan = core.present(call.id)
    if not isinstance(plan, StoredPlan):
        raise MalformedMessage("$.define.id", "the id of a plan", f"a {type(plan).__name__}")
    program = plan.blueprint.program
    if call.asks_state:
        return ArrivedPlanCall(call, weakref.ref(plan), program.state, False, False)
    if len(call.kinds) != program.inputs:
        expected = f"kinds of {program.inputs} inputs"
        raise MalformedMessage("$.define.kinds", expected, str(len(call.kinds)))
    writes, barrier = may_write(program), runs_backward(program)
    return ArrivedPlanCall(call, weakref.ref(plan), len(program.outputs), writes, barrier)


def perform(
    core: WorkerCore, arrived: ArrivedPlanCall, inputs: list[Any], peer: Peer
) -> Sequence[Any]:
    """Run the plan of a call on the inputs and its state, or give its state.

    Raises :class:`~syft.exceptions.PlansNotAllowed`, and
    :class:`~syft.exceptions.ProgramError` if the id now stands for another plan.
    """
    if not core.allow_plans:
        raise PlansNotAllowed(core.name)
    plan, call = arrived.plan(), arrived.call
    if plan is None:
        core.store.read(call.id)  # raises, and says what became of it
        raise ProgramError(f"object {call.id} is not the plan that it was")
    if call.asks_state:
        return plan.state
    interface = plan.blueprint.interface
    if interface.fixed:
        check_fixed(interface.name, interface.fixed, inputs, interface.input_names())
    results: Sequence[Any] = run_program(core, plan.lowered, [*inputs, *plan.state], peer)
    return results


def _pack(call: PlanCall, packer: Packer) -> Operand:
    if call.asks_state:
        return int(TypeCode.PLAN_CALL), call.id
    return int(TypeCode.PLAN_CALL), call.id, bytes(call.kinds)


def _unpack(operand: Sequence[Any], unpacker: Unpacker) -> PlanCall:
    if not 2 <= len(operand) <= 3:
        raise MalformedMessage("$", "an id, and the kinds of inputs", f"{len(operand) - 1} fields")
    id = expect_int(operand[1], ".id")
    kinds = unpack_kinds(operand[2], unpacker.limits) if len(operand) == 3 else None
    return PlanCall(id, kinds)


register(TypeCode.PLAN_CALL, PlanCall, _pack, _unpack)
