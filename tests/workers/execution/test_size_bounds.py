"""No operation reads and makes much more than its bound says."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

from syft.ops.nested import leaves
from syft.ops.table import (
    BOUNDED,
    ELEMENTWISE,
    FLAGS,
    INPLACE,
    MATRIX_PRODUCT,
    NAMES,
    SUMMED,
    ops_with,
)
from syft.workers.execution.size_bounds import bound, is_harmless
from syft.workers.hardening.precautions import RUNNABLE

Shape = tuple[int, ...]

PAIRS: list[tuple[Shape, Shape]] = [
    ((4, 6), (4, 6)),
    ((4, 6), (6,)),
    ((4, 1), (1, 6)),
    ((5, 1, 1, 6), (7, 6, 1)),
    ((), (4, 6)),
    ((6,), (6,)),
    ((6, 6), (6, 6)),
    ((3, 6, 6), (6, 6)),
    ((6, 6), (3, 6, 6)),
    ((3, 1, 6, 6), (1, 4, 6, 6)),
    ((40, 2), (2, 40)),
    ((40, 2), (40, 2)),
    ((0, 3), (0, 3)),
    ((3, 0), (0, 3)),
]
"""The shapes of two operands: equal, broadcast, crossed, and of products of matrices."""

FACTOR = 4
"""How much more than its bound an operation may use: what it makes is not added to the bound."""


def sizes_of(values: Any) -> list[int]:
    return [leaf.numel() for leaf in leaves(values) if isinstance(leaf, torch.Tensor)]


def drawn(shape: Shape, kind: torch.dtype) -> torch.Tensor:
    numbers = torch.rand(shape, generator=torch.Generator().manual_seed(7)) * 4 + 1
    return numbers.to(kind)


def calls(op: int) -> list[tuple[list[Any], dict[str, Any]]]:
    """What may be given to an operation: tensors, lists of these, and numbers."""
    many = "_foreach_" in NAMES[op]
    given: list[tuple[list[Any], dict[str, Any]]] = []
    for one, other in PAIRS:
        for kind in (torch.float32, torch.int64):
            pair = [drawn(one, kind), drawn(other, kind)]
            if many:
                pair = [[tensor, tensor.clone()] for tensor in pair]  # type: ignore[misc]
            first, second = pair
            given += (
                ([first], {}),
                ([first, second], {}),
                ([second, first], {}),
                ([first, second, second], {}),
                ([first, 0], {}),
                ([first, 10**6], {}),
                ([first, 0.5, True], {}),
                ([first, 2, 3], {}),
                ([first, second, first], {}),
                ([first, one], {}),
                ([first, second], {"alpha": 10**6}),
                ([first, torch.tensor(10**6)], {}),
            )
    return given


def used(op: int, args: list[Any], kwargs: dict[str, Any]) -> int | None:
    """The elements of the results of a call; None if it fails."""
    function: Any = RUNNABLE[op]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return sum(sizes_of(function(*args, **kwargs)))
    except Exception:
        return None


@pytest.mark.parametrize(
    "op", sorted(ops_with(ELEMENTWISE | SUMMED | MATRIX_PRODUCT)), ids=NAMES.__getitem__
)
def test_a_bound_holds_for_all_shapes(op: int) -> None:
    worked = 0
    for args, kwargs in calls(op):
        limit = FACTOR * (bound(op, args, kwargs) + 8)
        made = used(op, args, kwargs)
        if made is not None:
            worked += 1
            assert made <= limit, ([*map(sizes_of, args)], made, limit)
    assert worked or NAMES[op].removeprefix("torch.") in NEVER


NEVER = set("""nn.functional.nll_loss _C._nn.nll_loss batch_norm instance_norm
    sparse.softmax sparse.log_softmax sparse.sum""".split())
"""The operations that take none of these arguments."""


def test_what_is_written_is_an_operand() -> None:
    """The bound of a write is the sum only where a write cannot give its target another size."""
    for op in ops_with(SUMMED):
        leaf = NAMES[op].rpartition(".")[2]
        if leaf.endswith("_") and not leaf.startswith("__"):
            assert FLAGS[op] & INPLACE, NAMES[op]


def number(name: str) -> int:
    return NAMES.index(name)


def test_a_bound_is_close_for_what_programs_do_most() -> None:
    x, w = torch.ones(100, 200), torch.ones(50, 200)
    for name, args in (
        ("torch.Tensor.add", [x, x]),
        ("torch.Tensor.addcmul_", [x, x, x, 10**9]),
        ("torch.nn.functional.linear", [x, w, torch.ones(50)]),
        ("torch.Tensor.matmul", [x, w.t()]),
        ("torch._foreach_add_", [[x, w], [x, w]]),
        ("torch._foreach_div", [[x, w], [2.0, 3.0]]),
        ("torch.nn.functional.layer_norm", [x, (200,)]),
    ):
        assert bound(number(name), args, {}) <= 10**5


def test_what_may_be_large_is_not_harmless() -> None:
    column, row = torch.ones(5000, 1), torch.ones(1, 5000)
    batch, other = torch.ones(1, 1000, 1, 8), torch.ones(1000, 1, 8, 1)
    for name, args in (
        ("torch.Tensor.add", [column, row]),
        ("torch.Tensor.matmul", [column, row]),
        ("torch.Tensor.matmul", [batch, other]),
        ("torch._foreach_add", [[column], [row]]),
        ("torch._foreach_add", [[column], row]),
        ("torch._foreach_add", [(column,), (row,)]),
        ("torch.Tensor.expand", [torch.ones(1), 2**50]),
        ("torch.Tensor.add", [torch.ones(1).expand(2**40), 1]),
        ("torch.Tensor.add_", [torch.ones(1).expand(2**40), 1]),
    ):
        assert not is_harmless(number(name), args, {}, 10**6), name


def test_products_of_matrices_are_bounded() -> None:
    assert ops_with(MATRIX_PRODUCT) <= ops_with(BOUNDED)
