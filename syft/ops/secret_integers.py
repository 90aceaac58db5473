"""Random integers that nobody can predict: the masks of protocols.

Those of ``torch.randint`` follow from a seed, and from enough of them the rest can be computed.
"""

from __future__ import annotations

import secrets
from typing import Final

import torch
from torch.overrides import handle_torch_function, has_torch_function_unary

from syft.exceptions import UnsupportedOperation

MOST_BITS: Final = 52
"""The bits of the largest number on a grid: a thousand such still add up to less than 2^63."""


def on_grid(x: torch.Tensor, bits: int) -> torch.Tensor:
    """The nearest whole multiples of 2^-bits, in units of that, as 64-bit integers.

    Raises :class:`~syft.exceptions.UnsupportedOperation` for NaN, infinity and numbers that have
    more than ``MOST_BITS`` bits on the grid.

    >>> on_grid(torch.tensor([0.5, -2.0]), 16)
    tensor([  32768, -131072])
    """
    if has_torch_function_unary(x):
        found: torch.Tensor = handle_torch_function(on_grid, (x,), x, bits)
        return found
    scaled = torch.round(x.detach().double() * 2.0**bits)
    if not bool((scaled.abs() < 2.0**MOST_BITS).all()):  # NaN is not below either
        beyond = f"NaN, infinity and numbers beyond 2^{MOST_BITS - bits}"
        raise UnsupportedOperation(beyond, f"a grid of 2^-{bits}", "scale the numbers")
    return scaled.long()


def secret_like(like: torch.Tensor) -> torch.Tensor:
    """Uniform 64-bit integers in the shape of a tensor, from the generator of the operating system.

    Where the tensor is at a worker, they are drawn there; in a protocol, by the role that has it,
    anew at each execution.

    >>> secret_like(torch.zeros(2, 3)).shape, secret_like(torch.zeros(2, 3)).dtype
    (torch.Size([2, 3]), torch.int64)
    """
    if has_torch_function_unary(like):
        found: torch.Tensor = handle_torch_function(secret_like, (like,), like)
        return found
    if not like.numel():
        return torch.zeros(like.shape, dtype=torch.int64, device=like.device)
    drawn = bytearray(secrets.token_bytes(8 * like.numel()))
    return torch.frombuffer(drawn, dtype=torch.int64).reshape(like.shape).to(like.device)
