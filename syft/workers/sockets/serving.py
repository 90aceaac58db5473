"""The lines of a worker that serves: one thread polls, reads, executes and replies.

To hand each operation to another thread would cost as much again as the operation.  So there is one
thread for all of it, and a second one that sleeps: when an operation takes more than a quarter of a
second, it takes the reading over.  It answers heartbeats, lets new callers in, takes requests in,
and tells those who wait what they wait for.  It executes nothing.

Two locks, in this order: the *monitor* guards the worker, its store and its objects, and is left
while nothing is to be done, so that the owner's own program can use the worker; ``io`` guards the
sockets, and is left while an operation runs, so that the second thread can read.
"""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

from syft.exceptions import BrokenFraming, SyftError, WireError, WorkerLost
from syft.serde.frame import Frame
from syft.workers.core.peer import Peer
from syft.workers.sockets.calling import LOST_AFTER
from syft.workers.sockets.described import described
from syft.workers.sockets.line import Channel, Line
from syft.workers.sockets.line_texts import Busy, Bye, Control, Open
from syft.workers.sockets.monitor import Monitor
from syft.workers.sockets.outside_network import OutsideNetwork
from syft.workers.sockets.sparse_log import SparseLog
from syft.workers.sockets.streams import Stream
from syft.workers.sockets.switchboard import Switchboard
from syft.workers.sockets.websocket import FAULT, NORMAL, PING, PROTOCOL_ERROR, REFUSED, WebSocket

LOG: Final = logging.getLogger("syft.worker")
STRANGERS: Final = SparseLog(LOG)
"""For what anybody can bring about who reaches the port, and breaks a rule."""
VISITS: Final = SparseLog(LOG)
"""For who comes and goes."""

LONG: Final = 0.25
"""Seconds of an operation after which the other thread reads."""
_TICK: Final = 0.05
_IDLE: Final = 1.0
"""Seconds between two looks at heartbeats and leases, where nothing happens."""
_MOST_WAITING: Final = 1 << 26
"""Bytes of requests of one line that wait; more are not read until some have been served."""
_MOST_UNREAD: Final = 1 << 26
"""Bytes of replies that a caller has not read; until it does, nothing is served to it."""


class Opening(Protocol):
    """A connection whose caller has not said who it is."""

    stream: Stream
    since: float

    def advance(self) -> bool:
        """Read what is there; whether it is a connection of a line now, or closed."""

    def close(self, reason: str) -> None:
        """Give the connection up."""


class ServingBoard(Switchboard):
    """The lines to one worker that serves, and those that it has made to others.

    ``accept`` makes an opening of a new connection, ``gone`` is called with each line whose
    connection is lost, and ``house`` now and then.
    """

    network: OutsideNetwork

    def __init__(
        self,
        network: OutsideNetwork,
        accept: Callable[[socket.socket], Opening],
        house: Callable[[float], None],
    ) -> None:
        super().__init__(network)
        self.io = Monitor()
        self.stopping: str | None = None
        """Why the worker stops, once it does."""
        self.openings: dict[int, Opening] = {}
        self.on_open: Callable[[Line, Open], None] = _refuse_channel
        self.on_settle: Callable[[Line], list[Line]] = lambda line: []
        self.on_withdraw: Callable[[Line, Control], None] = _ignore
        self._accept = accept
        self._house = house
        self._selector = selectors.DefaultSelector()
        self._listeners: list[socket.socket] = []
        self._numbers_of: dict[Line, int] = {}
        self._stalled: set[Line] = set()
        self._ready: dict[Line, None] = {}  # lines with something to serve
        self._unwritten: dict[Line, None] = {}  # lines with something to write
        self._running: tuple[float, Frame, Peer] | None = None
        self._ended = False
        self._next_look = 0.0
        self._told_busy: dict[Line, float] = {}
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_read.setblocking(False)
        self._selector.register(self._wake_read, selectors.EVENT_READ, None)

    # ------------------------------------------------------------------------------- the loop

    def listen(self, listener: socket.socket) -> None:
        """Take connections from a listening socket."""
        listener.setblocking(False)
        self._listeners.append(listener)
        self._selector.register(listener, selectors.EVENT_READ, listener)

    def run(self) -> None:
        """Serve until :meth:`stop` is called."""
        standby = threading.Thread(target=self._stand_by, name="syft standby", daemon=True)
        standby.start()
        try:
            with self.monitor, self.io:
                while self.stopping is None:
                    self._loop(True)
        finally:
            self.stopping = self.stopping or "it has stopped"
            self._ended = True
            standby.join()

    def stop(self, reason: str) -> None:
        """Have the loop end when what is running is done; may be called from any thread."""
        self.stopping = self.stopping or reason
        self.wake()

    def wake(self) -> None:
        """Have the loop look again; may be called from any thread and from a signal handler."""
        with contextlib.suppress(OSError):
            self._wake_write.send(b"\0", socket.MSG_DONTWAIT)

    def close(self) -> None:
        """Close what is open, also of callers that have not said who they are."""
        for number in list(self.openings):
            self.give_up(number, self.stopping or "")
        self._selector.close()
        self._wake_read.close()
        self._wake_write.close()

    def turn(self, line: Line | None, wait: bool) -> bool:
        """Take in and serve what has come; see :meth:`Switchboard.turn`.

        A request that waits for another worker calls this, so that others are served meanwhile.
        """
        running, self._running = self._running, None
        try:
            with self.io:
                if wait and line is not None and line.websocket is None:
                    raise WorkerLost(line.name, line.ended or line.why)
                return self._loop(wait) or wait
        finally:
            self._running = running

    def _loop(self, wait: bool) -> bool:
        """Serve what was taken in, or look for more."""
        worked = bool(self._ready) and self._serve_ready()
        if self._unwritten:
            self._write_all()
        self._look_around()
        ready = self._select(0 if worked or not wait else _IDLE)
        for key, event in ready:
            self._on_event(key, event)
        return bool(self._ready) and self._serve_ready() or worked or bool(ready)

    def _select(self, timeout: float) -> list[tuple[selectors.SelectorKey, int]]:
        if not timeout:
            return self._selector.select(0)
        io = self.io.leave()
        state = self.monitor.leave()
        try:
            return self._selector.select(timeout)
        finally:
            self.monitor.enter_again(state)
            self.io.enter_again(io)

    def _on_event(self, key: selectors.SelectorKey, event: int) -> None:
        what = key.data
        if type(what) is Line:
            if event & selectors.EVENT_WRITE:
                self._unwritten[what] = None
            if event & selectors.EVENT_READ:
                self._read(what)
        elif what is None:
            with contextlib.suppress(BlockingIOError):
                self._wake_read.recv(4096)
        elif isinstance(what, socket.socket):
            self._take_callers(what)
        else:
            self._advance(key.fd, what)

    def _serve_ready(self) -> bool:
        """Serve the lines that have requests, each for a while."""
        worked = False
        for line in list(self._ready):
            if self._is_unread(line):
                continue
            try:
                worked |= self.serve(line)
            except Exception as error:  # as above; what a request raises is its reply
                self._broken(line, error)
            self._unwritten[line] = None
            if line.urgent or (line.inbox and not line.serving):
                continue
            if not line.inbox:
                self._ready.pop(line, None)
                self._resume_reading(line)
        return worked

    def _is_unread(self, line: Line) -> bool:
        if line.is_unacknowledged and line not in self._stalled:  # else nobody hears of it
            return True
        return line.websocket is not None and line.websocket.queued > _MOST_UNREAD

    def _respond(self, channel: Channel, frame: Frame, peer: Peer) -> Frame | None:
        """Serve a request while the other thread may read."""
        self._running = (time.monotonic(), frame, peer)
        held = self.io.leave()
        try:
            return super()._respond(channel, frame, peer)
        finally:
            self.io.enter_again(held)
            self._running = None

    # ------------------------------------------------------------------------------- the lines

    def add(self, line: Line, websocket: WebSocket, received: int) -> None:
        """Carry a line over a connection from now on."""
        if line not in self.lines:
            self.lines.append(line)
        line.unwritten = self._unwritten
        line.attach(websocket, received)
        number = websocket.stream.fileno()
        self._numbers_of[line] = number
        with contextlib.suppress(KeyError):
            self._selector.unregister(number)
        self._selector.register(number, selectors.EVENT_READ, line)
        self._unwritten[line] = None
        self._take_in(line)

    def remove(self, line: Line, reason: str) -> None:
        """End a line, and close its connection."""
        websocket = line.websocket
        self._unregister(line)
        if websocket is not None:
            websocket.close(NORMAL, reason)
        line.end(reason)
        self._next_look = 0.0
        self._ready.pop(line, None)
        self._told_busy.pop(line, None)
        if line in self.lines:
            self.lines.remove(line)

    def part(self, line: Line, reason: str) -> None:
        """Say that this end leaves, as far as that can be written at once, and end a line."""
        line.tell(Bye(reason))
        with contextlib.suppress(OSError):
            line.flush()
        self.remove(line, reason)

    def detach(self, line: Line) -> None:
        """Close the connection of a line that goes on."""
        self._unregister(line)
        line.detach()

    def _unregister(self, line: Line) -> None:
        number = self._numbers_of.pop(line, None)
        self._unwritten.pop(line, None)
        self._stalled.discard(line)
        if number is not None:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(number)

    def broke(self, line: Line, error: Exception) -> None:
        """Note that a connection is gone; a broken rule ends the line too."""
        websocket = line.websocket
        if websocket is None:
            return
        self._unregister(line)
        line.why = str(error) or type(error).__name__
        if isinstance(error, SyftError):
            STRANGERS.warning("closed %s: %s", line.name, error)
            websocket.close(getattr(error, "code", PROTOCOL_ERROR), str(error))
            line.end(str(error))
        else:
            STRANGERS.info("lost %s: %s", line.name, line.why)
            line.detach()

    def _broken(self, line: Line, error: Exception) -> None:
        """Give up a connection, and the line if that was the worker's fault."""
        if not isinstance(error, OSError | WireError):
            STRANGERS.warning("a fault of this worker: %r", error)
            error = BrokenFraming(FAULT, "a fault of this worker")
        self.broke(line, error)

    def _read(self, line: Line) -> None:
        """Read a line, and take in what came."""
        try:
            assert line.websocket is not None
            line.websocket.receive()
        except Exception as error:  # nothing that a caller sends may end the worker
            self._broken(line, error)
        else:
            self._take_in(line)

    def _take_in(self, line: Line) -> None:
        try:
            self.take(line)
        except Exception as error:  # as above
            self._broken(line, error)
        if line.websocket is not None and line.websocket.queued:
            self._unwritten[line] = None  # an acknowledgement, or the answer to a heartbeat
        if line.inbox or line.urgent:
            self._ready[line] = None
            if line.must_break_off:
                self.broke(line, BrokenFraming(REFUSED, "nothing of what was sent has arrived"))
            elif line.waiting > _MOST_WAITING and line not in self._stalled:
                self._stalled.add(line)
                self._listen_for(line)

    def _resume_reading(self, line: Line) -> None:
        if line in self._stalled:
            self._stalled.discard(line)
            self._listen_for(line)

    def _write_all(self) -> None:
        """Write what there is to write, as far as others read it."""
        for line in list(self._unwritten):
            websocket = line.websocket
            if websocket is None:
                self._unwritten.pop(line, None)
                continue
            before = websocket.queued
            try:
                done = websocket.flush()
            except OSError as error:
                self.broke(line, error)
                continue
            if done:
                self._unwritten.pop(line, None)
                if line.writes:
                    line.writes = False
                    self._listen_for(line)
            elif not line.writes or before == websocket.queued:
                self._unwritten.pop(line, None)
                line.writes = True
                self._listen_for(line)

    def push(self, line: Line) -> None:
        """Write what a line has to write, soon."""
        self._unwritten[line] = None
        if line.websocket is not None and line.websocket.queued > 1 << 12:
            self._write_all()

    def _listen_for(self, line: Line) -> None:
        number = self._numbers_of.get(line)
        if number is None:
            return
        events = 0 if line in self._stalled else selectors.EVENT_READ
        events |= selectors.EVENT_WRITE if line.writes else 0
        with contextlib.suppress(KeyError):
            self._selector.unregister(number)
        if events:
            self._selector.register(number, events, line)

    # ----------------------------------------------------------------------------- new callers

    def _take_callers(self, listener: socket.socket) -> None:
        for _ in range(64):
            try:
                sock, _ = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:  # no file is left, say: others may go away
                STRANGERS.warning("cannot take a caller: %s", error)
                time.sleep(0.01)
                return
            try:
                opening = self._accept(sock)
            except (OSError, WireError) as error:
                STRANGERS.info("refused a caller: %s", error)
                sock.close()
                continue
            number = opening.stream.fileno()  # encryption has taken the socket over
            self.openings[number] = opening
            self._selector.register(number, selectors.EVENT_READ, opening)

    def _advance(self, number: int, opening: Opening) -> None:
        """Let a caller say who it is."""
        try:
            done = opening.advance()
        except Exception as error:  # nothing that a stranger says may end the worker
            if isinstance(error, OSError | WireError):
                STRANGERS.info("refused a caller: %s", error)
            else:
                STRANGERS.warning("a fault of this worker: %r", error)
            self.give_up(number, str(error))
            return
        if done:
            self.openings.pop(number, None)

    def give_up(self, number: int, reason: str) -> None:
        """Close a connection whose caller has not said who it is."""
        opening = self.openings.pop(number, None)
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(number)
        if opening is not None:
            opening.close(reason)

    # -------------------------------------------------------------------- now and then

    def _look_around(self) -> None:
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + _IDLE
        self.beat(now)
        for number, opening in list(self.openings.items()):
            if now - opening.since > 5:
                self.give_up(number, "nobody said who is calling")
        self._house(now)
        self.network.flush()

    def beat(self, now: float) -> None:
        """Ask callers that have been silent for a sign of life, and give up those that gave
        none."""
        for line in list(self.lines):
            websocket = line.websocket
            if websocket is None or now - websocket.heard < line.heartbeat:
                continue
            if websocket.heard > line.pinged:
                line.pinged = now
                websocket.put([b""], PING)
                self._unwritten[line] = None
            elif now - line.pinged > (LOST_AFTER - 1) * line.heartbeat:
                silence = now - websocket.heard
                self.broke(line, TimeoutError(f"it has been silent for {silence:.1f} s"))

    def _stand_by(self) -> None:
        """What the other thread does: it reads while an operation takes long."""
        while not self._ended:
            time.sleep(_TICK)
            running = self._running
            if running is None or time.monotonic() - running[0] < LONG:
                continue
            with self.io:
                if self._running is running:
                    self._read_meanwhile(running)

    def _read_meanwhile(self, running: tuple[float, Frame, Peer]) -> None:
        """Read and write while an operation takes long."""
        for key, event in self._selector.select(0):
            self._on_event(key, event)
        self._tell_busy(running)
        self.beat(time.monotonic())
        self._write_all()

    def _tell_busy(self, running: tuple[float, Frame, Peer]) -> None:
        """Tell those who wait what they wait for, once a second."""
        since, frame, peer = running
        now = time.monotonic()
        for line in self._ready:
            if line.websocket is None or now - self._told_busy.get(line, since) < _IDLE:
                continue
            self._told_busy[line] = now
            line.tell(Busy(described(frame), peer.user, now - since, len(line.inbox)))
            self._unwritten[line] = None

    # ------------------------------------------------------------------- what callers say

    def opened(self, line: Line, opening: Open) -> None:
        """Serve the requests of another worker of the caller."""
        self.on_open(line, opening)

    def reached_for(self, line: Line) -> list[Line]:
        """The lines to workers to which the caller has introduced this one."""
        return self.on_settle(line)

    def said(self, line: Line, control: Control) -> None:
        """Act on what a caller says of its line."""
        self.on_withdraw(line, control)


def _refuse_channel(line: Line, opening: Open) -> None:
    raise ConnectionAbortedError("no channel can be opened yet")


def _ignore(line: Line, control: Any) -> None:
    return
