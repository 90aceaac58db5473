"""The memory of large tensors that have come over a program's lines, used again once they are gone.

Fresh memory comes from the kernel in pages that it fills with zeros first; for 40 MB that takes as
long as to receive them.  A program that fetches weights round by round drops the last ones before
it fetches the next.  So what large tensors were received into is remembered, and when nothing else
refers to it any more, the next tensor of as many bytes is received into it.

Only a program that calls does so.  A worker that serves keeps guards and owners with memory, and
memory has one guard for ever.  Here memory with any such mark is not used again, nor what another
process may see, nor what has another size by now: then a part of it would show old values.  All
bytes are written before a tensor has them.
"""

from __future__ import annotations

import sys
import time
from typing import Final

import torch

from syft.serde.buffers import LARGE, fresh_buffer
from syft.torch_private import tensors_on

_MOST_KNOWN: Final = 4
_MOST_BYTES: Final = 1 << 27
"""Larger tensors get fresh memory: their pages would be missed elsewhere."""
_IDLE: Final = 1.0
"""Seconds for which memory that nothing refers to is kept, up to twice of it."""


class LargeMemory:
    """Remembers the memory of large tensors.

    >>> memory = LargeMemory()
    >>> buffer = memory.take(5_000_000)
    >>> place = buffer.data_ptr()
    >>> memory.take(5_000_000).data_ptr() == place  # in use
    False
    >>> del buffer
    >>> memory.take(5_000_000).data_ptr() == place
    True
    >>> memory.forget()
    """

    def __init__(self) -> None:
        self._known: list[torch.Tensor] = []
        self._idle: list[torch.Tensor] = []  # those to which nothing referred at the last look
        self._looked = time.monotonic()

    def take(self, size: int) -> torch.Tensor:
        """A buffer of ``size`` bytes on the CPU, which are yet to be written."""
        if not LARGE <= size <= _MOST_BYTES or torch.is_inference_mode_enabled():
            return fresh_buffer(size)
        for known in self._known:
            if known.numel() == size and _is_free(known):
                return known.data
        buffer = fresh_buffer(size)
        self._known.append(buffer.data)  # another tensor, with nothing in common but the memory
        del self._known[:-_MOST_KNOWN]
        return buffer

    def look(self) -> None:
        """Give back what was free at the last look, and still is; to be called now and then."""
        now = time.monotonic()
        if now - self._looked < _IDLE:
            return
        self._looked = now
        idle = [known for known in self._known if _is_free(known)]
        over = {id(known) for known in idle} & {id(known) for known in self._idle}
        self._known = [known for known in self._known if id(known) not in over]
        self._idle = [known for known in idle if id(known) not in over]

    def forget(self) -> None:
        """Give back all of it; what is in use stays with its tensors."""
        self._known, self._idle = [], []


def _is_free(known: torch.Tensor) -> bool:
    """Whether nothing else refers to the memory, or has marked it, or may see it."""
    if tensors_on(known) > 1:
        return False
    storage = known.untyped_storage()
    if storage.is_shared() or storage.__dict__ or storage.nbytes() != known.numel():
        return False
    del storage
    return _names(known) == _names(torch.empty(1, device="cpu"))


def _names(tensor: torch.Tensor) -> int:
    """How often Python refers to the memory by itself: the count of its tensors leaves that out."""
    return sys.getrefcount(tensor.untyped_storage())
