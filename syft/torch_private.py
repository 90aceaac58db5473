"""The underscored torch names syft leans on, in one place, with what each is for.

Torch promises nothing about these.  They were checked on torch 2.11 and 2.13; when one moves, this
file is where it is mended.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
import torch._functorch.vmap
import torch.utils._python_dispatch
from torch._C._dynamo import eval_frame

make_wrapper = torch.Tensor._make_wrapper_subclass
"""Makes a tensor of a subclass that has a shape and a dtype and no memory (see subclass_zoo)."""

VMAP_FILE = torch._functorch.vmap.__file__
"""Where vmap asks a tensor for its ``dim()``, the last thing it does above the chain."""

OPAQUE_LAYOUT: torch.layout = torch._mkldnn  # type: ignore[attr-defined]
"""A layout whose tensors cannot be taken for, or exchanged with, strided ones."""

DisableTorchFunctionSubclass = torch._C.DisableTorchFunctionSubclass
"""Context manager: run a torch function as if no argument overrode ``__torch_function__``."""

any_autocast_enabled = torch._C._is_any_autocast_enabled
"""One call that tells whether any device's autocast is on; asking each device costs ten times
that."""

set_grad_enabled = torch._C._set_grad_enabled
"""Sets grad mode without the context manager object (which costs a microsecond)."""

enter_autocast = torch.amp.autocast_mode._enter_autocast
exit_autocast = torch.amp.autocast_mode._exit_autocast
"""Autocast as two calls, the way torch's tracers write a region of it into a graph."""

set_version = torch._C._autograd._unsafe_set_version_counter
"""Sets the version counters of tensors: one that was written to and put back is as it was."""

alias_of = torch.ops.aten.alias.default
"""The same memory and the same place in the graph, as another tensor object."""

functorch_level = torch._C._functorch.maybe_current_level
"""The level of the ``torch.func`` transform (``vmap``, ``grad``) that is running; None if none."""

correct_aliasing = torch.utils._python_dispatch.return_and_correct_aliasing
"""Gives a wrapper the new shape of an in-place view (``x.t_()``), which torch keeps in C."""

has_composite_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
"""Whether an operation has a kernel for a dispatch key: composite ones can be taken apart."""

is_fwd_grad_enabled = torch._C._is_fwd_grad_enabled
"""Forward-mode AD: on by default, off in inference mode and inside a custom autograd.Function."""

NO_FUNCTION = "its own backward would be lost; write it with ordinary torch operations"
"""What to tell somebody who calls a custom autograd.Function on a function-level wrapper."""


def inside_custom_function() -> bool:
    """Whether this is the forward of a custom ``torch.autograd.Function``.

    Torch switches off both grad modes there, and keeps the derivative to itself: an operation that
    is done elsewhere would come back without a gradient, and nobody would be told.

    >>> inside_custom_function()
    False
    """
    return not (
        torch.is_grad_enabled() or is_fwd_grad_enabled() or torch.is_inference_mode_enabled()
    )


def hide_from_compiler(method: Any) -> None:
    """Have ``torch.compile`` run a method, and all it calls, as ordinary Python.

    ``torch.compiler.disable`` does that too, by a wrapper that costs a microsecond at each call.
    """
    method.__func__._torchdynamo_disable = True  # when it would inline the method
    skip = eval_frame._FrameAction.SKIP
    strategy = eval_frame._FrameExecStrategy(skip, skip)
    eval_frame.set_code_exec_strategy(method.__func__.__code__, strategy)


def make_optimizer_state(optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> bool:
    """Have an optimizer make the state of a group of parameters, as its first step would.

    Torch's optimizers do it in a method that also sorts parameters, gradients and state into lists,
    which differ in number.  Returns False for an optimizer without that method.
    """
    make = getattr(optimizer, "_init_group", None)
    if make is None:
        return False
    lists = len(inspect.signature(make).parameters) - 1
    make(group, *([] for _ in range(lists)))
    return True


DisableTorchFunction = torch._C.DisableTorchFunction
"""Context manager: run torch functions unseen by every ``__torch_function__``, modes too."""

DisableTorchDispatch = torch._C._DisableTorchDispatch
"""Context manager: run aten operations unseen by every ``__torch_dispatch__``, modes too."""
