"""Running a notebook's cells in order, in one namespace, and what each displays.

A cell shows what it prints, and the value of its last line if that is an expression.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import json
import linecache
from pathlib import Path
from typing import Any


def code_cells(path: Path) -> list[str]:
    """The source of every code cell."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def run_cell(source: str, names: dict[str, Any], label: str) -> str:
    """Run one cell; returns what a notebook would show beneath it."""
    tree = ast.parse(source, label)
    names.setdefault("__name__", "__main__")
    linecache.cache[label] = len(source), None, source.splitlines(keepends=True), label
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        _run(tree, label, "exec", names)
        if isinstance(last, ast.Expr):
            value = _run(ast.Expression(last.value), label, "eval", names)
            if value is not None:
                print(repr(value))
    return printed.getvalue()


def _run(tree: Any, label: str, mode: str, names: dict[str, Any]) -> Any:
    """Run code that may ``await``, as cells may."""
    value = eval(compile(tree, label, mode, ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
    return asyncio.run(_awaited(value)) if inspect.iscoroutine(value) else value


async def _awaited(value: Any) -> Any:
    return await value
