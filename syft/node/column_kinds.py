"""What kind a column of text is, and its numbers.

The different texts of a column are looked at, never its rows one by one.  A column is of a kind if
all its texts are; one that is partly numbers and partly words is refused with the line of a word,
because any reading of it would be a guess.  So is what two countries read differently, unless the
owner says the kind, the decimal sign or the format of dates.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NoReturn

import numpy as np

from syft.exceptions import FileRefused, UnusableSetting
from syft.federated.columns import Column, ColumnKind
from syft.node.cell_forms import DATES, NUMBERS, THOUSANDS, WORDS, form_of, integer, moment, number
from syft.node.csv_cells import SEPARATORS, TextColumn

MOST_CATEGORIES: Final = 100
"""A column with more different texts is text, unless its owner says that it is a category."""
_FEW: Final = 10
"""So many different texts are categories also where each stands once."""

DAYS = "days since 1970-01-01"
SECONDS = "seconds since 1970-01-01, UTC"

Values = np.ndarray[tuple[int], np.dtype[Any]]


@dataclass(frozen=True)
class TableSettings:
    """What an owner says of a table, where its cells do not say it.

    ``separator`` and ``decimal`` are single letters; ``kinds``, ``date_formats`` and ``categories``
    are by column; ``empty`` are texts that mean an empty cell; ``leave_out`` are columns.

    Raises :class:`~syft.exceptions.UnusableSetting` for a value that none of them has.

    >>> TableSettings(kinds={"stage": "category"}).kind_of("stage")
    <ColumnKind.CATEGORY: 'category'>
    """

    separator: str | None = None
    decimal: str | None = None
    encoding: str | None = None
    kinds: Mapping[str, str] = field(default_factory=dict)
    date_formats: Mapping[str, str] = field(default_factory=dict)
    categories: Mapping[str, Sequence[str]] = field(default_factory=dict)
    empty: Sequence[str] = ()
    leave_out: Sequence[str] = ()

    def __post_init__(self) -> None:
        signs = (None, *SEPARATORS)
        if self.separator not in signs:
            expected = f"one of {', '.join(map(repr, SEPARATORS))}"
            raise UnusableSetting("separator", expected, repr(self.separator))
        if self.decimal not in (None, ".", ","):
            raise UnusableSetting("decimal", "'.' or ','", repr(self.decimal))
        for name, texts in (("empty", self.empty), ("leave_out", self.leave_out)):
            if isinstance(texts, str):
                raise UnusableSetting(name, "a list of texts", repr(texts))
        self._check_by_column()

    def _check_by_column(self) -> None:
        kinds = {kind.value for kind in ColumnKind}
        for column, kind in self.kinds.items():
            if kind not in kinds:
                expected = f"for each column one of {', '.join(sorted(kinds))}"
                raise UnusableSetting("kinds", expected, f"{kind!r} for {column!r}")
        for column, texts in self.categories.items():
            if isinstance(texts, str) or len(set(texts)) < len(texts) or not texts:
                expected = "for each column a list of different texts"
                raise UnusableSetting("categories", expected, f"{texts!r} for {column!r}")

    def kind_of(self, name: str) -> ColumnKind | None:
        """The kind that is said of a column, also by its format or categories; None if none is."""
        if name in self.kinds:
            return ColumnKind(self.kinds[name])
        if name in self.date_formats:
            return ColumnKind.DATE
        return ColumnKind.CATEGORY if name in self.categories else None

    def check_names(self, names: Iterable[str]) -> None:
        """Raise :class:`~syft.exceptions.UnusableSetting` if something is said of other columns."""
        known = list(names)
        said = [*self.kinds, *self.date_formats, *self.categories, *self.leave_out]
        for name in said:
            if name not in known:
                listed = ", ".join(known[:20]) + (" …" if len(known) > 20 else "")
                raise UnusableSetting("column", f"one of {listed}", repr(name))


def with_decimal(settings: TableSettings, columns: Iterable[TextColumn]) -> TableSettings:
    """The settings with a decimal comma if some column can only be read with one.

    >>> weights = TextColumn("weight", ["61,5", "1,234"], np.array([0, 1]))
    >>> with_decimal(TableSettings(separator=";"), [weights]).decimal
    ','
    """
    if settings.decimal is not None or settings.separator == ",":
        return settings
    clear = any(_needs_comma(column, settings) for column in columns)
    return replace(settings, decimal=",") if clear else settings


def _needs_comma(column: TextColumn, settings: TableSettings) -> bool:
    """Whether a column is numbers, some of them with a comma that can only be decimal."""
    forms = {text: form_of(text) for text in column.texts if text not in settings.empty}
    if not NUMBERS | {"empty", "missing"} >= set(forms.values()):
        return False
    return any(form == "comma" and not THOUSANDS.fullmatch(t) for t, form in forms.items())


def read_column(path: str, column: TextColumn, settings: TableSettings) -> tuple[Column, Values]:
    """The kind of a column and its numbers by row: int64, or float64 with NaN where it is empty.

    Of a text, which has no numbers, there are none.

    Raises :class:`~syft.exceptions.FileRefused` for a column that is of no kind, or of two.

    >>> read_column("x.csv", TextColumn("sex", ["m", "f"], np.array([0, 1, 0])), TableSettings())
    (<Column 'sex': category>, array([1, 0, 1]))
    """
    return _Reading(path, column, settings).read()


class _Reading:
    """The reading of one column."""

    def __init__(self, path: str, column: TextColumn, settings: TableSettings) -> None:
        self.path, self.column, self.settings = path, column, settings
        self.forms = ["empty" if text in settings.empty else form_of(text) for text in column.texts]
        self.comma = settings.decimal == "," or settings.separator in (";", "\t", None)

    def read(self) -> tuple[Column, Values]:
        kind = self.settings.kind_of(self.column.name) or self.kind()
        return _READERS[kind](self)

    def refuse(self, problem: str, instead: str) -> NoReturn:
        raise FileRefused(self.path, f"column {self.column.name!r} {problem}", instead)

    def at(self, text: str) -> str:
        """Where a text stands, and what it is: the owner reads this."""
        return f"{self.column.place_of(text)} ({text[:60]!r})"

    def texts_of(self, forms: Iterable[str]) -> list[str]:
        wanted = set(forms)
        pairs = zip(self.column.texts, self.forms, strict=True)
        return [text for text, form in pairs if form in wanted]

    # ------------------------------------------------------------------------------ what it is

    def kind(self) -> ColumnKind:
        """The kind that all texts have."""
        texts = self.texts_of({"text", *NUMBERS, *DATES})
        found = set(self.forms) - {"empty", "missing"}
        if texts and all(text.lower() in WORDS for text in texts):
            return ColumnKind.BOOLEAN
        if found == {"text"} or ("code" in found and found <= {"code", "integer"}):
            return self.words()  # 00123 is no number: its zeros would be lost
        if found == {"integer"}:
            return ColumnKind.INTEGER
        if found <= NUMBERS:
            return ColumnKind.NUMBER
        return ColumnKind.DATE if found <= DATES else self.mixed(found)

    def words(self) -> ColumnKind:
        """Whether words are categories or free text."""
        empty = self.texts_of(["empty"])
        count = len(self.column.texts) - len(empty)
        filled = len(self.column.codes) - self.empty_count(["empty"])
        many = count > MOST_CATEGORIES or (count > _FEW and 2 * count > filled)
        return ColumnKind.TEXT if many else ColumnKind.CATEGORY

    def mixed(self, found: set[str]) -> NoReturn:
        """Refuse a column of several kinds, at the line of the rarest."""
        kinds = {
            "words": found & {"text"},
            "dates": found & DATES,
            "numbers": found & NUMBERS,
        }
        present = {name: self.texts_of(forms) for name, forms in kinds.items() if forms}
        counts = dict(zip(self.column.texts, self.column.counts, strict=True))
        rare = min(present, key=lambda name: sum(int(counts[text]) for text in present[name]))
        others = " and ".join(name for name in present if name != rare)
        problem = f"has {others}, and {rare} in {self.at(present[rare][0])}"
        self.refuse(problem, "say its kind, as category, or that this text means empty, or mend it")

    # ------------------------------------------------------------------------------ its numbers

    def empty_count(self, forms: Iterable[str]) -> int:
        counts, wanted = self.column.counts, set(forms)
        return int(sum(n for n, form in zip(counts, self.forms, strict=True) if form in wanted))

    def made(
        self,
        kind: ColumnKind,
        value: Callable[[str], float | int],
        problem: str,
        instead: str = "mend it, or say another kind of the column",
        unit: str = "",
    ) -> tuple[Column, Values]:
        """The column with a number for each text; a text without one is refused by its line."""
        values: list[float | int] = []
        for text, form in zip(self.column.texts, self.forms, strict=True):
            if form in ("empty", "missing"):
                values.append(math.nan)
                continue
            try:
                values.append(value(text))
            except (ValueError, OverflowError, KeyError):
                self.refuse(f"has {problem} in {self.at(text)}", instead)
        empty = self.empty_count(("empty", "missing"))
        whole = not empty and all(isinstance(one, int) for one in values)
        self.check_exact(values, whole)
        numbers = np.array(values, np.int64 if whole else np.float64)[self.column.codes]
        return Column(self.column.name, kind, unit, empty=empty), numbers

    def check_exact(self, values: Sequence[float | int], whole: bool) -> None:
        """Refuse whole numbers that would be changed by becoming numbers here."""
        most = (1 << 63) - 1 if whole else 1 << 53
        for text, value in zip(self.column.texts, values, strict=True):
            if isinstance(value, int) and not -most - whole <= value <= most:
                problem = f"has too many digits for a whole number in {self.at(text)}"
                self.refuse(problem, "leave the column out, or say that it is a category")

    def numbers(self) -> tuple[Column, Values]:
        self.check_signs()
        return self.made(ColumnKind.NUMBER, number, "something that is no number")

    def check_signs(self) -> None:
        """Refuse numbers that two countries read differently, and digits in groups."""
        instead = "write numbers without groups, all with one decimal sign, or say it (decimal)"
        for form, what in (("percent", "a percentage"), ("grouped", "digits in groups")):
            for text in self.texts_of([form]):
                self.refuse(f"has {what} in {self.at(text)}", instead)
        commas, points = self.texts_of(["comma"]), self.texts_of(["point"])
        if commas and points:
            both = (
                f"has a decimal comma in {self.at(commas[0])}, and a point in {self.at(points[0])}"
            )
            self.refuse(both, instead)
        for text in self.wrong_signs(commas, points):
            self.refuse(f"has another decimal sign in {self.at(text)}", instead)
        if commas and self.settings.decimal is None and all(map(THOUSANDS.fullmatch, commas)):
            problem = f"may have a decimal comma or groups of digits, as in {self.at(commas[0])}"
            self.refuse(problem, "say which sign is decimal (decimal)")

    def wrong_signs(self, commas: list[str], points: list[str]) -> list[str]:
        """Numbers whose sign is not decimal in this table; 36.6 cannot be anything else."""
        if self.settings.decimal == "." or not self.comma:
            return commas
        if self.settings.decimal == "," and all(map(THOUSANDS.fullmatch, points)):
            return points
        return []

    def integers(self) -> tuple[Column, Values]:
        return self.made(ColumnKind.INTEGER, integer, "something that is no whole number")

    def booleans(self) -> tuple[Column, Values]:
        words = {**WORDS, "1": 1, "0": 0}
        return self.made(
            ColumnKind.BOOLEAN, lambda text: words[text.lower()], "something that is not yes or no"
        )

    def categories(self) -> tuple[Column, Values]:
        """Categories are in the order of their texts, or of the table that was said."""
        name = self.column.name
        pairs = zip(self.column.texts, self.forms, strict=True)
        filled = [text for text, form in pairs if form != "empty"]
        table = tuple(self.settings.categories.get(name, sorted(filled)))
        places = {text: place for place, text in enumerate(table)}
        for text in filled:
            if text not in places:
                problem = f"has a category that is not among those said in {self.at(text)}"
                self.refuse(problem, "add it to the categories of the column, or mend it")
        codes = [
            -1 if form == "empty" else places[text]
            for text, form in zip(self.column.texts, self.forms, strict=True)
        ]
        numbers = np.array(codes, np.int64)[self.column.codes]
        empty = self.empty_count(["empty"])
        return Column(name, ColumnKind.CATEGORY, categories=table, empty=empty), numbers

    def text(self) -> tuple[Column, Values]:
        return Column(self.column.name, ColumnKind.TEXT), np.empty(0)

    # -------------------------------------------------------------------------------- its dates

    def dates(self) -> tuple[Column, Values]:
        said = self.settings.date_formats.get(self.column.name)
        if said is not None:
            return self.dates_in(said)
        instead = "say the format of its dates, as %d/%m/%Y"
        short = self.texts_of(["short year"])
        if short:
            self.refuse(f"has a year of two digits in {self.at(short[0])}", instead)
        other = self.texts_of({"text", *NUMBERS})
        if other:
            self.refuse(f"has something that is no date in {self.at(other[0])}", instead)
        month_first = self.month_first(instead)
        problem = "a date that there is not"
        moments: dict[str, Any] = {}

        def days(text: str) -> int:
            moments[text] = moment(text, month_first)
            found: int = moments[text][0]
            return found

        column, numbers = self.made(ColumnKind.DATE, days, problem, unit=DAYS)
        timed = {zone for _, seconds, zone in moments.values() if seconds is not None}
        if len(timed) == 2:
            self.refuse(
                "has times with a zone and without", "say the zone of all times, or of none"
            )
        if not timed:
            return column, numbers
        return self.made(
            ColumnKind.DATE,
            lambda text: moments[text][0] * 86400 + (moments[text][1] or 0),
            problem,
            unit=SECONDS,
        )

    def month_first(self, instead: str) -> bool:
        """Whether the month stands before the day in dates with slashes."""
        slashed = self.texts_of(["slashed"])
        days = [text for text in slashed if int(text.replace("-", "/").split("/")[0]) > 12]
        months = [text for text in slashed if int(text.replace("-", "/").split("/")[1]) > 12]
        if days and months:
            both = f"the day first in {self.at(days[0])}, and the month in {self.at(months[0])}"
            self.refuse(f"has {both}", "write all dates in one way, as 2024-02-01")
        if slashed and not days and not months:
            self.refuse(
                f"may have the day or the month first, as in {self.at(slashed[0])}", instead
            )
        return bool(months)

    def dates_in(self, said: str) -> tuple[Column, Values]:
        """Dates in a format that was said."""
        timed = any(f"%{letter}" in said for letter in "HIXcfs")

        def value(text: str) -> float | int:
            found = datetime.datetime.strptime(text, said)
            zoned = found if found.tzinfo is not None else found.replace(tzinfo=datetime.UTC)
            seconds = zoned - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
            whole = seconds.days * 86400 + seconds.seconds if timed else seconds.days
            return whole + seconds.microseconds / 1e6 if seconds.microseconds else whole

        problem = f"a date that is not written as {said}"
        return self.made(ColumnKind.DATE, value, problem, unit=SECONDS if timed else DAYS)


_READERS: dict[ColumnKind, Callable[[_Reading], tuple[Column, Values]]] = {
    ColumnKind.NUMBER: _Reading.numbers,
    ColumnKind.INTEGER: _Reading.integers,
    ColumnKind.BOOLEAN: _Reading.booleans,
    ColumnKind.DATE: _Reading.dates,
    ColumnKind.CATEGORY: _Reading.categories,
    ColumnKind.TEXT: _Reading.text,
}
