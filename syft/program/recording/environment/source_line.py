"""Which line of the user's source a torch call comes from.

Errors and warnings about a recording name that line, and so does every action of a program.  The
stack between it and the tracer holds frames of torch (a module's ``forward``, an optimizer's
``step``), of syft and of Python's standard library.  They are skipped by the folder of their file.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
import sys
from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any, NamedTuple

import torch
from torch import nn

from syft.callers import SYFT, TORCH, shown_file
from syft.torch_private import TENSOR_METHODS_FILE

_PYTHON = os.path.dirname(os.__file__) + os.sep


class SourceLine(NamedTuple):
    """A line of source.

    >>> str(SourceLine("train.py", 12))
    'train.py:12'
    """

    file: str
    number: int

    def __str__(self) -> str:
        return f"{shown_file(self[0])}:{self[1]}"


_new = tuple.__new__  # what SourceLine() calls, without the frame of its __new__


@functools.cache
def is_library_file(file: str) -> bool:
    """Whether a file belongs to torch, to syft or to Python's standard library.

    >>> is_library_file(torch.__file__), is_library_file("train.py")
    (True, False)
    """
    if file.startswith((TORCH, SYFT)):
        return True
    return (
        file.startswith(_PYTHON) and "-packages" not in file
    )  # other packages are installed below it


def user_line(depth: int = 1) -> SourceLine:
    """The innermost line on the stack that belongs to no library (:func:`is_library_file`).

    ``depth`` counts the innermost frames that are known to be of a library and need no look.

    >>> user_line().number
    1
    """
    frame = sys._getframe(depth)
    while is_library_file(frame.f_code.co_filename) and frame.f_back is not None:
        frame = frame.f_back
    return _new(SourceLine, (frame.f_code.co_filename, frame.f_lineno))


def last_line_of(function: Callable[..., Any]) -> SourceLine:
    """The last line of a function, for errors that are found after it has returned; of one of a
    library, which calls a module, the line that asked for it.

    >>> last_line_of(lambda x: x).number
    1
    """
    code = getattr(inspect.unwrap(function), "__code__", None)
    if not isinstance(code, CodeType) or is_library_file(code.co_filename):
        return user_line()
    lines = [line for _, _, line in code.co_lines() if line is not None]
    return SourceLine(code.co_filename, max(lines, default=code.co_firstlineno))


def enclosing_module() -> str | None:
    """The class name of the innermost ``nn.Module`` of torch on the stack; None if there is none.

    The user's line may only show that a model is called, and not which of its layers is meant.

    >>> enclosing_module()
    """
    frame = sys._getframe(1)
    while is_library_file(frame.f_code.co_filename) and frame.f_back is not None:
        holder = frame.f_locals.get("self")
        if isinstance(holder, nn.Module):
            return type(holder).__name__
        frame = frame.f_back
    return None


def called_by_library(depth: int = 2) -> bool:
    """Whether the function that calls this was called from a file of a library.

    ``depth`` counts the frames from here to the one whose file is compared.

    >>> called_by_library(depth=1)
    False
    """
    return is_library_file(sys._getframe(depth).f_code.co_filename)


_TENSOR_METHOD_FILES = (TENSOR_METHODS_FILE, torch.overrides.__file__)


def requested_by_library(depth: int = 1) -> bool:
    """As :func:`called_by_library`, skipping methods of tensors that torch wrote in Python.

    >>> requested_by_library(depth=1)
    False
    """
    frame = sys._getframe(depth)
    while frame.f_code.co_filename in _TENSOR_METHOD_FILES and frame.f_back is not None:
        frame = frame.f_back
    return is_library_file(frame.f_code.co_filename)


_IN_ACTION = re.compile(r"In action (\d+), ")


def add_recorded_line(error: Exception, lines: Sequence[str]) -> None:
    """Add to the error of a program that ran on another worker the line of the action that failed.

    Lines are not sent; the note that names the action (:mod:`syft.program.lowered`) is.

    >>> error = ValueError("too far")
    >>> error.add_note("In action 1, torch.add.")
    >>> add_recorded_line(error, ["train.py:3", "train.py:4"])
    >>> error.__notes__[-1]
    'Action 1 was recorded at train.py:4.'
    """
    for note in getattr(error, "__notes__", ()):
        found = _IN_ACTION.match(note)
        if found is not None and int(found[1]) < len(lines):
            error.add_note(f"Action {found[1]} was recorded at {lines[int(found[1])]}.")
            return
