"""Running a program: lowered once to a list of calls over registers, then looped over.

A register holds one value.  The result of an action takes the register of an operand that nobody
needs any more, if there is one, so values die with their last use, or with the action after it, and
the loop has nothing to free (what would live on is cleared).  Plain operands are put into registers
before the first run.  So nearly every action is ``registers[out] = function(registers[a],
registers[b])``, which costs what the same line of Python does; everything else is a closure made
once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter, length_hint
from typing import Any

import torch

from syft.exceptions import ProgramError
from syft.ops.table import FUNCTIONS, PROGRAM_FUNCTIONS, Function, function_of
from syft.program.patterns import fill as fill
from syft.program.patterns import items_of
from syft.program.patterns import matched as matched
from syft.program.program import Action, Mode, Program, Slot, slots_in
from syft.torch_private import set_grad_enabled
from syft.ops.nested import rebuild_tuple

Registers = list[Any]
Step = tuple[Function, int, int, int, Callable[[Registers], None] | None]
Reader = Callable[[Registers], Any]
Store = Callable[[Registers, Any], None]
Call = Callable[[Action, Function, tuple[Any, ...], dict[str, Any]], Any]

_FLAT = frozenset((Slot, int, float, bool, str, type(None)))  # the commonest operands


class Lowered:
    """A program made ready to run; ``functions`` gives the function of each op number.

    >>> from syft.ops.table import BY_NAME
    >>> double = Action(BY_NAME["torch.add"], (Slot(0), Slot(0)), {}, Slot(1))
    >>> Lowered(Program(inputs=1, actions=(double,), outputs=Slot(1))).run([torch.ones(2)])
    tensor([2., 2.])
    """

    __slots__ = (
        "program",
        "steps",
        "branches",
        "_functions",
        "_steps",
        "_template",
        "_given",
        "_has_modes",
        "_outputs",
        "_inside",
        "_lives",
    )

    def __init__(self, program: Program, functions: Sequence[Function | None] = FUNCTIONS) -> None:
        lowering = _Lowering(program, functions)
        self.program = program
        self._functions = functions
        self._has_modes = any(action.mode is not None for action in program.actions)
        self._given = program.inputs + program.state
        self._steps = [lowering.step(index, action) for index, action in enumerate(program.actions)]
        self._outputs = lowering.reader(program.outputs)
        self._template = lowering.template
        self._inside = lowering.inside
        self._lives = lowering.dying, lowering.wanted
        self.branches = lowering.nested > 0
        """Whether there are programs inside it."""
        self.steps = len(program.actions) + lowering.nested
        """How many actions it has, with those of the programs inside it."""

    def run(self, values: Sequence[Any]) -> Any:
        """Run the program on its inputs and state, in that order; returns its outputs.

        An error of an action carries a note that names it.
        """
        if len(values) != self._given:
            raise _other_count(len(values), self._given)
        registers = self._template.copy()
        registers[: self._given] = values
        steps = iter(self._steps)
        if self._has_modes:
            return self._run_with_modes(registers, steps)
        try:
            for function, first, second, out, step in steps:
                if second >= 0:
                    registers[out] = function(registers[first], registers[second])
                elif first >= 0:
                    registers[out] = function(registers[first])
                else:
                    step(registers)  # type: ignore[misc]
        except Exception as error:
            self._name_action(error, len(self._steps) - length_hint(steps) - 1)
            raise
        return self._outputs(registers)

    def _run_with_modes(self, registers: Registers, steps: Iterator[Step]) -> Any:
        """As the plain loop, with grad mode switched where the recording switched it."""
        surrounding = torch.is_grad_enabled()
        grad = surrounding
        actions = self.program.actions
        index = 0
        try:
            for function, first, second, out, step in steps:
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
                    step(registers)  # type: ignore[misc]
                index += 1
        except Exception as error:
            self._name_action(error, index)
            raise
        finally:
            set_grad_enabled(surrounding)
        return self._outputs(registers)

    def run_with(self, values: Sequence[Any], call: Call) -> Any:
        """Run the program with ``call(action, function, args, kwargs)`` for each action.

        Slower; for whoever has to look at each operation, such as a worker that guards private
        values.  Modes are set around ``call``; programs inside operands come as objects with a
        ``run`` method that goes through ``call`` too.
        """
        if len(values) != self._given:
            raise _other_count(len(values), self._given)
        found: dict[int, Any] = dict(enumerate(values))
        found.update(enumerate(self.program.constants, self._given))
        dying, wanted = self._lives
        for index, action in enumerate(self.program.actions):
            try:
                function = function_of_action(action, self._functions)
                with entered(action.mode):
                    result = call(
                        action,
                        function,
                        fill(self._watched(action.args, call), found),
                        fill(action.kwargs, found),
                    )
                for slot, value in matched(action.out, result):
                    if slot in wanted:
                        found[slot] = value
            except Exception as error:
                self._name_action(error, index)
                raise
            result = value = None
            for slot in dying.get(index, ()):
                del found[slot]
        return fill(self.program.outputs, found)

    def _watched(self, args: tuple[Any, ...], call: Call) -> tuple[Any, ...]:
        """Operands in which programs run through ``call`` too."""
        if not _has_program(args):
            return args
        return tuple(
            _Watched(self._inside[id(arg)], call) if isinstance(arg, Program) else arg
            for arg in args
        )

    def _name_action(self, error: Exception, index: int) -> None:
        action = self.program.actions[index]
        lines = self.program.lines
        where = f", recorded at {lines[index]}" if index < len(lines) else ""
        if type(error) is ProgramError:  # its text is all that arrives of it elsewhere
            error.args = (f"{error} (in action {index}, {action.name}{where})",)
        else:
            error.add_note(f"In action {index}, {action.name}{where}.")


class _Watched:
    """A program inside an operand, run through the ``call`` of the program around it."""

    __slots__ = ("steps", "_lowered", "_call")

    def __init__(self, lowered: Lowered, call: Call) -> None:
        self.steps = lowered.steps
        self._lowered = lowered
        self._call = call

    def run(self, values: Sequence[Any]) -> Any:
        return self._lowered.run_with(values, self._call)


# ------------------------------------------------------------------------------------ lowering


class _Lowering:
    """Gives every slot a register, and every plain operand one that is filled before the run."""

    def __init__(self, program: Program, functions: Sequence[Function | None]) -> None:
        self.functions = functions
        self.template: Registers = [None] * (program.inputs + program.state)
        self.template.extend(program.constants)
        self.register = {index: index for index in range(program.given)}
        self.dying, self.wanted = _uses(program)
        self.inside: dict[int, Lowered] = {}  # the programs in operands, by their id()
        self.nested = 0  # how many actions the programs inside it have, each one more
        self._left: list[int] = []  # the register of a dead value, for the next result

    def step(self, index: int, action: Action) -> Step:
        """The step of one action: a flat call where that will do, else a closure."""
        function = function_of_action(action, self.functions)
        free = [*self._left, *(self.register[slot] for slot in self.dying.get(index, ()))]
        self._left = []
        if not _is_simple(action):
            caller = self._special_caller(action, function)
            return function, -1, -1, -1, _general(caller, self._store(action.out, free), free)
        places = [self._place(arg) for arg in action.args]
        out = action.out
        if type(out) is not Slot or out.index not in self.wanted:
            caller = _caller(function, _flat(places), None)
            return function, -1, -1, -1, _general(caller, self._store(out, free), free)
        register = self._result(out.index, free)
        if len(free) > 1 or len(places) > 2:
            return function, -1, -1, -1, _flat_step(function, places, register, free)
        self._left = free
        first, second = (*places, -1)[:2]
        return function, first, second, register, None

    def reader(self, pattern: Any) -> Reader:
        """A function that builds a nested value out of registers."""
        if type(pattern) is Slot:
            return itemgetter(self.register[pattern.index])
        if isinstance(pattern, Program):
            inner = self.inside[id(pattern)] = Lowered(pattern, self.functions)
            self.nested += 1 + inner.steps
            return lambda registers: inner
        if not any(True for _ in slots_in(pattern)) and not _has_program(pattern):
            return lambda registers: pattern
        if isinstance(pattern, dict):
            keys = list(pattern)
            values = [self.reader(pattern[key]) for key in keys]
            return lambda registers: {
                key: read(registers) for key, read in zip(keys, values, strict=True)
            }
        if isinstance(pattern, slice):
            parts = [self.reader(part) for part in (pattern.start, pattern.stop, pattern.step)]
            return lambda registers: slice(*[read(registers) for read in parts])
        if type(pattern) is tuple and all(type(item) is Slot for item in pattern):
            places = [self.register[item.index] for item in pattern]
            if len(places) > 1:
                return itemgetter(*places)  # gives a tuple
            (place,) = places
            return lambda registers: (registers[place],)
        readers = [self.reader(item) for item in pattern]
        if isinstance(pattern, list):
            return lambda registers: [read(registers) for read in readers]
        return lambda registers: rebuild_tuple(pattern, [read(registers) for read in readers])

    def _place(self, operand: Any) -> int:
        """The register of a flat operand."""
        if type(operand) is Slot:
            return self.register[operand.index]
        self.template.append(operand)
        return len(self.template) - 1

    def _result(self, slot: int, free: list[int]) -> int:
        """The register of a new value: one that has just become free, or a new one."""
        if free:
            register = free.pop(0)
        else:
            self.template.append(None)
            register = len(self.template) - 1
        self.register[slot] = register
        return register

    def _store(self, pattern: Any, free: list[int]) -> Store | None:
        """A function that puts the values of a result where its pattern says."""
        if pattern is None:
            return None
        if type(pattern) is Slot:
            if pattern.index not in self.wanted:
                return None
            return _one(self._result(pattern.index, free))
        parts = [self._store(item, free) for item in pattern]
        if not any(parts):
            return None
        return _several(parts)

    def _special_caller(self, action: Action, function: Function) -> Reader:
        """A closure that calls the function with nested operands, with keywords or in a mode."""
        if all(map(_is_flat, action.args)):
            args = _flat([self._place(arg) for arg in action.args])
        else:
            args = _nested([self.reader(arg) for arg in action.args])
        mode = action.mode
        if mode is not None and (mode.inference or mode.autocast):
            function = _in_mode(function, mode)
        return _caller(function, args, self.reader(action.kwargs) if action.kwargs else None)


def function_of_action(action: Action, functions: Sequence[Function | None]) -> Function:
    """The function an action calls; raises :class:`~syft.exceptions.UnknownOperation`."""
    op = action.op
    function = functions[op] if 0 <= op < len(functions) else None
    if function is None:
        function = PROGRAM_FUNCTIONS.get(op)
    return function_of(op) if function is None else function


def _uses(program: Program) -> tuple[dict[int, list[int]], set[int]]:
    """For each action, the slots that nothing reads after it; and all slots that are read."""
    last: dict[int, int] = {}
    for index, action in enumerate(program.actions):
        for arg in action.args:
            if type(arg) is Slot:
                last[arg.index] = index
            elif type(arg) not in _FLAT:
                last.update((slot.index, index) for slot in slots_in(arg))
        if action.kwargs:
            last.update((slot.index, index) for slot in slots_in(action.kwargs))
    wanted = set(last)
    for slot in slots_in(program.outputs):
        wanted.add(slot.index)
        last.pop(slot.index, None)
    kept = range(program.inputs, program.given)  # state and constants outlive the run anyway
    dying: dict[int, list[int]] = {}
    for slot_index, index in last.items():
        if slot_index not in kept:
            dying.setdefault(index, []).append(slot_index)
    return dying, wanted


def _other_count(got: int, expected: int) -> ProgramError:
    return ProgramError(f"it was given {got} values, and takes {expected}")


def _is_flat(operand: Any) -> bool:
    return type(operand) in _FLAT or not isinstance(operand, (tuple, list, dict, slice, Program))


def _is_simple(action: Action) -> bool:
    """Whether an action is a call with flat positional operands in ordinary modes."""
    mode = action.mode
    special = mode is not None and (mode.inference or mode.autocast)
    return (
        bool(action.args) and not action.kwargs and not special and all(map(_is_flat, action.args))
    )


def _has_program(pattern: Any) -> bool:
    if isinstance(pattern, (tuple, list)):
        return any(_has_program(item) for item in pattern)
    return isinstance(pattern, Program)


def _flat(places: list[int]) -> Reader:
    return lambda registers: [registers[place] for place in places]


def _nested(readers: list[Reader]) -> Reader:
    return lambda registers: [read(registers) for read in readers]


def _caller(function: Function, args: Reader, kwargs: Reader | None) -> Reader:
    if kwargs is None:
        return lambda registers: function(*args(registers))
    return lambda registers: function(*args(registers), **kwargs(registers))


def _in_mode(function: Function, mode: Mode) -> Function:
    def run(*args: Any, **kwargs: Any) -> Any:
        with entered(mode):
            return function(*args, **kwargs)

    return run


def _one(register: int) -> Store:
    def store(registers: Registers, value: Any) -> None:
        registers[register] = value

    return store


def _several(parts: list[Store | None]) -> Store:
    def store(registers: Registers, value: Any) -> None:
        for part, item in zip(parts, items_of(value, len(parts)), strict=True):
            if part is not None:
                part(registers, item)

    return store


def _flat_step(
    function: Function, places: list[int], out: int, free: list[int]
) -> Callable[[Registers], None]:
    """A call with flat positional operands that gives one value."""
    if len(places) == 3:
        first, second, third = places

        def step(registers: Registers) -> None:
            value = function(registers[first], registers[second], registers[third])
            for register in free:
                registers[register] = None
            registers[out] = value

        return step
    return _general(_caller(function, _flat(places), None), _one(out), free)


def _general(caller: Reader, store: Store | None, free: list[int]) -> Callable[[Registers], None]:
    """A step of any kind: call, store the result, clear what has died."""

    def step(registers: Registers) -> None:
        value = caller(registers)
        for register in free:
            registers[register] = None
        if store is not None:
            store(registers, value)

    return step


# ------------------------------------------------------------------------------------------ modes


@contextlib.contextmanager
def entered(mode: Mode | None) -> Iterator[None]:
    """A context in which the torch modes are those an action was recorded under.

    >>> with entered(Mode(grad=False)):
    ...     torch.is_grad_enabled()
    False
    """
    if mode is None:
        yield
        return
    with contextlib.ExitStack() as modes:
        if mode.inference:
            modes.enter_context(torch.inference_mode())
        modes.enter_context(torch.set_grad_enabled(mode.grad))
        for device, dtype in mode.autocast:
            context = torch.autocast(device, dtype=dtype, enabled=dtype is not None)
            modes.enter_context(context)
        yield
