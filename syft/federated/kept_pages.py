"""Memory that was freed is kept for the next step, instead of going back to the system.

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
