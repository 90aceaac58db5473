"""One line on the terminal, or in a notebook, that says how far something is.

It goes to standard error, if that is a terminal or the output of a notebook, unless the environment
says ``SYFT_PROGRESS=0``.
"""

from __future__ import annotations

import os
import sys
from typing import Final

SHOWN_AFTER: Final = 1.0
"""Seconds that something must take to be shown."""
PAUSE: Final = 0.1
"""Seconds between two looks."""
_WIDTH: Final = 24


class ProgressLine:
    """A line that is written over again and again.

    >>> ProgressLine().write("")
    """

    def __init__(self) -> None:
        self._width = 0  # letters of what is shown

    def write(self, text: str, end: str = "") -> None:
        """Write over what is shown; with ``end`` it stays, and the next one begins a new line."""
        padded = text.ljust(self._width)
        self._width = 0 if end else len(text)
        try:
            sys.stderr.write(f"\r{padded}{end}")
            sys.stderr.flush()
        except (OSError, ValueError, AttributeError):  # closed, or replaced by something else
            return


def is_wanted() -> bool:
    """Whether somebody sees standard error, and wants to be told."""
    if os.environ.get("SYFT_PROGRESS") == "0":
        return False
    try:
        return sys.stderr.isatty() or type(sys.stderr).__module__.startswith("ipykernel.")
    except (OSError, ValueError, AttributeError):
        return False


def bar(share: float) -> str:
    """A share of a whole as a bar, and in percent.

    >>> bar(0.25)
    '[######..................] 25 %'
    """
    full = "#" * int(share * _WIDTH)
    return f"[{full:.<{_WIDTH}}] {share:.0%}".replace("%", " %")
