"""How a worker runs a program for a caller.

The definition behind a number of a connection (:mod:`syft.workers.wire.definitions`) is prepared
when it arrives, and run each time that its number arrives.  Groups of messages and calls of plans
run their programs by :func:`run_program`, so private values are protected as in single commands.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Any, cast

from syft.exceptions import HookError
from syft.ops.control import limited
from syft.ops.nested import leaves
from syft.ops.table import (
    FLAGS,
    GRADIENT,
    PROGRAM_FUNCTIONS,
    READS_GRADIENT,
    SETS_GRADIENT,
    UNINITIALIZED,
    Function,
)
from syft.program.lowered import Lowered, Partial
from syft.program.program import Program, Slot
from syft.workers.core.access import READS, Access
from syft.workers.core.peer import EVERYTHING, Peer
from syft.workers.core.state_machine import WorkerCore
from syft.workers.handlers.accesses import Effects, actions_inside, altered_by, effects_of
from syft.workers.handlers.guarded_run import GuardedRun
from syft.workers.handlers.program_sizes import SizedProgram, frees_results, runs_unseen
from syft.workers.hardening.precautions import RUNNABLE
from syft.workers.hardening.unwritten import Clearing, KeepingSizes
from syft.workers.labels.guards import Guard
from syft.workers.labels.memory_labels import combined
from syft.workers.wire.definitions import Definition, Group, InputKind


def _function(number: int, function: Function | None) -> Function | None:
    if function is None:
        return PROGRAM_FUNCTIONS.get(number)
    return Clearing(function) if FLAGS[number] & UNINITIALIZED else function


FUNCTIONS: list[Function | None] = [
    _function(number, function) for number, function in enumerate(RUNNABLE)
]
"""The functions that a worker calls for a program's ops, including those only programs use."""


class Prepared(ABC):
    """A definition that is ready to run at a worker. Abstract.

    ``results`` is the number of its results.  ``objects`` are the ids of stored objects that it
    uses besides its inputs: it waits for them too, and holds them while it waits.
    """

    kinds: tuple[InputKind, ...]
    results: int = 1
    objects: tuple[int, ...] = ()
    alters: int = EVERYTHING
    """What it may change of a tensor that is there: its kind and memory, its gradient, or both."""
    only_reads: bool = False
    """Whether it is known to change nothing."""
    gradients: Mapping[int, int | None] = {}
    """What gets a gradient from it, by place, as :func:`gradients_set` has it."""

    @abstractmethod
    def perform(self, core: WorkerCore, inputs: list[Any], peer: Peer) -> Sequence[Any]:
        """Run it on its inputs; returns the flat results, with None for those that are not kept."""

    @abstractmethod
    def access(self, inputs: Sequence[int | None]) -> Access:
        """What it does to its inputs, given as ids (None for a value), and to ``objects``."""

    def outs(self, first: int) -> Sequence[int]:
        """The ids under which results may be stored, starting with ``first``."""
        return range(first, first + self.results)


Preparation = Callable[[WorkerCore, Any], Prepared]

_PREPARATIONS: dict[type[Definition], Preparation] = {}


def prepares(kind: type[Definition]) -> Callable[[Preparation], Preparation]:
    """Register the decorated function to prepare one class of definitions; refuses a second
    one."""

    def enter(preparation: Preparation) -> Preparation:
        if kind in _PREPARATIONS:
            raise HookError(f"{kind.__name__} is prepared already", "keep one of the functions")
        _PREPARATIONS[kind] = preparation
        return preparation

    return enter


def prepare(core: WorkerCore, definition: Definition) -> Prepared:
    """Prepare a definition at a worker; raises if an object that it needs is missing."""
    return _PREPARATIONS[type(definition)](core, definition)


class PreparedGroup(Prepared):
    """A group of messages, lowered at its first run."""

    def __init__(self, group: Group) -> None:
        program = group.program
        self.kinds = group.kinds
        self.results = len(program.outputs)
        self.alters = facts_changed(program)
        self.gradients = gradients_set(program) if self.alters else {}
        self._effects: Effects | None = None
        self._access: tuple[Sequence[int | None], Access] = (), READS
        self._program = program
        self._kept = [index for index, slot in enumerate(program.outputs) if slot is not None]
        self._lowered: Lowered | None = None

    def outs(self, first: int) -> Sequence[int]:
        """The ids of the results that the caller keeps."""
        if len(self._kept) == self.results:
            return range(first, first + self.results)
        return [first + index for index in self._kept]

    def access(self, inputs: Sequence[int | None]) -> Access:
        """What the program does to the inputs."""
        if self._effects is None:
            self._effects = effects_of(self._program)
        if inputs != self._access[0]:
            self._access = inputs, self._effects.access(inputs)
        return self._access[1]

    def perform(self, core: WorkerCore, inputs: list[Any], peer: Peer) -> Sequence[Any]:
        """Run the program on the inputs; an action that fails does not end it, unless the program
        takes paths or expects something, which may be what has failed."""
        if self._lowered is None:
            decides = any(action.op in PROGRAM_FUNCTIONS for action in self._program.actions)
            self._lowered = lowered(self._program, goes_on=not decides)
        results: Sequence[Any] = run_program(core, self._lowered, inputs, peer)
        return results


@prepares(Group)
def prepare_group(core: WorkerCore, group: Group) -> PreparedGroup:
    """Prepare a group, which needs no object of the worker."""
    return PreparedGroup(group)


def lowered(program: Program, goes_on: bool = False) -> Lowered:
    """A program lowered to the functions that are safe for a worker.  With ``goes_on`` an action
    that fails does not end it.

    >>> lowered(Program(0, (), 5)).run([])
    5
    """
    return Lowered(program, FUNCTIONS, KeepingSizes, goes_on)


def run_program(
    core: WorkerCore,
    program: Lowered,
    values: Sequence[Any],
    peer: Peer,
    taint: Guard | None = None,
) -> Any:
    """Run a program of :func:`lowered` on its inputs and state on behalf of ``peer``.

    Where it may reach something private, each action runs like a single command: its results and
    writes are guarded, an action that would reveal a value raises
    :class:`~syft.exceptions.PermissionDenied`, and other errors are raised as
    :class:`~syft.workers.handlers.guarded_run.Concealed`.  Loops may take ``max_steps`` steps, a
    limit of the worker, and each action may use what the limits of the caller allow.  ``taint`` is
    the guard of what numbers among the values were taken from.

    >>> from syft.program.program import Slot
    >>> core = WorkerCore("bob", connect=print)
    >>> run_program(core, lowered(Program(1, (), Slot(0))), [3], Peer("me"))
    3
    """
    charges = core.store.charges
    charges.graphs.on_the_way = 0
    private = charges.guarded and (taint is not None or _may_reach_private(program.program, values))
    if not (private or program.branches):
        seen = not runs_unseen(program, charges, values)
        results = SizedProgram(program, charges).run(values) if seen else program.run(values)
        if charges.graphs.on_the_way:
            whole = type(results) is not Partial
            charges.graphs.freed = whole and frees_results(program.program)
        return results
    charges.graphs.freed = False
    sized = SizedProgram(program, charges)
    with limited(core.limits.max_steps):
        if not private:
            return sized.run(values)
        return GuardedRun(core, peer.user, taint).run(cast(Lowered, sized), values)


def _may_reach_private(program: Program, values: Sequence[Any]) -> bool:
    """Whether a program has anything private among what it is given, or may reach it from there by
    way of gradients and graphs.

    >>> _may_reach_private(Program(1, (), ()), [torch.ones(2)])
    False
    """
    found: bool | None = program.facts.get("gradients")
    if found is None:
        used = GRADIENT | READS_GRADIENT | SETS_GRADIENT
        found = any(FLAGS[action.op] & used for action in actions_inside([program]))
        program.facts["gradients"] = found
    return found or combined(leaves((*values, *program.constants))) is not None


def gradients_set(program: Program) -> dict[int, int | None]:
    """What a program is given that gets gradients from it, by place (inputs, then its state), and
    which of that these are: -1 for what is none of it, None for no gradient at all.

    >>> from syft.ops.table import BY_NAME
    >>> from syft.program.program import Action
    >>> set_one = Action(BY_NAME["torch.Tensor.grad.__set__"], (Slot(0), Slot(1)), {}, None)
    >>> gradients_set(Program(2, (set_one,), ()))
    {0: 1}
    """
    found: dict[int, int | None] = {}
    for action in actions_inside(program):
        if FLAGS[action.op] & SETS_GRADIENT and type(action.args[0]) is Slot:
            given = action.args[1] if len(action.args) > 1 else None
            place = given.index if type(given) is Slot and given.index < program.given else -1
            found[action.args[0].index] = None if given is None else place
    return {place: given for place, given in found.items() if place < program.given}


def facts_changed(program: Program) -> int:
    """What a program might change of tensors that it is given: kinds, gradients, or both.

    >>> facts_changed(Program(0, (), 5))
    0
    """
    return reduce(or_, (altered_by(one.op, one.kwargs) for one in actions_inside(program)), 0)
