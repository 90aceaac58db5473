"""Lowering a program: a register for each value, and an instruction for each action.

A register holds one value.  The result of an action takes the register of an operand that no later
action reads, if there is one.  So a value is freed by its last reader or by the action after it,
and the loop that runs the instructions has nothing to free; the few registers that would keep a
dead value are cleared.  Constant operands are put into registers before the first run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, Final

from syft.ops.control import Runnable
from syft.ops.nested import SCALAR_TYPES, container_class, leaves, rebuild_tuple
from syft.ops.table import PROGRAM_FUNCTIONS, Function, function_of
from syft.program.flow import liveness_of
from syft.program.program import Action, Mode, Program, Slot, result_items
from syft.program.torch_modes import mode_context

Registers = list[Any]
Instruction = tuple[Function, int, int, int, Callable[[Registers], None] | None]
"""A call of one or two registers: the function, their numbers (-1 for none), the number of the
result; or, with -1 for all three, a closure that does everything."""
Reader = Callable[[Registers], Any]
Store = Callable[[Registers, Any], None]


class RegisterAllocator:
    """Gives every slot a register, and every constant operand one that is filled before the run.

    ``function_of`` finds the function of an action, and ``lower`` makes a program that stands in
    an operand ready to run.

    >>> from syft.ops.table import BY_NAME, FUNCTIONS
    >>> add = Action(BY_NAME["torch.add"], (Slot(0), 2), {}, Slot(1))
    >>> find = lambda action: FUNCTIONS[action.op]
    >>> allocator = RegisterAllocator(Program(1, (add,), Slot(1)), find, print)
    >>> allocator.instruction(0, add)[1:], allocator.initial
    ((0, 1, 0, None), [None, 2])
    """

    def __init__(
        self,
        program: Program,
        function_of: Callable[[Action], Function],
        lower: Callable[[Program], Runnable],
    ) -> None:
        self._function_of = function_of
        self._lower = lower
        self.initial: Registers = [None] * (program.inputs + program.state)
        """What the registers hold before a run."""
        self.initial.extend(program.constants)
        self.liveness = liveness_of(program)
        self.nested_steps = 0
        """How many actions the programs in operands have, counting one more for each program."""
        self.registers = {index: index for index in range(program.given)}
        """The register of each slot that has had a value so far."""
        self._spare: list[int] = []  # the register of a dead value, for the next result

    def instruction(self, index: int, action: Action) -> Instruction:
        """The instruction of one action: a flat call where that is enough, or else a closure."""
        function = self._function_of(action)
        last_reads = self.liveness.last_reads.get(index, ())
        free = [*self._spare, *(self.registers[slot] for slot in last_reads)]
        self._spare = []
        if not _is_simple(action):
            return self._closure(self._special_caller(action, function), action, free)
        operands = [self._operand_register(arg) for arg in action.args]
        out = action.out
        if type(out) is not Slot or out.index not in self.liveness.read:
            return self._closure(_caller(function, _read_list(operands), None), action, free)
        register = self._result_register(out.index, free)
        if len(free) > 1 or len(operands) > 2:
            return function, -1, -1, -1, _flat_closure(function, operands, register, free)
        self._spare = free
        first, second = (*operands, -1)[:2]
        return function, first, second, register, None

    def reader(self, pattern: Any) -> Reader:
        """A function that builds an operand out of registers."""
        if type(pattern) is Slot:
            return itemgetter(self.registers[pattern.index])
        if type(pattern) is Program:
            lowered = self._lower(pattern)
            self.nested_steps += 1 + lowered.steps
            return lambda registers: lowered
        kind = container_class(type(pattern))
        if kind is None or not any(type(leaf) in (Slot, Program) for leaf in leaves(pattern)):
            return lambda registers: pattern
        return _READERS[kind](self, pattern)

    def _tuple_reader(self, pattern: tuple[Any, ...]) -> Reader:
        if type(pattern) is tuple and all(type(item) is Slot for item in pattern):
            registers_read = [self.registers[item.index] for item in pattern]
            if len(registers_read) > 1:
                return itemgetter(*registers_read)  # returns a tuple
            (register,) = registers_read
            return lambda registers: (registers[register],)
        read_items = _read_each(list(map(self.reader, pattern)))
        return lambda registers: rebuild_tuple(pattern, read_items(registers))

    def _list_reader(self, pattern: list[Any]) -> Reader:
        return _read_each(list(map(self.reader, pattern)))

    def _dict_reader(self, pattern: dict[Any, Any]) -> Reader:
        keys = list(pattern)
        read_values = _read_each(list(map(self.reader, pattern.values())))
        return lambda registers: dict(zip(keys, read_values(registers), strict=True))

    def _slice_reader(self, pattern: slice) -> Reader:
        read_parts = _read_each(list(map(self.reader, (pattern.start, pattern.stop, pattern.step))))
        return lambda registers: slice(*read_parts(registers))

    def _closure(self, caller: Reader, action: Action, free: list[int]) -> Instruction:
        function = self._function_of(action)
        return function, -1, -1, -1, _call_and_store(caller, self._store(action.out, free), free)

    def _operand_register(self, operand: Any) -> int:
        """The register of a flat operand."""
        if type(operand) is Slot:
            return self.registers[operand.index]
        self.initial.append(operand)
        return len(self.initial) - 1

    def _result_register(self, slot: int, free: list[int]) -> int:
        """The register of a new value: one that has just become free, or a new one."""
        if free:
            register = free.pop(0)
        else:
            self.initial.append(None)
            register = len(self.initial) - 1
        self.registers[slot] = register
        return register

    def _store(self, pattern: Any, free: list[int]) -> Store | None:
        """A function that puts the values of a result into the registers of a pattern."""
        if pattern is None:
            return None
        if type(pattern) is Slot:
            if pattern.index not in self.liveness.read:
                return None
            return _store_one(self._result_register(pattern.index, free))
        parts = [self._store(item, free) for item in pattern]
        if not any(parts):
            return None
        return _store_several(parts)

    def _special_caller(self, action: Action, function: Function) -> Reader:
        """A closure that calls the function with nested operands, with keywords or in a mode."""
        mode = action.mode
        if mode is not None and (mode.inference or mode.autocast):
            function = _in_mode(function, mode)
        if all(map(_is_flat, action.args)):
            operands = [self._operand_register(arg) for arg in action.args]
            if len(operands) == 2 and len(action.kwargs) == 1:
                ((key, value),) = action.kwargs.items()
                if _is_flat(value):
                    return _keyword_caller(function, operands, key, self._operand_register(value))
            args = _read_list(operands)
        else:
            args = _read_each(list(map(self.reader, action.args)))
        return _caller(function, args, self.reader(action.kwargs) if action.kwargs else None)


_READERS: Final[dict[type, Callable[[RegisterAllocator, Any], Reader]]] = {
    tuple: RegisterAllocator._tuple_reader,
    list: RegisterAllocator._list_reader,
    dict: RegisterAllocator._dict_reader,
    slice: RegisterAllocator._slice_reader,
}


def function_of_action(action: Action, functions: Sequence[Function | None]) -> Function:
    """The function an action calls; raises :class:`~syft.exceptions.UnknownOperation`."""
    op = action.op
    function = functions[op] if 0 <= op < len(functions) else None
    if function is None:
        function = PROGRAM_FUNCTIONS.get(op)
    return function_of(op) if function is None else function


def _is_flat(operand: Any) -> bool:
    kind = type(operand)
    return kind is Slot or kind in SCALAR_TYPES or not (kind is Program or container_class(kind))


def _is_simple(action: Action) -> bool:
    """Whether an action is a call with flat positional operands in ordinary modes."""
    mode = action.mode
    special = mode is not None and (mode.inference or mode.autocast)
    return (
        bool(action.args) and not action.kwargs and not special and all(map(_is_flat, action.args))
    )


# ------------------------------------------------------------------------------------- closures


def _read_list(places: list[int]) -> Reader:
    return lambda registers: [registers[place] for place in places]


def _read_each(readers: list[Reader]) -> Callable[[Registers], list[Any]]:
    return lambda registers: [read(registers) for read in readers]


def _caller(function: Function, args: Reader, kwargs: Reader | None) -> Reader:
    if kwargs is None:
        return lambda registers: function(*args(registers))
    return lambda registers: function(*args(registers), **kwargs(registers))


def _keyword_caller(function: Function, operands: list[int], key: str, place: int) -> Reader:
    """A call such as ``weight.add_(step, alpha=rate)``, of which an optimizer makes many."""
    first, second = operands
    return lambda registers: function(
        registers[first], registers[second], **{key: registers[place]}
    )


def _in_mode(function: Function, mode: Mode) -> Function:
    def run(*args: Any, **kwargs: Any) -> Any:
        with mode_context(mode):
            return function(*args, **kwargs)

    return run


def _store_one(register: int) -> Store:
    def store(registers: Registers, value: Any) -> None:
        registers[register] = value

    return store


def _store_several(parts: list[Store | None]) -> Store:
    def store(registers: Registers, value: Any) -> None:
        for part, item in zip(parts, result_items(value, len(parts)), strict=True):
            if part is not None:
                part(registers, item)

    return store


def _flat_closure(
    function: Function, operands: list[int], out: int, free: list[int]
) -> Callable[[Registers], None]:
    """A call with flat positional operands that returns one value."""
    if len(operands) == 3:
        first, second, third = operands

        def run(registers: Registers) -> None:
            value = function(registers[first], registers[second], registers[third])
            for register in free:
                registers[register] = None
            registers[out] = value

        return run
    return _call_and_store(_caller(function, _read_list(operands), None), _store_one(out), free)


def _call_and_store(
    caller: Reader, store: Store | None, free: list[int]
) -> Callable[[Registers], None]:
    """An instruction of any kind: call, clear the registers of dead values, store the result."""

    def run(registers: Registers) -> None:
        value = caller(registers)
        for register in free:
            registers[register] = None
        if store is not None:
            store(registers, value)

    return run
