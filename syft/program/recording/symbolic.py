"""Python numbers that remember, while a program is recorded, where they came from.

A size, a step count read with ``item()``, a number the function was called with: each is an ``int``
or a ``float`` of the value it has now, so torch and Python compute with it as ever, and its
arithmetic is recorded besides.  ``1 - beta**step`` becomes two actions instead of a constant that
would be wrong the next time.

What Python decides by such a number (a comparison, ``bool``, ``hash``, ``int``) cannot be recorded;
the recording is told of it.  When the recording is over its numbers are plain ones.
"""

from __future__ import annotations

import enum
import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from syft.program.recording.source_line import called_by_us


class Origin(enum.IntEnum):
    """What a number follows from.

    >>> max(Origin.SIZE, Origin.VALUE).name
    'VALUE'
    """

    SIZE = 0
    """From shapes alone."""
    VALUE = 1
    """From the value of a tensor, or from a number the function was called with."""


class Writer(ABC):
    """Who writes down what is done with traced numbers: the recorder."""

    @abstractmethod
    def compute(self, name: str, operands: tuple[Any, ...]) -> Any:
        """Record the operation ``name`` on numbers; returns the place of its result."""

    @abstractmethod
    def compare(self, name: str, operands: tuple[Any, ...]) -> Any:
        """Record a comparison of numbers; returns the place of its result."""

    @abstractmethod
    def decide(self, what: str, origin: Origin, value: Any) -> None:
        """Be told that Python decides by a number."""


class Tape:
    """Ties the numbers of a recording to its writer, for as long as the recording lasts.

    >>> Tape(None).writer
    """

    __slots__ = ("writer",)

    def __init__(self, writer: Writer | None) -> None:
        self.writer = writer


class TracedInt(int):
    """An int whose arithmetic is recorded.

    >>> TracedInt(3, Tape(None), None, Origin.SIZE) + 1  # no recording: a plain number
    4
    """

    tape: Tape
    place: Any
    origin: Origin

    def __new__(cls, value: int, tape: Tape, place: Any, origin: Origin) -> TracedInt:
        """Make one."""
        made = super().__new__(cls, value)
        made.tape, made.place, made.origin = tape, place, origin
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return int, (int.__int__(self),)


class TracedFloat(float):
    """A float whose arithmetic is recorded.

    >>> TracedFloat(0.5, Tape(None), None, Origin.VALUE) * 2
    1.0
    """

    __slots__ = ("tape", "place", "origin")
    tape: Tape
    place: Any
    origin: Origin

    def __new__(cls, value: float, tape: Tape, place: Any, origin: Origin) -> TracedFloat:
        """Make one."""
        made = super().__new__(cls, value)
        made.tape, made.place, made.origin = tape, place, origin
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return float, (float.__float__(self),)


class TracedBool(TracedInt):
    """The answer of a comparison: may be asked for by ``sy.cond``, or decided by at once.

    It is an ``int``, since Python lets nobody inherit from ``bool``.

    >>> bool(TracedBool(True, Tape(None), None, Origin.SIZE))
    True
    """

    comparison: tuple[str, tuple[Any, ...]] | None = None
    """The comparison that it answers; recorded only if the answer becomes an operand."""

    def __repr__(self) -> str:
        return repr(int.__bool__(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return bool, (int.__int__(self),)


Traced = TracedInt | TracedFloat
KINDS = (TracedInt, TracedFloat)


def plain(value: Any) -> Any:
    """The plain number of a traced one; anything else as it is.

    >>> type(plain(TracedInt(3, Tape(None), None, Origin.SIZE)))
    <class 'int'>
    """
    if isinstance(value, TracedBool):
        return int.__bool__(value)
    if isinstance(value, TracedInt):
        return int.__int__(value)
    return float.__float__(value) if isinstance(value, TracedFloat) else value


def traced(value: int | float, tape: Tape, place: Any, origin: Origin) -> Traced:
    """A traced number of a value: an int, a float, or a bool that stands for its slot.

    >>> traced(0.5, Tape(None), None, Origin.VALUE)
    0.5
    """
    if isinstance(value, float):
        return TracedFloat(value, tape, place, origin)
    kind = TracedBool if isinstance(value, bool) else TracedInt
    return kind(value, tape, place, origin)


# ---------------------------------------------------------------------------------- arithmetic


def _open_tape(operands: tuple[Any, ...]) -> Tape | None:
    """The tape of the first operand whose recording lasts."""
    for operand in operands:
        if isinstance(operand, KINDS) and operand.tape.writer is not None:
            return operand.tape
    return None


def _origin(operands: tuple[Any, ...]) -> Origin:
    return max(operand.origin for operand in operands if isinstance(operand, KINDS))


def _computed(name: str, function: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    """Compute with plain numbers, and have it written down."""
    value = function(*map(plain, operands))
    tape = _open_tape(operands)
    if tape is None or tape.writer is None or not isinstance(value, (int, float)):
        return value
    place = tape.writer.compute(name, operands)
    return traced(value, tape, place, _origin(operands))


def _forward(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, other: Any) -> Any:
        if not isinstance(other, (int, float)):
            return NotImplemented
        return _computed(name, function, (self, other))

    return method


def _reflected(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, other: Any) -> Any:
        if not isinstance(other, (int, float)):
            return NotImplemented
        return _computed(name, function, (other, self))

    return method


def _unary(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any) -> Any:
        return _computed(name, function, (self,))

    return method


def _round(self: Any, digits: int | None = None) -> Any:
    return _computed("round", round, (self,) if digits is None else (self, digits))


def _divmod(self: Any, other: Any) -> Any:
    return self // other, self % other


def _reflected_divmod(self: Any, other: Any) -> Any:
    return other // self, other % self


# ----------------------------------------------------------------------------------- decisions


def _comparison(name: str, function: Callable[..., bool]) -> Callable[..., Any]:
    def method(self: Any, other: Any) -> Any:
        if not isinstance(other, (int, float)):
            return NotImplemented
        operands = (self, other)
        value = function(*map(plain, operands))
        tape = _open_tape(operands)
        if tape is None or (_origin(operands) is Origin.SIZE and called_by_us()):
            return value
        answer = TracedBool(value, tape, None, _origin(operands))
        answer.comparison = (name, operands)
        return answer

    return method


def _decision(what: str, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A method by which a plain value leaves the recording."""

    def method(self: Any) -> Any:
        value = plain(self)
        writer = self.tape.writer
        if writer is not None and (self.origin is Origin.VALUE or not called_by_us()):
            comparison = self.comparison if isinstance(self, TracedBool) else None
            seen = value if comparison is None else tuple(map(plain, comparison[1]))
            writer.decide(what, self.origin, seen)
        return function(value)

    return method


def _text(function: Callable[..., str]) -> Callable[..., str]:
    """A method that writes a number out; log lines of torch are none of our business."""

    def method(self: Any, *args: Any) -> str:
        value = plain(self)
        writer = self.tape.writer
        if writer is not None and not called_by_us():
            writer.decide("the text of a number", self.origin, value)
        return function(value, *args)

    return method


_BINARY: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "truediv": operator.truediv,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "pow": operator.pow,
}
_UNARY: dict[str, Callable[..., Any]] = {
    "neg": operator.neg,
    "pos": operator.pos,
    "abs": abs,
    "floor": math.floor,
    "ceil": math.ceil,
    "trunc": math.trunc,
}
_COMPARED: dict[str, Callable[..., bool]] = {
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "eq": operator.eq,
    "ne": operator.ne,
}
_DECIDED: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "bool": ("a branch on a number", bool),
    "hash": ("hash() of a number", hash),
    "int": ("int() of a number", int),
    "float": ("float() of a number", float),
}


def _methods() -> dict[str, Callable[..., Any]]:
    """The special methods that traced numbers have in common."""
    methods: dict[str, Callable[..., Any]] = {
        "__round__": _round,
        "__divmod__": _divmod,
        "__rdivmod__": _reflected_divmod,
    }
    for name, function in _BINARY.items():
        methods[f"__{name}__"] = _forward(name, function)
        methods[f"__r{name}__"] = _reflected(name, function)
    for name, function in _UNARY.items():
        methods[f"__{name}__"] = _unary(name, function)
    for name, function in _COMPARED.items():
        methods[f"__{name}__"] = _comparison(name, function)
    methods |= {"__str__": _text(str), "__format__": _text(format)}
    for name, (what, function) in _DECIDED.items():
        methods[f"__{name}__"] = _decision(what, function)
    return methods


for _name, _method in _methods().items():
    setattr(TracedInt, _name, _method)
    setattr(TracedFloat, _name, _method)
