"""What a data set shows of itself: columns, their kinds, how many rows there are, never a value.

An owner sees it in a prompt or a notebook.  Others see it if the owner publishes it: then it is the
description of the data, a text that travels as every description does, so no message is made for
it.  A line of that text is a column, and a reader at the other end finds the columns again.

What is left to the owner: how many cells are empty (how many dates of death are empty tells how
many have died), and the table of categories, which is published column by column.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Final

from syft.exceptions import UnusableSetting
from syft.foreign_text import printable
from syft.notebook_html import DESCRIBED, described_columns, table

TARGET = "target"
_GLANCE: Final = 100
"""So many columns are shown."""


class ColumnKind(enum.Enum):
    """What the cells of a column are.

    >>> ColumnKind("date").name
    'DATE'
    """

    NUMBER = "number"
    INTEGER = "integer"
    BOOLEAN = "boolean"
    DATE = "date"
    CATEGORY = "category"
    TEXT = "text"


@dataclass(frozen=True)
class Column:
    """A column of a table: its name and kind, and what its owner alone knows of it.

    ``unit`` says what a date counts.  ``categories`` is the table of a category: the number of a
    cell is the place of its text there, -1 if the cell is empty.  ``empty`` counts empty cells.

    >>> Column("sex", ColumnKind.CATEGORY, categories=("f", "m"), empty=3)
    <Column 'sex': category>
    """

    name: str
    kind: ColumnKind
    unit: str = ""
    categories: tuple[str, ...] = field(default=(), repr=False)
    empty: int = 0

    @property
    def shown(self) -> str:
        """The kind in words.

        >>> Column("born", ColumnKind.DATE, "days since 1970-01-01").shown
        'date (days since 1970-01-01)'
        """
        return f"{self.kind.value} ({self.unit})" if self.unit else self.kind.value

    def __repr__(self) -> str:
        return f"<Column {self.name!r}: {self.shown}>"


@dataclass(frozen=True, repr=False)
class Columns(Sequence[Column]):
    """The columns of a data set in the order of its data, and its target, if it has one.

    Raises :class:`~syft.exceptions.UnusableSetting` when a column is asked for that is not there.

    >>> columns = Columns([Column("age", ColumnKind.INTEGER), Column("sex", ColumnKind.CATEGORY)])
    >>> columns
    age: integer
    sex: category
    >>> columns["sex"], columns.place("sex"), columns.names
    (<Column 'sex': category>, 1, ('age', 'sex'))
    """

    columns: Sequence[Column]
    target: Column | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns of the data, in order."""
        return tuple(column.name for column in self.columns)

    def place(self, name: str) -> int:
        """The number of a column in the data: ``data[:, columns.place("age")]``."""
        if name not in self.names:
            raise UnusableSetting("column", f"one of {', '.join(self.names) or 'none'}", repr(name))
        return self.names.index(name)

    def __getitem__(self, key: int | str) -> Column:  # type: ignore[override]
        """A column by its number or name."""
        if isinstance(key, str) and self.target is not None and self.target.name == key:
            return self.target
        return self.columns[self.place(key) if isinstance(key, str) else key]

    def __len__(self) -> int:
        return len(self.columns)

    def with_target(self) -> Iterator[Column]:
        """The columns, and the target after them."""
        yield from self.columns
        if self.target is not None:
            yield self.target

    def rows_shown(self) -> list[tuple[str, str]]:
        """Name and kind of each column, for a table.

        >>> Columns([], target=Column("outcome", ColumnKind.BOOLEAN)).rows_shown()
        [('outcome', 'boolean, target')]
        """
        return [
            (one.name, f"{one.shown}, {TARGET}" if one is self.target else one.shown)
            for one in self.with_target()
        ]

    def __repr__(self) -> str:
        return "\n".join(f"{printable(name)}: {kind}" for name, kind in self._at_a_glance())

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return table(["column", "kind"], self._at_a_glance(), named=True)

    def _at_a_glance(self) -> list[tuple[str, str]]:
        """The rows that are shown: of many, the first ones and the last, which may be a target."""
        rows = self.rows_shown()
        if len(rows) <= _GLANCE:
            return rows
        return [*rows[: _GLANCE - 1], ("…", f"{len(rows) - _GLANCE:,} more"), rows[-1]]

    def published(self, rows: int, text: str = "", categories: Iterable[str] = ()) -> str:
        """The description that tells others of the columns; ``text`` stands before them.

        ``categories`` names the columns of which the table of categories is told too.

        Raises :class:`~syft.exceptions.UnusableSetting` for one that has no such table.

        >>> sex = Column("sex", ColumnKind.CATEGORY, categories=("f", "m"))
        >>> print(Columns([sex]).published(2, "ward 3", categories=["sex"]))
        ward 3
        2 rows
        - sex: category
            0 = f
            1 = m
        """
        told = set(categories)
        for name in sorted(told):
            if not any(one.name == name and one.categories for one in self.with_target()):
                raise UnusableSetting("categories", "names of columns of categories", repr(name))
        lines = [text] if text else []
        lines.append(f"{rows:,} row" if rows == 1 else f"{rows:,} rows")
        for column, (name, kind) in zip(self.with_target(), self.rows_shown(), strict=True):
            lines.append(f"{DESCRIBED}{printable(name)}: {kind}")
            if column.name in told:
                lines += [f"    {n} = {printable(t)}" for n, t in enumerate(column.categories)]
        return "\n".join(lines)

    @classmethod
    def in_description(cls, text: str | None) -> Columns | None:
        """The columns that a description tells of; None if it tells of none.

        >>> text = "3b\\n2 rows\\n- sex: category\\n    0 = f\\n    1 = m\\n- ill: boolean, target"
        >>> columns = Columns.in_description(text)
        >>> columns, columns["sex"].categories
        (sex: category
        ill: boolean, target, ('f', 'm'))
        >>> Columns.in_description("ward 3") is None
        True
        """
        found = [_described(name, kind) for name, kind in described_columns(text)]
        tables = _tables(text or "")
        told = [
            (replace(column, categories=tuple(tables.get(column.name, ()))), is_target)
            for column, is_target in filter(None, found)
        ]
        columns = tuple(column for column, is_target in told if not is_target)
        targets = [column for column, is_target in told if is_target]
        return cls(columns, targets[-1] if targets else None) if told else None

    def differs_from(self, other: Columns) -> str | None:
        """In what two tables differ, as far as both tell; None if they can be used as one.

        >>> age, sex = Column("age", ColumnKind.INTEGER), Column("sex", ColumnKind.CATEGORY)
        >>> Columns([age, sex]).differs_from(Columns([sex, age]))
        "'age: integer' and 'sex: category'"
        """
        pairs = zip_longest(self.rows_shown(), other.rows_shown(), fillvalue=("no column", ""))
        for mine, theirs in pairs:
            if mine != theirs:
                return f"{': '.join(filter(None, mine))!r} and {': '.join(filter(None, theirs))!r}"
        for one, another in zip(self.with_target(), other.with_target(), strict=True):
            if one.categories and another.categories and one.categories != another.categories:
                return f"the categories of {one.name!r}"
        return None


def _described(name: str, shown: str) -> tuple[Column, bool] | None:
    """A column of a description, and whether it is the target."""
    kind, is_target, role = shown.partition(f", {TARGET}")
    value, _, unit = kind.partition(" (")
    if value not in _KINDS or role:
        return None
    return Column(name, _KINDS[value], unit.removesuffix(")")), bool(is_target)


def _tables(text: str) -> dict[str, list[str]]:
    """The tables of categories in a description, by column."""
    tables: dict[str, list[str]] = {}
    name = ""
    for line in text.splitlines()[1:]:
        number, is_row, category = line.strip().partition(" = ")
        if line.startswith(DESCRIBED):
            name = line.removeprefix(DESCRIBED).rpartition(": ")[0]
        elif line.startswith("    ") and is_row and number == str(len(tables.get(name, ()))):
            tables.setdefault(name, []).append(category)
    return tables


_KINDS = {kind.value: kind for kind in ColumnKind}
