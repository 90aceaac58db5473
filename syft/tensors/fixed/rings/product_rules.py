"""Integer operations that are sums of products: matrix products, convolutions, powers.

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
