"""Modules and optimizer state that become lazy, and ordinary again, in place.

A parameter stays the object that it was, so an optimizer that was made before goes on.  Its memory
is that of the lazy tensor from then on; nobody else has it, unless the program kept a view of it.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.optim import Optimizer

from syft.chain.wrapper import Wrapper, place_of
from syft.exceptions import LocationMismatch
from syft.hooks.module_methods import replace_tensors
from syft.tensors.lazy.lazy_handles import is_lazy, lazy_instead, to_eager
from syft.tensors.lazy.lazy_trace import TRACE


def make_module_lazy(module: nn.Module) -> nn.Module:
    """Make every parameter and buffer lazy, with its gradient; returns the module, changed in
    place.

    Nothing is copied.  Raises :class:`~syft.exceptions.LocationMismatch` for a module that is at a
    worker, shared or in fixed precision, and :class:`~syft.exceptions.NotSendable` if a graph holds
    one of its parameters.

    >>> hook = sy.TorchHook(torch)
    >>> model = torch.nn.Linear(2, 1).to_lazy()
    >>> model(torch.ones(3, 2))
    (Wrapper)><lazy 3x1 float32, 2 operations behind it>
    """
    for tensor in (*module.parameters(), *module.buffers()):
        if type(tensor) is Wrapper and not is_lazy(tensor):
            raise LocationMismatch("to_lazy", (place_of(tensor), "here, lazy"))
    return replace_tensors(module, lazy_instead)


def make_module_eager(module: nn.Module) -> nn.Module:
    """Make every lazy parameter and buffer an ordinary tensor, computed if need be; returns the
    module, changed in place.

    >>> hook = sy.TorchHook(torch)
    >>> model = torch.nn.Linear(2, 1).to_lazy().to_eager()
    >>> model.weight.is_lazy(), model(torch.ones(3, 2)).shape
    (False, torch.Size([3, 1]))
    """
    return replace_tensors(module, _eager_instead)


def _eager_instead(tensor: torch.Tensor) -> torch.Tensor:
    """An ordinary tensor in the place of a lazy one, with its gradient."""
    if not is_lazy(tensor):
        return tensor.detach().requires_grad_(tensor.requires_grad)
    made = to_eager(tensor.detach()).requires_grad_(tensor.requires_grad)
    made.grad = None if tensor.grad is None else to_eager(tensor.grad)
    return made


def beside_lazy(parameter: torch.Tensor, value: torch.Tensor) -> torch.Tensor | None:
    """A value of an optimizer's state as its parameter is, lazy or not; None if neither is lazy.

    Numbers stay as they are.

    >>> hook = sy.TorchHook(torch)
    >>> beside_lazy(torch.ones(2).to_lazy(), torch.zeros(2))
    (Wrapper)>LazyTensor>tensor([0., 0.])
    """
    lazy = is_lazy(parameter)
    if is_lazy(value):
        return value if lazy else to_eager(value)
    if not lazy:
        return None
    return lazy_instead(value) if value.dim() and type(value) is not Wrapper else value


def run_step(optimizer: Optimizer) -> None:
    """Run what is pending after a step on lazy parameters: so every step is the same program.

    Otherwise the steps of a loop that asks for no value would pile up, and with them their inputs.
    """
    for group in optimizer.param_groups:
        if any(map(is_lazy, group["params"])):
            with TRACE.lock:
                TRACE.flush()
            return
