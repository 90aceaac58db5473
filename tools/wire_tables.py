"""The tables of docs/wire.md, made from syft/codes.py.

``python tools/wire_tables.py`` prints them; ``--write`` puts them into the document, between its
two marker lines.  A test compares the document with what this prints.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from syft import codes

DOCUMENT = Path(__file__).parent.parent / "docs" / "wire.md"
BEGIN = "<!-- tables: written by tools/wire_tables.py -->"
END = "<!-- end of tables -->"


def table(heading: str, head: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> str:
    """Return a Markdown table under a heading."""
    lines = [f"### {heading}", "", f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    lines += [f"| {' | '.join(str(cell) for cell in row)} |" for row in rows]
    return "\n".join(lines)


def code_table(cls: type[codes.WireCode]) -> str:
    """Return the table of one enumeration; a third column only where something is in it."""
    if any(member.meaning for member in cls):
        last = "fields after the code" if cls is codes.TypeCode else "meaning"
        rows = [(int(member), f"`{member.name}`", member.meaning) for member in cls]
        return table(cls.__name__, ("number", "name", last), rows)
    return table(cls.__name__, ("number", "name"), [(int(m), f"`{m.name}`") for m in cls])


def enumerations() -> list[type[codes.WireCode]]:
    """Return the enumerations of wire numbers, in the order of the file."""
    found = [value for value in vars(codes).values() if isinstance(value, type)]
    return [cls for cls in found if issubclass(cls, codes.WireCode) and cls is not codes.WireCode]


def tables() -> str:
    """Return all tables, as they stand in the document."""
    flags = [(flag.value, f"`{flag.name}`") for flag in codes.TensorFlag]
    named = [(number, f"`{name}`") for number, name in enumerate(codes.NAMED_TUPLES)]
    enums = [(number, f"`{name}`") for number, name in enumerate(codes.TORCH_ENUMS)]
    options = [(number, f"`{name}`") for number, name in enumerate(codes.TORCH_OPTIONS)]
    types = [(number, f"`{cls.__name__}`") for number, cls in enumerate(codes.PYTHON_TYPES)]
    parts = [
        *map(code_table, enumerations()),
        table("TensorFlag", ("bit", "name"), flags),
        table("PYTHON_TYPES", ("number", "name"), types),
        table("TORCH_ENUMS", ("number", "name"), enums),
        table("TORCH_OPTIONS", ("number", "name"), options),
        table("NAMED_TUPLES", ("number", "name"), named),
    ]
    return "\n\n".join(parts)


def with_tables(text: str) -> str:
    """Return the document with its tables replaced by those of today."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n\n{tables()}\n\n{END}{after}"


def main(arguments: list[str]) -> None:
    """Print the tables, or with ``--write`` bring the document up to date."""
    if arguments == ["--write"]:
        DOCUMENT.write_text(with_tables(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        print(tables())


if __name__ == "__main__":
    main(sys.argv[1:])
