"""A timer for programs without an event loop: an idle program's dropped pointers reach the workers.

The ids of dropped pointers go along with the next request.  A notebook may make none for hours, and
what its pointers held stays in the memory of the workers.  So a shell without a loop of its own has
one thread, which sleeps until a pointer dies, waits a moment for requests that take the id along,
and sends what is left.

Refused: a message for each dropped pointer (a program that makes and drops a result with each line
would send twice as many messages), a message after so many drops (the last ones stay, and one
tensor can be large), and a thread for each timer that is set.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

_LOG = logging.getLogger("syft.client")

DELAY = 0.1
"""Seconds between the death of a pointer and the message."""


class DropTimer:
    """Calls ``flush`` in a thread of its own, ``delay`` seconds after it was started.

    ``flush`` is that of the shell: ``Network.flush_idle`` under the lock that every thread holds
    while it reads or writes the sockets.  An error of it is logged.  A timer is a context manager
    that stops the thread.

    >>> calls = SimpleQueue()
    >>> with DropTimer(lambda: calls.put("flushed"), delay=0) as timer:
    ...     timer.start()
    ...     calls.get(timeout=60)
    'flushed'
    """

    def __init__(self, flush: Callable[[], None], delay: float = DELAY) -> None:
        self._flush = flush
        self._delay = delay
        self._set = False
        # `put` may be interrupted by itself: a pointer may die anywhere, also in here.  Events and
        # conditions would wait for themselves then.
        self._orders: SimpleQueue[bool] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="syft drop timer", daemon=True)
        self._thread.start()

    def start(self) -> None:
        """Have ``flush`` called in ``delay`` seconds, unless it is to be called already.

        It does not wait, and may be called from anywhere, also from a destructor.
        """
        if not self._set:
            self._set = True
            self._orders.put(True)

    def stop(self) -> None:
        """End the thread; what is left is not flushed."""
        self._orders.put(False)
        self._thread.join()

    def __enter__(self) -> DropTimer:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.stop()

    def _run(self) -> None:
        while self._orders.get():
            try:
                goes_on = self._orders.get(timeout=self._delay)
            except Empty:
                goes_on = True
            if not goes_on:
                return
            self._set = False  # before: what is dropped from now on may be missed by this flush
            try:
                self._flush()
            except Exception as error:  # whatever a connection raises: others drop pointers too
                _LOG.warning("a fault of this program: %r", error)
