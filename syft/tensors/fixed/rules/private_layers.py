"""Rules for layers over private numbers: pooling, losses of private classes, fused kernels.

The windows of a pooling are laid out in a new dimension.  The largest of each is found in a
tournament, and its place in the window is kept as a private index; the backward pass adds each
gradient at that place, by a product with the index as a row of zeros and a single one.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from syft.chain.wrapper import SETTINGS
from syft.torch_private import get_mkldnn_enabled, set_mkldnn_enabled
from syft.ops.nested import Arguments, Keywords
from syft.tensors.fixed.fallback import fall_back_privately
from syft.tensors.fixed.fixed_link import (
    any_private,
    fixed,
    fixed_beside,
    integers,
    is_fixed,
    no_rule,
    private_rule,
)
from syft.tensors.fixed.grid import FLOOR
from syft.tensors.fixed.rings.comparison_rules import tournament
from syft.tensors.fixed.rings.ring_link import as_integers, is_ring, lifted

aten = torch.ops.aten

# ---------------------------------------------------------------------------------------- pooling


def _tuple(value: Any, dims: int) -> list[int]:
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    return values * dims if len(values) == 1 else values


def window_places(
    sizes: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> torch.Tensor:
    """The flat index in the input of each element of each window; -1 in the padding.

    The shape is (windows in each dimension ..., elements of a window).

    >>> window_places((4,), (2,), (2,), (0,), (1,), False)
    tensor([[0, 1],
            [2, 3]])
    """
    total = torch.zeros(1, 1, dtype=torch.int64, device="cpu")
    outside = torch.zeros(1, 1, dtype=torch.bool, device="cpu")
    windows = []
    for size, k, s, p, d in zip(sizes, kernel, stride, padding, dilation, strict=True):
        count = _window_count(size, k, s, p, d, ceil_mode)
        first = torch.arange(count, device="cpu")[:, None] * s - p
        at = first + torch.arange(k, device="cpu") * d
        wrong = (at < 0) | (at >= size)
        total = (total[:, None, :, None] * size + at[None, :, None, :]).flatten(0, 1).flatten(1)
        outside = (outside[:, None, :, None] | wrong[None, :, None, :]).flatten(0, 1).flatten(1)
        windows.append(count)
    return total.masked_fill(outside, -1).view(*windows, -1)


def _window_count(size: int, k: int, s: int, p: int, d: int, ceil_mode: bool) -> int:
    room = size + 2 * p - d * (k - 1) - 1
    count = -(-room // s) + 1 if ceil_mode else room // s + 1
    if ceil_mode and (count - 1) * s >= size + p:  # a window must start inside
        count -= 1
    return count


def adaptive_places(sizes: Any, out: Any) -> torch.Tensor:
    """The same for adaptive windows, which differ in size: shorter ones are filled up with -1.

    >>> adaptive_places((3,), (2,))
    tensor([[0, 1],
            [1, 2]])
    """
    rows = []
    for size, count in zip(sizes, out, strict=True):
        bounds = [(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]
        rows.append([range(*bound) for bound in bounds])
    windows = [
        [_flat_index(place, sizes) for place in itertools.product(*spans)]
        for spans in itertools.product(*rows)
    ]
    longest = max(len(window) for window in windows)
    filled = [window + [-1] * (longest - len(window)) for window in windows]
    return torch.tensor(filled, device="cpu").view(*out, longest)


def _flat_index(place: Any, sizes: Any) -> int:
    index = 0
    for at, size in zip(place, sizes, strict=True):
        index = index * size + at
    return index


_POOLING_DEFAULTS = (("padding", 0), ("dilation", 1))


def _windows_of(op: Any, x: Any, settings: Any) -> torch.Tensor:
    """The places that an operation pools, from its settings."""
    dims = 3 if "3d" in op._schema.name else 2
    sizes = x.shape[-dims:]
    if "adaptive" in op._schema.name:
        places = adaptive_places(sizes, _tuple(settings[0], dims)[-dims:])
    else:
        given = dict(zip(("kernel", "stride", "padding", "dilation", "ceil"), settings))
        kernel = _tuple(given["kernel"], dims)
        stride = _tuple(given["stride"], dims) if given.get("stride") else kernel
        padding, dilation = (_tuple(given.get(n, d), dims) for n, d in _POOLING_DEFAULTS)
        ceil_mode = bool(given.get("ceil", False))
        places = window_places(sizes, kernel, stride, padding, dilation, ceil_mode)
    return places.to(x.device)


@private_rule(
    "max_pool2d_with_indices max_pool3d_with_indices adaptive_max_pool2d adaptive_max_pool3d"
)
def max_pool(op: Any, x: Any, *settings: Any) -> Any:
    """The largest of each window, and its private index in the input."""
    places = _windows_of(op, x, settings)
    link, dims = x.child, places.dim() - 1
    flat = link.child.flatten(-dims)
    windows = flat[..., places.clamp(min=0)]
    if (places < 0).any():
        windows = windows.masked_fill(places < 0, FLOOR)
    best, where = tournament(windows, -1, True, True)
    ring = link.ring
    hot = ring.one_hot(lifted(where, ring, x.device).squeeze(-1), places.shape[-1])
    return fixed(best.squeeze(-1), link.grid), (hot * places).sum(-1)


@private_rule(
    "max_pool2d_with_indices_backward max_pool3d_with_indices_backward "
    "adaptive_max_pool2d_backward adaptive_max_pool3d_backward"
)
def max_pool_backward(op: Any, grad: Any, x: Any, *rest: Any) -> Any:
    """Add each gradient at the place its value came from, among those of its window."""
    grad = fixed_beside(op, grad, x)
    *settings, index = rest
    places = _windows_of(op, x, settings or [list(index.shape)])
    dims = places.dim() - 1
    hits = as_integers(index.unsqueeze(-1) == places)
    spread = (grad.unsqueeze(-1) * hits).child.child.flatten(-dims - 1)
    flat = spread.new_zeros(x.shape).flatten(-dims)
    target = places.clamp(min=0).flatten().expand(spread.shape)
    child = flat.scatter_add(-1, target, spread).view(x.shape)
    return fixed(child, grad.child.grid)


@private_rule("_adaptive_avg_pool2d _adaptive_avg_pool3d")
def adaptive_avg_pool(op: Any, x: Any, output_size: Any) -> Any:
    """The mean of each window, rounded once."""
    link, dims = x.child, len(output_size)
    places = adaptive_places(x.shape[-dims:], output_size).to(x.device)
    windows = link.child.flatten(-dims)[..., places.clamp(min=0)]
    total = (windows * (places >= 0)).sum(-1)
    return fixed(link.ring.divide(total, (places >= 0).sum(-1)), link.grid)


@private_rule("_adaptive_avg_pool2d_backward _adaptive_avg_pool3d_backward")
def adaptive_avg_pool_backward(op: Any, grad: Any, x: Any) -> Any:
    """Spread each gradient over its window, rounded once for each window."""
    link = fixed_beside(op, grad, x).child
    dims = 3 if "3d" in op._schema.name else 2
    places = adaptive_places(x.shape[-dims:], grad.shape[-dims:]).to(x.device)
    inside = places >= 0
    parts = link.ring.divide(link.child, inside.sum(-1)).unsqueeze(-1) * inside
    spread = parts.flatten(-dims - 1)
    flat = spread.new_zeros(x.shape).flatten(-dims)
    target = places.clamp(min=0).flatten().expand(spread.shape)
    return fixed(flat.scatter_add(-1, target, spread).view(x.shape), link.grid)


# ---------------------------------------------------------------------------------- private classes


@private_rule("nll_loss_forward nll_loss2d_forward")
def nll_loss(op: Any, x: Any, target: Any, weight: Any, reduction: int, ignore_index: int) -> Any:
    """Minus the value at the target, which may be private; and the total weight."""
    if not is_ring(target):
        return fall_back_privately(op, x, target, weight, reduction, ignore_index)
    chosen, total = _chosen(op, x, target, weight)
    losses = -(x * chosen).sum(_class_dim(x))
    if reduction == 0:
        return losses, total
    return losses.sum() / target.numel() if reduction == 1 else losses.sum(), total


@private_rule("nll_loss_backward nll_loss2d_backward")
def nll_loss_backward(
    op: Any,
    grad: Any,
    x: Any,
    target: Any,
    weight: Any,
    reduction: int,
    ignore_index: int,
    total: Any,
) -> Any:
    """Minus the gradient at the target."""
    if not is_ring(target):
        return fall_back_privately(op, grad, x, target, weight, reduction, ignore_index, total)
    chosen, _ = _chosen(op, x, target, weight)
    spread = grad.unsqueeze(_class_dim(x)) if reduction == 0 else grad
    return -((spread / target.numel() if reduction == 1 else spread) * chosen)


def _class_dim(x: Any) -> int:
    return 1 if x.dim() > 1 else 0


def _chosen(op: Any, x: Any, target: Any, weight: Any) -> tuple[Any, Any]:
    """A private 1 at each target, and how many there are (nobody may see which are ignored)."""
    if weight is not None:
        raise no_rule(op, "with weights for private targets; multiply reduction='none' by them")
    hot = target.child.ring.one_hot(target, x.shape[_class_dim(x)])
    if x.dim() > 1:
        hot = hot.movedim(-1, 1)
    return hot, x.new_full((), target.numel())


# ------------------------------------------------------------------------------ public statistics


@private_rule("native_batch_norm")
def batch_norm(op: Any, x: Any, weight: Any, bias: Any, mean: Any, var: Any, *how: Any) -> Any:
    """With public statistics that are given: one scaling, by factors that are not put on the grid,
    where a reciprocal deviation of large numbers would have few digits."""
    training, _, eps = how
    if training or mean is None or not is_fixed(x) or any_private((mean, var), {}):
        return fall_back_privately(op, x, weight, bias, mean, var, *how)
    link, channels, empty = x.child, (-1, *[1] * (x.dim() - 2)), mean.new_zeros(0)
    scale = (var.double() + eps).rsqrt().view(channels)
    shift = -mean.double().view(channels) * scale
    weight, bias = (one if one is None else one.view(channels) for one in (weight, bias))
    folded = not any_private((weight, bias), {})
    if folded:
        scale, shift = _affine(scale, weight, None), _affine(shift, weight, bias)
    scaled = link.ring.times(link.child, scale, link.grid.scale)
    found = fixed(scaled + integers(op, shift, link.grid), link.grid)
    return found if folded else _affine(found, weight, bias), empty, empty


def _affine(x: Any, weight: Any, bias: Any) -> Any:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


# ------------------------------------------------------------------------------------ fused kernels


@contextlib.contextmanager
def without_fused_kernels(args: Arguments, kwargs: Keywords) -> Iterator[None]:
    """Have torch take attention and recurrent layers apart if an operand is private.

    Their fused kernels are one operation forward and one backward, which have no decomposition.

    >>> with without_fused_kernels((torch.ones(1),), {}):
    ...     torch.backends.mkldnn.enabled
    True
    """
    if not any_private(args, kwargs):
        yield
        return
    enabled = get_mkldnn_enabled()
    set_mkldnn_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH), torch.backends.cudnn.flags(enabled=False):
            yield
    finally:
        set_mkldnn_enabled(enabled)


for _function in (F.scaled_dot_product_attention, F.multi_head_attention_forward, torch.lstm):
    SETTINGS[_function] = without_fused_kernels
