"""Object ids: 63 random bits, so that nobody can guess the id of what somebody else holds.

An id is drawn for every remote result, so drawing must be cheap: ids come from the operating
system's generator 512 at a time (about 60 ns each; one system call per id costs ten times that).
A counter would be faster and guessable; 11 decimal digits, as the earlier library used, collide
after a few hundred thousand objects.
"""

from __future__ import annotations

import os
import struct

_BATCH = struct.Struct("<512Q")
_pool: list[int] = []

# A forked child must not hand out the ids its parent holds.
os.register_at_fork(after_in_child=_pool.clear)


def new_id() -> int:
    """Draw a fresh object id between 0 and 2**63 - 1.

    >>> 0 <= new_id() < 2**63 and new_id() != new_id()
    True
    """
    try:
        return _pool.pop() >> 1
    except IndexError:
        _pool.extend(_BATCH.unpack(os.urandom(_BATCH.size)))
        return _pool.pop() >> 1
