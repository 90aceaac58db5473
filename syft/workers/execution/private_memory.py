"""What its owner has made private in this process.

A guard is on memory, so a view of a private tensor (``x[:2]``, ``x.t()``, ``x.data``) is as
private.  What a private tensor is made of stays public.  So a private tensor gets a storage of its
own, over the bytes that were there (DLPack: nothing is copied), and the guard is noted on that.

A worker that holds the tensor copies it, to memory that torch can enlarge.  Results that are
computed here have memory of their own, and are their owner's business.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.dlpack import from_dlpack

from syft.workers.labels.guards import Guard, meet_guards
from syft.workers.labels.memory_labels import full_guard_of, protect
from syft.workers.labels.walk import innermost, storages_of


def make_private(tensor: torch.Tensor, guard: Guard) -> None:
    """Give a tensor a guard and, where torch can export it, a storage of its own over its bytes.

    What it cannot export (sparse, quantized, or conjugated tensors) keeps its storages, so what
    they were made of becomes private too.

    >>> x = torch.ones(2); private = x.detach(); make_private(private, Guard(frozenset()))
    >>> full_guard_of(private[:1]) == Guard(frozenset()), full_guard_of(x) is None
    (True, True)
    """
    meant = meet_guards(full_guard_of(tensor), guard)
    inner = innermost(tensor)
    if inner is not None and _can_be_exported(inner):
        whole = inner.detach()
        alias = from_dlpack(whole)
        inner.data = alias.as_strided(whole.size(), whole.stride())  # DLPack forgets some strides
    protect(tensor, meant)


def _can_be_exported(tensor: torch.Tensor) -> bool:
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout != torch.strided:
        return False
    return not (tensor.is_quantized or tensor.is_meta or tensor.is_conj() or tensor.is_neg())


def ready_to_hold(tensor: torch.Tensor) -> None:
    """Have a tensor of this process's own program lie in memory that torch allocated, and with the
    guard that it has here, before a worker holds it.

    >>> x = torch.ones(2); private = x.detach(); make_private(private, Guard(frozenset()))
    >>> part = private[1:]; ready_to_hold(part)
    >>> part.untyped_storage().resizable(), full_guard_of(part.data) is None
    (True, False)
    """
    guard = full_guard_of(tensor)
    # torch cannot enlarge other memory (numpy's, or a file's), and a failed resize_ nevertheless
    # leaves the tensor with its new size (torch 2.13)
    if not all(storage.resizable() for storage in storages_of(tensor)):
        inside: Any = innermost(tensor)
        inside.data = inside.detach().clone()
    protect(tensor, guard)
