"""How things of syft look in a notebook: lines and tables in one style, with all text escaped.

Names, tags and addresses come from others, who may put anything into them.  So what is shown is
made here and nowhere else: every text is cut to a length and escaped before it meets a tag.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Final

_MOST: Final = 80
"""The most characters of one text: a tag may be a megabyte long."""
_MOST_NAMES: Final = 12


def escaped(text: object, most: int = _MOST) -> str:
    """A text as HTML shows it, cut after so many characters.

    >>> escaped("<b>#digits"), escaped("long", most=2)
    ('&lt;b&gt;#digits', 'lo…')
    """
    whole = str(text)
    return html.escape(whole if len(whole) <= most else f"{whole[:most]}…")


def line(name: str, *facts: str, title: str = "", before: str = "") -> str:
    """One line: a name in bold, and what is known of it; empty texts are left out.

    ``title`` is shown by the mouse, ``before`` stands before the name.

    >>> line("bob", "float32 (2,)", "", "<private>", before="→ ")
    '<span>→ <b>bob</b> · float32 (2,) · &lt;private&gt;</span>'
    """
    start = f'<span title="{escaped(title, 4 * _MOST)}">' if title else "<span>"
    shown = [f"<b>{escaped(name)}</b>", *(escaped(fact) for fact in facts if fact)]
    return f"{start}{escaped(before)}{' · '.join(shown)}</span>"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], named: bool = False) -> str:
    """A table; with ``named`` the first cell of each row is a name, in bold.

    >>> table(["name", "kind"], [["bob", "<b>"]], named=True)
    '<table><tr><th>name</th><th>kind</th></tr><tr><td><b>bob</b></td><td>&lt;b&gt;</td></tr></table>'
    """
    heads = "".join(f"<th>{escaped(name)}</th>" for name in head)
    return f"<table><tr>{heads}</tr>{''.join(_row(row, named) for row in rows)}</table>"


def _row(cells: Sequence[str], named: bool) -> str:
    first, *rest = (escaped(cell, 4 * _MOST) for cell in cells)
    shown = [f"<b>{first}</b>" if named else first, *rest]
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in shown)}</tr>"


def block(text: str, summary: str = "") -> str:
    """Text with its line breaks, all of it; under ``summary`` it is closed until it is asked for.

    >>> block("x < 1"), block("x", summary="code")
    ('<pre>x &lt; 1</pre>', '<details><summary>code</summary><pre>x</pre></details>')
    """
    shown = f"<pre>{html.escape(text)}</pre>"
    return f"<details><summary>{escaped(summary)}</summary>{shown}</details>" if summary else shown


def names(texts: Iterable[str]) -> str:
    """Some names or tags on one line, in order; of many, the first ones and how many there are.

    >>> names({"#train", "#digits"}), names(str(number) for number in range(100, 120))[-12:]
    ('#digits #train', ' (20 in all)')
    """
    shown = [text if len(text) <= _MOST else f"{text[:_MOST]}…" for text in sorted(texts)]
    if len(shown) <= _MOST_NAMES:
        return " ".join(shown)
    return f"{' '.join(shown[:_MOST_NAMES])} … ({len(shown)} in all)"


DESCRIBED: Final = "- "
"""How the line of a column begins in a description that tells of columns."""


def described_columns(text: str | None) -> list[tuple[str, str]]:
    """The columns that a description tells of, a line each: their names and kinds.

    >>> described_columns("ward 3\\n2 rows\\n- age: integer\\n- sex: category\\n    0 = f")
    [('age', 'integer'), ('sex', 'category')]
    """
    lines = (text or "").splitlines()[1:]
    items = [line.removeprefix(DESCRIBED) for line in lines if line.startswith(DESCRIBED)]
    parts = [item.rpartition(": ") for item in items]
    return [(name, kind) for name, _, kind in parts if name]


def kind_shown(dtype: object, shape: Iterable[int] | None) -> str:
    """``float32 (4, 3)``, or what of it is known.

    >>> kind_shown(torch.float32, (4, 3)), kind_shown(None, (2,)), kind_shown(torch.int8, None)
    ('float32 (4, 3)', '(2,)', 'int8')
    """
    name = "" if dtype is None else str(dtype).removeprefix("torch.")
    sizes = "" if shape is None else str(tuple(shape))
    return f"{name} {sizes}".strip()


def counted(count: int, thing: str) -> str:
    """``1 object``, ``2 objects``.

    >>> counted(1, "object"), counted(2000, "object")
    ('1 object', '2,000 objects')
    """
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"
