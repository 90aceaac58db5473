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
from dataclasses import dataclass, field

from syft.exceptions import UnusableSetting
from syft.notebook_html import DESCRIBED, described_columns, printable, table

TARGET = "target"


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
        return "\n".join(f"{printable(name)}: {kind}" for name, kind in self.rows_shown())

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return table(["column", "kind"], self.rows_shown(), named=True)

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
        """The columns that a description tells of, without tables; None if it tells of none.

        >>> Columns.in_description("ward 3\\n2 rows\\n- sex: category\\n- died: boolean, target")
        sex: category
        died: boolean, target
        >>> Columns.in_description("ward 3") is None
        True
        """
        columns, target = [], None
        for name, shown in described_columns(text):
            kind, is_target, role = shown.partition(f", {TARGET}")
            value, _, unit = kind.partition(" (")
            if value not in _KINDS or role:
                continue
            column = Column(name, _KINDS[value], unit.removesuffix(")"))
            if is_target:
                target = column
            else:
                columns.append(column)
        return cls(tuple(columns), target) if columns or target else None


_KINDS = {kind.value: kind for kind in ColumnKind}
