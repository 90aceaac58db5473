"""The line that errors and actions name is the user's own, whatever lies in between."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import nn

from syft.program.recording.record import record
from syft.program.recording.environment.source_line import (
    SourceLine,
    requested_by_library,
    called_by_library,
    last_line_of,
    is_library_file,
    enclosing_module,
    user_line,
)
from syft.ops.nested import replace
from tests.chain.refusal import line_here as here


def test_frames_of_syft_torch_and_python_are_passed_over() -> None:
    line, found = here(), replace([0], lambda _: functools.reduce(lambda *_: user_line(), [1, 2]))
    assert found == [SourceLine(__file__, line)]


def test_known_frames_may_be_skipped() -> None:
    def inner() -> SourceLine:
        return user_line(2)

    line, found = here(), inner()
    assert found == SourceLine(__file__, line) and str(found) == f"{__file__}:{line}"


def test_files_are_told_apart_by_their_folder() -> None:
    assert is_library_file(nn.__file__) and is_library_file(record.__code__.co_filename)
    assert is_library_file(functools.__file__)
    assert not is_library_file(__file__) and not is_library_file(pytest.__file__)


def test_who_asks() -> None:
    def inner(asks: Any) -> Any:
        return asks()

    assert not inner(called_by_library) and not inner(requested_by_library)
    assert replace([0], lambda _: called_by_library(2)) == [True]


def test_actions_name_the_line_of_the_user_and_not_that_of_a_module() -> None:
    layer = nn.Linear(2, 2)
    lines = []

    def function(x: torch.Tensor) -> torch.Tensor:
        lines.append(here() + 1)
        return layer(x) * 2

    program = record(function, [torch.ones(1, 2)]).program
    assert program.lines == (f"{__file__}:{lines[0]}",) * 2


def test_the_end_of_a_function_is_its_last_line() -> None:
    def function() -> int:
        return 1

    assert last_line_of(function) == SourceLine(__file__, function.__code__.co_firstlineno + 1)
    assert last_line_of(functools.wraps(function)(lambda: 2)) == last_line_of(function)
    assert last_line_of(nn.ReLU()).file == __file__  # it has none: the line that asks


def test_a_call_from_here_comes_from_no_module() -> None:
    assert enclosing_module() is None  # test_frozen_paths.py has one that does
