"""The line that says how far something is: who sees it, and what is written."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest

import syft.workers.shells.progress_line as line_module
from syft.workers.shells.progress_line import ProgressLine, is_wanted


class Terminal(io.StringIO):
    """Standard error of a program that somebody looks at."""

    def isatty(self) -> bool:
        return True


def _show_at(stderr: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the module a standard error of its own: pytest replaces the real one."""
    monkeypatch.setattr(line_module, "sys", SimpleNamespace(stderr=stderr))


def test_who_is_shown_it(monkeypatch: pytest.MonkeyPatch) -> None:
    _show_at(Terminal(), monkeypatch)
    monkeypatch.delenv("SYFT_PROGRESS", raising=False)
    assert is_wanted()
    monkeypatch.setenv("SYFT_PROGRESS", "0")
    assert not is_wanted()
    monkeypatch.setenv("SYFT_PROGRESS", "1")
    _show_at(io.StringIO(), monkeypatch)
    assert not is_wanted()
    notebook = type("OutStream", (io.StringIO,), {"__module__": "ipykernel.iostream"})
    _show_at(notebook(), monkeypatch)
    assert is_wanted()
    _show_at(None, monkeypatch)
    assert not is_wanted()


def test_a_shorter_text_covers_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    _show_at(terminal, monkeypatch)
    line = ProgressLine()
    line.write("a long text")
    line.write("short", "\n")
    line.write("next")
    assert terminal.getvalue() == "\ra long text\rshort      \n\rnext"


def test_a_standard_error_that_is_gone_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for broken in (io.StringIO(), None):
        _show_at(broken, monkeypatch)
        if broken is not None:
            broken.close()
        ProgressLine().write("anything")
