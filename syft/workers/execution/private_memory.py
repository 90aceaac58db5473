"""What its owner has made private in this process, found again by its memory.

The guard that ``private_tensor`` sets is on one object.  A view of it (``x[:2]``, ``x.t()``,
``x.data``) is another object, and who sends that means the same data.  So a private tensor gets a
storage of its own, over the bytes that were there (DLPack: nothing is copied), and the guard is
noted on that: torch gives every view the same storage, and the tensor that it was made of another.

A worker that holds the tensor copies it, to memory that torch can enlarge.  Results that are
computed here have memory of their own, and are their owner's business.
"""

from __future__ import annotations

from typing import Final

import torch
from torch.utils.dlpack import from_dlpack

from syft.workers.execution.permissions import (
    Guard,
    guard_of,
    innermost,
    meet_guards,
    set_guard,
    strided_parts_of,
)
from syft.workers.execution.precautions import own_memory

_GUARD: Final = "_private_here"


def make_private(tensor: torch.Tensor, guard: Guard) -> None:
    """Give a tensor a guard and, where torch can export it, a storage of its own over its bytes.

    What it cannot export (sparse, quantized, or conjugated tensors) keeps its storages, so what
    they were made of becomes private too.

    >>> x = torch.ones(2); private = x.detach(); make_private(private, Guard(frozenset()))
    >>> guard_here(private[:1]) == guard_of(private), guard_here(x) is None
    (True, True)
    """
    set_guard(tensor, guard)
    meant = guard_of(tensor)
    inner = innermost(tensor)
    if inner is not None and _can_be_exported(inner):
        whole = inner.detach()
        alias = from_dlpack(whole)
        inner.data = alias.as_strided(whole.size(), whole.stride())  # DLPack forgets some strides
    mark_memory(tensor, meant)


def mark_memory(tensor: torch.Tensor, guard: Guard | None) -> None:
    """Note a guard on the storages of a tensor of this process's own program.

    >>> x = torch.ones(2); mark_memory(x, Guard(frozenset())); guard_here(x[:1]) is None
    False
    """
    if guard is not None:
        for part in strided_parts_of(tensor):
            attributes = part.untyped_storage().__dict__
            attributes[_GUARD] = meet_guards(attributes.get(_GUARD), guard)


def _can_be_exported(tensor: torch.Tensor) -> bool:
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout != torch.strided:
        return False
    return not (tensor.is_quantized or tensor.is_meta or tensor.is_conj() or tensor.is_neg())


def ready_to_hold(tensor: torch.Tensor) -> None:
    """Have a tensor of this process's own program lie in memory that torch allocated, and with the
    guard that it has here, before a worker holds it.

    >>> x = torch.ones(2); private = x.detach(); make_private(private, Guard(frozenset()))
    >>> part = private[1:]; ready_to_hold(part)
    >>> part.untyped_storage().resizable(), guard_of(part) is None, guard_here(part.data) is None
    (True, False, False)
    """
    guard = guard_here(tensor)
    set_guard(tensor, guard)
    own_memory(tensor)
    mark_memory(tensor, guard)


def guard_here(tensor: torch.Tensor) -> Guard | None:
    """The guard of a tensor of this process's own program: that on it, and that of its memory.

    Workers do not ask this: what they hold is guarded by
    :func:`~syft.workers.execution.permissions.protect`.

    >>> guard_here(torch.ones(2)) is None
    True
    """
    guard = guard_of(tensor)
    for part in strided_parts_of(tensor):
        guard = meet_guards(guard, part.untyped_storage().__dict__.get(_GUARD))
    return guard
