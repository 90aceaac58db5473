"""What the pages for users say can never happen is tried by tests.

A sentence with one of these words is a promise that a reader relies on.  `promises.toml` names the
tests that try it, or says why it is none.
"""

from __future__ import annotations

import ast
import functools
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TABLE: dict[str, dict[str, list[str] | str]] = tomllib.loads(
    (ROOT / "tests" / "promises.toml").read_text()
)
NOT_PROMISES = {
    "docs/wire.md",  # a format: its rules are tested by name
    "docs/glossary.md",  # meanings of words
    "docs/names.md",  # a list
}
PAGES = [
    path.relative_to(ROOT).as_posix()
    for path in [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted(ROOT.glob("docs/*.md"))]
]

_WORDS = re.compile(
    r"\b(cannot|can't|never|always|by construction|impossible|guarantee[sd]?)\b", re.IGNORECASE
)
_EXAMPLE = re.compile(r"^```.*?^```$|^    .*?$", re.MULTILINE | re.DOTALL)
_PARAGRAPH = re.compile(r"\n\s*\n|\n(?=\s*[-|])")
_SENTENCE = re.compile(r"(?<=[.:;|])\s+")


def promises(text: str) -> Iterator[str]:
    """The sentences of a page that say that something can never happen, or always does."""
    for paragraph in _PARAGRAPH.split(_EXAMPLE.sub("", text)):
        for sentence in _SENTENCE.split(" ".join(paragraph.split())):
            if _WORDS.search(sentence):
                yield sentence


@functools.cache
def tests_of(path: str) -> set[str]:
    """The tests of a file, by their names."""
    tree = ast.parse((ROOT / path).read_text())
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(tree) if isinstance(node, functions)}


@pytest.mark.parametrize("page", sorted(set(PAGES) - NOT_PROMISES))
def test_each_promise_of_a_page_is_tried(page: str) -> None:
    rows = TABLE.get(page, {})
    sentences = list(promises((ROOT / page).read_text()))
    missing = [text for text in sentences if not any(part in text for part in rows)]
    assert not missing, "name the tests that try it in tests/promises.toml"
    assert not [part for part in rows if not any(part in text for text in sentences)], "not there"


def test_every_page_of_the_table_is_one() -> None:
    assert set(TABLE) <= set(PAGES) - NOT_PROMISES


def test_each_test_is_there() -> None:
    named = [test for rows in TABLE.values() for row in rows.values() for test in _tests(row)]
    assert named
    gone = [test for test in named if test.split("::")[1] not in tests_of(test.split("::")[0])]
    assert not gone


def _tests(row: list[str] | str) -> list[str]:
    if isinstance(row, str):
        assert len(row) > 10, "say why it is no promise"
        return []
    assert row
    return row


@pytest.mark.parametrize(
    "text, expected",
    [
        ("It never\nends. It may.", ["It never ends."]),
        ("| a | it cannot |\n| b | it can |", ["it cannot |"]),
        ("```python\nnever\n```\nAlways so", ["Always so"]),
        ("    never()\n\nnever mind", ["never mind"]),
        ("nevertheless", []),
    ],
)
def test_promises_are_found(text: str, expected: list[str]) -> None:
    assert list(promises(text)) == expected
