"""Seconds since 1970 that never step: what is agreed about time between two processes.

The clocks of two machines differ by minutes, and each may be set while a program runs.  So a worker
says what its clock shows, and a client counts on from there (:attr:`Welcome.clock`).  Time during
which a machine sleeps counts.
"""

from __future__ import annotations

import time
from typing import Final

_CLOCK: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux stops the usual one while a machine sleeps; macOS has no other."""


def _elapsed() -> float:
    return time.clock_gettime(_CLOCK)


_BEGAN: Final = time.time() - _elapsed()


def steady_time() -> float:
    """The seconds since 1970, as they were known when this process began, and counted since.

    >>> before = steady_time()
    >>> before <= steady_time() <= before + 60
    True
    """
    return _BEGAN + _elapsed()


def seconds_ahead(clock: float | None) -> float:
    """By how many seconds another clock is ahead, which shows ``clock`` now.

    A worker that does not say what its clock shows is one of an earlier version: it takes what
    clocks show for the same everywhere.

    >>> abs(seconds_ahead(steady_time() - 90) + 90) < 1, abs(seconds_ahead(None)) < 60
    (True, True)
    """
    return (time.time() if clock is None else clock) - steady_time()
