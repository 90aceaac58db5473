"""The page that says where things are names files and rooms that are there."""

from __future__ import annotations

import re

from tests.test_project import ROOT

PAGE = (ROOT / "docs" / "design" / "where.md").read_text(encoding="utf-8")
PATH = re.compile(r"\b(?:syft|tests|tools|docs|benchmarks)/[\w./]*\w")


def rows_of(heading: str) -> list[list[str]]:
    """The cells of the numbered rows below a heading."""
    part = PAGE.split(f"\n## {heading}")[1].split("\n## ")[0]
    return [line.strip("|").split("|") for line in part.splitlines() if re.match(r"\| \d", line)]


def test_each_file_and_room_that_is_named_is_there() -> None:
    named = set(PATH.findall(PAGE))
    assert len(named) > 80
    assert not sorted(path for path in named if not (ROOT / path).exists())


def test_at_least_thirty_changes_each_with_files() -> None:
    rows = rows_of("I want to change")
    assert len(rows) >= 30
    for heading in ("I want to change", "The life of a request"):
        for number, row in enumerate(rows_of(heading), start=1):
            assert int(row[0]) == number and PATH.search(row[-1]) and "|" not in row[-1], row


def test_the_drawing_has_every_room() -> None:
    drawing = PAGE.split("```")[1]
    rooms = [folder for folder in (ROOT / "syft").iterdir() if (folder / "__init__.py").exists()]
    rooms += [
        folder
        for folder in (ROOT / "syft" / "workers").iterdir()
        if (folder / "__init__.py").exists()
    ]
    names = {folder.relative_to(ROOT).as_posix() for folder in rooms} - {"syft/workers"}
    assert len(names) > 20 and not sorted(names - set(PATH.findall(drawing)))
    assert max(map(len, drawing.splitlines())) <= 120
