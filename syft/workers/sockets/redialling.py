"""Going on with the lines that a serving worker has made to others, when their connections break.

A program dials again when it waits for a worker.  A worker that serves has nobody to wait for: it
dials in a thread, while it serves others, and whoever needs the line waits for the outcome.  The
other end keeps the line for its lease, but whoever waits may have a caller that waits too, so the
line is given up after as long as a silent one is.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from syft.exceptions import SyftError, WireError
from syft.workers.sockets.calling import Dial, text_of
from syft.workers.sockets.switchboard import LOST_AFTER
from syft.workers.sockets.line import Line
from syft.workers.sockets.line_texts import Resume
from syft.workers.sockets.websocket import WebSocket

_FIRST_PAUSE: Final = 0.02
_LONGEST_PAUSE: Final = 0.5
"""Seconds between two attempts."""

_NOBODY_IS_THERE: Final = (ConnectionRefusedError, FileNotFoundError)
_FINAL: Final = (SyftError, *_NOBODY_IS_THERE)
"""After these no attempt is made any more: a process that knew the line would be listening."""


class Redialler:
    """Makes new connections for lines.

    ``post`` has the thread that serves call something.  There, ``resume`` is called with a line,
    its new connection and how many messages have arrived at the other end, or ``give_up`` with a
    line and the reason.

    >>> line = Line("alice", hook.local_worker.core.limits, odd=False)
    >>> redialler = Redialler(lambda act: act(), print, lambda line, reason: print(reason))
    >>> def dial(resume, seconds):
    ...     raise ConnectionRefusedError("nobody is there")
    >>> redialler.keep(line, dial)
    >>> redialler.start(line), redialler.close()
    it is gone (nobody is there)
    (None, None)
    """

    def __init__(
        self,
        post: Callable[[Callable[[], None]], None],
        resume: Callable[[Line, WebSocket, int], None],
        give_up: Callable[[Line, str], None],
    ) -> None:
        self._post = post
        self._resume = resume
        self._give_up = give_up
        self._dials: dict[Line, Dial] = {}
        self._threads: dict[Line, threading.Thread] = {}
        self._closing = threading.Event()

    def keep(self, line: Line, dial: Dial) -> None:
        """Remember how the connections of a line are made."""
        self._dials[line] = dial

    def knows(self, line: Line) -> bool:
        """Whether this end makes the connections of a line."""
        return line in self._dials

    def forget(self, line: Line) -> None:
        """Make no more connections for a line."""
        self._dials.pop(line, None)

    def start(self, line: Line) -> None:
        """Begin to dial, if this end made the line."""
        dial = self._dials.get(line)
        if dial is None or line in self._threads or self._closing.is_set():
            return
        resume = Resume(line.id, line.secret, line.received)
        until = time.monotonic() + LOST_AFTER * line.heartbeat
        run = functools.partial(self._run, line, dial, resume, until)
        thread = threading.Thread(target=run, name="syft redial", daemon=True)
        self._threads[line] = thread
        thread.start()

    def close(self) -> None:
        """Make no more attempts, and wait for the last ones."""
        self._closing.set()
        for thread in list(self._threads.values()):
            thread.join()

    def _run(self, line: Line, dial: Dial, resume: Resume, until: float) -> None:
        """What the thread does."""
        try:
            websocket, welcome = self._persist(dial, resume, until)
        except (OSError, *_FINAL) as error:
            reason = f"{line.why or 'it is gone'} ({text_of(error)})"
            self._post(functools.partial(self._lost, line, reason))
        except Exception as error:  # whatever else dialling raises: the line is not to wait for it
            self._post(functools.partial(self._failed, line, error))
        else:
            self._post(functools.partial(self._found, line, websocket, welcome.received))

    def _persist(self, dial: Dial, resume: Resume, until: float) -> tuple[WebSocket, Any]:
        """A connection, made in the last of several attempts."""
        pause = _FIRST_PAUSE
        while True:
            try:
                return dial(resume, max(until - time.monotonic(), _FIRST_PAUSE))
            except _FINAL:
                raise
            except OSError:
                if time.monotonic() + pause > until or self._closing.wait(pause):
                    raise
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _found(self, line: Line, websocket: WebSocket, received: int) -> None:
        del self._threads[line]
        if line.ended is not None or self._closing.is_set():
            websocket.stream.close()
            return
        try:
            self._resume(line, websocket, received)
        except WireError as error:  # it has received more than was sent, it says
            websocket.stream.close()
            self._give_up(line, str(error))

    def _lost(self, line: Line, reason: str) -> None:
        del self._threads[line]
        if line.ended is None:
            self._give_up(line, reason)

    def _failed(self, line: Line, error: Exception) -> None:
        """Give a line up for a fault, which is raised where it is logged."""
        self._lost(line, "a fault of this worker")
        raise error
