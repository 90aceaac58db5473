"""A call of a stored plan: what a number of a connection stands for when it stands for such a call.

The first message with the number says which plan it is, and the kind of each input; later ones hold
only the number, ids and numbers.  A call without inputs, for *the state*, stores the plan's state
tensors themselves under new ids: that is how pointers to its parameters are made.  A call with
*outs* writes its results into existing objects, which come as further inputs, and stores nothing.

:class:`PlanCall` is the data that travels.  :func:`arrive` and :func:`perform` are what a worker
does with it.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeGuard

import torch

from syft.codes import TypeCode
from syft.exceptions import (
    MalformedMessage,
    PermissionDenied,
    PlansNotAllowed,
    ProgramError,
    WrongArguments,
)
from syft.plans.building.input_properties import check_fixed
from syft.plans.building.interface import (
    CLONE,
    COPY,
    RESIZE,
    Interface,
    check_fits,
    check_writable,
    write_results,
)
from syft.plans.remote.stored_plan import StoredPlan
from syft.program.program import Action, Program, Slot
from syft.serde.expect import expect_int
from syft.serde.packer import Packer, Unpacker
from syft.serde.registry import Operand, register
from syft.workers.core.access import READS, Access
from syft.workers.core.peer import EVERYTHING, Peer
from syft.workers.core.state_machine import WorkerCore
from syft.workers.execution.public_facts import tells
from syft.workers.execution.successors import successor_of
from syft.workers.handlers.accesses import Effects, effects_of
from syft.workers.handlers.guarded_run import Concealed
from syft.workers.handlers.programs import (
    Prepared,
    facts_changed,
    gradients_set,
    lowered,
    prepares,
    run_program,
)
from syft.workers.labels.cell import unsealed
from syft.workers.labels.guards import Guard
from syft.workers.labels.memory_labels import combined, full_guard_of
from syft.workers.wire.definitions import Definition, InputKind, unpack_kinds


class PlanCall(Definition):
    """A call of plan ``id``.  ``kinds`` are the kinds of its inputs; None asks for its state.

    The last ``targets`` inputs are objects to which the results are written.

    >>> PlanCall(5, (InputKind.REFERENCE,)).id
    5
    """

    def __init__(self, id: int, kinds: tuple[InputKind, ...] | None, targets: int = 0) -> None:
        self.id = id
        self.kinds = kinds or ()
        self.targets = targets
        self.asks_state = kinds is None


class PreparedPlanCall(Prepared):
    """A plan call at the worker that has the plan; only the store keeps the plan alive."""

    def __init__(self, call: PlanCall, plan: StoredPlan) -> None:
        program = plan.blueprint.program
        self.kinds = call.kinds
        self.objects = (call.id,)
        self.call = call
        self._plan = weakref.ref(plan)
        self._effects: Effects | None = None
        self.alters = EVERYTHING if call.targets else facts_changed(program)
        self.gradients = gradients_set(program) if self.alters else {}
        self.results = len(program.outputs) - call.targets
        if call.asks_state:
            self.results = program.state

    def access(self, inputs: Sequence[int | None]) -> Access:
        """What a call of the plan does to its inputs, to its state and to where it writes."""
        plan = self._plan()
        if plan is None or self.call.asks_state:
            return READS
        if self._effects is None:
            self._effects = effects_of(plan.blueprint.program)
        effects = self._effects
        count = len(inputs) - self.call.targets
        access = effects.access(inputs[:count], self.objects)
        if not self.call.targets:
            return access
        targets = {id for id in inputs[count:] if id is not None}
        return replace(access, writes=targets.union(access.writes))

    def perform(self, core: WorkerCore, inputs: list[Any], peer: Peer) -> Sequence[Any]:
        """Run the plan on the inputs and its state, or return its state.

        Raises :class:`~syft.exceptions.PlansNotAllowed`, and
        :class:`~syft.exceptions.ProgramError` if the id now stands for another plan.
        """
        if not (core.allow_plans and peer.plans):
            raise PlansNotAllowed(core.name)
        plan, call = self._plan(), self.call
        if plan is None:
            core.store.read(call.id)  # raises, and says what became of it
            raise ProgramError(f"object {call.id} is not the plan that it was")
        if call.asks_state:
            return plan.state
        interface = plan.blueprint.interface
        targets: Sequence[Any] = ()
        if call.targets:
            count = len(inputs) - call.targets
            inputs, targets = inputs[:count], inputs[count:]
        if interface.fixed:
            arguments = inputs[: len(interface.kinds)]
            _check_may_ask(core, interface, arguments, peer)
            check_fixed(interface.name, interface.fixed, arguments, interface.input_names())
        results: Sequence[Any] = run_program(core, plan.lowered, [*inputs, *plan.state], peer)
        if not targets:
            return results
        write_results_for(core, interface.name, results, targets, peer)
        return ()


def _check_may_ask(
    core: WorkerCore, interface: Interface, inputs: Sequence[Any], peer: Peer
) -> None:
    """Raise :class:`~syft.exceptions.PermissionDenied` if the plan fixes a property that the caller
    may not ask an input for: whether the input has it would be seen."""
    for guard in filter(None, map(full_guard_of, inputs)):
        for name, _ in interface.fixed:
            if not (guard.admits(peer.user) or tells(name, guard)):
                what = f"a plan that asks for the {name} of a private shape"
                raise PermissionDenied(what, core.name, peer.user)


@prepares(PlanCall)
def prepare_call(core: WorkerCore, call: PlanCall) -> PreparedPlanCall:
    """Look up the plan of a call that has arrived.

    Raises :class:`~syft.exceptions.ObjectNotFound`, and
    :class:`~syft.exceptions.MalformedMessage` for an object that is not a plan or takes other
    inputs.
    """
    plan = unsealed(core.present(call.id))
    if not isinstance(plan, StoredPlan):
        raise MalformedMessage("$.define.id", "the id of a plan", f"a {type(plan).__name__}")
    if call.asks_state:
        return PreparedPlanCall(call, plan)
    program = plan.blueprint.program
    inputs, results, targets = program.inputs, len(program.outputs), call.targets
    if len(call.kinds) != inputs + targets:
        expected = f"kinds of {inputs + targets} inputs"
        raise MalformedMessage("$.define.kinds", expected, str(len(call.kinds)))
    if targets and targets != results:
        expected = f"an object for each of {results} results"
        raise MalformedMessage("$.define.outs", expected, str(targets))
    return PreparedPlanCall(call, plan)


# --------------------------------------------------------------------- writing to existing tensors

_FIRST, _SECOND = Slot(0), Slot(1)
_STEPS = {
    CLONE: lowered(Program(1, (Action(CLONE, (_FIRST,), {}, _SECOND),), _SECOND)),
    COPY: lowered(Program(2, (Action(COPY, (_FIRST, _SECOND), {}, None),), ())),
    RESIZE: lowered(Program(2, (Action(RESIZE, (_FIRST, _SECOND), {}, None),), ())),
}
"""The operations that write, each as a program, so that private values stay private."""


def write_results_for(
    core: WorkerCore, plan: str, results: Sequence[Any], targets: Sequence[Any], peer: Peer
) -> None:
    """Write results into tensors of this worker for ``peer``; all are checked before the first.

    Raises :class:`~syft.exceptions.WrongArguments` if a result does not fit its target, and
    :class:`~syft.exceptions.ProgramError` if a graph would be lost.

    >>> core, total = WorkerCore("bob", connect=print), torch.zeros(2)
    >>> write_results_for(core, "double", [torch.ones(2)], [total], Peer("me"))
    >>> total
    tensor([1., 1.])
    """
    check_writable(plan, results, targets)
    _check_shapes(core, plan, results, targets, peer)

    def run(op: int, *args: torch.Tensor) -> Any:
        # What was resized may have been moved to private memory.
        return run_program(core, _STEPS[op], [*map(successor_of, args)], peer)

    write_results(results, targets, run)


def _check_shapes(
    core: WorkerCore, plan: str, results: Sequence[Any], targets: Sequence[Any], peer: Peer
) -> None:
    """Raise if a result does not fit its target; one of a private shape fits an empty one only."""
    for index, (result, target) in enumerate(zip(results, targets, strict=True)):
        guard = combined((result, target))
        if _is_hidden(guard) and not guard.admits(peer.user):
            if _is_hidden(full_guard_of(target)) or target.numel():
                raise PermissionDenied("out= for a result of a private shape", core.name, peer.user)
            continue
        try:
            check_fits(plan, index, result, target)
        except WrongArguments as error:  # it tells shapes
            if guard is None or guard.admits(peer.user):
                raise
            raise Concealed(error.with_traceback(None)) from None


def _is_hidden(guard: Guard | None) -> TypeGuard[Guard]:
    return guard is not None and guard.shape_hidden


# ------------------------------------------------------------------------------------------ codec


def _pack(call: PlanCall, packer: Packer) -> Operand:
    if call.asks_state:
        return int(TypeCode.PLAN_CALL), call.id
    outs = (call.targets,) if call.targets else ()
    return int(TypeCode.PLAN_CALL), call.id, bytes(call.kinds), *outs


def _unpack(operand: Sequence[Any], unpacker: Unpacker) -> PlanCall:
    if not 2 <= len(operand) <= 4:
        raise MalformedMessage("$", "an id, and the kinds of inputs", f"{len(operand) - 1} fields")
    id = expect_int(operand[1], ".id")
    kinds = unpack_kinds(operand[2], unpacker.limits) if len(operand) > 2 else None
    targets = expect_int(operand[3], ".outs", low=1) if len(operand) > 3 else 0
    if kinds is not None and targets and set(kinds[-targets:]) != {InputKind.REFERENCE}:
        raise MalformedMessage("$.kinds", f"{targets} objects at the end", "others")
    return PlanCall(id, kinds, targets)


register(TypeCode.PLAN_CALL, PlanCall, _pack, _unpack)
