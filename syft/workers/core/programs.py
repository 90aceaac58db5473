"""How a worker runs a program for somebody else.

What a number of a connection stands for (:mod:`syft.workers.wire.definitions`) is prepared when it
arrives, and run as often as its number comes.  Groups of messages and calls of plans run their
programs by :func:`run_program`, so private values are as private there as behind single commands.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from syft.exceptions import HookError
from syft.ops.control import limited
from syft.program.lowered import Lowered
from syft.ops.table import (
    FLAGS,
    GRADIENT,
    INPLACE,
    MUTATES_OTHERS,
    ONE,
    PROGRAM_FUNCTIONS,
    UNINITIALIZED,
    Function,
)
from syft.program.program import Action, Program
from syft.workers.core.peer import Peer
from syft.workers.core.state_machine import WorkerCore
from syft.workers.core.execution import clearing
from syft.workers.core.guarded_run import GuardedRun
from syft.workers.core.precautions import RUNNABLE
from syft.workers.wire.definitions import Definition, Group, InputKind

_WRITES = INPLACE | MUTATES_OTHERS


def _function(number: int, function: Function | None) -> Function | None:
    if function is None:
        return PROGRAM_FUNCTIONS.get(number)
    return clearing(function) if FLAGS[number] & UNINITIALIZED else function


FUNCTIONS: list[Function | None] = [
    _function(number, function) for number, function in enumerate(RUNNABLE)
]
"""What a worker calls for each op of a program: the safe functions, and what only programs call."""


class Prepared(ABC):
    """A definition that arrived at a worker: what it does there. Abstract.

    ``writes`` says whether it may write to one of its inputs, and a ``barrier`` may write to
    anything.  ``results`` is how many results it has.  ``objects`` are the ids of stored objects
    that it works on besides its inputs: it waits for them too, and they outlast the wait.
    """

    kinds: tuple[InputKind, ...]
    writes: bool = True
    barrier: bool = False
    results: int = 1
    objects: tuple[int, ...] = ()

    @abstractmethod
    def perform(self, core: WorkerCore, inputs: list[Any], peer: Peer) -> Sequence[Any]:
        """Run it on its inputs; returns the flat results, with None for what nobody wants."""

    def outs(self, first: int) -> Sequence[int]:
        """The ids under which results may be stored, the first one being ``first``."""
        return range(first, first + self.results)


Preparation = Callable[[WorkerCore, Any], Prepared]

_PREPARATIONS: dict[type[Definition], Preparation] = {}


def prepares(kind: type[Definition]) -> Callable[[Preparation], Preparation]:
    """Enter the decorated function as what makes a kind of definition runnable; refuses a second
    one."""

    def enter(preparation: Preparation) -> Preparation:
        if kind in _PREPARATIONS:
            raise HookError(f"{kind.__name__} is prepared already", "keep one of the functions")
        _PREPARATIONS[kind] = preparation
        return preparation

    return enter


def prepare(core: WorkerCore, definition: Definition) -> Prepared:
    """Look up at a worker what a definition stands for there; raises if that is not there."""
    return _PREPARATIONS[type(definition)](core, definition)


class PreparedGroup(Prepared):
    """A group of messages, lowered at its first run."""

    def __init__(self, group: Group) -> None:
        program = group.program
        self.kinds = group.kinds
        self.results = len(program.outputs)
        self.writes = may_write(program)
        self.barrier = runs_backward(program)
        self._program = program
        self._kept = [index for index, slot in enumerate(program.outputs) if slot is not None]
        self._lowered: Lowered | None = None

    def outs(self, first: int) -> Sequence[int]:
        """The ids of the results that somebody points to."""
        if len(self._kept) == self.results:
            return range(first, first + self.results)
        return [first + index for index in self._kept]

    def perform(self, core: WorkerCore, inputs: list[Any], peer: Peer) -> Sequence[Any]:
        """Run the program on the inputs."""
        if self._lowered is None:
            self._lowered = lowered(self._program)
        results: Sequence[Any] = run_program(core, self._lowered, inputs, peer)
        return results


@prepares(Group)
def prepare_group(core: WorkerCore, group: Group) -> PreparedGroup:
    """A group brings along all that it needs."""
    return PreparedGroup(group)


def lowered(program: Program) -> Lowered:
    """A program made ready to run for others: with the functions that are safe for a worker.

    >>> lowered(Program(0, (), 5)).run([])
    5
    """
    return Lowered(program, FUNCTIONS)


def run_program(core: WorkerCore, program: Lowered, values: Sequence[Any], peer: Peer) -> Any:
    """Run a program of :func:`lowered` on its inputs and state on behalf of ``peer``.

    Where anything is private, each action runs as a command of its own would: what it computes and
    writes is guarded, what would reveal a value raises
    :class:`~syft.exceptions.PermissionDenied`, and other errors come as
    :class:`~syft.workers.core.guarded_run.Concealed`.  Loops may take ``max_steps`` of the worker's
    limits.

    >>> from syft.program.program import Slot
    >>> core = WorkerCore("bob", connect=print)
    >>> run_program(core, lowered(Program(1, (), Slot(0))), [3], Peer("me"))
    3
    """
    if not core.guarded and not program.branches:
        return program.run(values)
    with limited(core.limits.max_steps):
        if not core.guarded:
            return program.run(values)
        return GuardedRun(core, peer.user).run(program, values)


def may_write(program: Program) -> bool:
    """Whether a program might write to one of its inputs.

    >>> may_write(Program(0, (), ()))
    False
    """
    return any(map(_writes, _actions(program)))


def _writes(action: Action) -> bool:
    flags = FLAGS[action.op]
    if flags & _WRITES or not flags & ONE:
        return True
    return "out" in action.kwargs or "inplace" in action.kwargs


def runs_backward(program: Program) -> bool:
    """Whether a program runs autograd backward, and so may write to any leaf.

    >>> runs_backward(Program(0, (), ()))
    False
    """
    return any(FLAGS[action.op] & GRADIENT for action in _actions(program))


def _actions(program: Program) -> Iterable[Action]:
    """The actions of a program and of those inside it."""
    for action in program.actions:
        yield action
        for operand in action.args:
            if isinstance(operand, Program):
                yield from _actions(operand)
