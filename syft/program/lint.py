"""What makes a program well formed: checked before it runs, when it arrives and when it was built.

A program that passes can be lowered: its ops are known here and take that many operands, a slot is
read only after it got its value, the slots of results follow one another, and programs are operands
only of branches and loops.  Shapes and dtypes that do not fit, and operands of the wrong kind, are
found by torch when the program runs.

The slots of results must have no gaps.  So the receiver can derive the number of each result, and
no number can be too large.

What the numbers of actions mean is in a table for each vocabulary (:data:`SCOPES`): torch's is
here, and others are added where they are defined.
"""

from __future__ import annotations

import abc
import enum
import functools
import inspect
import re
import types
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch

from syft.exceptions import MalformedMessage, ProgramError
from syft.ops.nested import CONSTANT_TYPES, NUMBER_TYPES, container_class, parts
from syft.ops.numbers import RELATIONS
from syft.ops.table import BY_NAME, COND, FUNCTIONS, NAMES, PROGRAM_FUNCTIONS, WHILE_LOOP
from syft.program.program import Action, Mode, Program, Slot
from syft.serde.expect import describe, prepend

MOST_OPERANDS: Final = 1 << 12
"""Operands of one action, where the function itself does not say how many it takes."""
MOST_NESTED: Final = 8
"""Levels of programs inside programs."""

_CONSTANT_BASES: Final = (int, float, enum.Enum, np.generic)
"""Values of subclasses of these are sent as the number or text that they equal."""
_ON_NUMBERS: Final = frozenset(
    number for name, number in BY_NAME.items() if name.startswith("syft.ops.numbers.")
)
_MOST_LETTERS: Final = 40  # of a keyword in an error text
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
            where = f"{_about(program, int(inside[1]))}, has at {inside[2]}"
        raise ProgramError(f"{where}: {error.got}, where {error.expected} was expected") from error


def _about(program: Program, index: int) -> str:
    """What errors call an action."""
    op = program.actions[index].op
    known = isinstance(op, int) and type(op) is not bool
    name = SCOPES[type(program)].name_of(op) if known else describe_operand(op)
    return f"action {index}, {name}"


def check(program: Program, nested: int = 0) -> None:
    """Raise :class:`~syft.exceptions.MalformedMessage` with the path to what is wrong, or
    :class:`~syft.exceptions.ProgramError` where a vocabulary has more to say than that.

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
    scope = SCOPES[type(program)](program, nested)
    index = 0
    try:
        for action in program.actions:
            scope.check(action)
            index += 1
    except MalformedMessage as error:
        prepend(error, f".actions[{index}]")
        raise
    except ProgramError as error:
        raise ProgramError(f"{_about(program, index)}: {error}") from error
    scope.end(program.outputs)


class Scope(abc.ABC):
    """Checks the actions of a program in order; ``defined`` counts the slots that have their value
    by then.

    Abstract: a vocabulary says what else an action needs (:meth:`check`), and what errors call it
    (:meth:`name_of`).
    """

    __slots__ = ("defined", "nested")

    def __init__(self, program: Program, nested: int) -> None:
        self.defined, self.nested = program.given, nested

    @staticmethod
    @abc.abstractmethod
    def name_of(op: int) -> str:
        """What errors call an operation."""

    @abc.abstractmethod
    def check(self, action: Action) -> None:
        """Check one action, and count its results."""

    def end(self, outputs: Any) -> None:
        """Check what the program returns, after its last action."""
        self.operand(outputs, ".outputs")

    def operands(self, items: Iterable[tuple[Any, Any]], where: str) -> None:
        """Check the items of a container; nearly all are slots and constants."""
        defined = self.defined
        for place, item in items:
            kind = type(item)
            if kind is Slot:
                if not 0 <= item.index < defined:
                    raise _undefined(item, f"{where}[{place!r}]")
            elif kind not in CONSTANT_TYPES:
                self.operand(item, f"{where}[{place!r}]")

    def operand(self, item: Any, where: str) -> None:
        """Check one operand of any type."""
        items = parts(item)
        if items is not None:
            self.operands(items, where)
        elif type(item) is Slot:
            if not 0 <= item.index < self.defined:
                raise _undefined(item, where)
        elif type(item) not in CONSTANT_TYPES and not isinstance(item, _CONSTANT_BASES):
            raise MalformedMessage(f"${where}", "a slot or a plain value", describe_operand(item))

    def result(self, pattern: Any, where: str) -> None:
        """Check a pattern of results, and count its slots."""
        if type(pattern) is Slot:
            if pattern.index != self.defined:
                raise MalformedMessage(f"${where}", f"Slot({self.defined})", repr(pattern))
            self.defined += 1
        elif type(pattern) is tuple:
            for place, part in enumerate(pattern):
                self.result(part, f"{where}[{place}]")
        elif pattern is not None:
            raise MalformedMessage(
                f"${where}", "a slot, a tuple of these or None", describe_operand(pattern)
            )


SCOPES: Final[dict[type[Program], type[Scope]]] = {}
"""What checks the actions of each vocabulary."""


class _TorchScope(Scope):
    """Checks actions that are operations of torch."""

    __slots__ = ()

    @staticmethod
    def name_of(op: int) -> str:
        """The name in the op table."""
        return NAMES[op] if 0 <= op < len(NAMES) else f"op {op}"

    def check(self, action: Action) -> None:
        """Check one action, and count its results."""
        op, args, kwargs = action.op, action.args, action.kwargs
        if not _has_function(op):
            raise MalformedMessage(
                "$.op",
                "an op of the table that this torch has",
                self.name_of(op) if type(op) is int else describe_operand(op),
            )
        problem = _signature_of(op).problem(len(args), kwargs)
        if problem:
            raise MalformedMessage("$.args", *problem)
        if op in _SPECIAL:
            if kwargs:
                raise MalformedMessage("$.kwargs", "no keywords", str(len(kwargs)))
            _SPECIAL[op](self, action)
        else:
            self.operands(enumerate(args), ".args")
            if kwargs:
                _check_names(kwargs)
                self.operands(kwargs.items(), ".kwargs")
        out = action.out
        if type(out) is Slot and out.index == self.defined:
            self.defined += 1
        else:
            self.result(out, ".out")
        if action.mode is not None:
            _check_mode(action.mode)

    def numbers(self, action: Action, first: int = 0) -> None:
        """Check the operands of arithmetic from the ``first`` on: numbers, or slots of one."""
        places = list(enumerate(action.args))[first:]
        self.operands(places, ".args")
        for place, item in places:
            if type(item) is not Slot and type(item) not in NUMBER_TYPES and item is not None:
                raise MalformedMessage(
                    f"$.args[{place}]", "a slot or a number", describe_operand(item)
                )

    def expectation(self, action: Action) -> None:
        """Check what is expected of two numbers: that they are in a relation, or are not."""
        relation = action.args[0]
        if type(relation) is not str or relation not in RELATIONS:
            raise MalformedMessage("$.args[0]", "a relation", describe_operand(relation))
        self.numbers(action, 1)

    def cond(self, action: Action) -> None:
        """Check a branch: a condition, two programs, and the operands that both take."""
        pred, then, otherwise, operands = action.args
        if type(pred) is not Slot and type(pred) not in NUMBER_TYPES:
            raise MalformedMessage("$.args[0]", "a slot or a number", describe_operand(pred))
        self.operand(pred, ".args[0]")
        count = self.listed(operands, ".args[3]")
        for place, branch in ((1, then), (2, otherwise)):
            self.program(branch, count, f".args[{place}]")
            _check_flat(branch.outputs, f".args[{place}].outputs")
            if action.out is not None:
                _check_fits(action.out, branch.outputs)

    def loop(self, action: Action) -> None:
        """Check a loop: a test and a body that take the same values; the body returns new ones."""
        test, body, operands = action.args
        count = self.listed(operands, ".args[2]")
        self.program(test, count, ".args[0]")
        self.program(body, count, ".args[1]")
        _check_simple(test.outputs, ".args[0].outputs")
        outputs = body.outputs
        if type(outputs) not in (tuple, list) or len(outputs) != count:
            expected, got = f"{count} values for {count} operands", describe_operand(outputs)
            raise MalformedMessage("$.args[1].outputs", expected, got)
        _check_flat(outputs, ".args[1].outputs")
        if action.out is not None:
            _check_fits(action.out, outputs)

    def listed(self, operands: Any, where: str) -> int:
        """Check the operands of a branch or a loop, and count them."""
        if type(operands) not in (tuple, list):
            raise MalformedMessage(f"${where}", "a list of operands", describe_operand(operands))
        self.operands(enumerate(operands), where)
        _check_flat(operands, where)
        return len(operands)

    def program(self, program: Any, inputs: int, where: str) -> None:
        """Check a branch or a body: it has that many inputs, and no state or constants."""
        if type(program) is not Program:
            raise MalformedMessage(f"${where}", "a program", describe_operand(program))
        if program.inputs != inputs or program.state or program.constants:
            own = f"{program.inputs} inputs and {program.given - program.inputs} values of its own"
            raise MalformedMessage(f"${where}", f"a program of {inputs} inputs", own)
        try:
            check(program, self.nested + 1)
        except MalformedMessage as error:
            prepend(error, where)
            raise


_SPECIAL: Final = {
    COND: _TorchScope.cond,
    WHILE_LOOP: _TorchScope.loop,
    **dict.fromkeys(_ON_NUMBERS, _TorchScope.numbers),
    BY_NAME["syft.ops.numbers.expect"]: _TorchScope.expectation,
}
SCOPES[Program] = _TorchScope


# What a slot holds comes from torch, or is a tensor or a number.  A branch that took or returned a
# container would let a program of n actions build a value of 2**n items.


def _check_flat(values: Any, where: str) -> None:
    """Refuse containers inside what a branch takes or returns: one value, or a tuple of values."""
    if type(values) not in (tuple, list):
        _check_simple(values, where)
        return
    for place, value in enumerate(values):
        _check_simple(value, f"{where}[{place}]")


def _check_simple(value: Any, where: str) -> None:
    if container_class(type(value)) is not None:
        raise MalformedMessage(f"${where}", "a slot or a plain value", describe_operand(value))


def _check_fits(out: Any, outputs: Any) -> None:
    """Refuse a pattern of results that puts a tuple of values into one slot."""
    if type(outputs) not in (tuple, list):
        if type(out) is not Slot:
            raise MalformedMessage("$.out", "a slot or None", describe_operand(out))
    elif type(out) is not tuple or len(out) != len(outputs):
        raise MalformedMessage("$.out", f"a tuple of {len(outputs)} slots", describe_operand(out))
    else:
        _check_flat(out, ".out")


@dataclass(frozen=True, slots=True)
class _Signature:
    """How many operands a function takes, and by what names; None if it takes any name."""

    positional: tuple[str, ...]
    required: frozenset[str]
    most: int
    names: frozenset[str] | None

    def problem(self, count: int, kwargs: dict[str, Any]) -> tuple[str, str] | None:
        """What was expected and what was given, if the function cannot take these operands."""
        if count > self.most:
            return f"at most {self.most} operands", str(count)
        if kwargs and self.names is not None:
            for name in kwargs:
                if name not in self.names:
                    return "keywords that the function has", _quoted(name)
        if self.required and (kwargs or count < len(self.positional)):
            missing = self.required.difference(self.positional[:count], kwargs)
            if missing:
                return f"the operand {min(missing)!r}", f"{count} operands without it"
        return None


_ANY: Final = _Signature((), frozenset(), MOST_OPERANDS, None)


@functools.cache
def _signature_of(op: int) -> _Signature:
    """The signature of an op; unknown for the functions that torch has in C."""
    function = inspect.unwrap(FUNCTIONS[op] or PROGRAM_FUNCTIONS[op])
    if not isinstance(function, (types.FunctionType, types.MethodWrapperType)):
        return _ANY
    parameters = tuple(inspect.signature(function).parameters.values())
    positional = _names_of_kind(parameters, _POSITIONAL, _POSITIONAL_OR_KEYWORD)
    named = frozenset(_names_of_kind(parameters, _KEYWORD, _POSITIONAL_OR_KEYWORD))
    single = _names_of_kind(parameters, _POSITIONAL, _KEYWORD, _POSITIONAL_OR_KEYWORD)
    optional = [parameter.name for parameter in parameters if parameter.default is not _REQUIRED]
    most = MOST_OPERANDS if _names_of_kind(parameters, _ANY_POSITIONAL) else len(positional)
    return _Signature(
        positional,
        frozenset(single).difference(optional),
        most,
        None if _names_of_kind(parameters, _ANY_KEYWORD) else named,
    )


def _names_of_kind(parameters: Iterable[inspect.Parameter], *kinds: int) -> tuple[str, ...]:
    """The names of the parameters of some kinds."""
    return tuple(parameter.name for parameter in parameters if parameter.kind in kinds)


_POSITIONAL: Final = inspect.Parameter.POSITIONAL_ONLY
_POSITIONAL_OR_KEYWORD: Final = inspect.Parameter.POSITIONAL_OR_KEYWORD
_KEYWORD: Final = inspect.Parameter.KEYWORD_ONLY
_ANY_POSITIONAL: Final = inspect.Parameter.VAR_POSITIONAL
_ANY_KEYWORD: Final = inspect.Parameter.VAR_KEYWORD
_REQUIRED: Final = inspect.Parameter.empty


def _has_function(op: Any) -> bool:
    if type(op) is not int or not 0 <= op < len(FUNCTIONS):
        return False
    return FUNCTIONS[op] is not None or op in PROGRAM_FUNCTIONS


def _check_names(kwargs: dict[str, Any]) -> None:
    """Refuse keywords that are no identifiers: exporters write them into source code unquoted."""
    for name in kwargs:
        if type(name) is not str or not name.isidentifier():
            raise MalformedMessage("$.kwargs", "keywords that are identifiers", _quoted(name))


def _check_mode(mode: Any) -> None:
    if type(mode) is not Mode or type(mode.grad) is not bool or type(mode.inference) is not bool:
        raise MalformedMessage("$.mode", "a Mode of booleans", describe_operand(mode))
    seen = set()
    for device, dtype in mode.autocast:
        if device not in ("cpu", "cuda") or not (dtype is None or isinstance(dtype, torch.dtype)):
            raise MalformedMessage("$.mode.autocast", "cpu or cuda, and a dtype", repr(device))
        if device in seen:
            raise MalformedMessage("$.mode.autocast", "each device once", f"{device} twice")
        seen.add(device)


def _quoted(name: Any) -> str:
    """The name of a keyword for error texts; a description of anything else."""
    if type(name) is not str:
        return describe_operand(name)
    return repr(name if len(name) <= _MOST_LETTERS else f"{name[:_MOST_LETTERS]}...")


def _undefined(slot: Slot, where: str) -> MalformedMessage:
    return MalformedMessage(f"${where}", "a slot that has its value already", repr(slot))


def describe_operand(item: Any) -> str:
    """Name the kind of an operand, without its value.

    >>> describe_operand(torch.ones(2)), describe_operand(7)
    ('a tensor (its place is among the constants)', 'an int')
    """
    if isinstance(item, torch.Tensor):
        return "a tensor (its place is among the constants)"
    return describe(item)
