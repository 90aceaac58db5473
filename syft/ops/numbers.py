"""Arithmetic on the Python numbers of a program: sizes, step counts and what follows from them.

Each function computes what the Python operator of its name computes.  A program may come from a
stranger, so each takes ints of 64 bits, floats and bools, and returns such a number.  Operations
whose result could be huge (a power, a rounding) are bounded before they are computed: no program
makes an int of a million digits.
"""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable
from typing import Any, Final

import torch

from syft.exceptions import OtherPath, ProgramError
from syft.ops.nested import NUMBER_TYPES

Number = int | float

_SYMBOLIC = int, float, torch.SymInt, torch.SymFloat, torch.SymBool
"""What symbolic numbers are instances of: those of recordings, and those of torch's exporter."""
_LOW, _HIGH = -(2**63), 2**63 - 1
_BITS = 64
_DIGITS = 400  # more than a float has; beyond, rounding changes nothing


def _number(value: Any) -> Number:
    """Return the value if it is a number of at most 64 bits, or raise."""
    kind = type(value)
    if kind is float:
        return value  # type: ignore[no-any-return]
    if kind not in NUMBER_TYPES and not isinstance(value, _SYMBOLIC):
        raise ProgramError(f"expected an int, a float or a bool, got a {kind.__name__}")
    if kind is int and not _LOW <= value <= _HIGH:
        raise OverflowError("an int of a program has 64 bits")
    number: Number = value
    return number


def add(a: Number, b: Number) -> Number:
    """``a + b``.

    >>> add(2, 0.5)
    2.5
    """
    return _number(_number(a) + _number(b))


def sub(a: Number, b: Number) -> Number:
    """``a - b``.

    >>> sub(2, 3)
    -1
    """
    return _number(_number(a) - _number(b))


def mul(a: Number, b: Number) -> Number:
    """``a * b``.

    >>> mul(3, 4)
    12
    """
    return _number(_number(a) * _number(b))


def truediv(a: Number, b: Number) -> Number:
    """``a / b``.

    >>> truediv(3, 4)
    0.75
    """
    return _number(_number(a) / _number(b))


def floordiv(a: Number, b: Number) -> Number:
    """``a // b``.

    >>> floordiv(7, 2)
    3
    """
    return _number(_number(a) // _number(b))


def mod(a: Number, b: Number) -> Number:
    """``a % b``.

    >>> mod(-7, 3)
    2
    """
    return _number(_number(a) % _number(b))


def pow(a: Number, b: Number) -> Number:
    """``a ** b``; a power of ints beyond 64 bits is refused before it is computed.

    >>> pow(0.9, 2) == 0.9**2
    True
    >>> pow(3, 10**9)
    Traceback (most recent call last):
    ...
    OverflowError: an int of a program has 64 bits
    """
    base, exponent = _number(a), _number(b)
    if type(base) is int and type(exponent) is int and builtins.abs(base) > 1:
        if exponent > _BITS:
            raise OverflowError("an int of a program has 64 bits")
    return _number(operator.pow(base, exponent))


def neg(a: Number) -> Number:
    """``-a``.

    >>> neg(3)
    -3
    """
    return _number(-_number(a))


def pos(a: Number) -> Number:
    """``+a``: a bool becomes an int.

    >>> pos(True)
    1
    """
    return +_number(a)


def abs(a: Number) -> Number:
    """``abs(a)``.

    >>> abs(-3)
    3
    """
    return _number(builtins.abs(_number(a)))


def floor(a: Number) -> Number:
    """``math.floor(a)``.

    >>> floor(-2.5)
    -3
    """
    return _number(math.floor(_number(a)))


def ceil(a: Number) -> Number:
    """``math.ceil(a)``.

    >>> ceil(2.5)
    3
    """
    return _number(math.ceil(_number(a)))


def trunc(a: Number) -> Number:
    """``math.trunc(a)``, which is ``int(a)``.

    >>> trunc(-2.5)
    -2
    """
    return _number(math.trunc(_number(a)))


def round(a: Number, digits: int | None = None) -> Number:
    """``round(a)`` or ``round(a, digits)``.

    >>> round(2.5), round(12.34, 1), round(1234, -2)
    (2, 12.3, 1200)
    """
    number = _number(a)
    if digits is None:
        return _number(builtins.round(number))
    if type(digits) is not int:
        raise ProgramError(f"expected an int or None, got a {type(digits).__name__}")
    return _number(builtins.round(number, max(-_DIGITS, min(_DIGITS, digits))))


def _is_same(a: Number, b: Number) -> bool:
    """Whether Python cannot tell two numbers apart."""
    if isinstance(a, float) or isinstance(b, float):
        return repr(a) == repr(b)  # a NaN is like a NaN, and 2 unlike 2.0
    return a == b


RELATIONS: Final[dict[str, tuple[str, Callable[[Any, Any], Any]]]] = {
    "lt": ("<", operator.lt),
    "le": ("<=", operator.le),
    "gt": (">", operator.gt),
    "ge": (">=", operator.ge),
    "eq": ("==", operator.eq),
    "ne": ("!=", operator.ne),
    "same": ("is", _is_same),
}
"""Relations between two numbers, each with its sign in error texts."""


def expect(relation: str, a: Number, b: Number, holds: bool) -> None:
    """Raise unless two numbers are in a relation, or unless they are not.

    A recording has it where Python decided by a size or by a number of the call: what follows was
    recorded for this answer alone.  Raises :class:`~syft.exceptions.OtherPath`.

    >>> expect("gt", 3, 2, True)
    >>> expect("same", 3, 2, True)
    Traceback (most recent call last):
    ...
    syft.exceptions.OtherPath: This plan was recorded where a size or number is 2, and now it is \
3: build it with arguments like these, and send it again where it was sent.
    """
    if relation not in RELATIONS:
        raise ProgramError(f"{relation!r} is no relation of numbers")
    sign, compare = RELATIONS[relation]
    if bool(compare(_number(a), _number(b))) is not holds:
        raise OtherPath(sign, a, b, holds)
