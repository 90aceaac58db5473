"""What random programs are made of, besides torch's own samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from syft.ops.table import BY_NAME, FLAGS, METADATA, NAMES
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
