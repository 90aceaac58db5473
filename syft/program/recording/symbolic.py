"""Symbolic numbers: Python numbers whose arithmetic is recorded.

A size, a step count read with ``item()``, a number the function was called with: each is an ``int``
or a ``float`` of its current value, so torch and Python compute with it as usual, and its
arithmetic is recorded as well.  ``1 - beta**step`` becomes two actions instead of a constant that
would be wrong at the next call.

A decision that Python makes by such a number (``bool``, ``hash``, ``int``) cannot be recorded, so
the recorder is told of it.  After the recording its symbolic numbers behave as plain ones.
"""

from __future__ import annotations

import enum
import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from syft.program.recording.environment.source_line import called_by_library


class Origin(enum.IntEnum):
    """What a number follows from.

    >>> max(Origin.SIZE, Origin.VALUE).name
    'VALUE'
    """

    SIZE = 0
    """From shapes alone."""
    VALUE = 1
    """From the value of a tensor, or from a number the function was called with."""


class NumberRecorder(ABC):
    """Records what is done with symbolic numbers."""

    @abstractmethod
    def record_arithmetic(self, name: str, operands: tuple[Any, ...]) -> Any:
        """Record the operation ``name`` on numbers; returns the slot of its result."""

    @abstractmethod
    def record_comparison(self, name: str, operands: tuple[Any, ...]) -> Any:
        """Record a comparison of numbers; returns the slot of its result."""

    @abstractmethod
    def on_decision(self, what: str, origin: Origin, value: Any) -> None:
        """Called when Python decides by a number."""


class RecorderHandle:
    """The recorder of symbolic numbers, shared by all of them; None after the recording.

    >>> RecorderHandle(None).recorder
    """

    __slots__ = ("recorder",)

    def __init__(self, recorder: NumberRecorder | None) -> None:
        self.recorder = recorder


class SymbolicInt(int):
    """An int whose arithmetic is recorded.

    >>> SymbolicInt(3, RecorderHandle(None), None, Origin.SIZE) + 1  # no recording: a plain number
    4
    """

    handle: RecorderHandle
    slot: Any
    origin: Origin

    def __new__(cls, value: int, handle: RecorderHandle, slot: Any, origin: Origin) -> SymbolicInt:
        made = super().__new__(cls, value)
        made.handle, made.slot, made.origin = handle, slot, origin
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return int, (int.__int__(self),)


class SymbolicFloat(float):
    """A float whose arithmetic is recorded.

    >>> SymbolicFloat(0.5, RecorderHandle(None), None, Origin.VALUE) * 2
    1.0
    """

    __slots__ = ("handle", "slot", "origin")
    handle: RecorderHandle
    slot: Any
    origin: Origin

    def __new__(
        cls, value: float, handle: RecorderHandle, slot: Any, origin: Origin
    ) -> SymbolicFloat:
        made = super().__new__(cls, value)
        made.handle, made.slot, made.origin = handle, slot, origin
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return float, (float.__float__(self),)


class SymbolicBool(SymbolicInt):
    """The result of a comparison, which ``sy.cond`` may take or Python may decide by.

    It is an ``int``, because no class can inherit from ``bool``.

    >>> bool(SymbolicBool(True, RecorderHandle(None), None, Origin.SIZE))
    True
    """

    comparison: tuple[str, tuple[Any, ...]] | None = None
    """The comparison that it results from; recorded only if the result becomes an operand."""

    def __repr__(self) -> str:
        return repr(int.__bool__(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return bool, (int.__int__(self),)


Symbolic = SymbolicInt | SymbolicFloat
SYMBOLIC_TYPES = (SymbolicInt, SymbolicFloat)


def concrete(value: Any) -> Any:
    """The plain number of a symbolic one; anything else unchanged.

    >>> type(concrete(SymbolicInt(3, RecorderHandle(None), None, Origin.SIZE)))
    <class 'int'>
    """
    convert = _TO_CONCRETE.get(type(value))
    return value if convert is None else convert(value)


_TO_CONCRETE: dict[type, Callable[[Any], int | float]] = {
    SymbolicBool: int.__bool__,
    SymbolicInt: int.__int__,
    SymbolicFloat: float.__float__,
}


def symbolic(value: int | float, handle: RecorderHandle, slot: Any, origin: Origin) -> Symbolic:
    """A symbolic number: an int, a float or a bool with the slot that holds it in a program.

    >>> symbolic(0.5, RecorderHandle(None), None, Origin.VALUE)
    0.5
    """
    if isinstance(value, float):
        return SymbolicFloat(value, handle, slot, origin)
    kind = SymbolicBool if isinstance(value, bool) else SymbolicInt
    return kind(value, handle, slot, origin)


# ---------------------------------------------------------------------------------- arithmetic


def _active_handle(operands: tuple[Any, ...]) -> RecorderHandle | None:
    """The handle of the first operand whose recording is not over."""
    for operand in operands:
        if isinstance(operand, SYMBOLIC_TYPES) and operand.handle.recorder is not None:
            return operand.handle
    return None


def _origin(operands: tuple[Any, ...]) -> Origin:
    return max(operand.origin for operand in operands if isinstance(operand, SYMBOLIC_TYPES))


def _computed(name: str, function: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    """Compute with plain numbers, and record it."""
    value = function(*map(concrete, operands))
    handle = _active_handle(operands)
    if handle is None or handle.recorder is None or not isinstance(value, (int, float)):
        return value
    slot = handle.recorder.record_arithmetic(name, operands)
    return symbolic(value, handle, slot, _origin(operands))


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


def _rounded(self: Any, digits: int | None = None) -> Any:
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
        value = function(*map(concrete, operands))
        handle = _active_handle(operands)
        if handle is None or (_origin(operands) is Origin.SIZE and called_by_library()):
            return value
        answer = SymbolicBool(value, handle, None, _origin(operands))
        answer.comparison = (name, operands)
        return answer

    return method


def _decision(what: str, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A method that returns a plain value, which the recording cannot follow."""

    def method(self: Any) -> Any:
        value = concrete(self)
        recorder = self.handle.recorder
        if recorder is not None and (self.origin is Origin.VALUE or not called_by_library()):
            comparison = self.comparison if isinstance(self, SymbolicBool) else None
            seen = value if comparison is None else tuple(map(concrete, comparison[1]))
            recorder.on_decision(what, self.origin, seen)
        return function(value)

    return method


def _text(function: Callable[..., str]) -> Callable[..., str]:
    """A method that returns the text of a number; torch's own texts (its log lines) are ignored."""

    def method(self: Any, *args: Any) -> str:
        value = concrete(self)
        recorder = self.handle.recorder
        if recorder is not None and not called_by_library():
            recorder.on_decision("the text of a number", self.origin, value)
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
_COMPARISONS: dict[str, Callable[..., bool]] = {
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "eq": operator.eq,
    "ne": operator.ne,
}
_DECISIONS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "bool": ("a branch on a number", bool),
    "hash": ("hash() of a number", hash),
    "int": ("int() of a number", int),
    "float": ("float() of a number", float),
}


def _methods() -> dict[str, Callable[..., Any]]:
    """The special methods that all symbolic numbers have."""
    methods: dict[str, Callable[..., Any]] = {
        "__round__": _rounded,
        "__divmod__": _divmod,
        "__rdivmod__": _reflected_divmod,
    }
    for name, function in _BINARY.items():
        methods[f"__{name}__"] = _forward(name, function)
        methods[f"__r{name}__"] = _reflected(name, function)
    for name, function in _UNARY.items():
        methods[f"__{name}__"] = _unary(name, function)
    for name, function in _COMPARISONS.items():
        methods[f"__{name}__"] = _comparison(name, function)
    methods |= {"__str__": _text(str), "__format__": _text(format)}
    for name, (what, function) in _DECISIONS.items():
        methods[f"__{name}__"] = _decision(what, function)
    return methods


for _name, _method in _methods().items():
    setattr(SymbolicInt, _name, _method)
    setattr(SymbolicFloat, _name, _method)
