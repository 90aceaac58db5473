"""Which modules reach the objects of a store, and what belongs to a tensor, past its label.

Each list may become shorter and not longer.  What is in no list asks the store for an object.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import cache
from pathlib import Path

import syft

_ROOT = Path(syft.__file__).parent
_REACHING = frozenset(("grad", "_grad", "_base", "grad_fn"))

OBJECTS = {
    "workers/core/charges.py": "counts objects, each as large as is public",
    "workers/core/dataflow.py": "parks operations with the objects that they are to use",
    "workers/core/graphs.py": "finds the objects that an operation has given a graph to",
    "workers/core/owners.py": "reads and writes whose the memory of an object is",
    "workers/core/pipeline.py": "looks which results have a graph",
    "workers/core/stored_tensors.py": "puts successors in the place of moved tensors",
    "workers/core/tag_index.py": "reads tags, by which objects are found",
    "workers/handlers/command_graphs.py": "charges for what the graph of a result keeps",
    "workers/handlers/commands.py": "runs what was predicted; the hot path",
    "workers/handlers/running.py": "runs what was predicted; the hot path",
    "workers/shells/virtual.py": "shows the owner of the worker all objects",
}
"""The modules besides the store that use its table of objects."""


OPENERS = {
    "workers/core/pipeline.py": "opens what may leave, and what runs as it was predicted",
    "workers/core/store_view.py": "finds what runs as it was predicted",
    "workers/handlers/commands.py": "runs what was predicted",
    "workers/execution/leaving.py": "copies with labels, and finds the leaves that graphs end at",
    "workers/handlers/role_runs.py": "runs what was predicted, and sends by the request's door",
    "workers/handlers/role_permits.py": "marks what is of others, and asks whose memory it is",
    "tensors/remote_link.py": "takes what has come home to the worker of the user's program",
    "plans/remote/plan_call.py": "finds a plan, whose state goes to what runs as it was predicted",
}
"""The modules that open what is stored and ask nobody, besides the cell and the store."""

SENDERS = {
    "workers/core/pipeline.py": "asks for every request whether what it sends on may go there",
    "workers/execution/leaving.py": "asks for each gradient that follows a leaf",
    "hooks/sending.py": "asks for what the program of this process sends",
}
"""The modules that ask whether a value may go to another worker; all else leaves through them."""

REACHING = {
    "workers/core/store.py": "notes which results the owner's program may have retain gradients",
    "workers/core/stored_tensors.py": "puts successors in the place of moved gradients",
}
"""The modules at the serving end that name the gradient, the base or the graph of a tensor."""


@cache
def _trees() -> dict[str, ast.Module]:
    paths = sorted(_ROOT.rglob("*.py"))
    return {path.relative_to(_ROOT).as_posix(): ast.parse(path.read_text()) for path in paths}


def _modules_with(is_found: Callable[[ast.AST], bool]) -> set[str]:
    return {name for name, tree in _trees().items() if any(map(is_found, ast.walk(tree)))}


def _last_name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _uses_objects(node: ast.AST) -> bool:
    """Whether this is ``store.objects``, whatever holds the store, or a reference kept to it."""
    if not isinstance(node, ast.Attribute):
        return False
    of_store = node.attr == "objects" and _last_name(node.value) in ("store", "_store")
    return of_store or (node.attr == "_objects" and _last_name(node.value) == "self")


def test_the_table_of_objects_is_used_by_the_listed_modules_alone() -> None:
    assert _modules_with(_uses_objects) == OBJECTS.keys()


_OPENING = {
    "unsealed": None,
    "_unsealed": None,
    "open": ("store", "_store"),
    "object_itself": None,
}
"""Names that open, and of what they are attributes, if that matters."""


def _opens(node: ast.AST) -> bool:
    if not isinstance(node, ast.Attribute | ast.Name) or _last_name(node) not in _OPENING:
        return False
    of = _OPENING[_last_name(node)]
    return of is None or (isinstance(node, ast.Attribute) and _last_name(node.value) in of)


def _reaches(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in _REACHING


def test_the_listed_modules_alone_open_what_is_stored() -> None:
    itself = {"workers/labels/cell.py"}
    assert _modules_with(_opens) - itself == OPENERS.keys()


def test_the_listed_modules_alone_ask_whether_a_value_may_go_elsewhere() -> None:
    """What a request sends passes one step: no handler has a check of its own."""
    named = _modules_with(lambda node: isinstance(node, ast.Name) and node.id == "check_leaving")
    assert named == SENDERS.keys()


def test_the_listed_modules_alone_reach_gradients_and_graphs() -> None:
    places = "workers/core/", "workers/handlers/", "workers/shells/", "workers/sockets/", "node/"
    assert {name for name in _modules_with(_reaches) if name.startswith(places)} == REACHING.keys()
