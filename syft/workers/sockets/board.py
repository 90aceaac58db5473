"""The one loop of a process that has lines: it reads, serves and writes, for whoever waits.

A program that calls has no thread for it.  Whichever of its threads waits for a worker runs the
loop meanwhile, and reads all lines, since the worker that it waits for may wait for another one
(:mod:`syft.workers.sockets.calling`).  A worker that serves runs it on one thread for as long as it
serves (:mod:`syft.workers.sockets.serving`).  To hand each operation to another thread, or into an
event loop, would cost as much again as the operation.

Two locks, in this order: the *monitor* guards the network, its workers and their objects, and
``io`` the sockets.  A program has one lock for both.  Both are left while nothing is to be done.
One thread polls at a time; others that wait are told when it has come back with something.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from typing import Any, ClassVar, Final

from syft.exceptions import SyftError
from syft.workers.client.monitor import Monitor
from syft.workers.shells.network import Network
from syft.workers.sockets.dialling import text_of
from syft.workers.sockets.line import Line
from syft.workers.sockets.readiness import READ, WRITE, readiness
from syft.workers.sockets.switchboard import Switchboard
from syft.workers.sockets.websocket import NORMAL, PROTOCOL_ERROR, WebSocket

IDLE: Final = 1.0
"""Seconds between two looks at heartbeats and leases, at most."""
_LEAST_PAUSE: Final = 0.025
"""The same, at least."""


class Board(Switchboard):
    """The lines of one process, and the loop that carries them. Abstract.

    ``gathers`` is how many bytes may wait until the loop writes them: a program writes at once.

    >>> print(*sorted(Board.__abstractmethods__))
    comes_back gone look_for reconnects
    """

    gathers: ClassVar[int] = 0

    def __init__(self, network: Network, io: Monitor | None = None) -> None:
        super().__init__(network)
        self.io = io or self.monitor
        self.watched = readiness()
        """Which sockets can be used, and who is told of that."""
        self.unwritten: dict[Line, None] = {}
        """Lines with something to write."""
        self.next_look = 0.0
        """When heartbeats are looked at next."""
        self._numbers_of: dict[Line, int] = {}
        self._ready: dict[Line, None] = {}  # lines with something to serve
        self._stalled: set[Line] = set()  # lines that are not read
        self._reading: set[Line] = set()  # lines that one thread alone reads, or connects
        self._polls = False  # whether a thread waits for all the others
        self._expects = False  # more may come soon, since something was just served
        self._breaking: set[Line] = set()

    # ------------------------------------------------------------------------------- the loop

    def turn(self, line: Line | None, wait: bool) -> bool:
        """Take in and serve what has come; see :meth:`Switchboard.turn`."""
        return self._beside(line, wait, IDLE) or wait

    def glance(self, seconds: float) -> bool:
        """See :meth:`Switchboard.glance`."""
        return self._beside(None, True, seconds)

    def _beside(self, line: Line | None, wait: bool, most: float) -> bool:
        """One round of the loop, for a thread that waits for a line, or for anything."""
        with self.io.lock:
            if wait and line is not None and line.websocket is None:
                # Why the other end has left may be among what came, and is served first.
                if self._serve_ready() or self.reconnects(line):
                    return True
            return self._loop(wait, most, line)

    def _loop(self, wait: bool, most: float = IDLE, line: Line | None = None) -> bool:
        """Serve what was taken in, or look for more; waits so many seconds at ``most``."""
        worked = self._serve_ready() if self._ready else False
        if self.unwritten:
            self.write_all()
        now = time.monotonic()
        if now >= self.next_look:
            self.look_around(now)
        if wait and not worked:
            pause = max(0.0, min(most, self.next_look - now))
            ready = self._wait(pause, line)
        else:
            ready = [] if self._polls else self.watched.wait(0)
        for what, event in ready:
            if type(what) is Line and event == READ:  # nearly always
                worked |= self._read(what)
            else:
                self._on_event(what, event)
                worked = True
        if self._ready:
            worked |= self._serve_ready()
            if self.unwritten and not self.gathers:
                self.write_all()
        self._expects = worked
        return worked

    def _wait(self, seconds: float, line: Line | None) -> list[tuple[Any, int]]:
        """Wait until something can be read or written, or until another thread has done so."""
        io = None if self.io is self.monitor else self.io.leave()
        try:
            if self._polls or line in self._reading:
                self.monitor.wait(seconds)
                return []
            try:
                self._polls = True
                held = self.monitor.leave()
                try:
                    return self.watched.wait(seconds, self._expects)
                finally:
                    self.monitor.enter_again(held)
            finally:
                self._polls = False
                self.monitor.notify()
        finally:
            if io is not None:
                self.io.enter_again(io)

    def _on_event(self, what: Any, event: int) -> None:
        if type(what) is Line:
            if event & WRITE:
                self.unwritten[what] = None
            if event & READ:
                self._read(what)
        else:
            self.contain(getattr(what, "line", None), what, event)

    def _serve_ready(self) -> bool:
        """Serve the lines that have requests, each for a while."""
        worked = False
        for line in list(self._ready):
            if self.holds_back(line):
                continue
            worked |= self.contain(line, self.serve, line)  # what a request raises is its reply
            self.unwritten[line] = None
            if line.urgent or (line.inbox and not line.serving):
                continue
            if not line.inbox:
                self._ready.pop(line, None)
                if self._stalled:
                    self._resume_reading(line)
        return worked

    def holds_back(self, line: Line) -> bool:
        """Whether a line is not to be served now."""
        return False

    # -------------------------------------------------------------------------------- reading

    def _read(self, line: Line, monitor: Monitor | None = None) -> bool:
        """Read a line, and take in what came; whether that was more than signs of life.

        With ``monitor`` something is waited for, as :meth:`WebSocket.receive` does.
        """
        websocket = line.websocket
        if websocket is None:
            return False
        try:
            websocket.receive(monitor)
        except Exception as error:  # nothing that comes over one line may end the thread
            self.failed(line, error)
            return True
        except KeyboardInterrupt:  # perhaps between reading and noting what was read
            self.drop(line, "it was interrupted while it was read")
            raise
        return self._take_in(line)

    def _take_in(self, line: Line) -> bool:
        taken: bool = self.contain(line, self.take, line)
        if line.websocket is not None and line.websocket.queued:
            self.unwritten[line] = None  # an acknowledgement, or the answer to a heartbeat
        if line.inbox or line.urgent:
            self._ready[line] = None
            self.has_taken_in(line)
        return taken

    def has_taken_in(self, line: Line) -> None:
        """Look at what waits of a line, some of which has just come."""

    def stall(self, line: Line) -> None:
        """Read no more of a line until what waits was served."""
        self._stalled.add(line)
        self._listen_for(line)

    def _resume_reading(self, line: Line) -> None:
        if line in self._stalled:
            self._stalled.discard(line)
            self._listen_for(line)

    # -------------------------------------------------------------------------------- writing

    def write_all(self) -> None:
        """Write what there is to write, as far as others read it."""
        for line in list(self.unwritten):
            self.write(line)

    def write(self, line: Line) -> None:
        """Write what a line has to write, as far as that is possible now."""
        websocket = line.websocket
        if websocket is None:
            self.unwritten.pop(line, None)
            return
        before = websocket.queued
        try:
            done = websocket.flush()
        except Exception as error:  # as for what is read
            self.failed(line, error)
            return
        if done or not line.writes or before == websocket.queued:
            self.unwritten.pop(line, None)
            if line.writes is done:
                line.writes = not done
                self._listen_for(line)

    def push(self, line: Line) -> None:
        """Write what a line has to write, soon."""
        websocket = line.websocket
        if websocket is not None and websocket.queued:
            if websocket.queued > self.gathers:
                self.write(line)
            else:
                self.unwritten[line] = None

    def _listen_for(self, line: Line) -> None:
        number = self._numbers_of.get(line)
        if number is None:
            return
        events = 0 if line in self._stalled else READ
        events |= WRITE if line.writes else 0
        if events:
            self.watched.watch(number, events, line)
        else:
            self.watched.forget(number)

    # ------------------------------------------------------------------------------ heartbeats

    def look_around(self, now: float) -> None:
        """What is done now and then."""
        pause = min([IDLE, *(one.heartbeat / 2 for one in self.lines)])
        self.next_look = now + max(pause, _LEAST_PAUSE)
        self.contain(None, self.beat, now)

    def beat(self, now: float) -> None:
        """Ask the ends that have been silent for a sign of life, and give up those that gave none;
        of a line that one thread alone reads, that one does."""
        for line in list(self.lines):
            if line not in self._reading:
                self.contain(line, self.beat_line, line, now)

    def has_come(self, line: Line) -> bool:
        """See :class:`Switchboard`."""
        return self._read(line)

    # ------------------------------------------------------------------------------- the lines

    def add(self, line: Line, websocket: WebSocket, received: int) -> None:
        """Carry a line over a connection from now on; the other end has ``received`` so much."""
        if line not in self.lines:
            self.lines.append(line)
        line.unwritten = self.unwritten
        line.attach(websocket, received)
        number = websocket.stream.fileno()
        self._numbers_of[line] = number
        self.watched.watch(number, READ, line)
        self.unwritten[line] = None
        self.next_look = min(self.next_look, time.monotonic() + line.heartbeat / 2)
        self._read(line)  # decrypted already, say: then the socket has nothing to read

    def remove(self, line: Line, reason: str) -> None:
        """End a line, and close its connection."""
        websocket = line.websocket
        self._unregister(line)
        if websocket is not None:
            websocket.close(NORMAL, reason)
        line.end(reason)
        self.next_look = 0.0
        self._ready.pop(line, None)
        if line in self.lines:
            self.lines.remove(line)

    def detach(self, line: Line) -> None:
        """Close the connection of a line that goes on."""
        self._unregister(line)
        line.detach()

    def drop(self, line: Line, why: str) -> None:
        """Close the connection of a line that goes on, and say so."""
        self.detach(line)
        line.why = why

    def _unregister(self, line: Line) -> None:
        number = self._numbers_of.pop(line, None)
        self.unwritten.pop(line, None)
        self._stalled.discard(line)
        line.writes = False
        if number is not None:
            self.watched.forget(number)

    def forked(self) -> None:
        """In a forked process: forget what is watched.  The parent's system call goes on with it,
        so nothing is taken out of it here."""
        self.watched.close()
        self.watched = readiness()
        for known in (self._numbers_of, self.unwritten, self._ready, self._reading):
            known.clear()
        self._polls = False

    def broke(self, line: Line, error: Exception) -> None:
        """Note that a connection is gone; a broken rule ends the line too."""
        if line in self._breaking:
            return  # an answer to its last words cannot be written either
        if not isinstance(error, SyftError):
            self._hear_last_words(line)
        websocket = line.websocket
        if websocket is None:
            return
        if isinstance(error, SyftError):
            self._unregister(line)
            websocket.close(getattr(error, "code", PROTOCOL_ERROR), str(error))
            line.end(str(error))
        else:
            self.drop(line, text_of(error))
        self.gone(line, error)

    def _hear_last_words(self, line: Line) -> None:
        """Take in what came before a connection broke: replies, and why the other end has left."""
        websocket = line.websocket
        if websocket is None:
            return
        self._breaking.add(line)
        self.contain(None, websocket.receive)
        self.contain(None, self.take, line)
        self._breaking.discard(line)
        if line.inbox or line.urgent:
            self._ready[line] = None

    @abstractmethod
    def gone(self, line: Line, error: Exception) -> None:
        """See what becomes of a line whose connection is gone, for that reason."""

    @abstractmethod
    def reconnects(self, line: Line) -> bool:
        """See to a connection for a line that has none, for which this thread waits; whether that
        was all that this round is to do.

        Raises :class:`~syft.exceptions.WorkerLost` if there is nothing to wait for.
        """
