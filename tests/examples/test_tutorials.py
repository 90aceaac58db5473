"""The tutorials: each runs from top to bottom, and says what its text promises."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import syft as sy
from tests.plans.notebook import code_cells, run_cell

TUTORIALS = Path(__file__).parents[2] / "examples" / "tutorials"

SHOWN = Path(__file__).parent / "shown"
"""By tutorial a file: what it must show, in this order, a regular expression a line."""


ALWAYS = {
    "00_start_here",
    "08_introduction_to_plans",
    "09_encrypted_programs",
    "10_federated_learning_secure_aggregation",
    "11_encrypted_classification",
    "26_private_data",
    "27_plans_that_train",
    "28_branches_and_loops",
    "29_messages_in_bulk",
    "30_workers_in_other_processes",
}
"""What `make test` runs each time: what each of the others shows, tests of its parts hold too, so
some of them are drawn."""


def tutorials() -> Iterator[Any]:
    """Every tutorial, with its marks."""
    for name in sorted(file.stem for file in SHOWN.glob("*.txt")):
        drawn = [] if name in ALWAYS else [pytest.mark.database(together="tutorials")]
        yield pytest.param(name, marks=drawn)


@pytest.mark.parametrize("name", list(tutorials()))
def test_a_tutorial_runs_and_shows_what_it_promises(name: str, hook: sy.TorchHook) -> None:
    names: dict[str, Any] = {}
    shown = ""
    for number, source in enumerate(code_cells(TUTORIALS / f"{name}.ipynb")):
        shown += run_cell(source, names, f"{name}, cell {number}")
    names.clear()
    for worker in hook.local_worker.network.workers.values():
        worker.clear_objects()  # what the owner of the data held, in the story
    position = 0
    for pattern in (SHOWN / f"{name}.txt").read_text().splitlines():
        found = re.compile(pattern, re.MULTILINE).search(shown, position)
        assert found is not None, f"{pattern!r} is not in\n{shown[position:]}"
        position = found.end()


def test_every_tutorial_is_run() -> None:
    there = {path.stem for path in TUTORIALS.glob("*.ipynb")}
    assert there == {file.stem for file in SHOWN.glob("*.txt")}


@pytest.mark.parametrize("name", sorted(path.stem for path in TUTORIALS.glob("*.ipynb")))
def test_a_tutorial_is_stored_as_it_ran_from_top_to_bottom(name: str) -> None:
    cells = json.loads((TUTORIALS / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert any(cell["outputs"] for cell in code)
