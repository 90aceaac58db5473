"""What a number of a connection can stand for, and how a worker runs a program for somebody else.

A :class:`Definition` is checked when it arrives and run as often as its number comes.  A group of
messages is one (:class:`Group`, here); a call of a plan that lies at the worker is another.  All
run their programs by :func:`run_program`, so that private values are as private there as they are
behind single commands.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

from syft.codes import TypeCode
from syft.exceptions import LimitExceeded, MalformedMessage
from syft.program.codec import pack_program
from syft.ops.control import limited
from syft.program.lowered import Lowered
from syft.ops.table import FLAGS, PROGRAM_FUNCTIONS, Function, OpFlag
from syft.program.program import Action, Program, Slot
from syft.serde.expect import expect_fields, expect_type, malformed
from syft.serde.limits import DEFAULT_LIMITS, Limits
from syft.serde.packer import Packer, Unpacker
from syft.serde.registry import Operand, register, unpack_at
from syft.workers.core.state_machine import Peer, WorkerCore
from syft.workers.core.execution import clearing
from syft.workers.core.guarded_run import GuardedRun
from syft.workers.core.precautions import RUNNABLE

_BARRIER = int(OpFlag.GRADIENT)
_WRITES = int(OpFlag.INPLACE | OpFlag.MUTATES_OTHERS)
_ONE = int(OpFlag.ONE)
_UNINITIALIZED = int(OpFlag.UNINITIALIZED)


def _function(number: int, function: Function | None) -> Function | None:
    if function is None:
        return PROGRAM_FUNCTIONS.get(number)
    return clearing(function) if FLAGS[number] & _UNINITIALIZED else function


FUNCTIONS: list[Function | None] = [
    _function(number, function) for number, function in enumerate(RUNNABLE)
]
"""What a worker calls for each op of a program: the safe functions, and what only programs call."""


class InputKind(enum.IntEnum):
    """What an input of a definition is, and so how it travels.

    >>> InputKind.REFERENCE
    <InputKind.REFERENCE: 0>
    """

    REFERENCE = 0
    """An object of the worker that runs it: the bare id travels."""
    NUMBER = 1
    """A Python int or float, which travels as it is."""
    VALUE = 2
    """Anything else that can be sent, as an operand."""


class Definition(ABC):
    """What a number stands for where it runs.

    ``kinds`` tells its inputs apart, ``writes`` says whether it may write to one of them, and a
    ``barrier`` may write to anything.  ``results`` is how many results it has, and ``actions``
    counts against what the worker remembers for one connection.  ``objects`` are the ids of stored
    objects that it works on besides its inputs: it waits for them too, and they outlast the wait.
    """

    kinds: tuple[InputKind, ...] = ()
    writes: bool = True
    barrier: bool = False
    results: int = 1
    actions: int = 1
    objects: tuple[int, ...] = ()

    @abstractmethod
    def arrive(self, core: WorkerCore) -> None:
        """Look up, where it will run, what it stands for there; raises if that is not there."""

    @abstractmethod
    def perform(self, core: WorkerCore, inputs: list[Any], peer: Peer) -> Sequence[Any]:
        """Run it on its inputs; returns the flat results, with None for what nobody wants."""

    def outs(self, first: int) -> Sequence[int]:
        """The ids under which results may be stored, the first one being ``first``.

        >>> Group((), Program(0, (), ())).outs(5)
        range(5, 5)
        """
        return range(first, first + self.results)


class Group(Definition):
    """Held-back messages as one program; its outputs are flat, with None for what is not kept.

    >>> from syft.ops.table import BY_NAME
    >>> from syft.program.program import Slot
    >>> double = Action(BY_NAME["torch.add"], (Slot(0), Slot(0)), {}, Slot(1))
    >>> Group((InputKind.REFERENCE,), Program(1, (double,), (Slot(1),))).results
    1
    """

    def __init__(self, kinds: tuple[InputKind, ...], program: Program) -> None:
        self.kinds = kinds
        self.program = program
        self.results = len(program.outputs)
        self.actions = size_of(program) + len(kinds)
        self.writes = may_write(program)
        self.barrier = runs_backward(program)
        self._kept = [index for index, slot in enumerate(program.outputs) if slot is not None]
        self._lowered: Lowered | None = None

    def arrive(self, core: WorkerCore) -> None:
        """A program brings along all that it needs."""

    def outs(self, first: int) -> Sequence[int]:
        """The ids of the results that somebody points to."""
        if len(self._kept) == self.results:
            return range(first, first + self.results)
        return [first + index for index in self._kept]

    def perform(self, core: WorkerCore, inputs: list[Any], peer: Peer) -> Sequence[Any]:
        """Run the program on the inputs."""
        if self._lowered is None:
            self._lowered = lowered(self.program)
        results: Sequence[Any] = run_program(core, self._lowered, inputs, peer)
        return results


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
    if flags & _WRITES or not flags & _ONE:
        return True
    return "out" in action.kwargs or "inplace" in action.kwargs


def runs_backward(program: Program) -> bool:
    """Whether a program runs autograd backward, and so may write to any leaf.

    >>> runs_backward(Program(0, (), ()))
    False
    """
    return any(FLAGS[action.op] & _BARRIER for action in _actions(program))


def size_of(program: Program) -> int:
    """How much a program counts against what is remembered: its actions, their operands, results
    and modes, and the letters of texts, each as one.

    >>> from syft.ops.table import BY_NAME
    >>> size_of(Program(1, (Action(BY_NAME["torch.add"], ("text", [1, 2]), {}, None),), (None,)))
    11
    """
    return _size(program.outputs) + sum(map(_size_of_action, program.actions))


def _size_of_action(action: Action) -> int:
    size = _size(action.args) + _size(action.kwargs) - 1
    if type(action.out) is tuple:
        size += _size(action.out)
    return size if action.mode is None else size + 1 + 2 * len(action.mode.autocast)


def _size(operand: Any) -> int:
    if isinstance(operand, (tuple, list)):
        return 1 + sum(map(_size, operand))
    if isinstance(operand, dict):
        return 1 + sum(map(_size, operand.items()))
    if isinstance(operand, slice):
        return 1 + _size((operand.start, operand.stop, operand.step))
    if isinstance(operand, Program):
        return 1 + size_of(operand)
    if isinstance(operand, (str, bytes, bytearray)):
        return 1 + len(operand)
    return 1 + operand.bit_length() // 64 if isinstance(operand, int) else 1


def _actions(program: Program) -> Iterable[Action]:
    """The actions of a program and of those inside it."""
    for action in program.actions:
        yield action
        for operand in action.args:
            if isinstance(operand, Program):
                yield from _actions(operand)


# ------------------------------------------------------------------------------------------ codec


def _pack(group: Group, packer: Packer) -> Operand:
    kinds = bytes(group.kinds)
    return int(TypeCode.GROUP), kinds, pack_program(group.program, packer)


def _unpack(operand: Any, unpacker: Unpacker) -> Group:
    expect_fields(operand, 2)
    kinds = unpack_kinds(operand[1], unpacker.limits)
    program = unpack_at(operand[2], unpacker, ".program")
    if not isinstance(program, Program):
        raise malformed("a program", operand[2], ".program")
    if program.constants:
        got = f"{len(program.constants)} constants"
        raise MalformedMessage("$.program.constants", "none: what goes along is an input", got)
    if program.state or program.inputs != len(kinds):
        got = f"{program.inputs} inputs and {program.state} state tensors"
        raise MalformedMessage("$.program", f"{len(kinds)} inputs and no state", got)
    if type(program.outputs) is not tuple:
        raise malformed("a flat tuple of slots", program.outputs, ".program.outputs")
    for index, output in enumerate(program.outputs):
        if output is not None and type(output) is not Slot:
            raise malformed("a slot or nil", output, f".program.outputs[{index}]")
    return Group(kinds, program)


def unpack_kinds(operand: Any, limits: Limits = DEFAULT_LIMITS) -> tuple[InputKind, ...]:
    """The kinds of inputs from the bytes they travel as, one for each.

    >>> unpack_kinds(bytes([0, 1]))
    (<InputKind.REFERENCE: 0>, <InputKind.NUMBER: 1>)
    >>> unpack_kinds(bytes([7]))
    Traceback (most recent call last):
    ...
    syft.exceptions.MalformedMessage: Malformed message at $.kinds: expected kinds of inputs, from \
0 to 2, got 7.
    """
    data = expect_type(operand, bytes, "bytes", ".kinds")
    if len(data) > limits.max_actions:
        raise LimitExceeded("$.kinds", "max_actions", limits.max_actions, len(data))
    if data and max(data) > max(InputKind):
        expected = f"kinds of inputs, from 0 to {int(max(InputKind))}"
        raise MalformedMessage("$.kinds", expected, str(max(data)))
    return tuple(map(InputKind, data))


register(TypeCode.GROUP, Group, _pack, _unpack)
