"""What a process keeps of the memory that it has freed.

A tensor of some megabytes lies in pages of its own, which the C library gives back to the system
as soon as the tensor is gone; the next one needs pages anew, and the system clears each of them:
for large tensors this takes longer than most arithmetic on them.  A process that does nothing but
serve uses the same few sizes again and again, so it keeps some of what it has freed.  This is a
setting of the whole process, which a library does not make for the program that uses it: only
``syft worker`` does.  (Rounds of simulated clients stay within what glibc learns by itself:
:mod:`~syft.federated.stacked_memory`.)
"""

from __future__ import annotations

import ctypes
from typing import Final

KEPT: Final = 256 << 20
"""Bytes that are kept, if nothing else is said."""

_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_TOP_PAD: Final = -2
"""The numbers of three settings of glibc's ``mallopt``."""
_LARGEST_KEPT: Final = 32 << 20
"""A block that is larger has pages of its own whatever is set: glibc takes no higher threshold."""
_HEAP: Final = 64 << 20
"""The pieces of which the heaps of threads consist.  One that is empty is kept if the piece before
it has less room than what is asked for here."""


def keep_freed_memory(nbytes: int = KEPT) -> bool:
    """Keep up to so many bytes that were freed; 0 leaves the process as it is.

    Blocks above 32 MB are given back all the same.  The main thread and each other one that
    allocates have a heap of their own, for which this holds.  Returns whether the C library can do
    it: glibc's ``mallopt`` is asked, and elsewhere nothing changes.

    >>> keep_freed_memory(0) is hasattr(ctypes.CDLL(None), "mallopt")
    True
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:  # musl, macOS
        return False
    if not nbytes:
        return True
    kept = min(nbytes, 2**31 - 1)  # mallopt takes a C int
    settings = (_MMAP_THRESHOLD, _LARGEST_KEPT), (_TRIM_THRESHOLD, kept), (_TOP_PAD, _HEAP)
    return all([bool(mallopt(setting, value)) for setting, value in settings])
