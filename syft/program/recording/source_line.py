"""Which line of the user's own source a torch call comes from.

Errors and warnings about a recording name it, and so does every action of a program.  Between that
line and the recorder lie frames of torch (a module's ``forward``, an optimizer's ``step``) and of
syft, and of Python's own library; they are passed over by the folder their file is in.
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

from syft.callers import SYFT, TORCH

_PYTHON = os.path.dirname(os.__file__) + os.sep


class SourceLine(NamedTuple):
    """A line of source.

    >>> str(SourceLine("train.py", 12))
    'train.py:12'
    """

    file: str
    number: int

    def __str__(self) -> str:
        return f"{self[0]}:{self[1]}"


_new = tuple.__new__  # what SourceLine() calls in the end


@functools.cache
def is_ours(file: str) -> bool:
    """Whether a file belongs to torch, to syft or to Python itself.

    >>> is_ours(torch.__file__), is_ours("train.py")
    (True, False)
    """
    if file.startswith((TORCH, SYFT)):
        return True
    return file.startswith(_PYTHON) and "-packages" not in file  # others install theirs below it


def user_line(depth: int = 1) -> SourceLine:
    """The innermost line on the stack that is neither torch's nor syft's nor Python's own.

    ``depth`` counts the frames from here that are known to be none of the user's.

    >>> user_line().number
    1
    """
    frame = sys._getframe(depth)
    while is_ours(frame.f_code.co_filename) and frame.f_back is not None:
        frame = frame.f_back
    return _new(SourceLine, (frame.f_code.co_filename, frame.f_lineno))


def end_of(function: Callable[..., Any]) -> SourceLine:
    """The last line of a function, for what is found when it has returned.

    >>> end_of(lambda x: x).number
    1
    """
    code = getattr(inspect.unwrap(function), "__code__", None)
    if not isinstance(code, CodeType):
        return user_line()
    lines = [line for _, _, line in code.co_lines() if line is not None]
    return SourceLine(code.co_filename, max(lines, default=code.co_firstlineno))


def module_here() -> str:
    """Which module of torch a call comes from, to be said behind the name of the call.

    The user's line may only say that a model is called, and not which of its layers it is about.

    >>> module_here()
    ''
    """
    frame = sys._getframe(1)
    while is_ours(frame.f_code.co_filename) and frame.f_back is not None:
        holder = frame.f_locals.get("self")
        if isinstance(holder, nn.Module):
            return f" inside {type(holder).__name__}"
        frame = frame.f_back
    return ""


def called_by_us(depth: int = 2) -> bool:
    """Whether the function that asks was called from a file of torch or syft.

    ``depth`` counts the frames from here to the caller that is looked at.

    >>> called_by_us(depth=1)
    False
    """
    return is_ours(sys._getframe(depth).f_code.co_filename)


_BETWEEN = (torch._tensor.__file__, torch.overrides.__file__)


def asked_by_us(depth: int = 1) -> bool:
    """As :func:`called_by_us`, looking through methods of tensors that torch wrote in Python.

    >>> asked_by_us(depth=1)
    False
    """
    frame = sys._getframe(depth)
    while frame.f_code.co_filename in _BETWEEN and frame.f_back is not None:
        frame = frame.f_back
    return is_ours(frame.f_code.co_filename)


_IN_ACTION = re.compile(r"In action (\d+), ")


def name_line(error: Exception, lines: Sequence[str]) -> None:
    """Add to the error of a program that ran elsewhere the line its action was recorded at.

    Lines do not travel; the note that names the action (:mod:`syft.program.lowered`) does.

    >>> error = ValueError("too far")
    >>> error.add_note("In action 1, torch.add.")
    >>> name_line(error, ["train.py:3", "train.py:4"])
    >>> error.__notes__[-1]
    'Action 1 was recorded at train.py:4.'
    """
    for note in getattr(error, "__notes__", ()):
        found = _IN_ACTION.match(note)
        if found is not None and int(found[1]) < len(lines):
            error.add_note(f"Action {found[1]} was recorded at {lines[int(found[1])]}.")
            return
