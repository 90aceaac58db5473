"""The layout a tensor has when it arrives at a worker, made here with torch alone.

A message carries values, a shape and strides.  On the way a lazy conjugate or negative is resolved,
memory with gaps or overlaps becomes row-major, and the storage offset becomes zero; dense memory
keeps its order, and a dimension that is repeated (stride 0) stays repeated.  On equal values in
another layout torch may take another kernel, and differ from itself in the last bits.  A copy made
here shows whether it does.  It is made without ``syft.serde``, so that a fault there excuses
nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from syft.ops.nested import replace


def as_it_arrives(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of a tensor, laid out as the one a worker is sent; a leaf of its own."""
    plain = tensor.detach()
    if plain.layout is torch.strided and not plain.is_quantized:
        once = plain[
            tuple(
                slice(1) if stride == 0 and length > 1 else slice(None)
                for length, stride in zip(plain.shape, plain.stride(), strict=True)
            )
        ]
        kept = torch.preserve_format if is_dense(once) else torch.contiguous_format
        # A clone has its conjugate and its sign resolved.
        copied = once.clone(memory_format=kept).expand(plain.shape)
    else:
        copied = plain.clone()
    return copied.requires_grad_(tensor.requires_grad)


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether the elements fill memory without gap or overlap, in whatever order."""
    count = 1
    for stride, length in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if length > 1:
            if stride != count:
                return False
            count *= length
    return True


def each_once(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """``value`` with its tensors changed; a tensor that is in it twice is changed once."""
    changed: dict[int, torch.Tensor] = {}

    def change_once(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if id(leaf) not in changed:
            changed[id(leaf)] = change(leaf)
        return changed[id(leaf)]

    return replace(value, change_once)


def laid_out_anew(module: nn.Module) -> nn.Module:
    """The module, its parameters and buffers laid out as they arrive at a worker."""
    with torch.no_grad():
        for tensor in (*module.parameters(), *module.buffers()):
            tensor.data = as_it_arrives(tensor).detach()
    return module
