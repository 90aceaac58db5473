"""A standard error of which the tests can see what was shown on it."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest

from syft import status_line


class Terminal(io.StringIO):
    """Standard error of a program that somebody looks at.

    >>> Terminal().isatty()
    True
    """

    def isatty(self) -> bool:
        return True

    def texts(self) -> list[str]:
        """What has been seen, one text after another."""
        return [text.strip() for text in self.getvalue().split("\r") if text]


def show_at(stderr: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the status line a standard error of its own: pytest replaces the real one."""
    monkeypatch.setattr(status_line, "sys", SimpleNamespace(stderr=stderr))
    monkeypatch.delenv("SYFT_PROGRESS", raising=False)
