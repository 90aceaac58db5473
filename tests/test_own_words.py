"""What the project contains was written here: no text of the library whose calls it keeps."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SEEDS = ROOT.parent / "shared" / "seeds"
"""Where programs of earlier users lie beside a checkout, if they do."""

THEIRS = re.compile(
    r"openmined|opencollective|\bslack\.|join our|our community|\bdonat(e|ions?)\b"
    r"|star pysyft|good first issue|twitter\.com|^\W*authors?:",
    re.IGNORECASE | re.MULTILINE,
)
"""What that library says of its authors, its community and its money."""

PAGES = sorted(
    path
    for folder, kinds in (
        (".", ("*.md",)),
        ("docs", ("**/*.md", "**/*.rst")),
        ("examples", ("**/*.md", "**/*.py", "**/*.ipynb")),
        ("benchmarks", ("**/*.md", "**/*.py")),
        ("syft", ("**/*.py",)),
    )
    for kind in kinds
    for path in (ROOT / folder).glob(kind)
    if "_build" not in path.parts
)


def cells(path: Path) -> set[str]:
    """The cells of a notebook, without the space around them; imports alone are nobody's."""
    stored = json.loads(path.read_text(encoding="utf-8"))["cells"]
    sources = {"".join(cell["source"]).strip() for cell in stored}
    return {source for source in sources if not _is_common(source)}


def _is_common(source: str) -> bool:
    return all(line.startswith(("import ", "from ")) or not line for line in source.splitlines())


def test_nobody_speaks_of_another_project_as_of_this_one() -> None:
    found = {
        path.relative_to(ROOT).as_posix(): match.group()
        for path in PAGES
        if (match := THEIRS.search(path.read_text(encoding="utf-8")))
    }
    assert found == {}


@pytest.mark.parametrize(
    "text",
    ["Authors:\n- one", "Join our Slack!", "http://slack.openmined.org", "## Donate\n"],
)
def test_such_text_is_found(text: str) -> None:
    assert THEIRS.search(text)


@pytest.mark.skipif(not SEEDS.is_dir(), reason="no programs of earlier users lie beside this")
def test_no_cell_is_that_of_an_earlier_program() -> None:
    theirs = {source for seed in SEEDS.glob("*.ipynb") for source in cells(seed)}
    assert theirs
    same = {
        path.name: sorted(cells(path) & theirs)
        for path in (ROOT / "examples").rglob("*.ipynb")
        if cells(path) & theirs
    }
    assert same == {}
