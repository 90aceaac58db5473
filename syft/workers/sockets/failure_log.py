"""Where the tracebacks of failed requests go: to the log of the worker's owner.

A traceback names the owner's files, and says which versions of what are installed there.  Callers
get what they can use: the class of an error, its text, and the line of their own that asked.  They
also get a reference, under which the owner finds the traceback, if a caller asks for help.

Errors of syft say themselves what is wrong and what to do: they have no entry.  Anybody can have
requests fail as fast as a worker serves, so the entries of a second are bounded.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from traceback import format_exception
from typing import Final

from syft.exceptions import SyftError
from syft.workers.sockets.sparse_log import LOG

MOST: Final = 20
"""Tracebacks in one second."""


class FailureLog:
    """Writes the tracebacks of errors to the log; ``doing`` says what is done for whom.

    >>> log = FailureLog(lambda: "torch.Tensor.add for ann")
    >>> log(ZeroDivisionError("by zero"))
    'in the log of its owner, under reference ...'
    >>> log(SyftError("drop it first"))
    ''
    """

    def __init__(
        self, doing: Callable[[], str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._doing = doing
        self._clock = clock
        self._second = 0
        self._written = 0

    def __call__(self, error: BaseException) -> str:
        """Write an error down; returns what its caller is told in the place of the traceback."""
        if isinstance(error, SyftError):
            return ""
        second = int(self._clock())
        if second != self._second:
            self._second, self._written = second, 0
        self._written += 1
        if self._written > MOST:
            return "not kept: too many requests failed in this second"
        reference = secrets.token_hex(4)
        text = "".join(format_exception(error, chain=False)).rstrip()
        LOG.info("a request failed, reference %s (%s)\n%s", reference, self._doing(), text)
        return f"in the log of its owner, under reference {reference}"
