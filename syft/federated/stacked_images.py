"""Convolutions and max pooling for many clients at once, in the layout in which torch is fast.

Torch's kernels for images whose channels come first look at one number at a time when they pool;
those for channels that come last look at as many as a vector register holds, and take a tenth of
the time.  They are faster at convolutions of many groups too.  With clients stacked, the channels
of all of them are the channels of one image, a convolution of each has groups of its own, and from
one layer to the next nothing is copied; torch's own rules copy one client after another, add the
bias in a pass of its own, and pool gradients of the other layout at a tenth of the speed.

Memory costs more than arithmetic here, so a pool right after a ReLU has its gradient from what went
into the ReLU: the larger tensor has one gradient and not two.

The values of a pool are those of ``torch.max_pool2d`` to the bit.  ``view`` asks for a layout that
images do not have here, so it is ``reshape``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

_LAST: Final = torch.channels_last
_RELUS: Final = (F.relu, torch.relu, torch.Tensor.relu)


@dataclasses.dataclass(frozen=True, slots=True)
class PoolSettings:
    """The settings of ``torch.max_pool2d``, for both directions; if ``positive``, it is of the ReLU
    of the images.

    One object, since ``vmap`` spends time on each argument of an ``autograd.Function``.
    """

    kernel: list[int]
    stride: list[int]
    padding: list[int]
    dilation: list[int]
    ceil: bool
    positive: bool


class MaxPoolOfMany(torch.autograd.Function):
    """``torch.max_pool2d`` with channels last; its batching rule puts the clients in with the
    channels.

    The maxima of a ReLU are the ReLU of the maxima, which are fewer.

    >>> x = torch.arange(-5.0, 11.0).view(1, 1, 4, 4)
    >>> MaxPoolOfMany.apply(x, PoolSettings([2, 2], [2, 2], [0, 0], [1, 1], False, True))[0]
    tensor([[[[ 0.,  2.],
              [ 8., 10.]]]])
    """

    @staticmethod
    def forward(x: Any, own: PoolSettings) -> Any:
        """The maxima, and where they are."""
        found, places = F.max_pool2d_with_indices(
            x.contiguous(memory_format=_LAST),
            own.kernel,
            own.stride,
            own.padding,
            own.dilation,
            own.ceil,
        )
        return (found.relu_() if own.positive else found), places

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, Any]) -> None:
        """Keep what the gradient needs: of the images their shape alone."""
        x, ctx.own = inputs
        ctx.shape = x.shape
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*output)

    @staticmethod
    def backward(ctx: Any, gradient: Any, _: Any) -> Any:
        """The gradient goes to the maxima."""
        own, (maxima, places) = ctx.own, ctx.saved_tensors
        gradient = gradient.contiguous(memory_format=_LAST)
        if own.positive:
            gradient = torch.ops.aten.threshold_backward(gradient, maxima, 0)
        images = torch.empty(
            ctx.shape, dtype=gradient.dtype, device=gradient.device, memory_format=_LAST
        )
        settings = own.kernel, own.stride, own.padding, own.dilation, own.ceil
        back = torch.ops.aten.max_pool2d_with_indices_backward(gradient, images, *settings, places)
        return back, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], x: Any, own: PoolSettings) -> Any:
        """The clients of ``x`` as channels."""
        together = x.movedim(in_dims[0], -4)
        images = together.flatten(-4, -3)
        maxima, places = MaxPoolOfMany.apply(images, own)  # type: ignore[no-untyped-call]
        apart = [part.unflatten(-3, together.shape[-4:-2]) for part in (maxima, places)]
        return tuple(apart), (maxima.dim() - 3, maxima.dim() - 3)


@dataclasses.dataclass(frozen=True, slots=True)
class ConvolutionSettings:
    """The settings of ``torch.conv2d``, for both directions."""

    stride: list[int]
    padding: list[int]
    dilation: list[int]
    groups: int


class ConvolutionOfMany(torch.autograd.Function):
    """``torch.conv2d`` with channels last; its batching rule puts the clients in with the channels,
    and gives each of them groups of its own.

    >>> x, weight, bias = torch.ones(1, 1, 2, 2), torch.ones(1, 1, 2, 2), torch.ones(1)
    >>> ConvolutionOfMany.apply(x, weight, bias, ConvolutionSettings([1, 1], [0, 0], [1, 1], 1))
    tensor([[[[5.]]]])
    """

    @staticmethod
    def forward(x: Any, weight: Any, bias: Any, own: ConvolutionSettings) -> Any:
        """The convolution."""
        last = x.contiguous(memory_format=_LAST)
        return torch.conv2d(last, weight, bias, own.stride, own.padding, own.dilation, own.groups)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Keep what the gradient needs."""
        x, weight, _, ctx.own = inputs
        ctx.save_for_backward(x, weight)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        """The gradients of the images, the weights and the biases that are asked for."""
        of_images, of_weights, of_biases, _ = ctx.needs_input_grad
        own, (x, weight) = ctx.own, ctx.saved_tensors
        gradient = gradient.contiguous(memory_format=_LAST)
        images, weights, _ = torch.ops.aten.convolution_backward(
            gradient,
            x,
            weight,
            None,
            own.stride,
            own.padding,
            own.dilation,
            False,
            [0, 0],
            own.groups,
            [of_images, of_weights, False],
        )
        biases = gradient.sum((0, 2, 3)) if of_biases else None
        return images, weights, biases, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], x: Any, weight: Any, bias: Any, own: Any) -> Any:
        """The clients of ``x`` as channels."""
        clients = info.batch_size
        images = _clients_at(-4, x, in_dims[0], clients).flatten(-4, -3)
        weights = _clients_at(0, weight, in_dims[1], clients).flatten(0, 1)
        biases = None if bias is None else _clients_at(0, bias, in_dims[2], clients).flatten()
        together = dataclasses.replace(own, groups=clients * own.groups)
        found = ConvolutionOfMany.apply(  # type: ignore[no-untyped-call]
            images.contiguous(memory_format=_LAST), weights, biases, together
        )
        return found.unflatten(-3, (clients, -1)), found.dim() - 3


def _clients_at(place: int, tensor: Any, dim: int | None, clients: int) -> Any:
    """The tensor with its dimension of clients at a place; without one it is that of each."""
    if dim is None:
        return tensor.expand(clients, *tensor.shape).movedim(0, place)
    return tensor.movedim(dim, place)


class FastImages(TorchFunctionMode):
    """A context in which batches of images are convolved and pooled by
    :class:`ConvolutionOfMany` and :class:`MaxPoolOfMany`.

    >>> with FastImages():
    ...     torch.nn.functional.max_pool2d(torch.arange(4.0).view(1, 1, 2, 2), 2).item()
    3.0
    """

    def __init__(self) -> None:
        super().__init__()
        self._relu: tuple[Any, Any] = (None, None)

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        (before, after), self._relu = self._relu, (None, None)
        if function is torch.max_pool2d or function is F.max_pool2d:
            if after is not None and args and args[0] is after:
                return _pooled(True, before, *args[1:], **kwargs)
            return _pooled(False, *args, **kwargs)
        if function is torch.conv2d:
            return _convolved(*args, **kwargs)
        if function is torch.Tensor.view and len(args) > 1 and type(args[1]) is not torch.dtype:
            return torch.Tensor.reshape(*args)
        result = function(*args, **kwargs)
        if function in _RELUS and args and result is not args[0]:
            self._relu = args[0], result
        return result


def _pooled(
    positive: bool,
    input: torch.Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> torch.Tensor:
    """What ``torch.max_pool2d`` gives of a tensor or its ReLU; indices are asked for by another
    name."""
    if not _is_batch(input):
        images = input.relu() if positive else input
        return torch.max_pool2d(images, kernel_size, stride or (), padding, dilation, ceil_mode)
    kernel, step = _pair(kernel_size), _pair(stride or kernel_size)
    own = PoolSettings(kernel, step, _pair(padding), _pair(dilation), ceil_mode, positive)
    maxima: torch.Tensor = MaxPoolOfMany.apply(input, own)[0]  # type: ignore[no-untyped-call]
    return maxima


def _convolved(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> torch.Tensor:
    """What ``torch.conv2d`` gives."""
    if isinstance(padding, str) or not _is_batch(input):
        return torch.conv2d(input, weight, bias, stride, padding, dilation, groups)
    own = ConvolutionSettings(_pair(stride), _pair(padding), _pair(dilation), groups)
    found: torch.Tensor = ConvolutionOfMany.apply(  # type: ignore[no-untyped-call]
        input, weight, bias, own
    )
    return found


def _pair(value: Any) -> list[int]:
    """A setting for both directions."""
    return [value, value] if isinstance(value, int) else list(value)


def _is_batch(input: torch.Tensor) -> bool:
    return input.dim() == 4 and input.dtype in (torch.float32, torch.float64)
