"""The cases that are known to fail, from two tables, and how the tests treat them.

``exceptions.txt`` is of tensors of other kinds, ``program_exceptions.txt`` of recorded programs.  A
case in a table must fail: once it passes, its row has to go, so the tables can only shrink.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

MOST_ROWS = {"exceptions.txt": 37, "program_exceptions.txt": 12}
"""How many rows each table may have. Lower it when rows go; it is never raised."""


def read(table: str) -> dict[str, str]:
    """The reasons, by ``kind/case``."""
    rows: dict[str, str] = {}
    for line in (Path(__file__).parent / table).read_text().splitlines():
        if line and not line.startswith("#"):
            name, reason = line.split(" | ")
            assert name not in rows, f"{name} is in the table twice"
            rows[name] = reason
    return rows


TABLES = {table: read(table) for table in MOST_ROWS}
REASONS = {name: reason for rows in TABLES.values() for name, reason in rows.items()}


def parameters(kind: str, cases: Iterable[tuple[str, Any]]) -> list[Any]:
    """The named cases as parameters of a test; the listed ones are marked as failing.

    Each is marked as of a database, too, with its kind: of each kind a sample has some cases.
    """
    made = []
    for name, case in cases:
        reason = REASONS.get(f"{kind}/{name}")
        failing = [pytest.mark.xfail(reason=reason, strict=True)] if reason is not None else []
        made.append(pytest.param(case, id=name, marks=[pytest.mark.database(kind), *failing]))
    return made


def share_passing(kind: str, operators: dict[str, set[str]]) -> float:
    """The share of ``operators`` (the names of their cases, by operator) with no case listed."""
    failing = {row.removeprefix(f"{kind}/") for row in REASONS if row.startswith(f"{kind}/")}
    return sum(not cases & failing for cases in operators.values()) / len(operators)
