"""Where things may stand in the source, held by reading it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "syft").rglob("*.py"))

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


def targets(node: ast.AST) -> Iterator[ast.AST]:
    """List what a statement or call writes to or deletes."""
    if isinstance(node, ast.Assign | ast.Delete):
        for target in node.targets:
            yield from ast.walk(target)
    elif isinstance(node, ast.AugAssign | ast.AnnAssign | ast.For | ast.NamedExpr):
        yield from ast.walk(node.target)
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        yield from ast.walk(node.optional_vars)
    elif isinstance(node, ast.Call) and ast.unparse(node.func) in {
        *("setattr", "delattr", "object.__setattr__", "type.__setattr__"),
    }:
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
        if (lines := writes_to_torch(ast.parse(path.read_text(encoding="utf-8"))))
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
