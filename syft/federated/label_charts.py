"""Which client has how many samples of which label: drawn with characters, and as SVG.

A few lines of text serve a terminal, and a picture by hand needs no plotting library.
"""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import Any, Final

_HEIGHTS: Final = "▁▂▃▄▅▆▇█"
_MOST_COLUMNS: Final = 40
_ROW: Final = 22
_WIDTH: Final = 480


@dataclass(frozen=True)
class LabelCounts:
    """For each client (a row of ``table``) how many samples it has of each of ``labels``.

    >>> LabelCounts([0, 1], [[3, 0], [1, 2]]).grouped(most=1).table
    [[3], [3]]
    """

    labels: list[Any]
    table: list[list[int]]

    def grouped(self, most: int = _MOST_COLUMNS) -> LabelCounts:
        """The same with neighbouring labels added up, so that there are ``most`` at most."""
        step = max(1, -(-len(self.labels) // most))
        starts = range(0, len(self.labels), step)
        table = [[sum(row[at : at + step]) for at in starts] for row in self.table]
        return LabelCounts([self.labels[at] for at in starts], table)


def text_chart(counts: LabelCounts) -> str:
    """A line for each client: a column of the height of each label's count, and the total.

    >>> print(text_chart(LabelCounts([0, 1, 2], [[8, 1, 0], [0, 4, 4]])))
    17 samples, labels 0 to 2, a column each (█ is 8)
    client 0  █▁·  9
    client 1  ·▄▄  8
    """
    columns = counts.grouped()
    highest = max((max(row, default=0) for row in columns.table), default=0)
    width = len(f"client {len(counts.table) - 1}")
    lines = [_heading(counts, columns, highest)]
    for client, row in enumerate(columns.table):
        bars = "".join(_bar(count, highest) for count in row)
        lines.append(f"{f'client {client}':{width}}  {bars}  {sum(row)}")
    return "\n".join(lines)


def _heading(counts: LabelCounts, columns: LabelCounts, highest: int) -> str:
    total = sum(map(sum, counts.table))
    if not counts.labels:
        return f"{total} samples"
    step = -(-len(counts.labels) // len(columns.labels))
    each = "a column each" if step == 1 else f"{step} to a column"
    return (
        f"{total} samples, labels {counts.labels[0]} to {counts.labels[-1]}, "
        f"{each} (█ is {highest})"
    )


def _bar(count: int, highest: int) -> str:
    if not count:
        return "·"
    return _HEIGHTS[-(-count * len(_HEIGHTS) // highest) - 1]


def svg_chart(counts: LabelCounts) -> str:
    """A bar for each client, as long as it has samples, a colour for each label.

    >>> svg_chart(LabelCounts([0, 1], [[3, 1], [0, 2]])).count("<rect")
    3
    """
    columns = counts.grouped()
    longest = max([*map(sum, columns.table), 1])
    height = _ROW * len(columns.table)
    drawn = [
        _svg_row(client, row, columns.labels, longest) for client, row in enumerate(columns.table)
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH + 160}" height="{height}" '
        f'font-family="sans-serif" font-size="12">{"".join(drawn)}</svg>'
    )


def _svg_row(client: int, row: list[int], labels: list[Any], longest: int) -> str:
    top, left = client * _ROW, 80.0
    base = top + 15
    parts = [f'<text x="0" y="{base}">client {client}</text>']
    for at, count in enumerate(row):
        if not count:
            continue
        width = _WIDTH * count / longest
        hue = round(360 * at / len(row))
        title = html.escape(f"label {labels[at]}: {count}")
        parts.append(
            f'<rect x="{left:.1f}" y="{top + 2}" width="{width:.1f}" height="{_ROW - 4}" '
            f'fill="hsl({hue},60%,60%)"><title>{title}</title></rect>'
        )
        left += width
    return f'{"".join(parts)}<text x="{left + 6:.1f}" y="{base}">{sum(row)}</text>'
