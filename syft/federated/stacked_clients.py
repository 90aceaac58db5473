"""Training many clients as one: their parameters are stacked, and a step is one call of torch.

The models of small simulated clients are alike in all but their numbers, so what costs time is
Python and torch's way to each kernel.  ``torch.func.vmap`` runs the model once for all of them.
Not every model can be run so, and some would run and mean something else; :func:`obstacle` tries
it, beside the model as it is, and names what is in the way.

Convolutions and max pooling for many clients at once, in the layout in which torch is fast.

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

import contextlib
import copy
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import torch
from torch import nn
from torch.func import functional_call, vmap
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from syft.federated.stacked_memory import KeptStacks, order_of, restored

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
Parameters = dict[str, torch.Tensor]

_DEVIATION: Final = {torch.float64: 1e-9, torch.float32: 1e-3}
"""How far gradients may be apart, relative to their norm; 0.05 for narrower dtypes."""

_MATRICES: Final = 3
"""Dimensions of what is laid out as its gradients are: weights of linear layers.  Weights of
convolutions tell torch which layout images are to have, so theirs stays what it was tried with."""

_MOMENTUM: Final = "momentum of "


class StackedSGD:
    """``torch.optim.SGD`` for stacked parameters, of which a step may concern some clients only.

    ``groups`` are the ``param_groups`` of an optimizer of the model, and ``names`` are those of its
    parameters.  The settings of each parameter are those of its group.  ``stacks`` are those
    of an earlier one, which is then of no more use; in memory matrices lie as their gradients do.

    >>> weight = torch.nn.Parameter(torch.ones(1))
    >>> groups = torch.optim.SGD([weight], lr=0.5).param_groups
    >>> sgd = StackedSGD(groups, {"weight": weight}, clients=2)
    >>> sgd.parameters["weight"]
    tensor([[1.],
            [1.]])
    """

    def __init__(
        self,
        groups: Iterable[dict[str, Any]],
        names: Mapping[str, nn.Parameter],
        clients: int,
        stacks: KeptStacks | None = None,
    ) -> None:
        by_parameter = {id(parameter): group for group in groups for parameter in group["params"]}
        self._settings = {
            name: by_parameter[id(parameter)]
            for name, parameter in names.items()
            if id(parameter) in by_parameter and parameter.requires_grad
        }
        self._stacks = stacks or KeptStacks()
        self.parameters: Parameters = {
            name: self._stacks.of(name, names[name].detach(), clients) for name in self._settings
        }
        """The trained parameters by name, stacked: the first dimension is that of the clients."""
        self._momenta = {
            name: self._stacks.of(_MOMENTUM + name, self.parameters[name][0], clients).zero_()
            for name, group in self._settings.items()
            if group["momentum"]
        }
        self._begun = {
            name: torch.zeros(clients, dtype=torch.bool, device="cpu") for name in self._momenta
        }

    def of(self, clients: torch.Tensor) -> Parameters:
        """The parameters of some clients, as leaves."""
        return {
            name: _some(stacked, clients).detach().requires_grad_()
            for name, stacked in self.parameters.items()
        }

    @torch.no_grad()
    def step(self, clients: torch.Tensor, gradients: Mapping[str, torch.Tensor | None]) -> None:
        """Change the parameters of some clients by their gradients; None changes nothing."""
        for name, gradient in gradients.items():
            if gradient is not None:
                if gradient.dim() == _MATRICES:
                    self._lay_out(name, gradient)
                stacked, group = self.parameters[name], self._settings[name]
                old = _some(stacked, clients)
                change = self._change(name, clients, old, gradient)
                _put(stacked, clients, old.add_(change, alpha=-float(group["lr"])))

    def _lay_out(self, name: str, gradient: torch.Tensor) -> None:
        """Have a parameter and its momentum lie in memory as its gradients do."""
        for table, prefix in ((self.parameters, ""), (self._momenta, _MOMENTUM)):
            if name in table:
                table[name] = self._stacks.like(prefix + name, table[name], gradient)

    def _change(
        self, name: str, clients: torch.Tensor, old: torch.Tensor, gradient: torch.Tensor
    ) -> torch.Tensor:
        """What is taken from the parameters, but for the learning rate."""
        group = self._settings[name]
        if group["maximize"]:
            gradient = -gradient
        if group["weight_decay"]:
            gradient = gradient.add(old, alpha=group["weight_decay"])
        if not group["momentum"]:
            return gradient
        momentum = _some(self._momenta[name], clients).mul_(group["momentum"])
        momentum.add_(self._dampened(name, clients, gradient, group["dampening"]))
        _put(self._momenta[name], clients, momentum)
        if group["nesterov"]:
            return gradient.add(momentum, alpha=group["momentum"])
        return momentum

    def _dampened(
        self, name: str, clients: torch.Tensor, gradient: torch.Tensor, dampening: float
    ) -> torch.Tensor:
        """The gradient as it enters the momentum: dampened, except at a client's first step."""
        if not dampening:
            return gradient
        begun = self._begun[name][clients].to(gradient.device, gradient.dtype)
        self._begun[name][clients] = True
        factors = 1 - begun * dampening
        return gradient * factors.view(-1, *[1] * (gradient.dim() - 1))


def _some(stacked: torch.Tensor, clients: torch.Tensor) -> torch.Tensor:
    """The rows of some clients, in the same order; of all of them no copy is made."""
    if len(clients) == len(stacked):
        return stacked
    order = order_of(stacked)
    rows = stacked.permute(order).index_select(0, clients.to(stacked.device))
    return restored(rows, order)


def _put(stacked: torch.Tensor, clients: torch.Tensor, rows: torch.Tensor) -> None:
    """Write rows that :func:`_some` gave."""
    if rows is not stacked:
        order = order_of(stacked)
        places = clients.to(stacked.device)
        stacked.permute(order).index_copy_(0, places, rows.permute(order))


def stacked_gradients(
    model: nn.Module,
    loss_fn: Loss,
    parameters: Parameters,
    data: Any,
    targets: Any,
    fast: bool = True,
) -> tuple[torch.Tensor, dict[str, torch.Tensor | None]]:
    """The loss of each client and the gradients of its parameters, which are leaves.

    The first dimension of everything is that of the clients.  What the loss does not depend on has
    no gradient.  With ``fast`` images are laid out as torch is fast with them, unless a batch is
    one image.

    >>> parameters = {"weight": torch.ones(2, 1, 1).requires_grad_()}
    >>> model = torch.nn.Linear(1, 1, bias=False)
    >>> x, y = torch.tensor([[[1.0]], [[2.0]]]), torch.zeros(2, 1, 1)
    >>> stacked_gradients(model, torch.nn.functional.mse_loss, parameters, x, y)[0]
    tensor([1., 4.])
    """

    def loss_of(own: Parameters, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return loss_fn(functional_call(model, own, (x,)), y)

    # Of a single image channels come first and last: torch (2.13) takes one for the other under
    # vmap, and gradients are wrong.
    several_images = data.dim() == 5 and data.shape[1] > 1
    with FastImages() if fast and several_images else contextlib.nullcontext():
        losses = vmap(loss_of)(parameters, data, targets)
    found = torch.autograd.grad(losses.sum(), list(parameters.values()), allow_unused=True)
    return losses.detach(), dict(zip(parameters, found, strict=True))


def obstacle(
    model: nn.Module, loss_fn: Loss, sgd: StackedSGD, data: Any, targets: Any, fast: bool = True
) -> str:
    """Why the model cannot be trained for several clients at once; empty if it can.

    ``data`` and ``targets`` are batches of as many samples, stacked.  A copy of the model is run
    on each of them by itself, and on all at once; both have to agree, and its buffers have to stay
    as they are.  What fails by itself raises its own error.

    >>> model, x = torch.nn.Sequential(torch.nn.BatchNorm1d(1)), torch.ones(2, 3, 1)
    >>> sgd = StackedSGD(
    ...     torch.optim.SGD(model.parameters()).param_groups, dict(model.named_parameters()), 2
    ... )
    >>> obstacle(model, torch.nn.functional.mse_loss, sgd, x, x)
    "it changes its buffer '0.running_mean'"
    """
    alone = copy.deepcopy(model)
    before = {name: buffer.clone() for name, buffer in alone.named_buffers()}
    names = dict(alone.named_parameters())
    trained = [names[name] for name in sgd.parameters]
    rows = []
    for x, y in zip(data, targets, strict=True):
        loss = loss_fn(alone(x), y)
        rows.append(torch.autograd.grad(loss, trained, allow_unused=True))
    for name, buffer in alone.named_buffers():
        if not torch.equal(buffer, before[name]):
            return f"it changes its buffer {name!r}"
    stacked = {
        name: stack[: len(data)].detach().requires_grad_() for name, stack in sgd.parameters.items()
    }
    try:
        _, found = stacked_gradients(alone, loss_fn, stacked, data, targets, fast)
    except Exception as error:  # it runs by itself: what fails is running several at once
        text = str(error).strip() or type(error).__name__
        return f"torch.func.vmap cannot run it: {text.splitlines()[0]}"
    if not _agree(list(found.values()), rows):
        return "several at once have other gradients than each by itself"
    return ""


def _agree(
    stacked: Sequence[torch.Tensor | None], rows: Sequence[Sequence[torch.Tensor | None]]
) -> bool:
    """Whether stacked gradients are those that were found one by one, but for rounding.

    Rounding is measured by all of a client's gradients: one of them may be 0 but for it.
    """
    apart, size, most = 0.0, 0.0, 0.0
    for gradient, several in zip(stacked, zip(*rows, strict=True), strict=True):
        there = [row for row in several if row is not None]
        if gradient is None or len(there) < len(several):
            if gradient is not None or there:
                return False
            continue
        expected = torch.stack(there)
        apart += float((gradient - expected).double().square().sum())
        size += float(expected.double().square().sum())
        most = max(most, _DEVIATION.get(expected.dtype, 0.05))
    return apart <= most**2 * size


_LAST: Final = torch.channels_last
_POOLS: Final = frozenset((torch.max_pool2d, F.max_pool2d))
_NO_RELU: Final = (None, object())
"""What a ReLU was called with, and what it gave, where the last call was none."""
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
        self._relu: tuple[Any, Any] = _NO_RELU

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        (before, after), self._relu = self._relu, _NO_RELU
        if function in _POOLS:
            if args and args[0] is after:
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
