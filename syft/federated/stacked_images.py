"""Convolutions and max pooling for many clients at once, in the layout in which torch is fast.

Torch's kernels for images whose channels come first look at one number at a time when they pool;
those for channels that come last look at as many as a vector register holds, and take a tenth of
the time.  They are faster at convolutions of many groups too, which is what ``vmap`` makes of a
convolution of many clients.  With clients stacked, the channels of all of them are the channels of
one image, so from one layer to the next nothing is copied; torch's own rule for pooling copies one
client after another.

The values of a pool are those of ``torch.max_pool2d`` to the bit, and it has the usual layout,
since a model may call ``view`` on it.  A convolution has the other one: a model that calls ``view``
on that fails here, and is run without (:func:`~syft.federated.stacked_clients.obstacle`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

_LAST = torch.channels_last


class MaxPoolOfMany(torch.autograd.Function):
    """``torch.max_pool2d`` of an image for each client; its batching rule puts the clients in with
    the channels.

    >>> x = torch.arange(16.0).view(1, 1, 4, 4)
    >>> MaxPoolOfMany.apply(x, 2, (), 0, 1, False)[0]
    tensor([[[[ 5.,  7.],
              [13., 15.]]]])
    """

    @staticmethod
    def forward(x: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool) -> Any:
        """The maxima, and where they are."""
        found, places = F.max_pool2d_with_indices(
            x.contiguous(memory_format=_LAST), kernel, stride or kernel, padding, dilation, ceil
        )
        return found.contiguous(), places

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, Any]) -> None:
        """Keep what the gradient needs."""
        x, kernel, stride, padding, dilation, ceil = inputs
        ctx.settings = _pair(kernel), _pair(stride or kernel), _pair(padding), _pair(dilation), ceil
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(x, output[1])

    @staticmethod
    def backward(ctx: Any, gradient: Any, _: Any) -> Any:
        """The gradient goes to the maxima."""
        x, places = ctx.saved_tensors
        back = torch.ops.aten.max_pool2d_with_indices_backward(gradient, x, *ctx.settings, places)
        return back, None, None, None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], x: Any, *settings: Any) -> Any:
        """The clients of ``x`` as channels."""
        together = x.movedim(in_dims[0], -4)
        images = together.flatten(-4, -3)
        maxima, places = MaxPoolOfMany.apply(images, *settings)  # type: ignore[no-untyped-call]
        apart = [part.unflatten(-3, together.shape[-4:-2]) for part in (maxima, places)]
        return tuple(apart), (maxima.dim() - 3, maxima.dim() - 3)


def _pair(value: Any) -> list[int]:
    """A setting for both directions."""
    return [value, value] if isinstance(value, int) else list(value)


class ChannelsLast(torch.autograd.Function):
    """The same numbers, with the channels of all clients last in memory.

    >>> x = ChannelsLast.apply(torch.ones(1, 2, 3, 3))  # type: ignore[no-untyped-call]
    >>> x.is_contiguous(memory_format=torch.channels_last)
    True
    """

    @staticmethod
    def forward(x: Any) -> Any:
        """A copy in that layout."""
        return x.clone(memory_format=_LAST)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Nothing is needed for the gradient."""

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        """The gradient as it is."""
        return gradient

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], x: Any) -> Any:
        """The clients of ``x`` as channels."""
        together = x.movedim(in_dims[0], -4)
        last = ChannelsLast.apply(together.flatten(-4, -3))  # type: ignore[no-untyped-call]
        return last.unflatten(-3, together.shape[-4:-2]), x.dim() - 4


class FastImages(TorchFunctionMode):
    """A context in which batches of images are convolved with their channels last, and
    ``torch.max_pool2d`` is :class:`MaxPoolOfMany`.

    >>> with FastImages():
    ...     torch.nn.functional.max_pool2d(torch.arange(4.0).view(1, 1, 2, 2), 2).item()
    3.0
    """

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if function is F.max_pool2d or function is torch.max_pool2d:
            return _pooled(*args, **(kwargs or {}))
        if function is torch.conv2d and args and _is_batch(args[0]):
            images = ChannelsLast.apply(args[0])  # type: ignore[no-untyped-call]
            args = (images, *args[1:])
        return function(*args, **(kwargs or {}))


def _pooled(
    input: torch.Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> torch.Tensor:
    """What ``torch.max_pool2d`` gives; indices are asked for by another name."""
    if not _is_batch(input):
        return torch.max_pool2d(input, kernel_size, stride or (), padding, dilation, ceil_mode)
    settings = kernel_size, stride or (), padding, dilation, ceil_mode
    maxima: torch.Tensor = MaxPoolOfMany.apply(input, *settings)[0]  # type: ignore[no-untyped-call]
    return maxima


def _is_batch(input: torch.Tensor) -> bool:
    return input.dim() == 4 and input.dtype in (torch.float32, torch.float64)
