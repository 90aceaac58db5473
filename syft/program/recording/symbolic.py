"""Symbolic numbers: Python numbers whose arithmetic is recorded.

A size, a step count read with ``item()``, a number the function was called with: each is an object
that computes as the ``int``, ``float`` or ``bool`` of its current value, and its arithmetic is
recorded as well.  ``1 - beta**step`` becomes two actions instead of a constant that would be wrong
at the next call.

A decision that Python makes by such a number (a branch, ``range``, ``hash``, ``float``) cannot be
recorded, so the recorder is told of it.  For that the class must not inherit from ``int``: C code
reads the value of an ``int`` without asking, as ``range(n)``, ``[0] * n`` and ``math.sqrt(r)`` do.
It asks any other object (``__index__``, ``__float__``).  ``isinstance`` still finds the class of
the value, and torch takes subclasses of ``SymInt`` for numbers; nothing else of that is used.
After the recording its symbolic numbers behave as plain ones.
"""

from __future__ import annotations

import enum
import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from syft.ops.nested import replace
from syft.program.recording.environment.source_line import called_by_library


class Origin(enum.IntEnum):
    """What a number follows from.

    >>> max(Origin.SIZE, Origin.VALUE).name
    'VALUE'
    """

    SIZE = 0
    """From shapes alone."""
    ARGUMENT = 1
    """From a number that each call gives: an argument, or an option of an optimizer."""
    VALUE = 2
    """From the value of a tensor."""


class NumberRecorder(ABC):
    """Records what is done with symbolic numbers."""

    @abstractmethod
    def record_arithmetic(self, name: str, operands: tuple[Any, ...]) -> Any:
        """Record the operation ``name`` on numbers; returns the slot of its result."""

    @abstractmethod
    def record_comparison(self, name: str, operands: tuple[Any, ...]) -> Any:
        """Record a comparison of numbers; returns the slot of its result."""

    @abstractmethod
    def on_decision(self, what: str, relation: str, first: Any, second: Any, holds: bool) -> None:
        """Called when Python decides by whether numbers are in a relation.

        It is one of :data:`syft.ops.numbers.RELATIONS`.
        """


class RecorderHandle:
    """The recorder of symbolic numbers, shared by all of them; None after the recording.

    >>> RecorderHandle(None).recorder
    """

    __slots__ = ("recorder",)

    def __init__(self, recorder: NumberRecorder | None) -> None:
        self.recorder = recorder


class _Node:
    """The value of a symbolic number, for functions in C++ that no recorder sees."""

    def __init__(self, value: int | float) -> None:
        self.is_int = lambda: type(value) is int
        self.is_float = lambda: type(value) is float
        self.is_bool = lambda: type(value) is bool
        self.is_nested_int = lambda: False
        self.maybe_as_int = lambda: value
        self.guard_int = self.guard_float = self.guard_bool = lambda file, line: value
        self.expect_true = self.guard_or_true = self.guard_or_false = self.guard_bool


def _call_with_plain(function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    return function(*replace(args, concrete), **replace(kwargs or {}, concrete))


class Symbolic:
    """A number whose arithmetic is recorded.

    ``value`` is the plain number and ``slot`` holds it in the program.  ``comparison`` is what a
    bool results from; it is recorded only if the bool becomes an operand, and has no slot before.

    >>> number = symbolic(3, RecorderHandle(None), None, Origin.SIZE)
    >>> number + 1, isinstance(number, int), list(range(number))  # no recording: a plain number
    (4, True, [0, 1, 2])
    """

    def __init__(
        self,
        value: int | float,
        handle: RecorderHandle,
        slot: Any,
        origin: Origin,
        comparison: tuple[str, tuple[Any, ...]] | None = None,
    ) -> None:
        self.value, self.handle, self.slot = value, handle, slot
        self.origin, self.comparison = origin, comparison

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return type(self.value)

    @property
    def __torch_function__(self) -> Any:
        """What torch calls with such a number after the recording; its recorder is called before.

        Torch would take the number for one of its own, and compute with another value.
        """
        if self.handle.recorder is not None:
            raise AttributeError("__torch_function__")
        return _call_with_plain

    def __deepcopy__(self, memo: Any) -> Symbolic:
        return self

    def __copy__(self) -> Symbolic:
        return self

    def __getattr__(self, name: str) -> Any:
        """What only plain numbers have, such as ``n.bit_count()``."""
        found = getattr(self.value, name)
        self.decide(f"{name} of a number")
        return found

    @property
    def node(self) -> _Node:
        """What torch's C++ asks for the value of a ``SymInt``."""
        self.decide("a number in C++")
        return _Node(self.value)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        self.decide("a number in numpy")
        return np.asarray(self.value, dtype)

    def __reduce__(self) -> tuple[Any, ...]:
        self.decide("pickling a number")
        return type(self.value), (self.value,)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return self.__reduce__()

    def decide(self, what: str) -> None:
        """Tell the recorder that the program is for this very value."""
        if self.handle.recorder is not None:
            self.handle.recorder.on_decision(what, "same", self, self.value, True)


class SymbolicInt(Symbolic, torch.SymInt):
    """An int whose arithmetic is recorded."""


class SymbolicFloat(Symbolic, torch.SymFloat):
    """A float whose arithmetic is recorded."""


class SymbolicBool(Symbolic, torch.SymBool):
    """The result of a comparison, which ``sy.cond`` may take or Python may decide by."""


SYMBOLIC_TYPES = {int: SymbolicInt, float: SymbolicFloat, bool: SymbolicBool}
"""The class for each class of plain numbers."""
_SYMBOLIC = frozenset(SYMBOLIC_TYPES.values())


def symbolic(
    value: int | float,
    handle: RecorderHandle,
    slot: Any,
    origin: Origin,
    comparison: tuple[str, tuple[Any, ...]] | None = None,
) -> Symbolic:
    """A symbolic number of the class for its value.

    >>> type(symbolic(0.5, RecorderHandle(None), None, Origin.VALUE)).__name__
    'SymbolicFloat'
    """
    return SYMBOLIC_TYPES[type(value)](value, handle, slot, origin, comparison)


def is_symbolic(value: Any) -> bool:
    """Whether a value is a symbolic number.

    >>> is_symbolic(3)
    False
    """
    return type(value) in _SYMBOLIC


def concrete(value: Any) -> Any:
    """The plain number of a symbolic one; anything else unchanged.

    >>> type(concrete(symbolic(3, RecorderHandle(None), None, Origin.SIZE)))
    <class 'int'>
    """
    return value.value if type(value) in _SYMBOLIC else value


class SymbolicShape(tuple[Any, ...]):
    """A shape of symbolic numbers, as ``torch.Size`` is one of ints, whose values C code reads.

    >>> SymbolicShape((2, 3)).numel(), SymbolicShape((2, 3))[1:], SymbolicShape((2,)) + (4,)
    (6, torch.Size([3]), torch.Size([2, 4]))
    """

    __slots__ = ()

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return torch.Size

    def __repr__(self) -> str:
        if not called_by_library():
            for item in self:
                if is_symbolic(item):
                    item.decide("the text of a shape")
        return repr(torch.Size(map(concrete, self)))

    def numel(self) -> Any:
        """How many elements a tensor of this shape has."""
        return math.prod(self)

    def __getitem__(self, index: Any) -> Any:
        found = tuple.__getitem__(self, index)
        return SymbolicShape(found) if type(found) is tuple else found

    def __add__(self, other: Any) -> Any:
        return SymbolicShape(tuple.__add__(self, tuple(other)))

    def __radd__(self, other: Any) -> Any:
        return SymbolicShape(tuple(other) + tuple(self))


# ---------------------------------------------------------------------------------- arithmetic


def _active_handle(operands: tuple[Any, ...]) -> RecorderHandle | None:
    """The handle of the first operand whose recording is not over."""
    handles = [operand.handle for operand in operands if type(operand) in _SYMBOLIC]
    return next((handle for handle in handles if handle.recorder is not None), None)


def origin_of(*operands: Any) -> Origin:
    """What a number that is computed from these follows from.

    >>> origin_of(3, symbolic(3, RecorderHandle(None), None, Origin.VALUE)).name
    'VALUE'
    """
    return max([item.origin for item in operands if type(item) in _SYMBOLIC], default=Origin.SIZE)


def _computed(name: str, function: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    """Compute with plain numbers, and record it."""
    value = function(*map(concrete, operands))
    handle = _active_handle(operands)
    if handle is None or handle.recorder is None:
        return value
    if not isinstance(value, (int, float)):  # a complex number
        for operand in operands:
            if type(operand) in _SYMBOLIC:
                operand.decide("a complex number")
        return value
    slot = handle.recorder.record_arithmetic(name, operands)
    return symbolic(value, handle, slot, origin_of(*operands))


_NUMBERS = (int, float, complex)


def _forward(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, other: Any) -> Any:
        if not isinstance(other, _NUMBERS):
            return NotImplemented
        return _computed(name, function, (self, other))

    return method


def _reflected(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, other: Any) -> Any:
        if not isinstance(other, _NUMBERS):
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
        if handle is None:
            return value
        return symbolic(value, handle, None, origin_of(*operands), (name, operands))

    return method


def _truth(self: Any) -> bool:
    relation, operands = self.comparison or ("ne", (self, 0))
    truth = bool(self.value)
    if self.handle.recorder is not None:
        self.handle.recorder.on_decision("a branch on a number", relation, *operands, truth)
    return truth


def _whole(self: Any) -> int:
    """``int(n)``: the program is for all numbers with the same whole part."""
    value = int(self.value)
    if self.handle.recorder is not None:
        whole = _computed("trunc", math.trunc, (self,))
        self.handle.recorder.on_decision("int() of a number", "same", whole, value, True)
    return value


def _decision(what: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A method that returns a plain value, which the recording cannot follow."""

    def method(self: Any) -> Any:
        result = function(self.value)
        self.decide(what)
        return result

    return method


def _text(function: Callable[..., str]) -> Callable[..., str]:
    """A method that returns the text of a number; torch's own texts (its log lines) are ignored."""

    def method(self: Any, *args: Any) -> str:
        if not called_by_library():
            self.decide("the text of a number")
        return function(self.value, *args)

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
_DECISIONS: dict[str, tuple[str, Callable[..., Any]]] = {
    "hash": ("hash() of a number", hash),
    "index": ("a count or an index in Python", operator.index),
    "float": ("float() of a number", float),
    "complex": ("complex() of a number", complex),
    "invert": ("the bits of a number", operator.invert),
}
_BITWISE: dict[str, Callable[..., Any]] = {
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "lshift": operator.lshift,
    "rshift": operator.rshift,
}


def _methods() -> dict[str, Callable[..., Any]]:
    """The special methods that all symbolic numbers have."""
    methods: dict[str, Callable[..., Any]] = {
        "__round__": _rounded,
        "__divmod__": _divmod,
        "__rdivmod__": _reflected_divmod,
        "__bool__": _truth,
        "__int__": _whole,
    }
    for name, function in _BINARY.items():
        methods[f"__{name}__"] = _forward(name, function)
        methods[f"__r{name}__"] = _reflected(name, function)
    for name, function in _UNARY.items():
        methods[f"__{name}__"] = _unary(name, function)
    for name, function in _COMPARISONS.items():
        methods[f"__{name}__"] = _comparison(name, function)
    methods |= {"__str__": _text(str), "__repr__": _text(repr), "__format__": _text(format)}
    for name, (what, function) in _DECISIONS.items():
        methods[f"__{name}__"] = _decision(what, function)
    for name, function in _BITWISE.items():
        methods[f"__{name}__"] = _bitwise(function)
        methods[f"__r{name}__"] = _bitwise(lambda a, b, function=function: function(b, a))
    return methods


def _bitwise(function: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, other: Any) -> Any:
        if not isinstance(other, int):
            return NotImplemented
        operands: tuple[Any, ...] = (self, other)
        for operand in operands:
            if type(operand) in _SYMBOLIC:
                operand.decide("the bits of a number")
        return function(self.value, concrete(other))

    return method


for _name, _method in _methods().items():
    setattr(Symbolic, _name, _method)
