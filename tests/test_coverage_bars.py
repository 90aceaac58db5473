"""The bars for lines and for branches, of the report that coverage.py itself writes."""

from __future__ import annotations

import json
from pathlib import Path

import coverage
import pytest

from tools import coverage_bars

ONE_WAY = """
def chosen(x):
    if x:
        x = 1
    return x
chosen(1)
"""
BOTH_WAYS = f"{ONE_WAY}chosen(0)"
NOT_ALL = f"{ONE_WAY}if chosen(0):\n    chosen(2)"


def measured(source: str, folder: Path) -> str:
    """A program runs, and its report is written."""
    (folder / "program.py").write_text(source)
    measured = coverage.Coverage(data_file=None, branch=True, config_file=False)
    with measured.collect():
        exec(compile(source, str(folder / "program.py"), "exec"), {})
    measured.json_report(outfile=str(folder / "report.json"), include=[str(folder / "*")])
    return str(folder / "report.json")


@pytest.mark.parametrize(
    "source, lines, branches, told",
    [
        (ONE_WAY, 100, 50, []),
        (ONE_WAY, 100, 50.1, ["50.000 % of the branches ran, and the bar is 50.1 %"]),
        (BOTH_WAYS, 100, 100, []),
        (NOT_ALL, 85.7, 75, []),
        (NOT_ALL, 85.8, 75, ["85.714 % of the lines ran, and the bar is 85.8 %"]),
    ],
    ids=["one way", "a bar for branches", "both ways", "lines too", "a bar for lines"],
)
def test_lines_and_branches_have_a_bar_each(
    source: str, lines: float, branches: float, told: list[str], tmp_path: Path
) -> None:
    report = measured(source, tmp_path)
    found = coverage_bars.main([report, f"--lines={lines}", f"--branches={branches}"])
    assert found.splitlines() == told


def test_nearly_all_is_not_all(tmp_path: Path) -> None:
    """One line of a hundred thousand: no bar is rounded."""
    shares = {"percent_statements_covered": 99.999, "percent_branches_covered": 100.0}
    (tmp_path / "report.json").write_text(json.dumps({"totals": shares}))
    found = coverage_bars.main([str(tmp_path / "report.json"), "--lines=100", "--branches=100"])
    assert found == "99.999 % of the lines ran, and the bar is 100 %"
