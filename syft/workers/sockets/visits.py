"""What the owner's log has of who comes to a worker, is not let in, and leaves."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from syft.exceptions import AuditFailed
from syft.trust.lockout import counted_address
from syft.workers.core.peer import Peer
from syft.workers.core.state_machine import WorkerCore

_MOST_HOSTS: Final = 1000


class OncePerSecond:
    """Which of many events of a host are told: one a second, with how many were left out before it.

    >>> told = OncePerSecond()
    >>> [told.of("10.0.0.7", now) for now in (1.0, 1.2, 1.4, 2.5)]
    [0, None, None, 2]
    """

    def __init__(self) -> None:
        self._told: dict[str | None, tuple[float, int]] = {}

    def of(self, host: str | None, now: float) -> int | None:
        """How many were left out before this one; None if it is left out itself."""
        last, left_out = self._told.pop(host, (-1.0, 0))
        if now < last + 1:
            self._told[host] = last, left_out + 1
            return None
        if len(self._told) >= _MOST_HOSTS:
            del self._told[next(iter(self._told))]
        self._told[host] = now, 0
        return left_out


class Visits:
    """Writes to the audit log of a worker, if it has one.

    >>> Visits(bob.core).nobody_is_served() is None
    True
    """

    def __init__(self, core: WorkerCore) -> None:
        self._core = core
        self._refused = OncePerSecond()

    def nobody_is_served(self) -> str | None:
        """Why nobody is let in: the log cannot be written."""
        try:
            if self._core.audit is not None:
                self._core.audit.check()
        except AuditFailed as error:
            return str(error)
        return None

    def came(self, peer: Peer, host: str | None, by: str | None = None) -> None:
        """Somebody was let in; ``by`` is the caller for whom another worker acts."""
        if self._core.audit is not None:
            self._core.audit.event("connect", peer, host=host, by=by)

    def refused(self, host: str | None, code: str) -> None:
        """Somebody was not let in: the first in a second is told, and later how many were."""
        if self._core.audit is None or code == "audit":
            return
        address = None if host is None else counted_address(host)
        before = self._refused.of(address, time.monotonic())
        if before is not None:
            self._core.audit.event("not let in", host=host, error=code, before=before or None)

    def left(self, peers: Sequence[Peer], host: str | None, reason: str) -> None:
        """Somebody has left."""
        if self._core.audit is not None and peers:
            self._core.audit.event("leave", peers[0], host=host, reason=reason)
