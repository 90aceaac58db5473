"""Integer operations of torch that are made of others: copies of views, small arithmetic, joins.

torch would compute them in kernels of their own, which know no shares; written with operations that
have rules they cost what those cost.
"""

from __future__ import annotations

from typing import Any

import torch

from syft.tensors.fixed.rings.ring_link import ring_rule

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
