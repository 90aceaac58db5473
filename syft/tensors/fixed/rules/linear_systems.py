"""Rules for linear systems of private numbers: the inverse, solutions, the determinant.

Elimination after Gauss and Jordan.  Which row holds the largest number of a column nobody may see:
it is found by comparisons, and rows are exchanged by products with a row of zeros and a single one.
Each row is divided by its pivot.  What rounding has done to the inverse is undone by Newton's
``Y <- Y + Y (I - A Y)``, which squares the error; that of a solution by its residual.

Rounds (some 30 a row, and 4 for each halving of the rows that are left) grow with the number of
rows, and not with that of columns or matrices.  Newton's method alone would need no pivots, but it
begins at ``A.T`` over a product of norms, which is 0 on the grid for large matrices, and takes as
many steps as the condition asks for, which nobody may see.
"""

from __future__ import annotations

import functools
import operator
from typing import Any

import torch

from syft.tensors.fixed.fixed_link import (
    fixed,
    grid_among,
    integers,
    is_fixed,
    is_private,
    no_rule,
    private_rule,
)
from syft.tensors.fixed.grid import Grid
from syft.tensors.fixed.rings.comparison_rules import tournament
from syft.tensors.fixed.rings.ring_link import lifted

_REFINEMENTS = 2


@private_rule("linalg_inv_ex")
def inverse(op: Any, a: Any, *, check_errors: bool = False) -> Any:
    """The inverse of each matrix, and 0: nobody may see that there is none."""
    return _inverse(a), _no_errors(a)


@private_rule("_linalg_solve_ex")
def solve(op: Any, a: Any, b: Any, *, left: bool = True, check_errors: bool = False) -> Any:
    """X of ``A X = B`` or ``X A = B``; and for the gradient the inverse, under pivots of 0."""
    grid = grid_among(op, (a, b))
    a, b = (fixed(integers(op, each, grid), grid) for each in (a, b))
    over = _inverse(a) if is_private(a) else _public_inverse(a, grid)
    is_vector = b.dim() == 1 or b.shape == a.shape[:-1]
    right = b.unsqueeze(-1) if is_vector else b
    if left:
        x = over @ right
        x = x + over @ (right - a @ x)
    else:
        x = right @ over
        x = x + (right - x @ a) @ over
    return x.squeeze(-1) if is_vector else x, over, _no_pivots(a), _no_errors(a)


@private_rule("_linalg_det")
def det(op: Any, a: Any) -> Any:
    """The product of the pivots, with a sign for each exchange of rows; no factors."""
    _, pivots = _eliminated(a)
    product = functools.reduce(operator.mul, pivots) if pivots else a.sum((-2, -1)) + 1
    return product, torch.zeros(a.shape, device=a.device), _no_pivots(a)


@private_rule("linalg_lu_solve")
def solve_again(
    op: Any, factors: Any, pivots: Any, b: Any, *, left: bool = True, adjoint: bool = False
) -> Any:
    """What the gradient of :func:`solve` asks for: a product with the inverse."""
    if pivots.any():  # those of torch begin at 1
        raise no_rule(op, "call torch.linalg.solve with the matrix itself")
    if not is_fixed(factors):
        raise no_rule(op, "the gradient of det(A) is det(A) * inv(A).T: multiply by it yourself")
    over = factors.mT if adjoint else factors
    return over @ b if left else b @ over


def _no_pivots(a: Any) -> torch.Tensor:
    return torch.zeros(a.shape[:-1], dtype=torch.int32, device=a.device)


def _no_errors(a: Any) -> torch.Tensor:
    return torch.zeros(a.shape[:-2], dtype=torch.int32, device=a.device)


def _public_inverse(a: Any, grid: Grid) -> Any:
    """That of a matrix which everybody knows, on the grid."""
    plain = torch.linalg.inv(a.child.child.double() / grid.scale)
    return fixed((plain * grid.scale).round().long(), grid)


def _inverse(a: Any) -> Any:
    """The inverse of private matrices (..., n, n): what is left of the identity beside them."""
    grid = a.child.grid
    ones = torch.eye(a.shape[-1], device=a.device).expand(a.shape)
    over, _ = _eliminated(torch.cat([a, fixed(integers("eye", ones, grid), grid)], -1))
    for _ in range(_REFINEMENTS):
        over = over + over @ (ones - a @ over)
    return over


def _eliminated(rows: Any) -> tuple[Any, list[Any]]:
    """What is left of the other columns when the first n of (..., n, m) are those of the identity;
    and the pivots."""
    pivots = []
    for done in range(rows.shape[-2]):
        above, below = rows[..., :done, :], rows[..., done:, :]
        chosen, rest, sign = _with_largest_first(below)
        pivot = chosen[..., :1]
        pivots.append(pivot[..., 0] * sign)
        row = (chosen[..., 1:] / pivot).unsqueeze(-2)
        above, rest = (each[..., 1:] - each[..., :1] * row for each in (above, rest))
        rows = torch.cat([above, row, rest], -2)
    return rows, pivots


def _with_largest_first(rows: Any) -> tuple[Any, Any, Any]:
    """The row with the largest first number, the others, and -1 if rows were exchanged for it."""
    count = rows.shape[-2]
    if count == 1:
        return rows[..., 0, :], rows[..., 1:, :], 1
    sizes = rows[..., 0].abs().child
    place = tournament(sizes.child, -1, True, True)[1]
    hot = sizes.ring.one_hot(lifted(place, sizes.ring, rows.device).squeeze(-1), count)
    chosen = (rows * hot.unsqueeze(-1)).sum(-2)
    first, others = rows[..., :1, :], rows[..., 1:, :]
    exchanged = others + (first - others) * hot[..., 1:].unsqueeze(-1)
    return chosen, exchanged, 2 * hot[..., 0] - 1
