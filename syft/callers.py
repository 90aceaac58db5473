"""Whose code a stack frame runs: syft's, torch's or the user's.

Errors of another worker name the line of the user's program that asked.
"""

from __future__ import annotations

import builtins
import functools
import os
import sys
import warnings
from types import CodeType
from typing import Any, Final

import torch

SYFT: Final = os.path.dirname(os.path.abspath(__file__)) + os.sep
"""The folder of syft's own code."""
TORCH: Final = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
"""The folder of torch's Python code."""

_LIBRARIES: Final = (SYFT, TORCH, "<frozen importlib._bootstrap")


Place = tuple[CodeType, int]
"""A line of a program: the code object, and which of its instructions was running."""


def place_of_user(depth: int = 1) -> Place:
    """The innermost frame that is neither syft's nor torch's, from ``depth`` frames up on.

    It costs a fraction of a microsecond, because the line is looked up only by :func:`line_at`.

    >>> line_at(place_of_user()).rpartition(":")[2].isdigit()
    True
    """
    frame = sys._getframe(depth)
    while _is_library(frame.f_code.co_filename) and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code, frame.f_lasti


def line_at(place: Place) -> str:
    """``file:line`` of a place.

    >>> code = compile("x = 1\\ny = 2", "program.py", "exec")
    >>> line_at((code, 0))
    'program.py:1'
    """
    code, line = place[0], _number_of(place)
    return f"{shown_file(code.co_filename)}:{line}"


def _number_of(place: Place) -> int:
    code, instruction = place
    line = next((line for start, end, line in code.co_lines() if start <= instruction < end), None)
    return line or code.co_firstlineno


def file_and_line(place: Place) -> tuple[str, int]:
    """The file of a place, and the number of its line.

    >>> file_and_line((compile("x = 1", "program.py", "exec"), 0))
    ('program.py', 1)
    """
    return place[0].co_filename, _number_of(place)


def shown_file(file: str) -> str:
    """A file as its user knows it: a cell of a notebook, which is kept in a file of its own, by its
    number.

    >>> shown_file("program.py")
    'program.py'
    """
    shell = running_shell()
    name = getattr(getattr(shell, "compile", None), "format_code_name", None)
    cell = None if name is None else name(file)
    return file if cell is None else " ".join(cell)


def running_shell() -> Any:
    """IPython's shell, if this runs in one: it adds a function that says so to Python's own."""
    ask = getattr(builtins, "get_ipython", None)
    return None if ask is None else ask()


def warn_user(text: str | Warning, kind: type[Warning] = UserWarning) -> None:
    """Warn at the line of the user's program that runs.

    >>> with warnings.catch_warnings(record=True) as found:
    ...     warnings.simplefilter("always")
    ...     warn_user("slow")
    >>> found[0].message, found[0].filename.startswith(SYFT)
    (UserWarning('slow'), False)
    """
    warnings.warn_explicit(text, kind, *file_and_line(place_of_user()))


@functools.lru_cache(maxsize=4096)
def _is_library(file: str) -> bool:
    return file.startswith(_LIBRARIES)
