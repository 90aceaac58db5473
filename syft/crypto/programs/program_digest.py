"""What the parties of a share program compare, to see that all of them run the same one.

They get their programs from a client, one by one, so it could tell each another story: what one
opens under a mask, another would take for a share of what it reveals.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import torch

from syft.crypto.programs.share_program import ShareProgram


def digest_of(program: ShareProgram, about: Sequence[Any]) -> bytes:
    """SHA-256 of a program, with its public tensors, and of plain values that belong to it.

    >>> one, other = (digest_of(ShareProgram(0, (), ()), [counter]) for counter in (1, 2))
    >>> len(one), one == other
    (32, False)
    """
    found = hashlib.sha256(repr((program.inputs, program.results, tuple(about))).encode())
    for step in program.instructions:
        found.update(repr((int(step.code), _told(step.args), step.outs)).encode())
    return found.digest()


def _told(value: Any) -> Any:
    """The same value with hashes in the place of tensors."""
    if type(value) is tuple:
        return tuple(map(_told, value))
    if type(value) is not torch.Tensor:
        return value
    words = value.cpu().contiguous().view(-1).view(torch.uint8).numpy()
    return "tensor", str(value.dtype), tuple(value.shape), hashlib.sha256(words.data).hexdigest()
