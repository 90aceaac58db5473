"""Torch functions that would end the worker's process, and what runs in their place.

A worker must outlive whatever it is asked to run, and it can only outlive exceptions.  Each entry
is a crash of torch itself, with the version that has it; when torch is mended, the entry goes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from syft.exceptions import OperationRefused
from syft.program.op_table import BY_NAME, FUNCTIONS


def view(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """``torch.Tensor.view``, but not of a quantized tensor as another dtype (2.13: a segfault).

    >>> view(torch.ones(4), 2, 2).shape
    torch.Size([2, 2])
    """
    if tensor.is_quantized and any(
        isinstance(value, torch.dtype) for value in (*args, *kwargs.values())
    ):
        raise OperationRefused("torch.Tensor.view", "a quantized tensor has no view as other dtype")
    viewed: torch.Tensor = torch.Tensor.view(tensor, *args, **kwargs)
    return viewed


_IN_PLACE_OF = {BY_NAME["torch.Tensor.view"]: view}

RUNNABLE: list[Callable[..., Any] | None] = [
    _IN_PLACE_OF.get(number, function) for number, function in enumerate(FUNCTIONS)
]
"""The op table's functions by number, with the safe ones in place of those that crash."""
