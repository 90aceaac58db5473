"""Rules for matrix products and convolutions, forward and backward.

Every product of two fixed tensors is computed exactly on the integers (``ring``) and rounded once,
when it is rescaled to the grid: the error of a matrix product is half a step, and not half a step
for each term.
"""

from __future__ import annotations

from typing import Any

import torch

from syft.crypto.kernels import Kernel, KernelCode, frozen
from syft.tensors.fixed.rules.arithmetic import times
from syft.tensors.fixed.grid import Grid
from syft.tensors.fixed.ring import added, check_sums
from syft.tensors.fixed.fixed_link import fixed, grid_among, integers, rule
from syft.tensors.fixed.rings.ring_link import ring_of

aten = torch.ops.aten


MATMUL = Kernel(KernelCode.MATMUL)


def _product(kernel: Kernel, a: torch.Tensor, b: torch.Tensor, grid: Grid) -> torch.Tensor:
    """Sums of products in the ring of the operands, rescaled to the grid."""
    ring = ring_of(a, b)
    raw = ring.product(kernel, a, b, grid.scale**2)
    return ring_of(raw).rescale(raw, grid)


def _matmul(op: Any, a: Any, b: Any, grid: Grid) -> torch.Tensor:
    return _product(MATMUL, integers(op, a, grid), integers(op, b, grid), grid)


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
        result = added(result, addend if beta == 1 else times(addend, beta, grid), grid.scale)
        result = ring_of(result).state_product(result)
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
    return fixed(_product(Kernel(KernelCode.CROSS, (dim,)), one, other, grid), grid)


# ------------------------------------------------------------------------------------ convolution


@rule("convolution _convolution")
def convolution(op: Any, x: Any, weight: Any, bias: Any, *settings: Any) -> Any:
    """Convolve, transposed or not, in any number of dimensions."""
    grid = grid_among(op, (x, weight, bias))
    kernel = Kernel(KernelCode.CONVOLUTION, frozen(settings[:6]))
    child = _product(kernel, integers(op, x, grid), integers(op, weight, grid), grid)
    if bias is not None:
        addend = integers(op, bias, grid).view(-1, *[1] * (child.dim() - 2))
        child = added(child, addend, grid.scale)
        child = ring_of(child).state_product(child)
    return fixed(child, grid)


@rule("convolution_backward")
def convolution_backward(
    op: Any, grad: Any, x: Any, weight: Any, bias_sizes: Any, *rest: Any
) -> Any:
    """The gradients of the input, the weight and the bias that the mask selects."""
    *settings, mask = rest
    grid = grid_among(op, (grad, x, weight))
    g, i, w = (integers(op, value, grid) for value in (grad, x, weight))
    results: list[Any] = [None, None, None]
    if mask[0]:
        kernel = Kernel(KernelCode.CONVOLUTION_GRAD_INPUT, frozen([*settings, [*i.shape]]))
        results[0] = fixed(_product(kernel, g, w, grid), grid)
    if mask[1]:
        kernel = Kernel(KernelCode.CONVOLUTION_GRAD_WEIGHT, frozen([*settings, [*w.shape]]))
        results[1] = fixed(_product(kernel, g, i, grid), grid)
    if mask[2]:
        dims = [0, *range(2, g.dim())]
        check_sums(g, g.numel(), lambda child: child.sum(dims), grid.scale)
        results[2] = fixed(g.sum(dims), grid)
    return tuple(results)
