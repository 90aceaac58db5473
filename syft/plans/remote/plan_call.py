"""What a number of a connection stands for when it stands for a plan that lies at the worker.

The first call says which plan, and of what kind each input is; later ones are the number, the ids
and the numbers.  A call without inputs, *the state*, stores the plan's state tensors themselves
under ids of their own: that is how pointers to its parameters are made.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from syft.codes import TypeCode
from syft.exceptions import MalformedMessage, PlansNotAllowed, ProgramError
from syft.plans.building.input_properties import check_fixed
from syft.plans.remote.stored_plan import StoredPlan
from syft.serde.expect import expect_int
from syft.serde.packer import Packer, Unpacker
from syft.serde.registry import Operand, register
from syft.workers.core.peer import Peer
from syft.workers.core.programs import Prepared, may_write, prepares, run_program, runs_backward
from syft.workers.core.state_machine import WorkerCore
from syft.workers.wire.definitions import Definition, InputKind, unpack_kinds


class PlanCall(Definition):
    """A call of plan ``id``; ``kinds`` are those of its inputs, None where its state is meant.

    >>> PlanCall(5, (InputKind.REFERENCE,)).id
    5
    """

    def __init__(self, id: int, kinds: tuple[InputKind, ...] | None) -> None:
        self.id = id
        self.kinds = kinds or ()
        self.asks_state = kinds is None


class PreparedPlanCall(Prepared):
    """A call of a plan that lies at this worker; only the store keeps the plan alive."""

    def __init__(self, call: PlanCall, plan: StoredPlan) -> None:
        program = plan.blueprint.program
        self.kinds = call.kinds
        self.objects = (call.id,)
        self.writes = may_write(program) and not call.asks_state
        self.barrier = runs_backward(program) and not call.asks_state
        self.results = program.state if call.asks_state else len(program.outputs)
        self._call = call
        self._plan = weakref.ref(plan)

    def perform(self, core: WorkerCore, inputs: list[Any], peer: Peer) -> Sequence[Any]:
        """Run the plan on its inputs and its state.

        Raises :class:`~syft.exceptions.PlansNotAllowed`, and
        :class:`~syft.exceptions.ProgramError` if another plan has taken its place.
        """
        if not core.allow_plans:
            raise PlansNotAllowed(core.name)
        plan = self._plan()
        if plan is None:
            core.store.read(self._call.id)  # raises, and says what became of it
            raise ProgramError(f"object {self._call.id} is not the plan that it was")
        if self._call.asks_state:
            return plan.state
        interface = plan.blueprint.interface
        if interface.fixed:
            check_fixed(interface.name, interface.fixed, inputs, interface.input_names())
        results: Sequence[Any] = run_program(core, plan.lowered, [*inputs, *plan.state], peer)
        return results


@prepares(PlanCall)
def prepare_call(core: WorkerCore, call: PlanCall) -> PreparedPlanCall:
    """Look the plan up.

    Raises :class:`~syft.exceptions.ObjectNotFound`, and
    :class:`~syft.exceptions.MalformedMessage` for what is no plan or takes other inputs.
    """
    plan = core.present(call.id)
    if not isinstance(plan, StoredPlan):
        raise MalformedMessage("$.define.id", "the id of a plan", f"a {type(plan).__name__}")
    inputs = plan.blueprint.program.inputs
    if not call.asks_state and len(call.kinds) != inputs:
        raise MalformedMessage("$.define.kinds", f"kinds of {inputs} inputs", str(len(call.kinds)))
    return PreparedPlanCall(call, plan)


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
