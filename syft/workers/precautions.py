"""Torch functions that would end the worker's process, and what runs in their place.

A worker must outlive whatever it is asked to run, and it can only outlive exceptions.  Each entry
is a crash of torch itself, with the version that has it; when torch is mended, the entry goes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from syft.exceptions import OperationRefused
from syft.program.op_table import BY_NAME, FUNCTIONS, function_of


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


def checked(constructor: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A constructor of sparse tensors that checks its indices, whatever the caller asked for.

    Torch checks only when asked to, and a later operation reads where a bad index points.

    >>> make = checked(torch.sparse_coo_tensor)
    >>> make(torch.tensor([[5]]), torch.ones(1), (2,))
    Traceback (most recent call last):
    ...
    RuntimeError: size is inconsistent with indices: for dim 0, size is 2 but found index 5
    """

    def construct(*args: Any, **kwargs: Any) -> torch.Tensor:
        return constructor(*args, **{**kwargs, "check_invariants": True})

    return construct


_SPARSE = (
    "torch.sparse_coo_tensor",
    "torch.sparse_compressed_tensor",
    "torch.sparse_csr_tensor",
    "torch.sparse_csc_tensor",
    "torch.sparse_bsr_tensor",
    "torch.sparse_bsc_tensor",
)

_IN_PLACE_OF: dict[int, Callable[..., Any]] = {BY_NAME["torch.Tensor.view"]: view}
_IN_PLACE_OF.update(
    (BY_NAME[name], checked(function_of(BY_NAME[name]))) for name in _SPARSE if name in BY_NAME
)

RUNNABLE: list[Callable[..., Any] | None] = [
    _IN_PLACE_OF.get(number, function) for number, function in enumerate(FUNCTIONS)
]
"""The op table's functions by number, with the safe ones in place of those that crash."""
