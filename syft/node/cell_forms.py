"""What one cell of a table may look like: numbers, dates and words for what is missing.

A form is a pattern of the whole cell.  Forms that can be read in two ways have names of their own,
so that who puts a column together can refuse it, or ask what its other cells say.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable

MISSING = frozenset(("nan", "NaN", "NA", "N/A", "n/a", "NULL", "null", "#N/A"))
"""Empty cells in a column of numbers or dates; elsewhere they are words (NA is Namibia)."""

WORDS = {"true": 1, "false": 0, "yes": 1, "no": 0}
"""What a column of booleans holds, in capitals or not."""

_TIME = r"(?:[T ]+(\d{1,2}):(\d{2})(?::(\d{2})([.,]\d{1,9})?)?\s*(Z|[+-]\d{2}:?\d{2})?)?"
_GROUP = r"([.,' \u00a0\u202f\u2019])\d{3}"
_SPACED = r"(?:[' \u00a0\u202f\u2019]\d{3})+"
_EXPONENT = r"(?:[eE][+-]?\d+)?"
FORMS: dict[str, re.Pattern[str]] = {
    name: re.compile(pattern, re.ASCII)
    for name, pattern in (
        ("code", r"0\d+"),
        ("integer", r"[+-]?\d+"),
        ("grouped", rf"[+-]?\d{{1,3}}(?:{_GROUP}(?:(?:\1\d{{3}})+(?:[.,]\d*)?|[.,]\d*)|{_SPACED})"),
        ("point", rf"[+-]?(?:\d+\.\d*|\.\d+|\d+(?=[eE])){_EXPONENT}"),
        ("comma", rf"[+-]?(?:\d+,\d*|,\d+){_EXPONENT}"),
        ("percent", r"[+-]?\d+(?:[.,]\d+)?\s*%"),
        ("infinite", r"(?i:[+-]?inf(?:inity)?)"),
        ("date", rf"(\d{{4}})([-/.])(\d{{1,2}})\2(\d{{1,2}}){_TIME}"),
        ("day first", rf"(\d{{1,2}})(\.)(\d{{1,2}})\2(\d{{4}}){_TIME}"),
        ("slashed", rf"(\d{{1,2}})([-/])(\d{{1,2}})\2(\d{{4}}){_TIME}"),
        ("short year", r"\d{1,2}([./-])\d{1,2}\1\d{2}(?:[T ].*)?"),
    )
}
"""Patterns of a cell by the name of the form; the first one that fits it is its form."""

NUMBERS = frozenset(("code", "integer", "grouped", "percent", "point", "comma", "infinite"))
DATES = frozenset(("date", "day first", "slashed", "short year"))

THOUSANDS = re.compile(r"[+-]?[1-9][0-9]{0,2}[.,][0-9]{3}")
"""What may be 1.234 in one country and 1234 in another."""


def form_of(text: str) -> str:
    """The form of a cell: ``empty``, ``missing``, one of :data:`FORMS`, or ``text``.

    >>> [form_of(text) for text in ("", "NA", "12", "007", "1,5", "1.234,5", "2024-02-30", "f")]
    ['empty', 'missing', 'integer', 'code', 'comma', 'grouped', 'date', 'text']
    """
    if not text:
        return "empty"
    if text in MISSING:
        return "missing"
    return next((name for name, form in FORMS.items() if form.fullmatch(text)), "text")


def is_data(text: str) -> bool:
    """Whether a cell is a number or a date, so that it is no name of a column.

    >>> is_data("1.5"), is_data("nan"), is_data("age")
    (True, True, False)
    """
    form = form_of(text)
    return form in NUMBERS or form in DATES or form == "missing"


def number(text: str) -> float:
    """The value of a number with a point or a comma; ValueError if it is none, or too large.

    >>> number("1,5"), number("-inf")
    (1.5, -inf)
    """
    if form_of(text) not in NUMBERS:
        raise ValueError("it is no number")
    value = float(text.replace(",", "."))
    if math.isinf(value) and "inf" not in text.lower():
        raise ValueError("it is too large for a number")
    return value


def integer(text: str) -> int:
    """The value of a whole number; ValueError if it is none.

    >>> integer("007")
    7
    """
    if form_of(text) not in ("integer", "code"):
        raise ValueError("it is no whole number")
    return int(text)


def day(year: int, month: int, day: int) -> int:
    """The days from 1970-01-01 to a date; ValueError if there is no such date.

    >>> day(1970, 1, 2), day(1969, 12, 31)
    (1, -1)
    """
    return datetime.date(year, month, day).toordinal() - _EPOCH


_EPOCH = datetime.date(1970, 1, 1).toordinal()

Moment = tuple[int, float | int | None, bool]
"""Days since 1970-01-01, seconds of that day (None: a date alone), whether a zone is said."""


def moment(text: str, month_first: bool) -> Moment:
    """What a date means; ``month_first`` is about slashes. ValueError if there is no such time.

    >>> moment("2024-02-01", False), moment("01/02/1970 00:00:30+01:00", True)
    ((19754, None, False), (1, -3570, True))
    """
    form = form_of(text)
    match = FORMS[form].fullmatch(text)
    assert match is not None
    first, _, second, third, *time = match.groups()
    days = day(
        *_ORDERS[form, month_first and form == "slashed"](int(first), int(second), int(third))
    )
    return (days, *_seconds(*time))


_ORDERS: dict[tuple[str, bool], Callable[[int, int, int], tuple[int, int, int]]] = {
    ("date", False): lambda first, second, third: (first, second, third),
    ("day first", False): lambda first, second, third: (third, second, first),
    ("slashed", False): lambda first, second, third: (third, second, first),
    ("slashed", True): lambda first, second, third: (third, first, second),
}


def _seconds(
    hour: str | None, minute: str | None, second: str | None, fraction: str | None, zone: str | None
) -> tuple[float | int | None, bool]:
    if hour is None:
        return None, False
    time = datetime.time(int(hour), int(minute or 0), int(second or 0))
    total: float | int = time.hour * 3600 + time.minute * 60 + time.second
    if fraction is not None:
        total += float(fraction.replace(",", "."))
    if zone is None or zone == "Z":
        return total, zone is not None
    sign = -1 if zone[0] == "-" else 1
    hours, minutes = int(zone[1:3]), int(zone[-2:])
    if hours > 23 or minutes > 59:
        raise ValueError("there is no such time zone")
    return total - sign * (hours * 3600 + minutes * 60), True
