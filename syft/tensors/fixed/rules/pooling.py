"""Rules for pooling: the maximum or the mean of each window, forward and backward.

Torch pools only floats.  The index of the maximum is found in float64, where integers below 2^53
are exact, and the value is taken from the integers.  A mean is an exact sum of the integers and one
rounded division.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from syft.crypto.kernels import kernel_of
from syft.tensors.fixed.fixed_link import fixed, fixed_beside, rule
from syft.tensors.fixed.ring import check_sums

aten = torch.ops.aten

_DIMS = {
    aten.max_pool2d_with_indices: 2,
    aten.max_pool3d_with_indices: 3,
    aten.adaptive_max_pool2d: 2,
    aten.adaptive_max_pool3d: 3,
}


@rule("max_pool2d_with_indices max_pool3d_with_indices adaptive_max_pool2d adaptive_max_pool3d")
def max_pool(op: Any, x: Any, *settings: Any) -> Any:
    """Find the largest of each window, and take it from the integers."""
    link = x.child
    _, index = op(link.child.double(), *settings)
    dims = _DIMS[op.overloadpacket]
    values = link.child.flatten(-dims).gather(-1, index.flatten(-dims)).view(index.shape)
    return fixed(values, link.grid), index


@rule(
    "max_pool2d_with_indices_backward max_pool3d_with_indices_backward "
    "adaptive_max_pool2d_backward adaptive_max_pool3d_backward"
)
def max_pool_backward(op: Any, grad: Any, x: Any, *settings: Any) -> Any:
    """Add each gradient to where its value came from."""
    link = fixed_beside(op, grad, x).child
    *_, index = settings
    dims = 3 if "3d" in op.name() else 2

    def added_up(child: torch.Tensor) -> torch.Tensor:
        flat = child.new_zeros(x.shape).flatten(-dims)
        return flat.scatter_add(-1, index.flatten(-dims), child.flatten(-dims)).view(x.shape)

    check_sums(link.child, link.child.numel(), added_up, link.grid.scale)
    return fixed(added_up(link.child), link.grid)


@rule("max_unpool2d max_unpool3d")
def max_unpool(op: Any, x: Any, index: Any, size: Any, *settings: Any) -> Any:
    """Write each value to where it came from."""
    link, dims = x.child, len(size)
    flat = link.child.new_zeros(*x.shape[:-dims], *size).flatten(-dims)
    child = flat.scatter(-1, index.flatten(-dims), link.child.flatten(-dims))
    return fixed(child.view(*x.shape[:-dims], *size), link.grid)


@rule("avg_pool2d avg_pool3d")
def avg_pool(op: Any, x: Any, *settings: Any) -> Any:
    """Sum each window, and divide by the number of values that it counts."""
    link = x.child
    window = (*settings, *_AVG_DEFAULTS[len(settings) :])
    ring = link.ring
    total = ring.linear(kernel_of(op, *window[:5]), link.child, link.grid.scale)
    return fixed(ring.divide(total, _counts(op, x, window)), link.grid)


@rule("avg_pool2d_backward avg_pool3d_backward")
def avg_pool_backward(op: Any, grad: Any, x: Any, *window: Any) -> Any:
    """Spread each gradient over its window.

    Rounded once if all windows count the same number of values; otherwise once for each window that
    contains a value.
    """
    link = fixed_beside(op, grad, x).child
    count = _counts(_FORWARD[op.overloadpacket], x, window)
    uniform = isinstance(count, int)
    ring = link.ring
    child = link.child if uniform else ring.divide(link.child, count)
    child = ring.linear(kernel_of(op, x.shape, *window[:5]), child, link.grid.scale)
    return fixed(ring.divide(child, count) if uniform else child, link.grid)


_AVG_DEFAULTS: tuple[Any, ...] = ([], [], [0], False, True, None)
_FORWARD = {
    aten.avg_pool2d_backward: aten.avg_pool2d.default,
    aten.avg_pool3d_backward: aten.avg_pool3d.default,
}
_POOL_DIMS = {aten.avg_pool2d: 2, aten.avg_pool3d: 3}


def _counts(forward: Any, x: torch.Tensor, window: tuple[Any, ...]) -> int | torch.Tensor:
    """The number of values that each window counts; one number if it is the same for all.

    For a tensor of ones torch's sum over a window divided by its mean is the count.  So torch's own
    rules about paddings and borders apply.
    """
    kernel, stride, padding, ceil_mode, include_pad, override = window
    if override is not None:
        return int(override)
    dims = _POOL_DIMS[forward.overloadpacket]
    padded = any(padding)
    if not ceil_mode and (include_pad or not padded):
        return int(math.prod(kernel) if len(kernel) == dims else kernel[0] ** dims)
    ones = torch.ones((1, *x.shape[-dims:]), dtype=torch.float64, device=x.device)
    sums = forward(ones, *window[:5], 1)
    counts: torch.Tensor = (sums / forward(ones, *window)).round_().to(torch.int64)
    return counts
