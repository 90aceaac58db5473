"""Whether a plain tensor among a pointer's operands is the caller's, or one that torch made on the
way.

A recurrent layer makes its first hidden state, an attention layer a mask, ``torch.masked.mean`` a
count: plain tensors, in the middle of a computation on pointers.  They must travel, while a tensor
of the caller's must not: moving data silently would be wrong, and slow.  Nothing about the tensors
tells them apart, but the stack does: the caller's tensors are among the arguments of the call by
which the program entered torch, or held by a module there.

Only the call that would otherwise be refused pays for the look.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import torch
from torch import nn

from syft.callers import SYFT, TORCH
from syft.ops.nested import leaves

_MAKERS = tuple(os.path.join(TORCH, folder) + os.sep for folder in ("nn", "masked"))
"""Folders of torch with Python code that makes tensors of its own and computes with the caller's.
"""


def made_by_torch(tensor: torch.Tensor) -> bool:
    """Whether torch's own modules made the tensor, rather than being given it.

    >>> made_by_torch(torch.ones(2))
    False
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _passes_on(frame):
        frame = frame.f_back
    entry: FrameType | None = None
    in_maker = False
    while frame is not None and frame.f_code.co_filename.startswith(TORCH):
        in_maker = in_maker or frame.f_code.co_filename.startswith(_MAKERS)
        entry, frame = frame, frame.f_back
    if entry is None or not in_maker:
        return False
    return not any(given is tensor for given in _given(entry))


def _passes_on(frame: FrameType) -> bool:
    """Whether a frame only carries a call: ours, and those of somebody's torch function modes."""
    code = frame.f_code
    return code.co_filename.startswith(SYFT) or code.co_name == "__torch_function__"


def _given(entry: FrameType) -> Iterator[Any]:
    """Everything the caller handed to a function: the arguments, and what modules there hold."""
    arguments = inspect.getargvalues(entry)
    names = [*arguments.args, arguments.varargs, arguments.keywords]
    for leaf in leaves([arguments.locals.get(name) for name in names if name is not None]):
        yield leaf
        if isinstance(leaf, nn.Module):
            for part in leaf.modules():
                yield from leaves(vars(part))
