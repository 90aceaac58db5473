"""Names that examples in docstrings share: a plugin of pytest.

An example starts where its reader is: torch is imported, hooked, and some workers are there.  Only
what an example reads is made, because a hook changes torch.  Refused: a dictionary that makes names
when they are looked up; Python runs examples with a plain one.
"""

from __future__ import annotations

import ast
import doctest
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
import torch

import syft as sy


@pytest.fixture
def doctest_namespace(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The names an example in a docstring may use without making them.

    ``torch`` and ``sy`` are there always, ``hook`` and the workers ``alice``, ``bob`` and
    ``carol`` if it reads them before it makes its own.  A page (``*.md``) shows all that its reader
    has to type, so it is given nothing.
    """
    if request.node.path.suffix != ".py":
        return {}
    return names_for(request.node.dtest)


def names_for(test: doctest.DocTest) -> dict[str, Any]:
    """What the namespace holds for one example; the hook it may make is for the caller to close."""
    names: dict[str, Any] = {"torch": torch, "sy": sy}
    needed = names_read([example.source for example in test.examples])
    if needed & {"hook", "alice", "bob", "carol"}:
        hook = names["hook"] = sy.TorchHook(torch)
        for name in needed & {"alice", "bob", "carol"}:
            names[name] = sy.VirtualWorker(hook, id=name)
    return names


def names_read(sources: Iterable[str]) -> set[str]:
    """The names that statements, run one after the other, read before they are bound."""
    read: set[str] = set()
    bound: set[str] = set()
    for source in sources:
        try:
            nodes = list(ast.walk(ast.parse(source)))
        except SyntaxError:  # an example may show one
            continue
        arguments = {node.arg for node in nodes if isinstance(node, ast.arg)}
        loaded = {node.id for node in nodes if isinstance(node, ast.Name) and is_read(node)}
        read |= loaded - bound - arguments
        bound |= {name for node in nodes for name in names_bound(node)}
    return read


def is_read(node: ast.Name) -> bool:
    """Whether a name is looked up where it stands."""
    return isinstance(node.ctx, ast.Load)


def names_bound(node: ast.AST) -> Iterator[str]:
    """The name that a node of some code binds, if it does."""
    if isinstance(node, ast.Name) and not is_read(node):
        yield node.id
    elif isinstance(node, ast.alias):
        yield (node.asname or node.name).partition(".")[0]
    elif isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name
