"""Changes the code in one place at a time, and lists the changes that no test sees.

    python -m tools.mutants                     all rooms of tools/mutants.toml
    python -m tools.mutants guards --share=0.2  one room, every fifth change, others each time
    python -m tools.mutants --list limits       the changes, and nothing is run

A line that runs under test may still be wrong: a guard that is never met by what it refuses, a copy
that nobody writes to, a limit that nothing reaches.  So the changes are those of guards, of flags
that choose between a copy and an alias, and of limits (``CHANGES``); the rooms name the modules.

Pytest collects the tests of a room once.  A child process runs all of them, and notes which lines
each runs.  Each change then has a child of its own, in which one function object gets other code,
and which runs the tests that reach the changed line, the quickest first, until one fails.  So a
change costs what its tests cost: nothing is imported again, and no file is written.  What only
workers in other processes run is not reached, since these import the code that is there.

A change that cannot be seen stands in the file with its reason.  tests/test_mutants.py looks for
those that no function has any more.
"""

from __future__ import annotations

import argparse
import ast
import copy
import functools
import gc
import json
import os
import random
import signal
import sys
import tempfile
import tomllib
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import coverage
import pytest

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "tools" / "mutants.toml"

COPIES = {"clone", "detach", "contiguous", "copy"}
"""Methods whose result is left out: what they are called on takes its place."""
COPYING = {"copy_of", "plain_copy", "deepcopy"}
"""Functions whose result is left out: their first argument takes its place."""
UNSEEN = {"__repr__", "__str__", "_repr_html_"}
"""Functions that only show something."""

OPTIONS = (
    *("-s", "-p", "no:cacheprovider", "-p", "no:xdist"),
    *("-m", "not soak and not database", "--examples=0.25", "--seed=1"),
)
"""How pytest collects: one process, and of like cases those in this process."""

Node = ast.AST


class Change(NamedTuple):
    """A change of one place: a node of a module, by its number, becomes another, by its turn."""

    file: str
    function: str
    line: int
    text: str
    node: int
    turn: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.function}: {self.text}"


# ----------------------------------------------------------------------------------- what changes


def _flag(node: ast.keyword) -> Iterator[Node]:
    """``copy=True`` becomes ``copy=False``."""
    if isinstance(node.value, ast.Constant) and isinstance(node.value.value, bool):
        yield ast.keyword(node.arg, ast.Constant(not node.value.value))


def _call(node: ast.Call) -> Iterator[Node]:
    """``x.clone()`` becomes ``x``, ``copy_of(x)`` becomes ``x``, ``min`` becomes ``max``."""
    called = node.func
    if isinstance(called, ast.Attribute) and called.attr in COPIES and not node.args:
        yield called.value
    if isinstance(called, ast.Name) and called.id in COPYING and node.args:
        yield node.args[0]
    if isinstance(called, ast.Name) and called.id in ("min", "max"):
        other = "max" if called.id == "min" else "min"
        yield ast.Call(ast.Name(other, ast.Load()), node.args, node.keywords)


def _either(node: ast.BoolOp) -> Iterator[Node]:
    """``a or b`` becomes ``a``, and ``b``."""
    for left_out in range(len(node.values)):
        rest = [value for at, value in enumerate(node.values) if at != left_out]
        yield rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)


_OTHER: dict[type[ast.cmpop], type[ast.cmpop]] = {
    **{ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Lt: ast.LtE, ast.LtE: ast.Lt},
    **{ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is},
    **{ast.In: ast.NotIn, ast.NotIn: ast.In},
}


def _compare(node: ast.Compare) -> Iterator[Node]:
    """``a > b`` becomes ``a >= b``, ``is`` becomes ``is not``, ``a + b > c`` becomes ``a > c``."""
    if len(node.ops) != 1:
        return
    yield ast.Compare(node.left, [_OTHER[type(node.ops[0])]()], node.comparators)
    if isinstance(node.left, ast.BinOp) and isinstance(node.left.op, ast.Add):
        for side in (node.left.left, node.left.right):
            yield ast.Compare(side, node.ops, node.comparators)


def _negation(node: ast.UnaryOp) -> Iterator[Node]:
    """``not a`` becomes ``a``."""
    if isinstance(node.op, ast.Not):
        yield node.operand


def _branch(node: ast.If) -> Iterator[Node]:
    """What a guard does is left out: its condition is never met."""
    yield ast.If(ast.Constant(False), node.body, node.orelse)


def _choice(node: ast.IfExp) -> Iterator[Node]:
    """``a if c else b`` becomes ``b``, and ``a``."""
    yield node.orelse
    yield node.body


def _step(node: ast.Expr) -> Iterator[Node]:
    """A call for its effect is left out."""
    if isinstance(node.value, ast.Call):
        yield ast.Pass()


CHANGES: dict[type[Node], Callable[[Any], Iterator[Node]]] = {
    ast.keyword: _flag,
    ast.Call: _call,
    ast.BoolOp: _either,
    ast.Compare: _compare,
    ast.UnaryOp: _negation,
    ast.If: _branch,
    ast.IfExp: _choice,
    ast.Expr: _step,
}
"""What becomes of a node of each kind."""


def _inside(function: Node) -> Iterator[Node]:
    """The nodes of a function, without decorators, annotations and what is only told in errors."""
    todo = [function]
    while todo:
        node = todo.pop()
        yield node
        if isinstance(node, ast.Raise | ast.JoinedStr | ast.Assert):
            continue
        for name, value in ast.iter_fields(node):
            if name in ("decorator_list", "annotation", "returns", "args") and not isinstance(
                node, ast.Call
            ):
                continue
            todo += [
                each
                for each in (value if isinstance(value, list) else [value])
                if isinstance(each, ast.AST)
            ]


def _functions(tree: Node, within: str = "") -> Iterator[tuple[str, Node]]:
    """The outermost functions of a module, with the names that their code has."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if node.name not in UNSEEN:
                yield within + node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{within}{node.name}.")
        elif isinstance(node, ast.If | ast.Try):
            yield from _functions(node, within)


def _said(node: Node) -> str:
    """A node as it stands in the list of changes: one line."""
    if isinstance(node, ast.If):
        return f"if {ast.unparse(node.test)}"
    return " ".join(ast.unparse(node).split())


def changes_of(file: str, source: str) -> list[Change]:
    """Every change of a module.

    >>> [change.text for change in changes_of("m.py", "def f(x):\\n    return x.clone()")]
    ['x.clone() -> x']
    """
    tree = ast.parse(source)
    number = {id(node): index for index, node in enumerate(ast.walk(tree))}
    found = []
    for name, function in _functions(tree):
        for node in _inside(function):
            make = CHANGES.get(type(node))
            for turn, other in enumerate(make(node) if make else ()):
                text = f"{_said(node)} -> {_said(other)}"
                line = getattr(node, "lineno", getattr(function, "lineno", 0))
                found.append(Change(file, name, line, text, number[id(node)], turn))
    return sorted(found, key=lambda change: (change.line, change.text))


def changed(tree: ast.Module, change: Change) -> ast.Module:
    """A copy of a module with a change made; lines keep their numbers."""
    tree = copy.deepcopy(tree)
    nodes = list(ast.walk(tree))
    old = nodes[change.node]
    new = list(CHANGES[type(old)](old))[change.turn]
    ast.copy_location(new, old)
    for parent in nodes:
        for name, value in ast.iter_fields(parent):
            if value is old:
                setattr(parent, name, new)
            elif isinstance(value, list):
                value[:] = [new if each is old else each for each in value]
    return ast.fix_missing_locations(tree)


def _code_named(module: CodeType, like: CodeType) -> CodeType | None:
    """The code inside that of a module which has the name and the line of another."""
    for inner in module.co_consts:
        if isinstance(inner, CodeType):
            same = inner.co_qualname == like.co_qualname
            if same and inner.co_firstlineno == like.co_firstlineno:
                return inner
            found = _code_named(inner, like)
            if found is not None:
                return found
    return None


# ------------------------------------------------------------------------------------ who sees it


class Room(NamedTuple):
    """Modules that are changed, and the folders of the tests that are to see it."""

    name: str
    modules: tuple[str, ...]
    tests: tuple[str, ...]


class Known(NamedTuple):
    """What the file says: the rooms, and the changes that cannot be seen."""

    rooms: dict[str, Room]
    equivalent: set[tuple[str, str, str]]


def known(path: Path = TABLE) -> Known:
    """Read the file.

    >>> "guards" in known().rooms
    True
    """
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    rooms = {
        name: Room(name, tuple(room["modules"]), tuple(room["tests"]))
        for name, room in table["room"].items()
    }
    same = {(one["file"], one["function"], one["change"]) for one in table.get("equivalent", [])}
    return Known(rooms, same)


class Search:
    """A plugin of pytest: in place of the tests it runs the changes of a room."""

    def __init__(self, room: Room, changes: Sequence[Change], folder: Path) -> None:
        self.room, self.changes = room, changes
        self.unseen: list[tuple[Change, str]] = []
        self._lines, self._failed = folder / "lines.json", folder / "failed"
        self._sound: set[str] = set()
        """Tests that passed without a change in the place where they failed with one."""
        self._unsound: set[str] = set()
        self._reported: list[pytest.TestReport] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Try every change."""
        items = {item.nodeid: item for item in session.items}
        trees = {file: ast.parse((ROOT / file).read_text("utf-8")) for file in self.room.modules}
        _in_child(lambda: self._note_lines(session), 7200)
        noted = json.loads(self._lines.read_text())
        times = noted["times"]
        _say(f"{self.room.name}: {len(self.changes)} changes, {len(times)} tests")
        for name in noted["broken"]:
            _say(f"left out, since it fails without a change: {name}")
        for number, change in enumerate(self.changes, 1):
            names = noted["tests"].get(change.file, {}).get(str(change.line), [])
            names = sorted((name for name in names if name in times), key=times.__getitem__)
            if not self._is_seen(change, trees[change.file], [items[name] for name in names]):
                why = f"{len(names)} tests pass" if names else "no test runs it"
                self.unseen.append((change, why))
                _say(f"{number}/{len(self.changes)} {change}  [{why}]")
        return True

    def _note_lines(self, session: pytest.Session) -> int:
        """Which tests run which line, and how long those take that pass."""
        files = {str(ROOT / file): file for file in self.room.modules}
        measured = coverage.Coverage(data_file=None, include=list(files), config_file=False)
        times: dict[str, float] = {}
        broken = []
        measured.start()
        for item, after in zip(session.items, [*session.items[1:], None], strict=True):
            measured.switch_context(item.nodeid)
            reports = self._reports(item, after)
            if all(report.passed for report in reports):
                times[item.nodeid] = sum(report.duration for report in reports)
            elif any(report.failed for report in reports):
                broken.append(item.nodeid)
        measured.stop()
        data = measured.get_data()
        tests = {
            name: data.contexts_by_lineno(file)
            for file, name in files.items()
            if file in data.measured_files()
        }
        self._lines.write_text(json.dumps({"tests": tests, "times": times, "broken": broken}))
        return 0

    def _is_seen(self, change: Change, tree: ast.Module, items: list[pytest.Item]) -> bool:
        """Whether a test fails with a change that passes in the same place without it.

        Some tests pass only after others: torch gives some warnings once in a process.
        """
        while items := [item for item in items if item.nodeid not in self._unsound]:
            self._failed.write_text("")
            attempt = functools.partial(self._try, change, tree, items)
            if _in_child(attempt, _patience(items)) == 0:
                return False
            name = self._failed.read_text()
            if not name or name in self._sound:  # it did not end, or ended the process
                return True
            until = [item.nodeid for item in items].index(name) + 1
            before = items[:until]
            if _in_child(functools.partial(self._run, before), _patience(before)) == 0:
                self._sound.add(name)
                return True
            self._unsound.add(name)
        return False

    def _try(self, change: Change, tree: ast.Module, items: Sequence[pytest.Item]) -> int:
        """Make a change and run its tests, in a child process: 0 if all pass."""
        path = str(ROOT / change.file)
        whole = compile(changed(tree, change), path, "exec", dont_inherit=True)
        for function in [each for each in gc.get_objects() if type(each) is FunctionType]:
            code = function.__code__
            if code.co_filename == path and code.co_qualname == change.function:
                function.__code__ = _code_named(whole, code) or code
        return self._run(items)

    def _run(self, items: Sequence[pytest.Item]) -> int:
        """Run tests until one fails, and note which: 0 if all pass."""
        for item, after in zip(items, [*items[1:], None], strict=True):
            if any(report.failed for report in self._reports(item, after)):
                self._failed.write_text(item.nodeid)
                return 1
        return 0

    def _reports(self, item: pytest.Item, after: pytest.Item | None) -> list[pytest.TestReport]:
        """Run a test as pytest does, and return what it reports."""
        self._reported.clear()
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
        return list(self._reported)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what a test reports."""
        self._reported.append(report)


def _patience(items: Sequence[pytest.Item]) -> float:
    """Seconds after which tests are taken to wait for ever."""
    return 60 + 2 * len(items)


_BROKEN = 3
"""The status of a child process in which the search itself failed, and not a test."""


def _in_child(work: Callable[[], int], seconds: float) -> int:
    """Run something in a fork of this process: 0 if it returned that.

    Raises RuntimeError if it raised, which no test does: else that would pass for a failed test.
    """
    child = os.fork()
    if not child:
        os.setpgid(0, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(int(seconds))
        told = os.dup(2)
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        status = _BROKEN
        try:
            status = work()
        except Exception:
            os.write(told, traceback.format_exc().encode())
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    try:
        os.killpg(child, signal.SIGKILL)  # what its tests started and did not end
    except ProcessLookupError:
        pass
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) == _BROKEN:
        raise RuntimeError("the search failed in a child process, which said why")
    return status


def _say(text: str) -> None:
    print(text, flush=True)


# ------------------------------------------------------------------------------------ the program


def search(room: Room, changes: Sequence[Change]) -> list[tuple[Change, str]]:
    """The changes that no test of a room sees, each with what was tried."""
    with tempfile.TemporaryDirectory() as folder:
        found = Search(room, changes, Path(folder))
        status = pytest.main([*OPTIONS, *room.tests, *room.modules], plugins=[found])
    if status:
        raise SystemExit(f"pytest could not collect the tests of {room.name}: {status!r}")
    return found.unseen


def main(arguments: Sequence[str]) -> int:
    """Run what the arguments ask for; 1 if a change is not seen and not listed."""
    parser = argparse.ArgumentParser(description="Changes of the code that no test sees.")
    parser.add_argument("rooms", nargs="*", metavar="ROOM")
    parser.add_argument("--share", type=float, default=1.0, help="of the changes, drawn anew")
    parser.add_argument("--only", default="", help="changes whose description contains this")
    parser.add_argument("--list", action="store_true", help="name the changes and run nothing")
    asked = parser.parse_args(arguments)
    table = known()
    unseen = []
    for name in asked.rooms or table.rooms:
        room = table.rooms[name]
        changes = [
            change
            for file in room.modules
            for change in changes_of(file, (ROOT / file).read_text(encoding="utf-8"))
            if (change.file, change.function, change.text) not in table.equivalent
            if asked.only in str(change) and random.random() < asked.share
        ]
        if asked.list:
            print(*changes, sep="\n")
        else:
            unseen += search(room, changes)
    if not asked.list:
        _say(f"{len(unseen)} changes that no test sees" + "".join(f"\n{c}" for c, _ in unseen))
    return bool(unseen)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
