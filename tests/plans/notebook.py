"""Running a notebook's cells in order, in one namespace, and what each displays.

A cell shows what it prints, and the value of its last line if that is an expression.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
from pathlib import Path
from typing import Any


def code_cells(path: Path) -> list[str]:
    """The source of every code cell."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def run_cell(source: str, names: dict[str, Any], label: str) -> str:
    """Run one cell; returns what a notebook would show beneath it."""
    tree = ast.parse(source, label)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, label, "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), label, "eval"), names)
            if value is not None:
                print(repr(value))
    return printed.getvalue()
