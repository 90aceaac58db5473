"""The intermediate results whose gradient a backward pass keeps, after ``retain_grad()``.

Such a tensor may be in a store, in the registers of a program or in the state of a plan.  So it is
recorded when ``retain_grad`` is called.  Only weak references are kept.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from syft.chain.wrapper import Wrapper

_RETAINING: Any = WeakTensorKeyDictionary()  # typed as a mapping, and used as a set


def retain_grad(tensor: torch.Tensor) -> None:
    """Call ``torch.Tensor.retain_grad``, and record the tensor.

    >>> x = torch.ones(2, requires_grad=True) * 2
    >>> retain_grad(x); [tensor is x for tensor in retaining()]
    [True]
    """
    torch.Tensor.retain_grad(tensor)
    recorded = recorded_of(tensor)
    if recorded is not None:
        _RETAINING[recorded] = None


def retaining() -> list[torch.Tensor]:
    """The recorded tensors of this process that are still alive.

    >>> x = torch.ones(2, requires_grad=True) * 2
    >>> retain_grad(x); del x; retaining()
    []
    """
    return list(_RETAINING.keys())


def recorded_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """The tensor of a chain that autograd of this process records; None if it is at another worker.

    >>> x = torch.ones(2); recorded_of(x) is x
    True
    """
    value: Any = tensor
    while type(value) is Wrapper and value.child.at_function_level:
        value = value.child.tensor_behind()
    return value if isinstance(value, torch.Tensor) else None
