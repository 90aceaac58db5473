"""The changes that ``make mutants`` makes, and the list of those that nothing can see."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from tools import mutants

SOURCE = '''
class Guarded:
    @staticmethod
    def shown(x, limit=True):
        """What is shown."""
        def inner():
            return x
        if x is None or not limit:
            raise ValueError(f"{x or limit}")
        protect(x)
        return inner().clone() if limit > 3 else copy_of(x, deep=False)

    def __repr__(self):
        return "" or "x"
'''

EXPECTED = """
x is None or not limit -> not limit
x is None or not limit -> x is None
x is None -> x is not None
not limit -> limit
if x is None or not limit -> if False
protect(x) -> pass
inner().clone() if limit > 3 else copy_of(x, deep=False) -> copy_of(x, deep=False)
inner().clone() if limit > 3 else copy_of(x, deep=False) -> inner().clone()
limit > 3 -> limit >= 3
inner().clone() -> inner()
copy_of(x, deep=False) -> x
deep=False -> deep=True
"""


def test_the_changes_of_a_module() -> None:
    """None of what is only shown or told: docstrings, texts of errors, ``__repr__``."""
    found = mutants.changes_of("m.py", SOURCE)
    assert {change.text for change in found} == set(EXPECTED.strip().splitlines())
    assert {change.function for change in found} == {"Guarded.shown"}


@pytest.mark.parametrize(
    "expression, texts",
    [
        ("x.copy(deep)", set()),
        ("min(x, y)", {"min(x, y) -> max(x, y)"}),
        ("a + b > c", {"a + b > c -> a + b >= c", "a + b > c -> a > c", "a + b > c -> b > c"}),
        ("a < b < c", set()),
        ("f(x=1, y=True)", {"y=True -> y=False"}),
        ("-x", set()),
        ("a and b and c", {f"a and b and c -> {two}" for two in ("b and c", "a and c", "a and b")}),
    ],
)
def test_the_changes_of_an_expression(expression: str, texts: set[str]) -> None:
    found = mutants.changes_of("m.py", f"def f():\n    return {expression}")
    assert {change.text for change in found} == texts


def code_in(module: Any) -> CodeType:
    code = compile(module, "m.py", "exec")
    (cls,) = (each for each in code.co_consts if isinstance(each, CodeType))
    return next(each for each in cls.co_consts if isinstance(each, CodeType))


def test_each_change_is_made_in_one_place_and_keeps_the_lines() -> None:
    tree = ast.parse(SOURCE)
    before = ast.unparse(tree)
    for change in mutants.changes_of("m.py", SOURCE):
        new = mutants.changed(tree, change)
        assert ast.unparse(new) != before, change
        code = code_in(new)
        assert code.co_qualname == change.function
        assert mutants._code_named(compile(new, "m.py", "exec"), code_in(tree)) is not None
    assert ast.unparse(tree) == before


def test_what_cannot_be_seen_is_still_there_and_has_a_reason() -> None:
    table = mutants.known()
    there = {
        (change.file, change.function, change.text)
        for room in table.rooms.values()
        for file in room.modules
        for change in mutants.changes_of(file, (mutants.ROOT / file).read_text(encoding="utf-8"))
    }
    assert table.equivalent <= there
    listed = tomllib.loads(mutants.TABLE.read_text(encoding="utf-8")).get("equivalent", [])
    assert len(listed) == len(table.equivalent), "each once"
    assert all(len(one["reason"]) > 20 for one in listed)


def test_the_modules_and_tests_of_the_rooms_are_there() -> None:
    for room in mutants.known().rooms.values():
        for name in (*room.modules, *room.tests):
            assert (mutants.ROOT / name).exists(), name


LIMITED = """
def limited(x):
    if x > 3:
        return None
    return x
"""

TEST = """
from limited import limited

def test_it():
    assert limited(2) == 2 and limited(4) is None

def test_that_fails_anyway():
    assert limited(2) == 5
"""

PROGRAM = """
from pathlib import Path
from tools import mutants
mutants.ROOT, mutants.OPTIONS = Path.cwd(), ("-s", "-p", "no:cacheprovider")
room = mutants.Room("small", ("limited.py",), ("test_limited.py",))
changes = mutants.changes_of("limited.py", Path("limited.py").read_text())
unseen = mutants.search(room, changes)
print(*(change.text for change, _ in unseen), sep="; ")
"""


def test_a_change_that_a_test_sees_is_told_from_one_that_none_sees(tmp_path: Path) -> None:
    """The whole run, in a process and a folder of its own."""
    for name, text in (("limited", LIMITED), ("test_limited", TEST), ("program", PROGRAM)):
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    env = {**os.environ, "PYTHONPATH": str(mutants.ROOT)}
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert done.stdout.splitlines()[-1] == "x > 3 -> x >= 3", done.stdout + done.stderr
    assert "it fails without a change: test_limited.py::test_that_fails_anyway" in done.stdout


def test_what_fails_in_the_search_itself_is_no_failed_test(capfd: Any) -> None:
    def fails() -> int:
        raise LookupError("of the search")

    with pytest.raises(RuntimeError, match="the search failed"):
        mutants._in_child(fails, 60)
    assert "LookupError: of the search" in capfd.readouterr().err
    assert mutants._in_child(lambda: 0, 60) == 0 and mutants._in_child(lambda: 1, 60) != 0
