"""In which order a tensor's dimensions lie in memory, and tensors that keep theirs.

An operation on two tensors of different orders reads one of them across its lines of cache, at a
fifth of the speed.  The gradients of a linear layer come transposed from ``vmap``, so parameters
and momenta that have the same order save more than any other change to a step of large layers.

Memory that was freed is kept for the next step, instead of going back to the system.

A step of many clients makes and frees tensors of some megabytes, and the next step makes them anew.
glibc hands such blocks back to the kernel, and each page of 4 kB that the kernel brings again costs
more than the arithmetic on it.  How much glibc keeps it learns from the program (mallopt(3),
"dynamic mmap threshold"): once a block of up to 32 MB was freed, it keeps blocks of that size, and
twice as much in all.  A program that ever frees a tensor as large has the same, and where the
environment says what glibc is to keep (``MALLOC_TRIM_THRESHOLD_`` and the like), that stays.
"""

from __future__ import annotations

import functools
from typing import Final

import torch

Order = tuple[int, ...]
"""Dimensions, the outermost in memory first."""


def order_of(tensor: torch.Tensor) -> Order:
    """The order of a stacked tensor; its first dimension is taken to be the outermost.

    >>> order_of(torch.ones(2, 3, 4).transpose(1, 2))
    (0, 2, 1)
    """
    strides = tensor.stride()
    return (0, *sorted(range(1, tensor.dim()), key=lambda dim: -strides[dim]))


def laid_out(tensor: torch.Tensor, order: Order) -> torch.Tensor:
    """The same numbers in such an order; a copy only where they have another one.

    >>> laid_out(torch.ones(2, 3, 4), (0, 2, 1)).stride()
    (12, 1, 3)
    """
    return restored(tensor.permute(order).contiguous(), order)


def restored(tensor: torch.Tensor, order: Order) -> torch.Tensor:
    """The view of which ``tensor`` is ``permute(order)``.

    >>> restored(torch.ones(2, 3, 4), (0, 2, 1)).shape
    torch.Size([2, 4, 3])
    """
    return tensor.permute([order.index(dim) for dim in range(tensor.dim())])


class KeptStacks:
    """Stacked tensors by name that are written anew in each round, with their orders in memory.

    New ones would be made of new pages, which cost more than what is written to them.

    >>> stacks = KeptStacks()
    >>> first = stacks.of("x", torch.tensor([1.0, 2.0]), clients=3)
    >>> stacks.of("x", torch.tensor([4.0, 5.0]), clients=2)
    tensor([[4., 5.],
            [4., 5.]])
    >>> first[0]
    tensor([4., 5.])
    """

    def __init__(self) -> None:
        self._stacks: dict[str, torch.Tensor] = {}
        self._laid_out: set[str] = set()

    def of(self, name: str, value: torch.Tensor, clients: int) -> torch.Tensor:
        """A copy of ``value`` for each client, where earlier ones under that name were."""
        kept = self._stacks.get(name)
        if kept is None or len(kept) < clients or not _alike(kept[0], value):
            kept = self._stacks[name] = value.new_empty((clients, *value.shape))
            self._laid_out.discard(name)
        return kept[:clients].copy_(value)

    def like(self, name: str, stacked: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        """What :meth:`of` gave, in the order of ``gradient``; that of the first one stays."""
        if name in self._laid_out:
            return stacked
        self._laid_out.add(name)
        kept = self._stacks[name] = laid_out(self._stacks[name], order_of(gradient))
        return kept[: len(stacked)]


def _alike(kept: torch.Tensor, value: torch.Tensor) -> bool:
    """Whether they have the same shape and dtype, and are at the same place."""
    return (kept.shape, kept.dtype, kept.device) == (value.shape, value.dtype, value.device)


_BLOCK: Final = 31 << 20
"""A little less than the most that glibc learns from."""


@functools.cache
def keep_pages() -> None:
    """Have glibc keep up to 62 MB of what this process frees, for what it allocates next.

    Done once, by a block that is never written to, so that it takes no memory of its own.  Other
    allocators do not mind.

    >>> keep_pages()
    """
    torch.empty(_BLOCK, dtype=torch.uint8, device="cpu")
