"""How far large tensors are that are sent or fetched, and what a worker is busy with meanwhile.

The keeper (:mod:`syft.workers.sockets.calling`) looks ten times a second at how many bytes are on
their way.  So a request pays nothing for it, and what takes less than a second shows nothing.
Lines go to standard error, if that is a terminal or the output of a notebook, unless the
environment says ``SYFT_PROGRESS=0``.

``tqdm`` would have to be told of each piece by the code that reads and writes, and that is where
time counts; what would be left for it to do is the text, a few lines of which are here.

What a program waits for is what the worker says that it runs (``Busy``, told every second), while
some thread waits; nothing is measured here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from syft.status_line import PAUSE, SHOWN_AFTER, StatusLine, bar, is_wanted
from syft.workers.sockets.line import Line

_LEAST: Final = 1 << 20
"""Bytes on their way from which on a transfer is watched."""
_UNITS: Final = ("B", "kB", "MB", "GB", "TB")


class Transfer:
    """Bytes on their way over a line in one direction, watched since the time ``since``.

    >>> transfer = Transfer("bob", "sending", since=0.0, before=0)
    >>> transfer.done, transfer.total = 30_000_000, 120_000_000
    >>> transfer.text(now=2.0)
    'bob: sending 120 MB [######..................] 25 %, 15 MB/s, 6 s left'
    """

    __slots__ = ("worker", "verb", "since", "before", "done", "total", "shown")

    def __init__(self, worker: str, verb: str, since: float, before: int) -> None:
        self.worker = worker
        self.verb = verb
        self.since = since
        self.before = before
        """Bytes that were counted when it began."""
        self.done = 0
        self.total = 0
        self.shown = False

    def text(self, now: float) -> str:
        """How far it is."""
        share = self.done / max(1, self.total)
        speed = self.done / max(1e-9, now - self.since)
        left = f", {(self.total - self.done) / speed:.0f} s left" if speed else ""
        head = f"{self.worker}: {self.verb} {_size(self.total)} {bar(share)}"
        return f"{head}, {_size(speed)}/s{left}"

    def last_text(self, now: float, broken: bool) -> str:
        """What it has come to."""
        seconds = max(1e-9, now - self.since)
        if broken:
            return f"{self.worker}: {self.verb} {_size(self.total)} was interrupted"
        speed = f"{_size(self.total / seconds)}/s"
        return f"{self.worker}: {self.verb} {_size(self.total)} took {seconds:.1f} s, {speed}"


class Progress:
    """Shows the transfers that take over a second.

    >>> Progress().look([], now=0.0)
    """

    def __init__(self) -> None:
        self._running: dict[tuple[Line, str], Transfer] = {}
        self._next = 0.0
        self._line = StatusLine()
        self._awaited = ""  # what was shown last of what is waited for

    def look(self, lines: Iterable[Line], now: float, awaited: str = "") -> None:
        """Look at what is on its way, if it is time to, and show it; ``now`` is monotonic.

        ``awaited`` says what is waited for, if that has lasted.
        """
        if now < self._next:
            return
        self._next = now + PAUSE
        under_way = set()
        for line in lines:
            websocket: Any = line.websocket
            if websocket is None:
                continue
            arriving, queued = websocket.arriving, websocket.queued
            if queued > _LEAST:
                under_way.add((line, "sending"))
                self._note(line, "sending", now, websocket.written, queued)
            if arriving is not None and arriving.expected > _LEAST:
                under_way.add((line, "fetching"))
                left = arriving.expected - arriving.received
                self._note(line, "fetching", now, arriving.received, left, True)
        for key in [key for key in self._running if key not in under_way]:
            transfer = self._running.pop(key)
            if transfer.shown:
                self._line.write(transfer.last_text(now, key[0].websocket is None), "\n")
        self._show(now)
        self._show_awaited(awaited)

    def _note(
        self, line: Line, verb: str, now: float, count: int, left: int, whole: bool = False
    ) -> None:
        """Note how many bytes were counted, and how many are left; ``whole`` says that the count
        began at 0 with this transfer."""
        key = line, verb
        known = self._running.get(key)
        if known is None or count < known.before + known.done:  # the next one has begun
            known = self._running[key] = Transfer(line.name, verb, now, 0 if whole else count)
        known.done = count - known.before
        known.total = known.done + left

    def _show(self, now: float) -> None:
        """Show the transfer with the most bytes left, of those that have taken long."""
        long = [one for one in self._running.values() if now - one.since >= SHOWN_AFTER]
        if long and is_wanted():
            transfer = max(long, key=lambda one: one.total - one.done)
            transfer.shown = True
            self._line.write(transfer.text(now))

    def _show_awaited(self, awaited: str) -> None:
        """Show what is waited for while nothing is on its way, and end the line after that."""
        if awaited and not self._running and is_wanted():
            if awaited != self._awaited:
                self._line.write(awaited)
            self._awaited = awaited
        elif self._awaited:
            self._line.write(self._awaited, "\n")
            self._awaited = ""


def _size(count: float) -> str:
    """A number of bytes for people.

    >>> _size(999), _size(1_500_000), _size(40_000_000)
    ('999 B', '1.5 MB', '40 MB')
    """
    exponent = 0
    while count >= 999.5 and exponent < len(_UNITS) - 1:
        count, exponent = count / 1000, exponent + 1
    return f"{count:.3g} {_UNITS[exponent]}"
