"""Rules for matrix products and convolutions, forward and backward.

Every product of two fixed tensors is computed exactly on the integers (``ring``) and rounded once,
when it is rescaled to the grid: the error of a matrix product is half a step, and not half a step
for each term.
"""

from __future__ import annotations

from typing import Any

import torch

from syft.tensors.fixed.rules.arithmetic import times
from syft.tensors.fixed.grid import Grid
from syft.tensors.fixed.fixed_link import fixed, grid_among, integers, rule
from syft.tensors.fixed.rings.integer_ring import Bilinear
from syft.tensors.fixed.rings.ring_link import ring_of

aten = torch.ops.aten


def product(
    bilinear: Bilinear, a: torch.Tensor, b: torch.Tensor, terms: int, unit: int, native: bool
) -> torch.Tensor:
    """Sums of ``terms`` products in the ring of the operands, not yet rescaled to the grid."""
    return ring_of(a, b).product(bilinear, a, b, terms, unit, native)


def _rescaled(raw: torch.Tensor, grid: Grid) -> torch.Tensor:
    return ring_of(raw).rescale(raw, grid)


def _matmul(op: Any, a: Any, b: Any, grid: Grid) -> torch.Tensor:
    one, other = integers(op, a, grid), integers(op, b, grid)
    return _rescaled(product(op, one, other, one.shape[-1], grid.scale**2, native=True), grid)


@rule("mm bmm mv dot vdot")
def matmul(op: Any, a: Any, b: Any) -> Any:
    """Multiply matrices, vectors, or batches of matrices."""
    grid = grid_among(op, (a, b))
    return fixed(_matmul(op, a, b, grid), grid)


@rule("addmm addmv baddbmm addbmm addr")
def add_matmul(op: Any, x: Any, a: Any, b: Any, beta: float = 1, alpha: float = 1) -> Any:
    """``beta * x + alpha * (a @ b)``, which ``nn.Linear`` calls."""
    grid = grid_among(op, (x, a, b))
    result = _INNER[op.overloadpacket](a, b, grid)
    if alpha != 1:
        result = times(result, alpha, grid)
    if beta != 0:
        addend = integers(op, x, grid)
        result = result + (addend if beta == 1 else times(addend, beta, grid))
    return fixed(result, grid)


_INNER: dict[Any, Any] = {
    aten.addmm: lambda a, b, grid: _matmul(aten.mm.default, a, b, grid),
    aten.addmv: lambda a, b, grid: _matmul(aten.mv.default, a, b, grid),
    aten.baddbmm: lambda a, b, grid: _matmul(aten.bmm.default, a, b, grid),
    aten.addbmm: lambda a, b, grid: _matmul(
        aten.mm.default, a.transpose(0, 1).flatten(1), b.flatten(0, 1), grid
    ),
    aten.addr: lambda a, b, grid: _matmul(aten.mm.default, a[:, None], b[None], grid),
}


@rule("linalg_cross")
def cross(op: Any, a: Any, b: Any, *, dim: int = -1) -> Any:
    """The cross product: two products for each element."""
    grid = grid_among(op, (a, b))
    one, other = integers(op, a, grid), integers(op, b, grid)
    raw = product(lambda x, y: op(x, y, dim=dim), one, other, 2, grid.scale**2, native=True)
    return fixed(_rescaled(raw, grid), grid)


# ------------------------------------------------------------------------------------ convolution


def _convolve(settings: tuple[Any, ...]) -> Any:
    """The convolution of two tensors by a kernel that multiplies and adds: no FFT, no Winograd."""

    def run(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        with torch.backends.cudnn.flags(enabled=False):
            result: torch.Tensor = aten.convolution.default(x, weight, None, *settings)
        return result

    return run


@rule("convolution _convolution")
def convolution(op: Any, x: Any, weight: Any, bias: Any, *settings: Any) -> Any:
    """Convolve, transposed or not, in any number of dimensions."""
    settings = settings[:6]
    transposed, groups = settings[3], settings[5]
    grid = grid_among(op, (x, weight, bias))
    one, other = integers(op, x, grid), integers(op, weight, grid)
    terms = _terms(other, transposed, groups)
    run = _convolve(settings)
    child = _rescaled(product(run, one, other, terms, grid.scale**2, native=True), grid)
    if bias is not None:
        child = child + integers(op, bias, grid).view(-1, *[1] * (child.dim() - 2))
    return fixed(child, grid)


def _terms(weight: torch.Tensor, transposed: bool, groups: int) -> int:
    """How many products one element of the result sums."""
    if transposed:
        return weight.numel() // max(weight.shape[1], 1) // groups
    return weight.numel() // max(weight.shape[0], 1)


@rule("convolution_backward")
def convolution_backward(
    op: Any, grad: Any, x: Any, weight: Any, bias_sizes: Any, *rest: Any
) -> Any:
    """The gradients of the input, the weight and the bias that the mask selects."""
    *settings, mask = rest
    transposed, groups = settings[3], settings[5]
    grid = grid_among(op, (grad, x, weight))
    g, i, w = (integers(op, value, grid) for value in (grad, x, weight))
    results: list[Any] = [None, None, None]
    if mask[0]:
        like = torch.empty(i.shape, dtype=torch.float64, device=i.device)
        terms = _terms(w, not transposed, groups)
        results[0] = _half(op, (g, w), terms, grid, lambda a, b: (a, like, b), settings, 0)
    if mask[1]:
        like = torch.empty(w.shape, dtype=torch.float64, device=w.device)
        terms = i.numel() if transposed else g.numel()
        terms //= max((i if transposed else g).shape[1], 1)
        results[1] = _half(op, (g, i), terms, grid, lambda a, b: (a, b, like), settings, 1)
    if mask[2]:
        results[2] = fixed(g.sum([0, *range(2, g.dim())]), grid)
    return tuple(results)


def _half(
    op: Any,
    operands: tuple[torch.Tensor, torch.Tensor],
    terms: int,
    grid: Grid,
    arrange: Any,
    settings: list[Any],
    which: int,
) -> Any:
    """One of two gradients, bilinear in the operands; ``arrange`` orders them for the call."""
    mask = [which == 0, which == 1, False]

    def run(a: torch.Tensor, b: torch.Tensor) -> Any:
        with torch.backends.cudnn.flags(enabled=False):
            return op(*arrange(a, b), None, *settings, mask)[which]

    return fixed(_rescaled(product(run, *operands, terms, grid.scale**2, native=False), grid), grid)
