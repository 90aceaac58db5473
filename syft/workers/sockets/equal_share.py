"""What callers whom nobody knows have a worker hold, all of them together.

Each may send requests faster than they are served, and leave replies unread.  So there is a bound
on all of it, and whoever has less than an equal share of it is served whatever the others do.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Final

from syft.workers.sockets.line import Line

_MOST_HELD: Final = 1 << 28
"""Bytes of requests and replies that all callers without a user together have the worker hold; with
more, whoever has more than an equal share of them is not served, and not read."""
_LEAST_SHARE: Final = 1 << 21
"""Bytes that are never too many: what clients receive before they say that it has arrived."""
_SUM_EVERY: Final = 0.05
"""Seconds between two looks at how many these are."""


class EqualShare:
    """The bound on what strangers have a worker hold; ``lines`` are all lines to the worker.

    >>> from syft.serde.limits import Limits
    >>> line = Line("eve", Limits(), odd=True)
    >>> EqualShare([line]).is_exceeded(line, held=10_000)
    False
    """

    def __init__(self, lines: Collection[Line]) -> None:
        self._lines = lines
        self._held = 0  # bytes, as far as is known
        self._next_sum = 0.0

    def is_exceeded(self, line: Line, held: int) -> bool:
        """Whether ``held`` bytes are more than the share of a line whose caller nobody knows, while
        all of these together have the worker hold too many."""
        share = max(_LEAST_SHARE, _MOST_HELD // max(1, len(self._lines)))
        if line.user is not None or held <= share:
            return False
        now = time.monotonic()
        if now >= self._next_sum:
            strangers = [one for one in self._lines if one.user is None]
            self._held = sum(one.kept_bytes + one.waiting for one in strangers)
            self._next_sum = now + _SUM_EVERY
        return self._held > _MOST_HELD
