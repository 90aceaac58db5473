"""Where things may stand in the source, held by reading it."""

from __future__ import annotations

import ast
import functools
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "syft").rglob("*.py"))


@functools.cache
def tree_of(path: Path) -> ast.Module:
    """Parse a file once for all tests: to parse takes most of their time."""
    return ast.parse(path.read_text(encoding="utf-8"))


# ------------------------------------------------------------------ torch is written to in one file

LEDGER = "syft/hooks/ledger.py"
"""The file that adds attributes to torch's classes, through one function, and undoes it."""


def torch_names(tree: ast.AST) -> set[str]:
    """Name what a module binds to torch or to something inside it."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "torch":
                    names.add(alias.asname or "torch")
        elif isinstance(node, ast.ImportFrom) and not node.level:
            # What torch_private passes on is torch's as well.
            if (node.module or "").split(".")[0] == "torch" or node.module == "syft.torch_private":
                names |= {alias.asname or alias.name for alias in node.names}
    return names


def owner(node: ast.AST) -> str | None:
    """Name the variable that an attribute or item belongs to: ``a`` of ``a.b[0].c``."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


WRITERS = {"setattr", "delattr", "object.__setattr__", "type.__setattr__"}


def called(node: ast.Call) -> str:
    """Name what is called if it is ``a`` or ``a.b``; ast.unparse takes a hundred times as long."""
    function = node.func
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        return f"{function.value.id}.{function.attr}"
    return function.id if isinstance(function, ast.Name) else ""


def targets(node: ast.AST) -> Iterator[ast.AST]:
    """List what a statement or call writes to or deletes."""
    if isinstance(node, ast.Assign | ast.Delete):
        for target in node.targets:
            yield from ast.walk(target)
    elif isinstance(node, ast.AugAssign | ast.AnnAssign | ast.For | ast.NamedExpr):
        yield from ast.walk(node.target)
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        yield from ast.walk(node.optional_vars)
    elif isinstance(node, ast.Call) and called(node) in WRITERS:
        # The first argument owns what is written: setattr(torch, "x", 1).
        yield ast.Attribute(node.args[0], "written", ast.Store())


def writes_to_torch(tree: ast.AST) -> list[int]:
    """Find the lines that assign to an attribute or item of something imported from torch."""
    names = torch_names(tree)
    return [
        node.lineno if hasattr(node, "lineno") else 0
        for node in ast.walk(tree)
        for target in targets(node)
        if isinstance(target, ast.Attribute | ast.Subscript) and owner(target) in names
        if isinstance(target.ctx, ast.Store | ast.Del)
    ]


def test_only_the_ledger_writes_to_torch() -> None:
    found = {
        path.relative_to(ROOT).as_posix(): lines
        for path in SOURCES
        if (lines := writes_to_torch(tree_of(path)))
    }
    assert not found, f"use Ledger.add of {LEDGER}, so that closing the hook undoes it"


@pytest.mark.parametrize(
    "source",
    [
        "import torch\ntorch.add = 1",
        "import torch as t\nt.nn.Module.send = 1",
        "from torch import nn\nnn.Module.send: int = 1",
        "import torch.nn.functional\ntorch.nn.functional.relu += 1",
        "from torch import Tensor\nsetattr(Tensor, 'send', 1)",
        "from torch import Tensor\ndel Tensor.add",
        "import torch\ndelattr(torch.Tensor, 'add')",
        "import torch\ntorch.overrides._cache['x'] = 1",
        "import torch\nx, torch.y = 1, 2",
        "import torch\nobject.__setattr__(torch.nn, 'x', 1)",
        "from syft.torch_private import eval_frame\neval_frame.skip = 1",
    ],
)
def test_a_write_to_torch_is_found(source: str) -> None:
    assert writes_to_torch(ast.parse(source)) != []


@pytest.mark.parametrize(
    "source",
    [
        "import torch\nx = torch.add",
        "import torch\nx = torch.ones(2)\nx.grad = None",
        "import numpy\nnumpy.add = 1",
        "from torch import nn\nmodule = nn.Linear(1, 1)\nmodule.name = 1",
    ],
)
def test_what_is_no_write_to_torch_is_left_alone(source: str) -> None:
    assert writes_to_torch(ast.parse(source)) == []


def writes_to_others(tree: ast.AST) -> list[int]:
    """Find the lines that assign to an attribute of something that a module imported."""
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {alias.asname or alias.name.split(".")[0] for one in imports for alias in one.names}
    return [
        getattr(node, "lineno", 0)
        for node in ast.walk(tree)
        for target in targets(node)
        if isinstance(target, ast.Attribute) and owner(target) in names
        if isinstance(target.ctx, ast.Store | ast.Del)
    ]


def test_no_module_writes_to_what_it_imported() -> None:
    found = {
        path.relative_to(ROOT).as_posix(): lines
        for path in SOURCES
        if (lines := writes_to_others(tree_of(path)))
    }
    assert not found, f"patch by Ledger.replace of {LEDGER}; register by a method of the class"


@pytest.mark.parametrize(
    "source, count",
    [
        ("import sys\nsys.excepthook = print", 1),
        ("from a.b import C\nC.maker = staticmethod(print)", 1),
        ("from a.b import C\ndel C.maker.x", 1),
        ("from a.b import C\nclass D:\n    def f(self):\n        self.C = C", 0),
        ("import sys\nx = sys.excepthook\nsys.modules['x'] = 1", 0),
    ],
)
def test_a_write_to_what_was_imported_is_found(source: str, count: int) -> None:
    assert len(writes_to_others(ast.parse(source))) == count


def test_links_say_whether_a_tensor_is_shared() -> None:
    asking = {
        path.relative_to(ROOT).as_posix()
        for path in SOURCES
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.alias) and node.name == "is_shared"
    }
    assert not asking, "ask the link: first_link(tensor).shared_cell()"


# ------------------------------------------------------------------------- no two modules in a ring

MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in SOURCES
}


def imported_by(name: str, tree: ast.AST, is_package: bool, modules: Iterable[str]) -> set[str]:
    """Name the modules that a module imports: for type checking and inside functions too."""
    package = name if is_package else name.rpartition(".")[0]
    named = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            named += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*above, node.module or ""] if node.level else [node.module or ""])
            base = base.rstrip(".")
            named += [base, *(f"{base}.{alias.name}" for alias in node.names)]
    found = set()
    for candidate in named:
        while candidate and candidate not in modules:
            candidate = candidate.rpartition(".")[0]
        # Importing a package's own parent adds nothing: it is imported already.
        if candidate and candidate != name and not name.startswith(candidate + "."):
            found.add(candidate)
    return found


def rings(graph: dict[str, set[str]]) -> list[list[str]]:
    """Find the sets of modules that import each other, directly or not."""

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        stack = [start]
        while stack:
            for name in graph[stack.pop()] - seen:
                seen.add(name)
                stack.append(name)
        return seen

    beyond = {name: reached(name) for name in graph}
    return sorted(
        {
            tuple(sorted(other for other in beyond[name] if name in beyond[other]))
            for name in graph
            if name in beyond[name]
        }
    )  # type: ignore[return-value]


def test_no_modules_import_each_other() -> None:
    graph = {
        name: imported_by(name, tree_of(path), path.name == "__init__.py", MODULES)
        for name, path in MODULES.items()
    }
    assert sum(map(len, graph.values())) > 500
    assert rings(graph) == []


def test_a_ring_is_found_also_where_imports_hide() -> None:
    modules = ["p", "p.a", "p.b", "p.c"]
    hidden = "def f():\n    from . import b"
    typing = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import p.a.x"
    graph = {
        "p": set(),
        "p.a": imported_by("p.a", ast.parse(hidden), False, modules),
        "p.b": imported_by("p.b", ast.parse(typing), False, modules),
        "p.c": imported_by("p.c", ast.parse("from p.a import f"), False, modules),
    }
    assert rings(graph) == [("p.a", "p.b")]


# --------------------------------------------------------------------------- no name stands twice

PLAIN = {"__init__.py"}


def doubles(names: Iterable[str]) -> list[str]:
    return sorted(name for name, count in Counter(names).items() if count > 1)


def test_no_two_modules_have_one_name() -> None:
    assert doubles(path.name for path in SOURCES if path.name not in PLAIN) == []


def test_no_two_classes_have_one_name() -> None:
    classes = [
        node.name
        for path in SOURCES
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ClassDef)
    ]
    assert doubles(classes) == []


# ---------------------------------------------------------------------------------- size and shape

FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
BRANCH = (ast.If, ast.For, ast.While, ast.ExceptHandler, ast.IfExp, ast.Assert)
MOST_COMPLEX = 0.01
"""The share of functions that may have a McCabe complexity over 10."""


def complexity(function: ast.AST) -> int:
    """The number of ways through a function: one, and one more for each decision in it."""
    count = 1
    for node in ast.walk(function):
        if isinstance(node, BRANCH):
            count += 1
        elif isinstance(node, ast.BoolOp):
            count += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            count += 1 + len(node.ifs)
        elif isinstance(node, ast.match_case):
            count += 1
    return count


def asks_type(test: ast.AST) -> bool:
    """Whether a condition asks for the type of something."""
    for node in ast.walk(test):
        if isinstance(node, ast.Call) and called(node) in ("isinstance", "issubclass"):
            return True
        if isinstance(node, ast.Compare) and "type(" in ast.unparse(node.left):
            return True
    return False


def longest_ladder(function: ast.AST) -> int:
    """The most questions for a type in a row: in one if/elif chain, or in ifs that follow."""
    longest = 0
    for node in ast.walk(function):
        for body in (getattr(node, field, None) for field in ("body", "orelse")):
            run = 0
            for statement in body if isinstance(body, list) else ():
                if not isinstance(statement, ast.If):
                    run = 0
                    continue
                chain: ast.stmt | None = statement
                asked = 0
                while isinstance(chain, ast.If):
                    asked += asks_type(chain.test)
                    chain = chain.orelse[0] if len(chain.orelse) == 1 else None
                run = run + asked if asked else 0
                longest = max(longest, run)
    return longest


def functions() -> Iterator[tuple[str, ast.AST]]:
    for path in SOURCES:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, FUNCTION):
                yield f"{path.relative_to(ROOT)}:{node.lineno} {node.name}", node


def test_functions_are_simple() -> None:
    found = {name: complexity(node) for name, node in functions()}
    complex_ones = {name: count for name, count in found.items() if count > 10}
    assert len(complex_ones) <= MOST_COMPLEX * len(found), complex_ones


def test_no_ladder_of_more_than_three_type_questions() -> None:
    ladders = {name: count for name, node in functions() if (count := longest_ladder(node)) > 3}
    assert ladders.keys() <= set(), ladders


def test_modules_are_short() -> None:
    lines = {path.name: path.read_text("utf-8").count("\n") for path in SOURCES}
    assert {name: count for name, count in lines.items() if count > 600} == {}


@pytest.mark.parametrize(
    "source, count",
    [
        ("def f(x):\n    if isinstance(x, int):\n        return 1\n    return 2", 1),
        (
            "def f(x):\n    if type(x) is int:\n        a\n    elif type(x) is str:\n        b",
            2,
        ),
        ("def f(x):\n    if x:\n        pass\n    if isinstance(x, int):\n        pass", 1),
        ("def f(x):\n" + "    if isinstance(x, int):\n        return\n" * 4, 4),
    ],
)
def test_questions_for_types_are_counted(source: str, count: int) -> None:
    assert longest_ladder(ast.parse(source)) == count


def test_decisions_are_counted() -> None:
    source = "def f(x):\n    if x and 1:\n        return [y for y in x if y]\n    return x or 2"
    assert complexity(ast.parse(source).body[0]) == 6
