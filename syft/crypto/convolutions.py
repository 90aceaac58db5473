"""Convolution and its two gradients from kernels that torch has for int64 and for float64 alike.

``aten.convolution_backward`` has no int64 kernel.  The gradient of the input is a convolution of
the other direction.  The gradient of the weight is a matrix product with the windows of the input,
laid out for some images at a time, so that they take little memory.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.nn.functional as F

Sizes = tuple[int, ...]

LAID_OUT = 1 << 20
"""The elements of windows laid out at once (where one image has no more)."""


def convolve(x: torch.Tensor, weight: torch.Tensor, *settings: Any) -> torch.Tensor:
    """The convolution by a kernel that multiplies and adds: no FFT, no Winograd.

    ``settings`` are stride, padding, dilation, transposed, output_padding and groups.

    >>> x, w = torch.arange(4).view(1, 1, 4), torch.ones(1, 1, 2, dtype=torch.int64)
    >>> convolve(x, w, (1,), (0,), (1,), False, (0,), 1)
    tensor([[[1, 3, 5]]])
    """
    with torch.backends.cudnn.flags(enabled=False):
        return torch.convolution(x, weight, None, *settings)


def input_gradient(
    grad: torch.Tensor,
    weight: torch.Tensor,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    transposed: bool,
    output_padding: Sizes,
    groups: int,
    shape: Sizes,
) -> torch.Tensor:
    """The gradient of the input, whose shape is ``shape``.

    >>> grad, w = torch.ones(1, 1, 3, dtype=torch.int64), torch.tensor([[[1, 10]]])
    >>> input_gradient(grad, w, (1,), (0,), (1,), False, (0,), 1, (1, 1, 4))
    tensor([[[ 1, 11, 11, 10]]])
    """
    if transposed:  # padding of the output may have made room for more windows than there were
        made = convolve(grad, weight, stride, padding, dilation, False, output_padding, groups)
        for dim in range(2, made.dim()):
            made = made.narrow(dim, 0, shape[dim])
        return made
    left = tuple(  # what the stride left over at the end of the input
        size - ((count - 1) * step - 2 * pad + gap * (width - 1) + 1)
        for size, count, step, pad, gap, width in zip(
            shape[2:], grad.shape[2:], stride, padding, dilation, weight.shape[2:], strict=True
        )
    )
    return convolve(grad, weight, stride, padding, dilation, True, left, groups)


def weight_gradient(
    grad: torch.Tensor,
    x: torch.Tensor,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    transposed: bool,
    output_padding: Sizes,
    groups: int,
    shape: Sizes,
) -> torch.Tensor:
    """The gradient of the weight, whose shape is ``shape``.

    >>> grad, x = torch.ones(1, 1, 3, dtype=torch.int64), torch.arange(4).view(1, 1, 4)
    >>> weight_gradient(grad, x, (1,), (0,), (1,), False, (0,), 1, (1, 1, 2))
    tensor([[[3, 6]]])
    """
    if transposed:
        grad, x = x, grad
    windows = _windows(x, padding, stride, dilation, tuple(grad.shape[2:]), shape[2:])
    pairs = zip(grad.chunk(groups, 1), windows.chunk(groups, 1), strict=True)
    return torch.cat([_summed(one, other) for one, other in pairs]).view(shape)


def _windows(
    x: torch.Tensor,
    padding: Sizes,
    stride: Sizes,
    dilation: Sizes,
    counts: Sizes,
    widths: Sizes,
) -> torch.Tensor:
    """A view of the padded input: (images, channels, widths ..., counts ...)."""
    padded = F.pad(x, [side for pad in reversed(padding) for side in (pad, pad)])
    images, channels, *steps = padded.stride()
    within = [step * gap for step, gap in zip(steps, dilation, strict=True)]
    between = [step * jump for step, jump in zip(steps, stride, strict=True)]
    return padded.as_strided(
        (*padded.shape[:2], *widths, *counts), (images, channels, *within, *between)
    )


def _summed(grad: torch.Tensor, windows: torch.Tensor) -> torch.Tensor:
    """The products of each channel of ``grad`` with each place of the windows, summed."""
    dims, channels = grad.dim() - 2, grad.shape[1]
    places = windows.shape[1 : 2 + dims].numel()
    images = max(LAID_OUT // max(places * grad.shape[2:].numel(), 1), 1)
    order = [0, *range(2 + dims, 2 + 2 * dims), *range(1, 2 + dims)]
    rows = windows.permute(order)
    parts = (
        torch.mm(one.transpose(0, 1).reshape(channels, -1), other.reshape(-1, places))
        for one, other in zip(torch.split(grad, images), torch.split(rows, images), strict=True)
    )
    return functools.reduce(torch.Tensor.add_, parts)
