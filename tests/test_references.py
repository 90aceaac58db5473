"""Files and names that prose points at exist: in comments, docstrings, tables and documents."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator

import pytest

from tests.test_project import ROOT

FILE = re.compile(r"(?<![\w/.<-])((?:[\w.-]+/)*[\w-]+\.(?:py|md|txt|toml|rst|ipynb|svg))\b")
ROLE = re.compile(r":(?:mod|class|func|meth|attr|data|exc):`(?:[^`<]*<)?~?(syft\.[\w.]+)>?`")

EXAMPLES = {
    *("train.py", "a.py", "m.py"),  # of a user, in errors and doctests
    *("ann.py", "eve.py", "stranger.py", "make_data.py"),  # programs that a page shows
    *("make_patients.py", "ann_looks.py"),  # and programs on tables
    "coverage.py",  # the library
    *("coverage.txt", "token.txt", "figures.md"),  # written by the command beside the name
    *("worker.toml", "verify.py"),  # of an owner
}
MADE = {"docs/extensions/outside_pages.py"}
"""Names pages that building the site makes."""

OF_THEIR_TIME = {"CHANGELOG.md", "docs/design/changes_0_3.md"}
"""Name files as they were called when a change was made."""


BUILT = {"_build", "api", "project", "reference", "tutorials", "__pycache__", "output"}
"""Folders whose files are made."""


def project_files() -> list[str]:
    """The paths of the files that belong to the project, from its root."""
    paths = [path for path in ROOT.iterdir() if path.is_file()]
    for folder in ("syft", "docs", "tests", "tools", "examples", "benchmarks", ".ci"):
        paths += [path for path in (ROOT / folder).rglob("*") if path.is_file()]
    names = [path.relative_to(ROOT) for path in paths]
    return [
        str(name)
        for name in names
        if not BUILT & set(name.parts) or name.parts[:2] == ("examples", "tutorials")
    ]


def _prose() -> Iterator[tuple[str, str]]:
    for file in project_files():
        prose = file.startswith(("syft/", "docs/", "tools/")) or "/" not in file
        if prose and file not in MADE | OF_THEIR_TIME and file.endswith((".py", ".md", ".txt")):
            yield file, (ROOT / file).read_text(encoding="utf-8")


def _ends_of_paths() -> set[str]:
    split = [file.split("/") for file in project_files()]
    return {"/".join(parts[start:]) for parts in split for start in range(len(parts))}


def unknown_files(text: str, known: set[str]) -> set[str]:
    """The files that a text names and that are no end of a path of the project."""
    named = {re.sub(r"^(\.\.?/)+", "", name) for name in FILE.findall(text)}
    return named - known - EXAMPLES


def is_there(name: str) -> bool:
    """Whether a dotted name leads from a module to something that it has."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            if part in getattr(found, "__annotations__", ()):
                return True
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


def test_files_that_are_named_exist() -> None:
    known = _ends_of_paths()
    stale = {file: unknown for file, text in _prose() if (unknown := unknown_files(text, known))}
    assert not stale


def test_names_that_are_referred_to_exist() -> None:
    named = {(name, file) for file, text in _prose() for name in ROLE.findall(text)}
    assert len(named) > 100
    assert not [f"{name} in {file}" for name, file in sorted(named) if not is_there(name)]


@pytest.mark.parametrize(
    "text, unknown",
    [
        ("see `core/gone.py` and ../ops/table.py", {"core/gone.py"}),
        ("[a page](../docs/plans.md), ops.txt", set()),
        ('File "/a/train.py", line 3', set()),
    ],
)
def test_a_stale_file_is_found(text: str, unknown: set[str]) -> None:
    assert unknown_files(text, _ends_of_paths()) == unknown


def test_a_stale_name_is_found() -> None:
    assert is_there("syft.ops.table.OpFlag")
    assert not is_there("syft.ops.table.Gone") and not is_there("syft.gone.OpFlag")
