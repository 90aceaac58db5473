"""The underscored names of torch that serde cannot do without, checked with torch 2.13.

Each has a reason: torch offers no public way.  When an upgrade breaks something, look here first.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nested._internal.nested_tensor import NestedTensor as _NestedTensor

JAGGED: type[torch.Tensor] = _NestedTensor
"""The class of tensors with layout ``torch.jagged``, which has no public name."""

MKLDNN = torch._mkldnn  # type: ignore[attr-defined]
"""The layout of oneDNN tensors, which are refused by name."""


def coo_parts(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return indices and values of a COO tensor; ``.indices()`` refuses uncoalesced ones.

    >>> coo_parts(torch.eye(2).to_sparse())[1]
    tensor([1., 1.])
    """
    return tensor._indices(), tensor._values()


def ragged_dimension(tensor: Any) -> int:
    """Return which dimension of a jagged tensor is ragged: 1, unless it was transposed.

    >>> ragged_dimension(torch.nested.nested_tensor([torch.ones(2)], layout=torch.jagged))
    1
    """
    return int(tensor._ragged_idx)


def per_tensor_quantized(
    dtype: torch.dtype, device: torch.device, scale: float, zero_point: int
) -> torch.Tensor:
    """Make an empty quantized tensor to lay over a buffer, as ``torch.load`` does.

    >>> per_tensor_quantized(torch.qint8, torch.device("cpu"), 0.5, 1).q_scale()
    0.5
    """
    return torch._empty_affine_quantized(
        (0,), scale=scale, zero_point=zero_point, dtype=dtype, device=device
    )


def per_channel_quantized(
    shape: tuple[int, ...],
    dtype: torch.dtype,
    device: torch.device,
    scales: torch.Tensor,
    zero_points: torch.Tensor,
    axis: int,
) -> torch.Tensor:
    """Make a quantized tensor with a scale for each index of ``axis``.

    >>> scales, zeros = torch.ones(2, dtype=torch.double), torch.zeros(2, dtype=torch.int64)
    >>> make = per_channel_quantized
    >>> make((2, 3), torch.qint8, torch.device("cpu"), scales, zeros, 0).q_per_channel_axis()
    0
    """
    return torch._empty_per_channel_affine_quantized(
        shape, scales=scales, zero_points=zero_points, axis=axis, dtype=dtype, device=device
    )
