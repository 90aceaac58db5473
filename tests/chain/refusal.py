"""What a call raises, as text, and the line that it names.

The traceback, which would keep every pointer of the test alive, is let go.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

import pytest


def refusal(action: Callable[[], Any]) -> str:
    """``Class: text`` of what ``action`` raises; fails when it raises nothing."""
    try:
        action()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    pytest.fail("nothing was raised")


def notes_of(action: Callable[[], Any], kind: type[Exception]) -> str:
    """The notes of the exception of that kind that ``action`` raises."""
    try:
        action()
    except kind as error:
        return "\n".join(error.__notes__)
    pytest.fail(f"no {kind.__name__} was raised")


def line_here() -> int:
    """The number of the caller's line."""
    return sys._getframe(1).f_lineno


def shown(value: Any) -> str:
    """A repr with every id replaced by N."""
    return re.sub(r"\d{11,}", "N", repr(value))


def here(op: str, one: str, other: str) -> str:
    """The text of the error about operands at two places."""
    return (
        f"LocationMismatch: {op}: the operands lie at {one} and {other}. "
        "Bring them together first: .send(), .move() or .get()."
    )
