"""Checks of the fields of an operand, and the paths in their errors.

A path such as ``$.args[0][1]`` costs nothing unless there is an error: a decoder raises with the
path ``$``, and each container that the error passes through adds its own piece in front
(:func:`prepend`).  Errors describe a value by its kind, never by its content, which may be private.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from syft.exceptions import LimitExceeded, MalformedMessage

MAX_INT = 2**63 - 1

_ARTICLES = {"int": "an int", "NoneType": "nil", "dict": "a map"}


def describe(value: object) -> str:
    """Name the kind of a decoded value, without its value.

    >>> describe(7), describe([1, 2]), describe("secret")
    ('an int', 'an array of 2', 'a str')
    """
    if isinstance(value, list | tuple):
        return f"an array of {len(value)}"
    name = type(value).__name__
    return _ARTICLES.get(name, f"a {name}")


def malformed(expected: str, got: object, where: str = "") -> MalformedMessage:
    """Make the error for a value that the format does not allow here.

    >>> print(malformed("a length", "x", ".shape"))
    Malformed message at $.shape: expected a length, got a str.
    """
    return MalformedMessage(f"${where}", expected, describe(got))


def prepend(error: MalformedMessage | LimitExceeded, piece: str) -> None:
    """Add a piece in front of the path of an error that passes through a container.

    >>> error = malformed("a length", "x", "[1]")
    >>> prepend(error, ".args")
    >>> error.path
    '$.args[1]'
    """
    error.path = f"${piece}{error.path[1:]}"
    error.args = (error.path, *error.args[1:])


def expect_fields(operand: Sequence[Any], count: int) -> None:
    """Refuse an operand that has not exactly ``count`` fields after its type code.

    >>> expect_fields((7, None, 3, None), 3)
    """
    if len(operand) != count + 1:
        raise MalformedMessage(
            "$", f"{count} fields after type code {operand[0]}", f"{len(operand) - 1}"
        )


def expect_int(value: Any, where: str, low: int = 0, high: int = MAX_INT) -> int:
    """Return ``value`` if it is an integer from ``low`` to ``high``; a bool is none.

    >>> expect_int(3, ".axis", high=7)
    3
    """
    if type(value) is not int:
        raise malformed("an int", value, where)
    if not low <= value <= high:
        raise MalformedMessage(f"${where}", f"an int from {low} to {high}", str(value))
    return value


def expect_type(value: Any, kinds: type | tuple[type, ...], expected: str, where: str) -> Any:
    """Return ``value`` if it is an instance of one of ``kinds``.

    >>> expect_type("yes", str, "a text", ".description")
    'yes'
    """
    if not isinstance(value, kinds):
        raise malformed(expected, value, where)
    return value
