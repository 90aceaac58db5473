"""``to_lazy``, ``to_eager`` and ``is_lazy``: in and out of lazy tensors."""

from __future__ import annotations

from typing import Any

import torch

from syft.chain.wrapper import Wrapper, place_of
from syft.exceptions import LocationMismatch
from syft.tensors.lazy.lazy_link import (
    LazyTensor,
    captured_here,
    plain_of,
    value_of,
    wrapped,
)
from syft.tensors.lazy.lazy_values import captured
from syft.torch_private import DisableTorchFunctionSubclass, tensors_on


class _ToLazy(torch.autograd.Function):
    """A lazy tensor over the memory of one that has a graph."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return captured_here(x)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return to_eager(grad)


class _ToEager(torch.autograd.Function):
    """The value of a lazy tensor that has a graph."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return plain_of(value_of(x))

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return to_lazy(grad)


def is_lazy(tensor: torch.Tensor) -> bool:
    """Whether a tensor is lazy: its operations are recorded.

    >>> hook = sy.TorchHook(torch)
    >>> x = torch.ones(2)
    >>> x.is_lazy(), (x.to_lazy() + 1).is_lazy()
    (False, True)
    """
    return type(tensor) is Wrapper and type(tensor.child) is LazyTensor


def to_lazy(tensor: torch.Tensor) -> torch.Tensor:
    """A lazy tensor over the memory of this one: what is computed from it is recorded, and runs
    when a value is asked.

    Nothing is copied or run.  A result of a graph stays in it, as with ``x.to(device)``; of a leaf
    the lazy tensor is a leaf of its own, with a gradient of its own.  Raises
    :class:`~syft.exceptions.LocationMismatch` for a tensor that is at a worker, shared or in fixed
    precision.

    >>> hook = sy.TorchHook(torch)
    >>> x = torch.tensor([1.0, 2.0])
    >>> y = x.to_lazy() * 2 + 1
    >>> y
    (Wrapper)><lazy 2 float32, 2 operations behind it>
    >>> y.to_eager(), y.to_lazy() is y
    (tensor([3., 5.]), True)
    """
    if is_lazy(tensor):
        return tensor
    if type(tensor) is Wrapper:
        raise LocationMismatch("to_lazy", (place_of(tensor), "here, lazy"))
    if tensor.grad_fn is not None:
        return _ToLazy.apply(tensor)  # type: ignore[no-any-return,no-untyped-call]
    with torch.no_grad():
        made = captured_here(tensor)
    return made.requires_grad_(tensor.requires_grad)


def lazy_instead(tensor: torch.Tensor) -> torch.Tensor:
    """A lazy tensor that takes the place of a plain one, with its gradient: if nobody else has the
    memory, writes to it may wait.

    >>> lazy_instead(torch.ones(2)).add_(1)
    (Wrapper)><lazy 2 float32, 1 operation behind it>
    """
    if type(tensor) is Wrapper:
        return tensor.detach().requires_grad_(tensor.requires_grad)
    alone = tensors_on(tensor) == 1
    with torch.no_grad():
        made = wrapped(captured(tensor, tensor.data, shown=False)) if alone else to_lazy(tensor)
    made.requires_grad_(tensor.requires_grad)
    if tensor.grad is not None:
        made.grad = lazy_instead(tensor.grad)
    return made


def to_eager(tensor: torch.Tensor) -> torch.Tensor:
    """The value of a lazy tensor as an ordinary one over the same memory, computed if need be.

    Whatever it rests on runs once, however often it is asked.  A result of a graph stays in it; a
    leaf becomes a leaf of its own.

    >>> hook = sy.TorchHook(torch)
    >>> x = torch.ones(2).to_lazy().requires_grad_()
    >>> (x * 3).to_eager().sum().backward()
    >>> x.grad.to_eager(), torch.ones(1).to_eager()
    (tensor([3., 3.]), tensor([1.]))
    """
    if not is_lazy(tensor):
        return tensor
    if tensor.grad_fn is not None:
        with DisableTorchFunctionSubclass():
            return _ToEager.apply(tensor)  # type: ignore[no-any-return,no-untyped-call]
    made = plain_of(value_of(tensor))
    return made.requires_grad_(tensor.requires_grad)
