"""Looking for what comes, for a moment, before a thread sleeps.

To wake a thread that sleeps takes the system longer than a small request takes a worker, and each
end of a line sleeps once for each answer.  So an end that expects something soon looks for it again
and again, for a moment, and gives way to whoever else wants its core.  On one core there is
nothing to gain.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

Found = TypeVar("Found")

MOMENT: Final = 60e-6
"""Seconds that an end looks: as long as an answer to a small request takes."""


def give_way() -> Callable[[], Any] | None:
    """What lets others have the core for now; None where that is not to be had, or there is only
    one core, so that looking keeps the other end from working."""
    cores = getattr(os, "sched_getaffinity", lambda process: ())(0)
    return getattr(os, "sched_yield", None) if len(cores) > 1 else None


def look(glance: Callable[[], Found], gives_way: Callable[[], Any]) -> Found:
    """Call ``glance`` until it finds something, but for a :data:`MOMENT` at most; returns what it
    found last.

    >>> look(lambda: "something", lambda: None)
    'something'
    >>> look(lambda: "", lambda: None)
    ''
    """
    until = time.perf_counter() + MOMENT
    while not (found := glance()) and time.perf_counter() < until:
        gives_way()
    return found
