"""Running a program: a loop over registers, which stays as fast as the same lines of Python.

A program is lowered once to a list of instructions over registers
(:mod:`syft.program.register_allocation`).  Nearly every instruction is ``registers[out] =
function(registers[a], registers[b])``, which costs what the same line of Python does; any other is
a closure that was made when the program was lowered.

A program whose actions were asked for one by one goes on after one of them has failed: only what
depends on that is lost (:class:`Partial`).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from operator import length_hint
from typing import Any, Final

import torch

from syft.exceptions import ProgramError
from syft.ops.nested import container_class
from syft.ops.table import FUNCTIONS, Function, may_alter
from syft.program.flow import reads_in
from syft.program.program import Action, Program, Slot, fill_slots, slot_values, slots_in
from syft.program.register_allocation import (
    Instruction,
    RegisterAllocator,
    Registers,
    function_of_action,
)
from syft.program.torch_modes import mode_context
from syft.torch_private import set_grad_enabled

Call = Callable[[Action, Function, tuple[Any, ...], dict[str, Any]], Any]


def plainly(action: Action, function: Function, args: Any, kwargs: Any) -> Any:
    """Call the function of an action.

    >>> plainly(Action(0, (), {}, None), abs, (-2,), {})
    2
    """
    return function(*args, **kwargs)


def always() -> bool:
    """True: a program that goes on after a failure may.

    >>> always()
    True
    """
    return True


_MOST_NAMED: Final = 8
"""The most actions that an error names which have failed after the one that raised it."""

LOST: Final = object()
"""What stands among outputs for one that was not made, since an action failed."""


class Partial(tuple[Any, ...]):
    """The outputs of a program in which actions failed: ``LOST`` for what depends on these.

    ``failure`` is the exception of the first that failed, and ``action`` says which that is.

    >>> Partial.of((LOST, 3), 0, ValueError("x")).failure
    ValueError('x')
    """

    action: int
    failure: Exception | None = None

    @classmethod
    def of(cls, outputs: Iterable[Any], action: int, failure: Exception) -> Partial:
        """Outputs that are there in part."""
        made = cls(outputs)
        made.action, made.failure = action, failure
        return made


class Lowered:
    """A program made ready to run; ``functions`` gives the function of each op number, and
    ``altering`` what is called in its place where a tensor may get another shape or memory.
    ``goes_on`` says that its outputs, a flat tuple, are not lost together.  After a failure, none
    of the actions ``barriers`` runs, by place, and none that follows one of them.

    >>> from syft.ops.table import BY_NAME
    >>> from syft.program.program import Slot
    >>> double = Action(BY_NAME["torch.add"], (Slot(0), Slot(0)), {}, Slot(1))
    >>> Lowered(Program(inputs=1, actions=(double,), outputs=Slot(1))).run([torch.ones(2)])
    tensor([2., 2.])
    """

    __slots__ = (
        "program",
        "steps",
        "known_sizes",
        "branches",
        "_goes_on",
        "_barriers",
        "_functions",
        "_altering",
        "_instructions",
        "_initial",
        "_given",
        "_has_modes",
        "_flat",
        "_outputs",
        "_nested",
        "_liveness",
    )

    def __init__(
        self,
        program: Program,
        functions: Sequence[Function | None] = FUNCTIONS,
        altering: Callable[[Function], Function] | None = None,
        goes_on: bool = False,
        barriers: Container[int] = (),
    ) -> None:
        self.program = program
        self._goes_on, self._barriers = goes_on, barriers
        self._functions = functions
        self._altering = altering
        self._nested: dict[int, Lowered] = {}  # the programs in operands, by their id()
        allocator = RegisterAllocator(program, self._function_of, self._lower_nested)
        self._has_modes = any(action.mode is not None for action in program.actions)
        self._flat = [_is_flat(action.args) for action in program.actions]
        self._given = program.inputs + program.state
        self._instructions = [allocator.instruction(*item) for item in enumerate(program.actions)]
        self._outputs = allocator.reader(program.outputs)
        self._initial = allocator.initial
        self._liveness = allocator.liveness
        self.branches = allocator.nested_steps > 0
        """Whether there are programs inside it."""
        self.steps = len(program.actions) + allocator.nested_steps
        """How many actions it has, including those of the programs inside it."""
        self.known_sizes: Any = None
        """The inputs with which it may run unseen, for whoever looks at its actions."""

    def _lower_nested(self, program: Program) -> Lowered:
        lowered = Lowered(program, self._functions, self._altering)
        self._nested[id(program)] = lowered
        return lowered

    def _function_of(self, action: Action) -> Function:
        """The function that an action calls."""
        function = function_of_action(action, self._functions)
        if self._altering is None or not may_alter(action.op, action.kwargs):
            return function
        return self._altering(function)

    def run(self, values: Sequence[Any]) -> Any:
        """Run the program on its inputs and state, in that order; returns its outputs.

        An error of an action carries a note that names it.  Returns :class:`Partial` after one, if
        the program goes on.
        """
        if len(values) != self._given:
            raise _wrong_count(len(values), self._given)
        registers = self._initial.copy()
        registers[: self._given] = values
        del values  # its tensors are freed where they are read last, if nobody else has them
        instructions = iter(self._instructions)
        try:
            if self._has_modes:
                self._run_with_modes(registers, instructions)  # all of them
            for function, first, second, out, general in instructions:
                if second >= 0:
                    registers[out] = function(registers[first], registers[second])
                elif first >= 0:
                    registers[out] = function(registers[first])
                else:
                    general(registers)  # type: ignore[misc]
        except Exception as error:
            index = len(self._instructions) - length_hint(instructions) - 1
            self._name_action(error, index)
            if not self._goes_on:
                raise
            return self._rest(self._values_before(index, registers), index, plainly, error)
        return self._outputs(registers)

    def _run_with_modes(self, registers: Registers, instructions: Iterator[Instruction]) -> None:
        """The same loop, which also switches grad mode where the recording switched it."""
        surrounding = torch.is_grad_enabled()
        grad = surrounding
        actions = self.program.actions
        index = 0
        try:
            for function, first, second, out, general in instructions:
                mode = actions[index].mode
                wanted = surrounding if mode is None else mode.grad
                if wanted is not grad:
                    set_grad_enabled(wanted)
                    grad = wanted
                if second >= 0:
                    registers[out] = function(registers[first], registers[second])
                elif first >= 0:
                    registers[out] = function(registers[first])
                else:
                    general(registers)  # type: ignore[misc]
                index += 1
        finally:
            set_grad_enabled(surrounding)

    def run_with(
        self, values: Sequence[Any], call: Call, may_go_on: Callable[[], bool] = always
    ) -> Any:
        """Run the program with ``call(action, function, args, kwargs)`` for each action.

        This is slower than :meth:`run`.  A worker that guards private values uses it to look at
        each operation.  Modes are set around ``call``.  Programs inside operands are passed as
        objects whose ``run`` method uses ``call`` too.  A program that goes on after a failure asks
        ``may_go_on`` first.
        """
        if len(values) != self._given:
            raise _wrong_count(len(values), self._given)
        slots: dict[int, Any] = dict(enumerate(values))
        slots.update(enumerate(self.program.constants, self._given))
        for index in range(len(self.program.actions)):
            try:
                self._act(index, slots, call)
            except Exception as error:
                self._name_action(error, index)
                if not (self._goes_on and may_go_on()):
                    raise
                return self._rest(slots, index, call, error, may_go_on)
        return fill_slots(self.program.outputs, slots)

    def _act(self, index: int, slots: dict[int, Any], call: Call) -> None:
        """Run one action on the values of slots, and put its results there."""
        action, read = self.program.actions[index], self._liveness.read
        function = self._function_of(action)
        args = self._operands(index, action.args, slots, call)
        kwargs = fill_slots(action.kwargs, slots) if action.kwargs else {}
        if action.mode is None:
            result = call(action, function, args, kwargs)
        else:
            with mode_context(action.mode):
                result = call(action, function, args, kwargs)
        for slot, value in slot_values(action.out, result):
            if slot in read:
                slots[slot] = value
        for slot in self._liveness.last_reads.get(index, ()):
            del slots[slot]

    def _rest(
        self,
        slots: dict[int, Any],
        failed: int,
        call: Call,
        error: Exception,
        may_go_on: Callable[[], bool] = always,
    ) -> Partial:
        """Run what follows an action that failed, as far as it does not depend on it.

        The first that fail after it are named in notes of its error, and the others counted.
        """
        others, stopped = 0, failed in self._barriers
        lost = {slot.index for slot in slots_in(self.program.actions[failed].out)}
        reads = reads_in(self.program)
        for index, action in enumerate(self.program.actions[failed + 1 :], failed + 1):
            made = {slot.index for slot in slots_in(action.out)}
            stopped = stopped or index in self._barriers
            if stopped or not lost.isdisjoint(reads[index]):
                lost |= made
                continue
            try:
                self._act(index, slots, call)
            except Exception as other:
                if not may_go_on():
                    raise
                lost |= made
                others += 1
                if others <= _MOST_NAMED:
                    error.add_note(f"Action {index}, {action.name}, failed by itself: {other!r}.")
        _count_more(error, others)
        slots.update(dict.fromkeys(lost, LOST))
        return Partial.of(fill_slots(self.program.outputs, slots), failed, error)

    def _values_before(self, index: int, registers: Registers) -> dict[int, Any]:
        """The values of the slots that live before an action, from the registers."""
        allocator = RegisterAllocator(self.program, self._function_of, self._lower_nested)
        before = self.program.actions[:index]
        for item in enumerate(before):
            allocator.instruction(*item)
        dead = {slot for done in range(index) for slot in self._liveness.last_reads.get(done, ())}
        return {
            slot: registers[register]
            for slot, register in allocator.registers.items()
            if slot not in dead
        }

    def _operands(
        self, index: int, args: tuple[Any, ...], slots: dict[int, Any], call: Call
    ) -> tuple[Any, ...]:
        """The operands of an action, with the values of their slots."""
        if self._flat[index]:
            return tuple([slots[arg.index] if type(arg) is Slot else arg for arg in args])
        filled: tuple[Any, ...] = fill_slots(self._inspected(args, call), slots)
        return filled

    def _inspected(self, args: tuple[Any, ...], call: Call) -> tuple[Any, ...]:
        """The operands, with programs that run through ``call``; only a branch or loop has any."""
        if not self._nested:
            return args
        return tuple(
            _InspectedProgram(self._nested[id(arg)], call) if type(arg) is Program else arg
            for arg in args
        )

    def _name_action(self, error: Exception, index: int) -> None:
        action = self.program.actions[index]
        lines = self.program.lines
        where = f", recorded at {lines[index]}" if index < len(lines) else ""
        if type(error) is ProgramError:  # another worker is sent its text, but no notes
            error.args = (f"{error} (in action {index}, {action.name}{where})",)
        else:
            error.add_note(f"In action {index}, {action.name}{where}.")


def _count_more(error: Exception, others: int) -> None:
    if others > _MOST_NAMED:
        error.add_note(f"So did {others - _MOST_NAMED} more.")


class _InspectedProgram:
    """A program inside an operand, which runs through the ``call`` of the program around it."""

    __slots__ = ("steps", "_lowered", "_call")

    def __init__(self, lowered: Lowered, call: Call) -> None:
        self.steps = lowered.steps
        self._lowered = lowered
        self._call = call

    def run(self, values: Sequence[Any]) -> Any:
        return self._lowered.run_with(values, self._call)


def _is_flat(args: tuple[Any, ...]) -> bool:
    """Whether there are no containers and no programs among operands."""
    return not any(type(arg) is Program or container_class(type(arg)) for arg in args)


def _wrong_count(got: int, expected: int) -> ProgramError:
    return ProgramError(f"it was given {got} values, and takes {expected}")
