"""Integer operations of torch that are made of others: copies of views, small arithmetic, joins.

torch would compute them in kernels of their own, which know no shares; written with operations that
have rules they cost what those cost.

Integer operations that are sums of products: matrix products, convolutions, powers.

Two private operands are a product of the ring; a public one is a factor of every component.
"""

from __future__ import annotations

from typing import Any

import torch

from syft.crypto.kernels import Kernel, KernelCode, frozen
from syft.exceptions import UnsupportedOperation
from syft.tensors.fixed.rings.component_rules import one_of
from syft.tensors.fixed.rings.ring_link import as_integers, ring_of, ring_rule, whole

aten = torch.ops.aten

COPIES = """
alias detach view t transpose.int permute expand squeeze squeeze.dim squeeze.dims unsqueeze
select.int slice.Tensor diagonal unfold as_strided split.Tensor split_with_sizes unbind.int
"""


def _copy_names() -> str:
    names = (name.partition(".") for name in COPIES.split())
    return " ".join(f"{packet}_copy{dot}{overload}" for packet, dot, overload in names)


@ring_rule(_copy_names())
def view_copy(op: Any, x: Any, *rest: Any, **named: Any) -> Any:
    """A view with memory of its own."""
    packet = getattr(aten, op._schema.name.removeprefix("aten::").removesuffix("_copy"))
    out = packet(x, *rest, **named)
    return out.clone() if isinstance(out, torch.Tensor) else [part.clone() for part in out]


@ring_rule("addcmul")
def addcmul(op: Any, x: Any, a: Any, b: Any, value: int = 1) -> Any:
    """``x + value * a * b``."""
    product = a * b
    return x + (product if value == 1 else product * value)


@ring_rule("hardtanh")
def hardtanh(op: Any, x: Any, low: float = -1.0, high: float = 1.0) -> Any:
    """Limit to two public bounds, of which whole numbers count."""
    return x.clamp(int(low), int(high))


@ring_rule("aminmax")
def aminmax(op: Any, x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    """The smallest and the largest, along one dimension or of all."""
    dims = () if dim is None else (dim,)
    return x.amin(dims, keepdim), x.amax(dims, keepdim)


@ring_rule("nan_to_num")
def nan_to_num(op: Any, x: Any, *replacements: Any, **named: Any) -> Any:
    """A copy: integers are numbers."""
    return x.clone()


@ring_rule("block_diag")
def block_diag(op: Any, tensors: Any) -> Any:
    """Matrices, vectors as rows, and numbers along a diagonal, with zeros beside them."""
    blocks = [tensor.view(1, -1) if tensor.dim() < 2 else tensor for tensor in tensors]
    width = sum(block.shape[1] for block in blocks)
    rows, before = [], 0
    for block in blocks:
        after = width - before - block.shape[1]
        rows.append(torch.constant_pad_nd(block, (before, after)))
        before += block.shape[1]
    return torch.cat(rows)


MATMUL = Kernel(KernelCode.MATMUL)


def _product(kernel: Kernel, x: Any, y: Any) -> Any:
    ring = ring_of(x, y)
    return ring.product(kernel, whole(x, ring), whole(y, ring), 1)


@ring_rule("mm bmm mv dot vdot")
def multiply_matrices(op: Any, x: Any, y: Any) -> Any:
    """Multiply matrices, vectors, or batches of matrices."""
    return _product(MATMUL, x, y)


@ring_rule("addmm addmv baddbmm")
def add_product(op: Any, x: Any, a: Any, b: Any, beta: int = 1, alpha: int = 1) -> Any:
    """``beta * x + alpha * (a @ b)``."""
    result = _product(MATMUL, a, b)
    result = result if alpha == 1 else result * alpha
    return result + (x if beta == 1 else x * beta) if beta else result


@ring_rule("convolution _convolution")
def convolve(op: Any, x: Any, weight: Any, bias: Any, *settings: Any) -> Any:
    """Convolve, transposed or not, in any number of dimensions."""
    result = _product(Kernel(KernelCode.CONVOLUTION, frozen(settings[:6])), x, weight)
    return result if bias is None else result + bias.view(-1, *[1] * (result.dim() - 2))


@ring_rule("pow.Tensor_Scalar")
def power(op: Any, x: Any, exponent: Any) -> Any:
    """Whole powers from zero on, by squaring."""
    if exponent != int(exponent) or exponent < 0:
        raise UnsupportedOperation(
            str(op), one_of((x,)).child.ring.name, "integers have whole powers from zero on"
        )
    x = as_integers(x)
    result = x.clone() if exponent else torch.ones_like(x)
    for bit in bin(int(exponent))[3:]:
        result = result * result
        result = result * x if bit == "1" else result
    return result
