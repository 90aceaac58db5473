"""Rules for linear systems of private numbers: the inverse, solutions, the determinant.

Elimination after Gauss and Jordan.  Which row holds the largest number of a column nobody may see:
it is found by comparisons, and rows are exchanged by products with a row of zeros and a single one.
Each row is divided by its pivot.  What rounding has done to the inverse is undone by Newton's
``Y <- Y + Y (I - A Y)``, which squares the error; that of a solution by its residual.

The inverse of large numbers would be less than a step of the grid.  So rows are first divided by
powers of two that bring them below 1 (how large a row is nobody may see either), and the inverse
is that of these rows.

Rounds (some 50 a row, and 4 for each halving of the rows that are left) grow with the number of
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
from syft.tensors.fixed.rings.comparison_rules import tournament
from syft.tensors.fixed.rings.ring_link import lifted, ring_of

_REFINEMENTS = 2
_FACTOR_BITS = 20
"""Rows up to 2^20 are brought below 1."""
_MORE_BITS = 10
"""By which what an inverse multiplies is finer than the grid, since its error grows there."""


@private_rule("linalg_inv_ex")
def inverse(op: Any, a: Any, *, check_errors: bool = False) -> Any:
    """The inverse of each matrix, and 0: nobody may see that there is none."""
    return _with_columns(*_inverse_of_smaller_rows(a)), _no_errors(a)


@private_rule("_linalg_solve_ex")
def solve(op: Any, a: Any, b: Any, *, left: bool = True, check_errors: bool = False) -> Any:
    """X of ``A X = B`` or ``X A = B``; and for the gradient the inverse, under pivots of 0."""
    grid = grid_among(op, (a, b))
    a, b = (fixed(integers(op, each, grid), grid) for each in (a, b))
    over, factors = _inverse_of_smaller_rows(a)
    is_vector = b.dim() == 1 or b.shape == a.shape[:-1]
    right = b.unsqueeze(-1) if is_vector else b
    if right.shape[-2 if left else -1] != a.shape[-1]:
        sides = "A X = B" if left else "X A = B"
        raise RuntimeError(f"{sides}: B of {tuple(b.shape)} does not fit A of {tuple(a.shape)}")
    if left:
        x = _solved(over, factors, right)
        x = x + _solved(over, factors, right - a @ x)
    else:
        x = _with_columns(right @ over, factors)
        x = x + _with_columns((right - x @ a) @ over, factors)
    whole = _with_columns(over, factors)
    whole = fixed(lifted(whole.child.child, ring_of(a.child.child, b.child.child), b.device), grid)
    return x.squeeze(-1) if is_vector else x, whole, _no_pivots(a), _no_errors(a)


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


@private_rule("linalg_inv_ex.inverse _linalg_solve_ex.result _linalg_det.result")
def into_given(op: Any, *_: Any, **__: Any) -> Any:
    """Refuse ``out=``: torch gives plain memory for what else there is, as factors and pivots."""
    raise no_rule(op, "leave out= away, and copy_() the result")


def _no_pivots(a: Any) -> torch.Tensor:
    return torch.zeros(a.shape[:-1], dtype=torch.int32, device=a.device)


def _no_errors(a: Any) -> torch.Tensor:
    return torch.zeros(a.shape[:-2], dtype=torch.int32, device=a.device)


def _factors(a: Any) -> Any:
    """Whole numbers (..., n, 1): a row times its factor, over 2^20, is below 1.

    Powers of two up to 2^20; rows that are below 1 have that one.  Private if the matrix is.
    """
    link = a.child
    if not a.shape[-1]:
        return torch.ones(*a.shape[:-1], 1, dtype=torch.int64, device=a.device)
    sizes = link.child.abs().amax(-1)
    bits = range(_FACTOR_BITS)
    reached = link.ring.reached(sizes, [link.grid.scale << bit for bit in bits])
    halves = torch.tensor([1 << (_FACTOR_BITS - 1 - bit) for bit in bits], device=a.device)
    less = (reached * halves.view(-1, *[1] * sizes.dim())).sum(0)
    return ((1 << _FACTOR_BITS) - less).unsqueeze(-1)


def _times(x: Any, factors: Any, bits: int) -> Any:
    """``x * factors / 2**bits``."""
    ring = ring_of(x.child.child, factors)
    products = ring.multiply(x.child.child, factors, 1)
    return fixed(ring.divide(products, 1 << bits), x.child.grid)


def _with_columns(over: Any, factors: Any) -> Any:
    """What an inverse of rows with factors is of those without; or a product with it."""
    return _times(over, factors.mT, _FACTOR_BITS)


def _solved(over: Any, factors: Any, right: Any) -> Any:
    """The product of an inverse with right sides, whose rows get more bits with the factors."""
    return over @ _times(right, factors, _FACTOR_BITS - _MORE_BITS) * 2.0**-_MORE_BITS


def _inverse_of_smaller_rows(a: Any) -> tuple[Any, Any]:
    """The inverse of matrices (..., n, n) whose rows have factors, and these."""
    grid, factors = a.child.grid, _factors(a)
    if not is_private(a):
        plain = a.child.child.double() / grid.scale * factors / (1 << _FACTOR_BITS)
        return fixed((torch.linalg.inv(plain) * grid.scale).round().long(), grid), factors
    ones = torch.eye(a.shape[-1], device=a.device).expand(a.shape)
    smaller = _times(a, factors, _FACTOR_BITS)
    over, _ = _eliminated(torch.cat([smaller, fixed(integers("eye", ones, grid), grid)], -1))
    for _ in range(_REFINEMENTS):  # by the rows themselves, which have more digits
        product = _times(a @ over, factors, _FACTOR_BITS - _MORE_BITS)
        over = over + over @ (ones * 2**_MORE_BITS - product) * 2.0**-_MORE_BITS
    return over, factors


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
