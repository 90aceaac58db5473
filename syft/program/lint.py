"""What makes a program well formed: looked at before anything runs, on the way in and while making.

A program that passes can be lowered: its ops are known here and take so many operands, a slot is
read only after it got its value, the slots of results follow one another, and other programs stand
only where a branch or a loop takes them.  What is left to find is found by torch as it runs: shapes
and dtypes that do not fit, and operands of the wrong kind.

The slots of results must have no gaps.  So the receiver knows the number of each result without
being told, and no number can be too large.
"""

from __future__ import annotations

import enum
import functools
import inspect
import re
import types
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch

from syft.exceptions import MalformedMessage, ProgramError
from syft.ops.table import BY_NAME, FUNCTIONS, NAMES, PROGRAM_FUNCTIONS
from syft.program.program import Action, Mode, Program, Slot
from syft.serde.expect import describe, prepend
from syft.serde.torch_types import NUMBERED_KINDS

MOST_OPERANDS: Final = 1 << 12
"""Operands of one action, where the function itself does not say how many it takes."""
MOST_NESTED: Final = 8
"""Levels of programs inside programs."""

_NUMBERS: Final = frozenset((int, float, bool))
_PLAIN: Final = frozenset(
    (int, float, bool, complex, str, bytes, type(None), type(Ellipsis), type, range, torch.Size)
    + (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.qscheme)
    + (torch.Generator, *NUMBERED_KINDS)
)
_LIKE_PLAIN: Final = (int, float, enum.Enum, np.generic)
"""Subclasses of these are sent as the number or text they are."""
_COND, _LOOP = BY_NAME["syft.ops.control.cond"], BY_NAME["syft.ops.control.while_loop"]
_ON_NUMBERS: Final = frozenset(
    number for name, number in BY_NAME.items() if name.startswith("syft.ops.numbers.")
)
_LONG: Final = 40  # letters of a keyword that are shown
_ACTION: Final = re.compile(r"\$\.actions\[(\d+)\](.*)")


def lint(program: Program) -> None:
    """Raise :class:`~syft.exceptions.ProgramError`, naming the action, if a program is not well
    formed.

    >>> add = BY_NAME["torch.Tensor.add"]
    >>> lint(Program(1, (Action(add, (Slot(0), 1), {}, Slot(1)),), Slot(1)))
    >>> lint(Program(1, (Action(add, (Slot(0), Slot(2)), {}, Slot(1)),), Slot(1)))
    Traceback (most recent call last):
    ...
    syft.exceptions.ProgramError: action 0, torch.Tensor.add, has at .args[1]: Slot(2), where a \
slot that has its value already was expected
    """
    try:
        check(program)
    except MalformedMessage as error:
        inside = _ACTION.fullmatch(error.path)
        where = f"the program has at {error.path[1:]}"
        if inside is not None:
            action = program.actions[int(inside[1])]
            where = f"action {inside[1]}, {_name(action.op)}, has at {inside[2]}"
        raise ProgramError(f"{where}: {error.got}, where {error.expected} was expected") from error


def check(program: Program, nested: int = 0) -> None:
    """Raise :class:`~syft.exceptions.MalformedMessage` with the path to what is wrong.

    >>> check(Program(1, (), Slot(1)))
    Traceback (most recent call last):
    ...
    syft.exceptions.MalformedMessage: Malformed message at $.outputs: expected a slot that has \
its value already, got Slot(1).
    """
    if nested > MOST_NESTED:
        raise MalformedMessage("$", f"at most {MOST_NESTED} levels of programs", "more")
    for index, constant in enumerate(program.constants):
        if not isinstance(constant, torch.Tensor):
            raise MalformedMessage(f"$.constants[{index}]", "a tensor", describe(constant))
    scope = _Scope(program.given, nested)
    index = 0
    try:
        for action in program.actions:
            scope.check(action)
            index += 1
    except MalformedMessage as error:
        prepend(error, f".actions[{index}]")
        raise
    scope.operand(program.outputs, ".outputs")


class _Scope:
    """What is known before an action: how many slots have their value."""

    __slots__ = ("known", "nested")

    def __init__(self, known: int, nested: int) -> None:
        self.known, self.nested = known, nested

    def check(self, action: Action) -> None:
        """Check one action, and count its results."""
        op, args, kwargs = action.op, action.args, action.kwargs
        if not _has_function(op):
            raise MalformedMessage("$.op", "an op of the table that this torch has", _name(op))
        problem = _arity(op).problem(len(args), kwargs)
        if problem:
            raise MalformedMessage("$.args", *problem)
        if op in _SPECIAL:
            if kwargs:
                raise MalformedMessage("$.kwargs", "no keywords", str(len(kwargs)))
            _SPECIAL[op](self, action)
        else:
            self.operands(args, ".args")
            if kwargs:
                _check_names(kwargs)
                for name, value in kwargs.items():
                    self.operand(value, f".kwargs[{name!r}]")
        out = action.out
        if type(out) is Slot and out.index == self.known:
            self.known += 1
        else:
            self.result(out, ".out")
        if action.mode is not None:
            _check_mode(action.mode)

    def operands(self, items: tuple[Any, ...] | list[Any], where: str) -> None:
        """Check the items of a container; nearly all are slots and plain values."""
        known = self.known
        for place, item in enumerate(items):
            kind = type(item)
            if kind is Slot:
                if not 0 <= item.index < known:
                    raise _unknown(item, f"{where}[{place}]")
            elif kind not in _PLAIN:
                self.operand(item, f"{where}[{place}]")

    def operand(self, item: Any, where: str) -> None:
        """Check one operand, whatever it is."""
        if type(item) is Slot:
            if not 0 <= item.index < self.known:
                raise _unknown(item, where)
        elif isinstance(item, (tuple, list)):
            self.operands(item, where)
        elif isinstance(item, dict):
            for name, value in item.items():
                self.operand(value, f"{where}[{name!r}]")
        elif isinstance(item, slice):
            self.operands((item.start, item.stop, item.step), where)
        elif type(item) not in _PLAIN and not isinstance(item, _LIKE_PLAIN):
            raise MalformedMessage(f"${where}", "a slot or a plain value", _kind(item))

    def result(self, pattern: Any, where: str) -> None:
        """Check a pattern of results, and count its slots."""
        if type(pattern) is Slot:
            if pattern.index != self.known:
                raise MalformedMessage(f"${where}", f"Slot({self.known})", repr(pattern))
            self.known += 1
        elif type(pattern) is tuple:
            for place, part in enumerate(pattern):
                self.result(part, f"{where}[{place}]")
        elif pattern is not None:
            raise MalformedMessage(f"${where}", "a slot, a tuple of these or None", _kind(pattern))

    def numbers(self, action: Action) -> None:
        """Check the operands of arithmetic: numbers, and slots that may hold one."""
        self.operands(action.args, ".args")
        for place, item in enumerate(action.args):
            if type(item) is not Slot and type(item) not in _NUMBERS and item is not None:
                raise MalformedMessage(f"$.args[{place}]", "a slot or a number", _kind(item))

    def cond(self, action: Action) -> None:
        """Check a branch: a condition, two programs, and the operands that both take."""
        pred, then, otherwise, operands = action.args
        if type(pred) is not Slot and type(pred) not in _NUMBERS:
            raise MalformedMessage("$.args[0]", "a slot or a number", _kind(pred))
        self.operands((pred,), ".args")
        count = self.listed(operands, ".args[3]")
        for place, branch in ((1, then), (2, otherwise)):
            self.program(branch, count, f".args[{place}]")
            _check_flat(branch.outputs, f".args[{place}].outputs")
            if action.out is not None:
                _check_fits(action.out, branch.outputs)

    def loop(self, action: Action) -> None:
        """Check a loop: two programs over the same values, of which the second gives new ones."""
        test, body, operands = action.args
        count = self.listed(operands, ".args[2]")
        self.program(test, count, ".args[0]")
        self.program(body, count, ".args[1]")
        _check_simple(test.outputs, ".args[0].outputs")
        outputs = body.outputs
        if type(outputs) not in (tuple, list) or len(outputs) != count:
            expected, got = f"{count} values for {count} operands", _kind(outputs)
            raise MalformedMessage("$.args[1].outputs", expected, got)
        _check_flat(outputs, ".args[1].outputs")
        if action.out is not None:
            _check_fits(action.out, outputs)

    def listed(self, operands: Any, where: str) -> int:
        """Check the operands of a branch or a loop, and count them."""
        if type(operands) not in (tuple, list):
            raise MalformedMessage(f"${where}", "a list of operands", _kind(operands))
        self.operands(operands, where)
        _check_flat(operands, where)
        return len(operands)

    def program(self, program: Any, inputs: int, where: str) -> None:
        """Check a branch or a body: a program of so many inputs that has nothing of its own."""
        if type(program) is not Program:
            raise MalformedMessage(f"${where}", "a program", _kind(program))
        if program.inputs != inputs or program.state or program.constants:
            own = f"{program.inputs} inputs and {program.given - program.inputs} values of its own"
            raise MalformedMessage(f"${where}", f"a program of {inputs} inputs", own)
        try:
            check(program, self.nested + 1)
        except MalformedMessage as error:
            prepend(error, where)
            raise


_SPECIAL: Final = {
    _COND: _Scope.cond,
    _LOOP: _Scope.loop,
    **dict.fromkeys(_ON_NUMBERS, _Scope.numbers),
}


# A branch that returned a container, or handed one on, would let a program of n actions build a
# value of 2**n items: what slots hold comes from torch, or is a tensor or a number.


def _check_flat(values: Any, where: str) -> None:
    """Refuse containers among what a branch takes or returns, which is one value or a row."""
    if type(values) not in (tuple, list):
        _check_simple(values, where)
        return
    for place, value in enumerate(values):
        _check_simple(value, f"{where}[{place}]")


def _check_simple(value: Any, where: str) -> None:
    if isinstance(value, (tuple, list, dict, slice)):
        raise MalformedMessage(f"${where}", "a slot or a plain value", _kind(value))


def _check_fits(out: Any, outputs: Any) -> None:
    """Refuse a pattern of results that puts the row of a branch into one slot."""
    if type(outputs) not in (tuple, list):
        if type(out) is not Slot:
            raise MalformedMessage("$.out", "a slot or None", _kind(out))
    elif type(out) is not tuple or len(out) != len(outputs):
        raise MalformedMessage("$.out", f"a tuple of {len(outputs)} slots", _kind(out))
    else:
        _check_flat(out, ".out")


@dataclass(frozen=True, slots=True)
class _Arity:
    """How many operands a function takes, and by what names; None where it takes any."""

    positional: tuple[str, ...]
    required: frozenset[str]
    most: int
    names: frozenset[str] | None

    def problem(self, count: int, kwargs: dict[str, Any]) -> tuple[str, str] | None:
        """What was expected and what came, if so many operands of these names cannot be right."""
        if count > self.most:
            return f"at most {self.most} operands", str(count)
        if kwargs and self.names is not None:
            for name in kwargs:
                if name not in self.names:
                    return "keywords that the function has", _shown(name)
        if self.required and (kwargs or count < len(self.positional)):
            missing = self.required.difference(self.positional[:count], kwargs)
            if missing:
                return f"the operand {min(missing)!r}", f"{count} operands without it"
        return None


_ANY: Final = _Arity((), frozenset(), MOST_OPERANDS, None)


@functools.cache
def _arity(op: int) -> _Arity:
    """What the signature of an op says; the functions that torch has in C say nothing."""
    function = inspect.unwrap(FUNCTIONS[op] or PROGRAM_FUNCTIONS[op])
    if not isinstance(function, (types.FunctionType, types.MethodWrapperType)):
        return _ANY
    parameters = inspect.signature(function).parameters.values()
    kinds = {parameter.kind for parameter in parameters}
    positional = tuple(p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, _BOTH))
    named = frozenset(p.name for p in parameters if p.kind in (p.KEYWORD_ONLY, _BOTH))
    required = frozenset(
        p.name for p in parameters if p.default is p.empty and p.kind not in _VARIABLE
    )
    most = MOST_OPERANDS if inspect.Parameter.VAR_POSITIONAL in kinds else len(positional)
    any_name = inspect.Parameter.VAR_KEYWORD in kinds
    return _Arity(positional, required, most, None if any_name else named)


_BOTH: Final = inspect.Parameter.POSITIONAL_OR_KEYWORD
_VARIABLE: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _has_function(op: Any) -> bool:
    if type(op) is not int or not 0 <= op < len(FUNCTIONS):
        return False
    return FUNCTIONS[op] is not None or op in PROGRAM_FUNCTIONS


def _check_names(kwargs: dict[str, Any]) -> None:
    """Refuse keywords that are no words: tools that write source code write them as they are."""
    for name in kwargs:
        if type(name) is not str or not name.isidentifier():
            raise MalformedMessage("$.kwargs", "keywords that are identifiers", _shown(name))


def _check_mode(mode: Any) -> None:
    if type(mode) is not Mode or type(mode.grad) is not bool or type(mode.inference) is not bool:
        raise MalformedMessage("$.mode", "a Mode of booleans", _kind(mode))
    seen = set()
    for device, dtype in mode.autocast:
        if device not in ("cpu", "cuda") or not (dtype is None or isinstance(dtype, torch.dtype)):
            raise MalformedMessage("$.mode.autocast", "cpu or cuda, and a dtype", repr(device))
        if device in seen:
            raise MalformedMessage("$.mode.autocast", "each device once", f"{device} twice")
        seen.add(device)


def _name(op: Any) -> str:
    known = type(op) is int and 0 <= op < len(NAMES)
    return NAMES[op] if known else f"op {op}" if type(op) is int else _kind(op)


def _shown(name: Any) -> str:
    return (
        repr(name if len(name) <= _LONG else f"{name[:_LONG]}...")
        if type(name) is str
        else _kind(name)
    )


def _unknown(slot: Slot, where: str) -> MalformedMessage:
    return MalformedMessage(f"${where}", "a slot that has its value already", repr(slot))


def _kind(item: Any) -> str:
    if isinstance(item, torch.Tensor):
        return "a tensor (its place is among the constants)"
    return describe(item)
