"""What is known of operations stands in the op table: no other module lists them by name.

Two lists of one fact come to differ.  A table of *rules* is no such list: it says for each
operation what to run in its place, and belongs to those who run it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import syft
from syft.ops.table import NAMES

ROOT = Path(syft.__file__).parent
MOST = 2
"""So many operations may be told apart by name where they are treated; more are a list."""

RULES = {
    "chain/wrapper.py": "the methods of a wrapper that skip torch, and what torch knows them as",
    "chain/chosen_methods.py": "the approximations to choose from, by the functions they compute",
    "crypto/kernels.py": "the kernel of each product of shares",
    "crypto/programs/local_operations.py": "operations on shares, with numbers of their own",
    "plans/building/input_properties.py": "how to read each property that a plan can fix",
    "plans/building/script_module.py": "how TorchScript writes each operation",
    "plans/building/template.py": "kinds of values, no operations",
    "plans/export/graph.py": "the Python operator of each operation in an exported graph",
    "program/code.py": "how the text of a program writes each operation",
    "program/recording/op_facts.py": "functions of a call: parts, and shapes by values",
    "program/recording/symbolic.py": "the arithmetic of symbolic numbers",
    "serde/torch_types.py": "kinds of devices, no operations",
    "tensors/fixed/domains.py": "domain and error bound of each function of fixed precision",
    "tensors/fixed/rings/component_rules.py": "rules of rings, by aten overload",
    "tensors/fixed/rings/ring_link.py": "aten overloads that have no meaning on integers",
    "tensors/fixed/rules/selection.py": "rules of fixed precision, by aten overload",
    "tensors/fixed/rules/shapes.py": "rules of fixed precision, by aten overload",
    "workers/client/device_connection.py": "what a device answers to each question about itself",
    "workers/execution/backward_passes.py": "how each backward function calls its arguments",
    "workers/labels/walk.py": "the parts of a sparse tensor, by layout",
    "workers/execution/public_facts.py": "properties of tensors, some named like operations",
}
"""The files with tables of rules by operation, and what the rules are."""

_FULL = frozenset(NAMES)
_SHORT = frozenset(
    short
    for name in NAMES
    for short in (name.removeprefix("torch."), name.removeprefix("torch.Tensor."))
)


def operations_in(node: ast.AST) -> Iterator[str]:
    """The names of operations in a literal: ``torch.add``, ``"torch.add"``, ``"add mul"``."""
    if isinstance(node, ast.Lambda):
        return
    if isinstance(node, ast.Attribute):
        written = ast.unparse(node)
        if written in _FULL:
            yield written
            return
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        words = node.value.split()
        if all(word in _FULL or _short(word) for word in words):
            yield from words
    for child in ast.iter_child_nodes(node):
        yield from operations_in(child)


def _short(word: str) -> bool:
    return word in _SHORT or word.partition(".")[0] in _SHORT


def lists_in(source: str) -> list[tuple[int, str, int]]:
    """The line and the name of each module-level value that lists operations, and how many."""
    found = []
    for statement in ast.parse(source).body:
        if isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None:
            operations = set(operations_in(statement.value))
            target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
            if len(operations) > MOST:
                found.append((statement.lineno, ast.unparse(target), len(operations)))
    return found


FILES = {
    path.relative_to(ROOT).as_posix(): path
    for path in sorted(ROOT.rglob("*.py"))
    if path.parent != ROOT / "ops"
}


def test_no_list_of_operations_stands_outside_the_op_table() -> None:
    found = {name: lists_in(path.read_text(encoding="utf-8")) for name, path in FILES.items()}
    listing = {name: lists for name, lists in found.items() if lists}
    assert {name: lists for name, lists in listing.items() if name not in RULES} == {}
    assert RULES.keys() - listing.keys() == set(), "these have no list any more"


@pytest.mark.parametrize(
    "source, count",
    [
        ("_A = frozenset((torch.add, torch.Tensor.mul, torch.nn.functional.relu))", 3),
        ("_A: Final = {BY_NAME[f'torch.{name}']: 1 for name in 'cat concat stack'.split()}", 3),
        ("_A = tuple(BY_NAME[name] for name in ('torch.cat', 'torch.add', 'torch.sub'))", 3),
        ("_A = {'aten::add.Tensor', 'aten::sub'}, ('add.Tensor', 'neg', 'sub.Scalar')", 3),
        ("_A = (torch.add, torch.mul)", 0),
        ("_A = {'text': 'to sum up all values'}", 0),
        ("_A = (torch.float32, torch.int8, torch.bool)", 0),
        ("def f():\n    return torch.add, torch.sub, torch.mul", 0),
    ],
)
def test_a_list_is_recognised(source: str, count: int) -> None:
    assert [number for _, _, number in lists_in(source)] == [count] * bool(count)
