"""A process that does nothing but serve: until Ctrl-C or SIGTERM, and then ends in good order.

The worker serves on a thread of its own.  So the main thread is free while an operation of torch
runs for a minute, and a second Ctrl-C finds somebody who listens.
"""

from __future__ import annotations

import contextlib
import math
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType

from syft.node.worker_log import LiveLine, counts
from syft.workers.sockets.server import WebsocketServerWorker, end_audit
from syft.workers.sockets.sparse_log import LOG

_LOOK = 0.5
"""Seconds between two looks at what the live line counts."""
GRACE = 5.0
"""Seconds that an operation may go on when the worker is to stop."""
_STOPPED_BY = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM"}


class Stopping:
    """What the signals do: the first has the worker stop, the second ends the process at once.

    >>> with sy.WebsocketServerWorker(hook, port=0, id="dan") as dan:
    ...     Stopping(dan).reason
    """

    def __init__(self, server: WebsocketServerWorker) -> None:
        self._server = server
        self.reason: str | None = None
        """Why the worker stops, once it does."""

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """Act on a signal; nothing is written here, for the main thread may be writing."""
        if self.reason is not None:
            os._exit(128 + number)
        self.reason = f"its owner has stopped it ({_STOPPED_BY[signal.Signals(number)]})"
        self._server.stop(self.reason)

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """A context in which the signals do so; only the main thread may enter it."""
        before = {number: signal.signal(number, self.on_signal) for number in _STOPPED_BY}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def serve_until_stopped(
    server: WebsocketServerWorker,
    announcement: str,
    line: LiveLine | None,
    grace: float = GRACE,
) -> int:
    """Serve until a signal comes; returns the exit status: 0, or 1 if serving failed.

    The announcement is printed when signals are listened to: whoever reads it may stop the worker.
    ``line`` shows what is there; None: nothing is shown.  Requests that are running end first, and
    callers are told why the worker stops.  One that lasts more than ``grace`` seconds is not waited
    for: torch cannot be interrupted, so the process ends, and callers find nobody there.
    """
    failed: list[Exception] = []

    def serve() -> None:
        try:
            server.start()
        except Exception as error:
            LOG.critical("the worker has failed", exc_info=True)
            failed.append(error)

    stopping = Stopping(server)
    thread = threading.Thread(target=serve, name=f"syft worker {server.id}")
    with stopping.listening():
        print(announcement, flush=True)
        thread.start()
        until = math.inf
        while thread.is_alive():
            thread.join(max(0.0, min(_LOOK, until - time.monotonic())))
            if stopping.reason is not None and until == math.inf:
                until = time.monotonic() + grace
                LOG.info(
                    "stopping when what runs has ended, in %g s at most; Ctrl-C again ends at once",
                    grace,
                )
            if time.monotonic() > until:
                _end_in_the_midst(server, str(stopping.reason))
            if line is not None:
                line.show(counts(server))
        server.close()
    if line is not None:
        line.erase()
    if not failed:
        LOG.info("worker %s has stopped: %s", server.id, stopping.reason)
    return len(failed)


def _end_in_the_midst(server: WebsocketServerWorker, reason: str) -> None:
    """End the process although something runs; what its owner's log has to say is written."""
    LOG.warning("worker %s ends in the midst of %s: %s", server.id, server.board.doing(), reason)
    end_audit(server, reason)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def allow_many_sockets() -> None:
    """Let this process open as many files as the system lets it.

    A connection is a file, and the usual 1024 would be the most callers of a worker.

    >>> allow_many_sockets()
    >>> soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    >>> soft == hard
    True
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # macOS says unlimited, and allows less
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
