"""A log that strangers cannot fill: at most one line a second of what they bring about.

Whoever reaches the port can have himself refused a thousand times a second.  What is left out is
counted, and the next line says how often something else happened meanwhile.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from syft.foreign_text import contained


class SparseLog:
    """Writes to a logger, at most one line in ``pause`` seconds; ``clock`` tells the seconds.

    >>> import unittest
    >>> now = [0.0]
    >>> log = SparseLog(logging.getLogger("syft.doctest"), clock=lambda: now[0])
    >>> with unittest.TestCase().assertLogs("syft.doctest") as seen:
    ...     log.warning("refused %s", "eve"); log.warning("refused %s", "bea")
    ...     now[0] = 1.5
    ...     log.info("refused %s", "zoe")
    >>> seen.output
    ['WARNING:syft.doctest:refused eve', 'INFO:syft.doctest:refused zoe (and 1 more since)']
    """

    def __init__(
        self,
        logger: logging.Logger,
        pause: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._logger = logger
        self._pause = pause
        self._clock = clock
        self._lock = threading.Lock()
        self._next = -float("inf")
        self._left_out = 0

    def warning(self, text: str, *args: object) -> None:
        """Write a warning, unless one was written just now."""
        self._write(logging.WARNING, text, args)

    def info(self, text: str, *args: object) -> None:
        """Write something that may be known, unless a line was written just now."""
        self._write(logging.INFO, text, args)

    def _write(self, level: int, text: str, args: tuple[object, ...]) -> None:
        if not self._logger.isEnabledFor(level):
            return
        now = self._clock()
        with self._lock:
            if now < self._next:
                self._left_out += 1
                return
            left_out, self._left_out = self._left_out, 0
            self._next = now + self._pause
        if left_out:
            text, args = text + " (and %d more since)", (*args, left_out)
        self._logger.log(level, text, *args)


class Contained(logging.Filter):
    """Keeps what others have chosen in a record from looking like a record of its own.

    >>> record = logging.makeLogRecord({"msg": "refused %s", "args": ("eve\\n\\x1b[2J",)})
    >>> Contained().filter(record), record.getMessage()
    (True, 'refused eve\\n    \\\\x1b[2J')
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is written: it is, with the text contained."""
        record.msg, record.args = contained(record.getMessage()), ()
        return True


LOG: Final = logging.getLogger("syft.worker")
LOG.addFilter(Contained())
STRANGERS: Final = SparseLog(LOG)
"""For what anybody can bring about who reaches the port, and breaks a rule."""
VISITS: Final = SparseLog(LOG)
"""For who comes and goes."""
