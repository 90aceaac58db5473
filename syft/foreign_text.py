"""Texts that others have chosen, where people read them: on a terminal, and in a log.

A name or a reason may hold what moves the cursor, colours the screen, or ends a line and begins
another one that looks like ours.  So what cannot be printed is written as Python would write it,
and no text goes over more lines than it may.
"""

from __future__ import annotations

from typing import Final

_INDENT: Final = "\n    "
_MOST: Final = 200


def printable(text: str) -> str:
    """A text on one line, without what would move a terminal's cursor.

    >>> print(printable("a\\x1b[2Jb\\nc"))
    a\\x1b[2Jb\\nc
    """
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in text
    )


def one_line(text: str, most: int = _MOST) -> str:
    """The beginning of a text, on one line.

    >>> one_line("bye\\nbye", 6)
    'bye\\\\nby…'
    """
    return printable(text) if len(text) <= most else f"{printable(text[:most])}…"


def contained(text: str) -> str:
    """A text whose lines after the first are indented, so that none looks like one of a log.

    >>> print(contained("refused eve\\n2026-01-01 let in eve\\r"))
    refused eve
        2026-01-01 let in eve\\r
    """
    return text if text.isprintable() else _INDENT.join(map(printable, text.split("\n")))
