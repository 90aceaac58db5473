"""The figures of one run, each beside its bar and beside what PySyft 0.2.9 reached, as a table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

_HEAD = ("figure", "at most", "measured", "best", "PySyft 0.2.9", "")


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure: what was measured, the bar it has to stay under, and what was before.

    ``unit`` is empty for a ratio; ``best`` is None where only one value was taken.

    >>> Figure("send + get of 40 MB / two memcpy", 1.31, 1.5, "over 15").cells()
    ('send + get of 40 MB / two memcpy', '1.5', '1.31', '', 'over 15', 'ok')
    >>> Figure("import", 240.0, 200, "320 ms", unit="ms").cells()
    ('import', '200 ms', '240 ms', '', '320 ms', 'OVER')
    """

    name: str
    measured: float
    at_most: float
    earlier: str
    unit: str = ""
    best: float | None = None

    @property
    def met(self) -> bool:
        """Whether the figure stays under its bar."""
        return self.measured <= self.at_most

    def cells(self) -> tuple[str, ...]:
        """The figure as one row of the table."""
        return (
            self.name,
            self._shown(self.at_most),
            self._shown(self.measured),
            "" if self.best is None else self._shown(self.best),
            self.earlier,
            "ok" if self.met else "OVER",
        )

    def _shown(self, value: float) -> str:
        number = f"{value:.3f}".rstrip("0").rstrip(".") if abs(value) < 100 else f"{value:.0f}"
        return f"{number} {self.unit}".rstrip()


def table(figures: Iterable[Figure]) -> str:
    """Write the figures as a Markdown table whose columns line up.

    >>> print(table([Figure("ptr + ptr / native add", 5.2, 10, "55-110", best=5.0)]))
    | figure                 | at most | measured | best | PySyft 0.2.9 |    |
    |------------------------|---------|----------|------|--------------|----|
    | ptr + ptr / native add | 10      | 5.2      | 5    | 55-110       | ok |
    """
    rows = [_HEAD, *(figure.cells() for figure in figures)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)
