"""Random integers that nobody can predict: the masks of protocols.

Those of ``torch.randint`` follow from a seed, and from enough of them the rest can be computed.
"""

from __future__ import annotations

import secrets

import torch
from torch.overrides import handle_torch_function, has_torch_function_unary


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
        return torch.zeros(like.shape, dtype=torch.int64)
    drawn = bytearray(secrets.token_bytes(8 * like.numel()))
    return torch.frombuffer(drawn, dtype=torch.int64).reshape(like.shape)
