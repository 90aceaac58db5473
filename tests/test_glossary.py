"""Words that are the project's own are in the glossary, and words that went do not come back."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_references import project_files

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "glossary.md"
ENTRIES = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if re.match(r"\| (?!word |-)", line)
]
"""The rows of the glossary: a word, its meaning, and where it lives."""

GONE = {
    r"bills?|_bills?|billed": "charge",
    r"\w*foreseen\w*|foresees?": "predicted",
    r"\w*forecasts?\w*": "prediction",
    r"twins?|_twin|twin_of": "duplicate, or another pointer",
    r"trials?": "probe",
    r"cards?|card_(?:of|in)|_card": "summary",
    r"claims?|claimed": "origin",
    r"strange": "foreign, or unusual",
    r"seats?": "party",
}
"""Words that meant something here alone, as patterns, and what is said now."""

EXCEPTIONS = {
    "claims?|claimed": {
        "syft/workers/shells/worker.py": "a name that nobody has checked",
        "syft/workers/core/accepted_results.py": "a number in a request that nobody has checked",
        "docs/design/open.md": "a name that nobody has checked",
        "docs/design/0018-who-may-connect.md": "a name that nobody has checked",
        "docs/design/0004-guards-on-tensors.md": "a name that nobody has checked",
        "docs/privacy.md": "a name that nobody has checked",
        "docs/private_data.md": "a name that nobody has checked",
        "docs/roadmap.md": "a name that nobody has checked",
    },
    "trials?": {
        "docs/design/0013-limits-per-peer.md": "runs of a measurement",
        "docs/design/0014-predictions.md": "what was there before the decision",
    },
}
"""Where such a word is a word of plain English: file and meaning."""


def _texts() -> Iterator[tuple[str, str]]:
    for file in project_files():
        inside = file.startswith(("syft/", "docs/", "tools/")) or "/" not in file
        if inside and file.endswith((".py", ".md", ".txt")) and file not in OF_THEIR_TIME:
            yield file, (ROOT / file).read_text(encoding="utf-8")


OF_THEIR_TIME = {"CHANGELOG.md", "docs/design/changes_0_3.md"}
"""Tell of changes with the words of then."""


def found_words(pattern: str, texts: Iterator[tuple[str, str]]) -> dict[str, str]:
    """In each text in which a pattern matches a whole word: the first such word."""
    word = re.compile(rf"(?<![\w.-])(?:{pattern})(?!\w)", re.IGNORECASE)
    return {file: match.group() for file, text in texts if (match := word.search(text))}


def _code_below(place: str) -> str:
    path = ROOT / place
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
    return "\n".join(file.read_text(encoding="utf-8") for file in files).lower()


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry[0])
def test_a_word_of_the_glossary_is_said_where_it_says(entry: list[str]) -> None:
    word, meaning, where = entry
    places = re.findall(r"`([\w./]+)`", where)
    assert places and meaning.endswith((".", ").")), entry
    pattern = re.escape(word).replace(r"\ ", r"[\s_]+")
    for place in places:
        assert re.search(rf"(?<![a-z]){pattern}", _code_below(place)), (word, place)


def test_no_word_is_explained_twice() -> None:
    words = [word for word, _, _ in ENTRIES]
    assert len(words) == len(set(words)) > 50


@pytest.mark.parametrize("pattern", GONE)
def test_a_word_that_went_does_not_come_back(pattern: str) -> None:
    allowed = EXCEPTIONS.get(pattern, {}).keys()
    found = found_words(pattern, _texts())
    assert not {file: word for file, word in found.items() if file not in allowed}, GONE[pattern]
    assert not sorted(allowed - found.keys()), "exceptions that nothing needs"


def test_a_word_that_comes_back_is_found() -> None:
    texts = [("a.py", "its Foreseen result"), ("b.py", "unforeseen_failure, discard")]
    patterns = [r"\w*foreseen\w*", "cards?"]
    assert [found_words(pattern, iter(texts)) for pattern in patterns] == [
        {"a.py": "Foreseen", "b.py": "unforeseen_failure"},
        {},
    ]
