"""The cells of a csv file as its owner has it: columns of text, each different text kept once.

Python's own reader splits the lines.  What is decided here is what it asks for: the encoding, the
separator, and whether there is a line of names.  pandas, polars and pyarrow were refused for csv:
each guesses more than may be guessed of a hospital's table (a comma is a decimal sign or groups
digits, 01/02 is in January or in February), and none says at which line it had to.
"""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import unicodedata
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from syft.exceptions import FileRefused, UnusableSetting
from syft.node.cell_forms import is_data

SEPARATORS = {",": "a comma", ";": "a semicolon", "\t": "a tab", "|": "a bar"}
_CHUNK = 4096
"""So many rows become columns at a time."""


@dataclass(eq=False)
class TextColumn:
    """A column of texts: ``texts`` are the different ones, ``codes`` their numbers by row.

    ``lines`` says in which line of the file each row ends; without it rows are counted.

    >>> column = TextColumn("sex", ["f", "m"], np.array([0, 1, 0]))
    >>> column.counts.tolist(), column.place_of("m")
    ([2, 1], 'row 2')
    """

    name: str
    texts: list[str]
    codes: np.ndarray[tuple[int], np.dtype[np.int64]]
    lines: Sequence[int] | None = None

    @property
    def counts(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """How many rows have each text."""
        return np.bincount(self.codes, minlength=len(self.texts))

    def place_of(self, text: str) -> str:
        """Where a text stands first, in words."""
        row = int(np.argmax(self.codes == self.texts.index(text)))
        return f"row {row + 1}" if self.lines is None else f"line {self.lines[row]}"


@dataclass
class TextTable:
    """A table of texts, and what separated its cells."""

    columns: list[TextColumn]
    separator: str
    skipped: int
    """How many lines without any value were left out."""
    nameless: frozenset[str]
    """The columns that have no name in the line of names, and values below."""


def read_cells(path: Path, separator: str | None, encoding: str | None) -> TextTable:
    """Read a csv file; ``separator`` and ``encoding`` None: whatever is plain from the file.

    Raises :class:`~syft.exceptions.FileRefused` for lines that are no table, by their number.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "x.csv")
    ...     _ = path.write_text("age;sex\\n31;f\\n45;m\\n")
    ...     table = read_cells(path, None, None)
    >>> table.separator, [(column.name, column.texts) for column in table.columns]
    (';', [('age', ['31', '45']), ('sex', ['f', 'm'])])
    """
    text = _decoded(path, encoding)
    said = text[:6].lower()
    if said.startswith("sep=") and said[4:5] and text[5:6] in "\r\n":  # a line that Excel writes
        separator, text = (
            separator or text[4],
            f"\n{text[5:].lstrip(chr(13)).removeprefix(chr(10))}",
        )
    if separator is None:
        separator = _separator_of(path, text)
    return _table(path, text, separator)


def _decoded(path: Path, encoding: str | None) -> str:
    content = path.read_bytes()
    if encoding is None and content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "utf-16"  # the file says so itself
    try:
        text = content.decode(encoding or "utf-8-sig").removeprefix("\ufeff")
    except LookupError:
        raise UnusableSetting("encoding", "one that Python knows", repr(encoding)) from None
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        problem = f"line {line} is not in {encoding or 'UTF-8'} (byte 0x{content[error.start]:02x})"
        instead = "save it in UTF-8, or say its encoding, as latin-1 or cp1252"
        raise FileRefused(str(path), problem, instead) from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise FileRefused(str(path), f"a byte of zeros is in line {line}", "save it in UTF-8")
    return text


def _records(path: Path, text: str, separator: str) -> Iterator[tuple[int, list[str]]]:
    """The lines that are not empty, with their numbers."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    try:
        for row in reader:
            if row:
                yield reader.line_num, row
    except csv.Error as error:
        problem = f"the quotes or cells of line {reader.line_num} cannot be read ({error})"
        raise FileRefused(str(path), problem, "double each quote inside quotes") from None


def _separator_of(path: Path, text: str) -> str:
    """The separator that divides the first line, and if several do, all lines into as many."""
    dividing = [one for one in SEPARATORS if _divides(path, text, one)]
    if len(dividing) > 1:
        dividing = [one for one in dividing if _is_regular(path, text, one)] or dividing
    if len(dividing) > 1:
        names = " and ".join(SEPARATORS[one] for one in dividing)
        raise FileRefused(
            str(path), f"{names} both divide its first line", "say which one (separator)"
        )
    return dividing[0] if dividing else ","


def _divides(path: Path, text: str, separator: str) -> bool:
    try:
        return len(next(_records(path, text, separator), (0, []))[1]) > 1
    except FileRefused:
        return False


def _is_regular(path: Path, text: str, separator: str) -> bool:
    try:
        return len({len(row) for _, row in _records(path, text, separator)}) == 1
    except FileRefused:
        return False


def _table(path: Path, text: str, separator: str) -> TextTable:
    records = _records(path, text, separator)
    number, first = next(records, (0, []))
    named = not _starts_with_data(path, first)
    names = _names(path, first if named else [""] * len(first))
    rows = records if named else itertools.chain([(number, first)], records)
    codings, lines, skipped = [_Coding() for _ in names], array("q"), 0
    while chunk := list(itertools.islice(rows, _CHUNK)):
        kept = [(line, row) for line, row in chunk if "".join(row).strip()]
        skipped += len(chunk) - len(kept)
        lines.extend(line for line, _ in kept)
        _code(path, codings, kept)
    if not lines:
        raise FileRefused(str(path), "no data is in it", "write lines of cells below the names")
    made = [coding.column(name, lines) for coding, name in zip(codings, names, strict=True)]
    return _without_nameless(made, first if named else names, separator, skipped)


def _without_nameless(
    columns: Sequence[TextColumn], written: Sequence[str], separator: str, skipped: int
) -> TextTable:
    """The table without columns in which nothing is, not even a name."""
    pairs = zip(columns, written, strict=True)
    blank = {column.name for column, name in pairs if not name.strip()}
    used = [column for column in columns if column.name not in blank or column.texts != [""]]
    nameless = frozenset(column.name for column in used if column.name in blank)
    return TextTable(used, separator, skipped, nameless)


def _code(path: Path, codings: Sequence[_Coding], rows: Sequence[tuple[int, list[str]]]) -> None:
    """Add rows, which must have a cell for each column, to the columns."""
    for line, row in rows:
        if len(row) != len(codings):
            problem = f"line {line} has {len(row)} cells, and the first one has {len(codings)}"
            instead = "give all lines as many, with texts that hold the separator in quotes"
            raise FileRefused(str(path), problem, instead)
    for coding, cells in zip(codings, zip(*(row for _, row in rows), strict=True), strict=False):
        coding.add(cells)


class _Coding:
    """Texts of one column as they come, each different one kept once."""

    def __init__(self) -> None:
        self.places: defaultdict[str, int] = defaultdict()
        self.places.default_factory = self.places.__len__
        self.codes = array("i")

    def add(self, cells: Sequence[str]) -> None:
        self.codes.extend(map(self.places.__getitem__, cells))

    def column(self, name: str, lines: Sequence[int]) -> TextColumn:
        """The column, its texts without space around them, and each letter written in one way."""
        texts: dict[str, int] = {}
        merged = [texts.setdefault(plain(text), len(texts)) for text in self.places]
        codes = np.array(merged, np.int64)[np.frombuffer(self.codes, np.int32)]
        return TextColumn(name, list(texts), codes, lines)


def plain(text: str) -> str:
    """A text without space around it, and with each letter written in one way (NFC).

    >>> plain(" e\\u0301 ") == "\\u00e9"
    True
    """
    return unicodedata.normalize("NFC", text.strip())


def _starts_with_data(path: Path, first: Sequence[str]) -> bool:
    """Whether numbers come at once, without a line of names."""
    data = [is_data(cell.strip()) for cell in first]
    if any(data) and not all(data):
        cell = first[data.index(False)]
        problem = f"its first line is neither names nor numbers alone ({cell!r} is no number)"
        raise FileRefused(str(path), problem, "write a line of names above, none of them a number")
    return bool(data) and all(data)


def _names(path: Path, first: Sequence[str]) -> list[str]:
    """The names of the columns; white space in them is one space."""
    names = [plain(" ".join(name.split())) or f"column {n + 1}" for n, name in enumerate(first)]
    for name, count in Counter(names).items():
        if count > 1:
            raise FileRefused(str(path), f"{count} columns are called {name!r}", "rename them")
        if not name.isprintable():
            raise FileRefused(
                str(path), f"the name {name!r} cannot be printed", "rename the column"
            )
    return names
