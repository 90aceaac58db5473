"""How far something is that lasts: one line on the terminal, or in a notebook.

It is written to standard error, if that is a terminal or the output of a notebook, unless the
environment says ``SYFT_PROGRESS=0``; what takes less than a second shows nothing.  There is no
thread and no timer: whoever does the work says after each step how much is done, which costs a look
at the clock.

``tqdm`` was refused: what it does beyond this is the text, a few lines of which are here.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

T = TypeVar("T")

SHOWN_AFTER: Final = 1.0
"""Seconds that something must take to be shown."""
PAUSE: Final = 0.1
"""Seconds between two texts."""
_WIDTH: Final = 24


def is_wanted() -> bool:
    """Whether somebody sees standard error, and wants to be told.

    >>> is_wanted() in (True, False)
    True
    """
    if os.environ.get("SYFT_PROGRESS") == "0":
        return False
    try:
        return sys.stderr.isatty() or type(sys.stderr).__module__.startswith("ipykernel.")
    except (OSError, ValueError, AttributeError):
        return False


def bar(share: float) -> str:
    """A part of a whole, as a picture.

    >>> bar(0.25)
    '[######..................] 25 %'
    """
    return f"[{'#' * int(share * _WIDTH):.<{_WIDTH}}] {share:.0%}".replace("%", " %")


class StatusLine:
    """One line of standard error, which is written over and over.

    >>> line = StatusLine()
    >>> if is_wanted():
    ...     line.write("half of it")
    """

    def __init__(self) -> None:
        self._width = 0  # letters of the line that is shown

    def write(self, text: str, end: str = "") -> None:
        """Write over the line that is shown; with ``end`` a line feed, for the last time."""
        padded = text.ljust(self._width)
        self._width = 0 if end else len(text)
        try:
            sys.stderr.write(f"\r{padded}{end}")
            sys.stderr.flush()
        except (OSError, ValueError, AttributeError):  # closed, or replaced by something else
            return


class Steps:
    """Shows how much of ``total`` is done, if that takes over a second: a context.

    >>> with Steps("federated_average", 3) as steps:
    ...     for _ in range(3):
    ...         steps.done()
    """

    __slots__ = ("what", "total", "_count", "_since", "_next", "_line", "_shown")

    def __init__(self, what: str, total: int) -> None:
        self.what = what
        self.total = total
        self._count = 0
        self._since = 0.0
        self._next = 0.0
        self._line: StatusLine | None = None
        self._shown = False

    def __enter__(self) -> Steps:
        self._line = StatusLine() if is_wanted() else None
        self._since = time.monotonic()
        self._next = self._since + SHOWN_AFTER
        return self

    def done(self, more: int = 1) -> None:
        """Note that so much more is done."""
        self._count += more
        if self._line is not None and (now := time.monotonic()) >= self._next:
            self._next, self._shown = now + PAUSE, True
            self._line.write(self._text(now))

    def _text(self, now: float) -> str:
        share = min(1.0, self._count / max(1, self.total))
        left = (now - self._since) * (1 - share) / share if share else 0.0
        return f"{self.what}: {bar(share)}" + (f", {left:.0f} s left" if share else "")

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        if self._line is not None and self._shown:
            seconds = time.monotonic() - self._since
            how = f"took {seconds:.1f} s" if kind is None else "was interrupted"
            self._line.write(f"{self.what} {how}", "\n")


def counted(items: Iterable[T], what: str, total: int) -> Iterator[T]:
    """The items, of which there are ``total``, and how many of them were dealt with is shown.

    >>> list(counted("ab", "reading", 2))
    ['a', 'b']
    """
    with Steps(what, total) as steps:
        for item in items:
            yield item
            steps.done()
