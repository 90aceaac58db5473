"""Lazy modules that are sent before they have a shape (``nn.LazyLinear``): they go to the worker at
their first call, once the input has told them their sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import nn

_WITHOUT_SHAPE: Final = frozenset((nn.UninitializedParameter, nn.UninitializedBuffer))


def has_shape(tensor: torch.Tensor) -> bool:
    """Whether a parameter or buffer has a shape.

    >>> [has_shape(tensor) for tensor in nn.LazyLinear(2).parameters()]
    [False, False]
    """
    return type(tensor) not in _WITHOUT_SHAPE


class SentWhenShaped:
    """Called before the forward pass of a lazy module, after torch has given it a shape."""

    __slots__ = ("_send",)

    def __init__(self, send: Callable[[nn.Module], object]) -> None:
        self._send = send

    def __call__(self, module: nn.Module, args: Any) -> None:
        keep_here(module)
        self._send(module)

    def __deepcopy__(self, memo: dict[int, Any]) -> SentWhenShaped:
        return self


def send_when_shaped(module: nn.Module, send: Callable[[nn.Module], object]) -> None:
    """Have ``send`` called with each part of a module that has no shape yet, when it gets one.

    >>> model = nn.Sequential(nn.LazyLinear(2), nn.Linear(2, 1))
    >>> send_when_shaped(model, print)
    >>> _ = model(torch.ones(1, 3))
    Linear(in_features=3, out_features=2, bias=True)
    """
    keep_here(module)
    for part in module.modules():
        if not all(map(has_shape, [*part.parameters(False), *part.buffers(False)])):
            part.register_forward_pre_hook(SentWhenShaped(send))


def keep_here(module: nn.Module) -> bool:
    """Take back what :func:`send_when_shaped` did; whether there was anything.

    >>> model = nn.LazyLinear(2)
    >>> send_when_shaped(model, print)
    >>> keep_here(model), model(torch.ones(1, 3)).shape
    (True, torch.Size([1, 2]))
    """
    found = False
    for part in module.modules():
        for key, hook in list(part._forward_pre_hooks.items()):
            if type(hook) is SentWhenShaped:
                del part._forward_pre_hooks[key]
                found = True
    return found
