"""What random programs are made of, besides torch's own samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from syft.ops.table import BY_NAME, FLAGS, METADATA, NAMES, OpFlag
from tests.privacy.two_worlds.samples import is_repeatable, is_safe

METADATA_NAMES = tuple(name for name in NAMES if FLAGS[BY_NAME[name]] & METADATA)
SAFE_NAMES = tuple(
    name
    for name in NAMES
    if is_safe(name)
    and is_repeatable(name)
    and not name.startswith("syft.")
    and "_foreach" not in name
)
VIEWS: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("torch.Tensor.data.__get__", ()),
    ("torch.Tensor.detach", ()),
    ("torch.Tensor.view", (-1,)),
    ("torch.Tensor.t", ()),
    ("torch.Tensor.T.__get__", ()),
    ("torch.Tensor.select", (0, 0)),
    ("torch.Tensor.narrow", (0, 0, 1)),
    ("torch.Tensor.__getitem__", (0,)),
    ("torch.Tensor.__getitem__", (slice(None, None, 2),)),
    ("torch.Tensor.expand_as", ()),
    ("torch.Tensor.unsqueeze", (0,)),
    ("torch.Tensor.reshape", (-1,)),
    ("torch.Tensor.clone", ()),
    ("torch.Tensor.unbind", ()),
    ("torch.Tensor.to_sparse", ()),
    ("torch.Tensor.to_dense", ()),
    ("torch.Tensor.values", ()),
    ("torch.Tensor._values", ()),
    ("torch.Tensor.grad.__get__", ()),
    ("torch.Tensor.contiguous", ()),
    ("torch.Tensor.conj", ()),
    ("torch.Tensor.real.__get__", ()),
    ("torch.Tensor.double", ()),
    ("torch.Tensor.int_repr", ()),
    ("torch.Tensor.dequantize", ()),
)
WRITES = (
    *("torch.Tensor.copy_", "torch.Tensor.add_", "torch.Tensor.mul_", "torch.Tensor.set_"),
    *("torch.Tensor.data.__set__", "torch.Tensor.grad.__set__", "torch.Tensor.resize_as_"),
    *("torch.Tensor.fill_", "torch.Tensor.div_", "torch.Tensor.sub_"),
)
TOUCHES = (
    *("torch.Tensor.zero_", "torch.Tensor.requires_grad_", "torch.Tensor.detach_"),
    *("torch.Tensor.grad.__delete__", "torch.Tensor.retain_grad", "torch.Tensor.normal_"),
    *("torch.Tensor.t_", "torch.Tensor.exp_", "torch.Tensor.uniform_", "torch.Tensor.sort"),
)

FAILING = tuple(
    f"torch.{name}"
    for name in (
        *("take", "gather", "index_select", "index_add", "index_copy", "index_fill", "scatter"),
        *("scatter_add", "take_along_dim", "Tensor.index_add_", "Tensor.index_copy_"),
        *("Tensor.scatter_", "Tensor.scatter_add_", "Tensor.index_fill_", "Tensor.put_"),
        *("nn.functional.embedding", "nn.functional.nll_loss", "nn.functional.cross_entropy"),
        *("linalg.cholesky", "linalg.inv", "linalg.solve", "cholesky", "inverse", "bernoulli"),
        *("multinomial", "normal", "poisson", "linalg.tensorinv", "cholesky_inverse"),
        *("bincount", "cov", "corrcoef", "histogram", "linalg.lstsq"),
    )
)
"""Operations that fail for some values."""

BASICS: tuple[Callable[[], torch.Tensor], ...] = (
    lambda: torch.ones(3),
    lambda: torch.ones(3, requires_grad=True),
    lambda: torch.tensor([1.5, -8.0, 3.0]),
    lambda: torch.arange(9.0).view(3, 3),
    lambda: torch.tensor([0, 2, 1]),
    lambda: torch.tensor([True, False, True]),
    lambda: torch.tensor(1.5),
    lambda: torch.tensor(2),
    lambda: torch.tensor(1.5, requires_grad=True),
    lambda: torch.eye(3).to_sparse(),
    lambda: torch.eye(3).to_sparse_csr(),
    lambda: torch.quantize_per_tensor(torch.arange(3.0), 0.5, 0, torch.qint8),
    lambda: torch.tensor([1 + 2j, 3j, 1.0]),
    lambda: torch.nn.Parameter(torch.ones(2, 3)),
)

_DTYPES = tuple(
    getattr(torch, name)
    for name in (
        *("float16", "bfloat16", "float32", "float64", "complex32", "complex64", "complex128"),
        *("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
        *("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"),
    )
)


def _of_dtype(dtype: torch.dtype) -> Callable[[], torch.Tensor]:
    return lambda: torch.tensor([0.0, 2.0, 1.0]).to(dtype)


LAYOUTS: dict[torch.layout, Callable[[], torch.Tensor]] = {
    torch.strided: lambda: torch.arange(6.0).view(2, 3).t(),
    torch.sparse_coo: lambda: torch.eye(4).to_sparse(),
    torch.sparse_csr: lambda: torch.eye(4).to_sparse_csr(),
    torch.sparse_csc: lambda: torch.eye(4).to_sparse_csc(),
    torch.sparse_bsr: lambda: torch.eye(4).to_sparse_bsr((2, 2)),
    torch.sparse_bsc: lambda: torch.eye(4).to_sparse_bsc((2, 2)),
    torch.jagged: lambda: torch.nested.nested_tensor(
        [torch.ones(2), torch.ones(3)], layout=torch.jagged
    ),
}
"""A tensor of each layout that can travel."""
QUANTIZED: dict[torch.dtype, Callable[[], torch.Tensor]] = {
    torch.qint8: lambda: torch.quantize_per_tensor(torch.arange(3.0), 0.5, 0, torch.qint8),
    torch.quint8: lambda: torch.quantize_per_tensor(torch.arange(3.0), 0.5, 1, torch.quint8),
    torch.qint32: lambda: torch.quantize_per_tensor(torch.arange(3.0), 0.5, 0, torch.qint32),
}
KINDS: tuple[Callable[[], torch.Tensor], ...] = (
    *map(_of_dtype, _DTYPES),
    *LAYOUTS.values(),
    *QUANTIZED.values(),
)
"""A tensor of each dtype and of each layout."""
_FEW: str = "it has no operations but conversions, and torch cannot make one of values"
UNDRAWN_DTYPES: dict[str, str] = {
    name: _FEW
    for name in (
        *("FLOAT8_E8M0FNU", "FLOAT4_E2M1FN_X2", "QUINT4X2", "QUINT2X4", "BITS1X8", "BITS2X4"),
        *("BITS4X2", "BITS8", "BITS16"),
        *(f"{kind}{bits}" for kind in ("UINT", "INT") for bits in range(1, 8)),
    )
}
"""The dtypes, by their codes, of which no private object is drawn, and why."""
UNDRAWN_FLAGS: dict[OpFlag, str] = {}
"""The flags that no operation has which is drawn, and why."""
