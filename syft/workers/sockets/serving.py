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
import functools
import logging
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from syft.exceptions import BrokenFraming, SyftError, WireError, WorkerLost
from syft.serde.frame import Frame
from syft.workers.core.peer import Peer
from syft.workers.core.state_machine import WorkerCore
from syft.workers.sockets.described import described
from syft.workers.sockets.equal_share import EqualShare
from syft.workers.sockets.line import Line
from syft.workers.sockets.line_texts import Busy, Bye, Control, Open
from syft.workers.client.monitor import Monitor
from syft.workers.sockets.opening_connections import Opening
from syft.workers.sockets.outside_network import OutsideNetwork
from syft.workers.sockets.readiness import READ, WRITE, readiness
from syft.workers.sockets.redialling import Redialler
from syft.workers.sockets.sparse_log import SparseLog
from syft.workers.sockets.switchboard import LOST_AFTER, Switchboard
from syft.workers.sockets.tunnel_ends import TunnelEnds, is_about_tunnels
from syft.workers.sockets.websocket import NORMAL, PROTOCOL_ERROR, REFUSED, WebSocket

LOG: Final = logging.getLogger("syft.worker")
STRANGERS: Final = SparseLog(LOG)
"""For what anybody can bring about who reaches the port, and breaks a rule."""
VISITS: Final = SparseLog(LOG)
"""For who comes and goes."""

LONG: Final = 0.25
"""Seconds of an operation after which the other thread reads."""
_ANOTHER: Final = "another caller's request"
_TICK: Final = 0.05
_IDLE: Final = 1.0
"""Seconds between two looks at heartbeats and leases, where nothing happens."""
_MOST_WAITING: Final = 1 << 26
"""Bytes of requests of one line that wait; more are not read until some have been served."""
_UNASKED: Final = 1 << 14
"""Messages and their bytes that are on their way without a closer look at how many."""
_MOST_UNREAD: Final = 1 << 26
"""Bytes of replies that a caller has not read; until it does, nothing is served to it."""


def _refuse_tunnel(line: Line, sock: socket.socket) -> str:
    raise ConnectionRefusedError("no tunnel leads here")


class ServingBoard(Switchboard):
    """The lines to one worker that serves, and those that it has made to others.

    ``accept`` makes an opening of a new connection, and ``house`` is called now and then.
    ``accept_tunnel`` takes the near end of a tunnel: see
    :class:`~syft.workers.sockets.tunnel_ends.TunnelEnds`.
    """

    network: OutsideNetwork
    end = "worker"
    log = LOG.name

    def __init__(
        self,
        network: OutsideNetwork,
        accept: Callable[[socket.socket], Opening],
        house: Callable[[float], None],
        accept_tunnel: Callable[[Line, socket.socket], str] = _refuse_tunnel,
    ) -> None:
        super().__init__(network)
        self.io = Monitor()
        self.stopping: str | None = None
        """Why the worker stops, once it does."""
        self.openings: dict[int, Opening] = {}
        self.on_open: Callable[[Line, Open], None] = _refuse_channel
        self.on_settle: Callable[[Line], list[Line]] = lambda line: []
        self.on_left: Callable[[Line, str], None] = lambda line, reason: None
        self._accept = accept
        self._house = house
        self._watched = readiness()
        self._numbers_of: dict[Line, int] = {}
        self._stalled: set[Line] = set()
        self._ready: dict[Line, None] = {}  # lines with something to serve
        self._unwritten: dict[Line, None] = {}  # lines with something to write
        self._running: tuple[float, Frame, Peer] | None = None
        self._ended = False
        self._expects = False  # more may come soon, since something was just served
        self._next_look = 0.0
        self._share = EqualShare(self.lines)
        self._told_busy: dict[Line, float] = {}
        self.redialler = Redialler(self.post, self.add, self.remove)
        self._posted: deque[Callable[[], None]] = deque()
        self._lost: deque[tuple[str, str]] = deque()  # by the other thread, and why
        self._stands_in = False  # whether the standby thread reads
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_read.setblocking(False)
        self._watched.watch(self._wake_read.fileno(), READ, self._woken)
        self.tunnels = TunnelEnds(self._watched, accept_tunnel)

    # ------------------------------------------------------------------------------- the loop

    def listen(self, listener: socket.socket) -> None:
        """Take connections from a listening socket."""
        listener.setblocking(False)
        take = functools.partial(self._take_callers, listener)
        self._watched.watch(listener.fileno(), READ, take)

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

    def post(self, act: Callable[[], None]) -> None:
        """Have the thread that serves call something; may be called from any thread."""
        self._posted.append(act)
        self.wake()

    def close(self) -> None:
        """Close what is open, also of callers that have not said who they are."""
        self.redialler.close()
        self._act()
        for number in list(self.openings):
            self.give_up(number, self.stopping or "")
        self.tunnels.look(all_of_them=True)
        self._watched.close()
        self._wake_read.close()
        self._wake_write.close()

    def turn(self, line: Line | None, wait: bool) -> bool:
        """Take in and serve what has come; see :meth:`Switchboard.turn`.

        A request that waits for another worker calls this, so that others are served meanwhile.
        """
        return self._beside(line, wait, _IDLE) or wait

    def glance(self, seconds: float) -> bool:
        """See :meth:`Switchboard.glance`."""
        return self._beside(None, True, seconds)

    def _beside(self, line: Line | None, wait: bool, most: float) -> bool:
        running, self._running = self._running, None
        try:
            with self.io:
                if wait and line is not None and line.websocket is None:
                    if not line.is_awaited(LOST_AFTER):
                        raise WorkerLost(line.name, line.ended or line.why)
                return self._loop(wait, most)
        finally:
            self._running = running

    def _loop(self, wait: bool, most: float = _IDLE) -> bool:
        """Serve what was taken in, or look for more; waits so many seconds at ``most``."""
        worked = self._serve_ready() if self._ready else False
        if self._unwritten:
            self._write_all()
        now = time.monotonic()
        if now >= self._next_look:
            self._look_around(now)
        ready = self._wait(0 if worked or not wait else most)
        for what, event in ready:
            if type(what) is Line and event == READ:  # nearly always
                self._read(what)
            else:
                self._on_event(what, event)
        if self._ready:
            worked |= self._serve_ready()
        self._expects = worked
        return worked or bool(ready)

    def _wait(self, seconds: float) -> list[tuple[Any, int]]:
        if not seconds:
            return self._watched.wait(0)
        io = self.io.leave()
        state = self.monitor.leave()
        try:
            return self._watched.wait(seconds, self._expects)
        finally:
            self.monitor.enter_again(state)
            self.io.enter_again(io)

    def _on_event(self, what: Any, event: int) -> None:
        if type(what) is Line:
            if event & WRITE:
                self._unwritten[what] = None
            if event & READ:
                self._read(what)
        else:
            self.contain(getattr(what, "line", None), what, event)

    def _woken(self, event: int) -> None:
        with contextlib.suppress(BlockingIOError):
            self._wake_read.recv(4096)
        self._act()

    def _act(self) -> None:
        """Do what other threads have posted."""
        while self._posted:
            self.contain(None, self._posted.popleft())

    def comes_back(self, line: Line) -> bool:
        """Whether this end makes another connection for a line."""
        return self.redialler.knows(line)

    def _serve_ready(self) -> bool:
        """Serve the lines that have requests, each for a while."""
        worked = False
        for line in list(self._ready):
            much = line.sent - line.acknowledged + line.kept_bytes > _UNASKED
            if much and self._is_unread(line):
                continue
            try:
                worked |= self.serve(line)
            except Exception as error:  # as above; what a request raises is its reply
                self.failed(line, error)
            self._unwritten[line] = None
            if line.urgent or (line.inbox and not line.serving):
                continue
            if not line.inbox:
                self._ready.pop(line, None)
                if self._stalled:
                    self._resume_reading(line)
        return worked

    def _is_unread(self, line: Line) -> bool:
        if self._share.is_exceeded(line, line.kept_bytes):
            if line in self._stalled:  # nobody hears what it says of what has arrived
                self.broke(line, BrokenFraming(REFUSED, "too little of what was sent has arrived"))
            return True
        if line.is_unacknowledged and line not in self._stalled:  # else nobody hears of it
            return True
        return line.websocket is not None and line.websocket.queued > _MOST_UNREAD

    def _waits_too_much(self, line: Line) -> bool:
        return line.waiting > _MOST_WAITING or self._share.is_exceeded(line, line.waiting)

    def _respond(self, core: WorkerCore, frame: Frame, peer: Peer) -> Frame | None:
        """Serve a request while the other thread may read."""
        self._running = (time.monotonic(), frame, peer)
        held = self.io.leave()
        try:
            return core.respond(frame, peer)
        finally:
            self.io.enter_again(held)
            self._running = None
            while self._lost:  # before the next request asks what has become of it
                self._lose(*self._lost.popleft())

    # ------------------------------------------------------------------------------- the lines

    def add(self, line: Line, websocket: WebSocket, received: int) -> None:
        """Carry a line over a connection from now on."""
        if line not in self.lines:
            self.lines.append(line)
        line.unwritten = self._unwritten
        line.attach(websocket, received)
        number = websocket.stream.fileno()
        self._numbers_of[line] = number
        self._watched.watch(number, READ, line)
        self._unwritten[line] = None
        self._read(line)  # decrypted already, say: then the socket has nothing to read

    def remove(self, line: Line, reason: str) -> None:
        """End a line, and close its connection."""
        websocket, dialled = line.websocket, self.redialler.knows(line)
        self._unregister(line)
        if websocket is not None:
            websocket.close(NORMAL, reason)
        line.end(reason)
        self.redialler.forget(line)
        self._next_look = 0.0
        self._ready.pop(line, None)
        self._told_busy.pop(line, None)
        if line in self.lines:
            self.lines.remove(line)
        if dialled:
            if self._stands_in:  # that thread executes nothing
                self._lost.append((line.name, reason))
            else:
                self._lose(line.name, reason)

    def _lose(self, name: str, reason: str) -> None:
        """Fail what the worker does together with one that is gone."""
        try:
            self.network.lose(name, reason)
        except Exception as error:  # whoever leaves may not end the worker
            STRANGERS.warning("a fault of this worker, as %s was lost: %r", name, error)

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
            self._watched.forget(number)

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
            if self.redialler.knows(line):
                self.remove(line, str(error))
        else:
            STRANGERS.info("lost %s: %s", line.name, line.why)
            line.detach()
            self.redialler.start(line)

    def _read(self, line: Line) -> None:
        """Read a line, and take in what came."""
        try:
            assert line.websocket is not None
            line.websocket.receive()
        except Exception as error:  # nothing that a caller sends may end the worker
            if isinstance(error, OSError):
                self._take_in(line)  # what came before: perhaps why the other end has left
            self.failed(line, error)
        else:
            self._take_in(line)

    def _take_in(self, line: Line) -> None:
        try:
            self.take(line)
        except Exception as error:  # as above
            self.failed(line, error)
        if line.websocket is not None and line.websocket.queued:
            self._unwritten[line] = None  # an acknowledgement, or the answer to a heartbeat
        if line.inbox or line.urgent:
            self._ready[line] = None
            much = line.sent - line.acknowledged + line.kept_bytes > _UNASKED
            if much and line.must_break_off:
                self.broke(line, BrokenFraming(REFUSED, "nothing of what was sent has arrived"))
            elif line not in self._stalled and self._waits_too_much(line):
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
            except Exception as error:  # as above
                self.failed(line, error)
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
        events = 0 if line in self._stalled else READ
        events |= WRITE if line.writes else 0
        if events:
            self._watched.watch(number, events, line)
        else:
            self._watched.forget(number)

    # ----------------------------------------------------------------------------- new callers

    def _take_callers(self, listener: socket.socket, event: int = READ) -> None:
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
                self.let_in(self._accept(sock))
            except Exception as error:  # as above
                if isinstance(error, OSError | WireError):
                    STRANGERS.info("refused a caller: %s", error)
                else:
                    self.failed(None, error)
                sock.close()

    def let_in(self, opening: Opening) -> None:
        """Let whoever is at the other end of a new connection say who it is."""
        number = opening.stream.fileno()  # encryption has taken the socket over
        self.openings[number] = opening
        advance = functools.partial(self._advance, number, opening)
        self._watched.watch(number, READ, advance)

    def _advance(self, number: int, opening: Opening, event: int) -> None:
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
        self._watched.forget(number)
        if opening is not None:
            opening.close(reason)

    # -------------------------------------------------------------------- now and then

    def _look_around(self, now: float) -> None:
        self._next_look = now + _IDLE
        self.beat(now)
        for number, opening in list(self.openings.items()):
            if now - opening.since > 5:
                self.contain(None, self.give_up, number, "nobody said who is calling")
        self.contain(None, self.tunnels.look)
        self.contain(None, self._house, now)
        self.contain(None, self.network.flush)

    def beat(self, now: float) -> None:
        """Ask callers that have been silent for a sign of life, and give up those that gave
        none."""
        for line in list(self.lines):
            self.contain(line, self.beat_line, line, now)

    def put_ping(self, line: Line) -> None:
        """See :class:`Switchboard`; it is written with what else there is."""
        self._unwritten[line] = None

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
        self._stands_in = True
        try:
            for what, event in self._watched.wait(0):
                self._on_event(what, event)
            self.contain(None, self._tell_busy, running)
            self.beat(time.monotonic())
            self._write_all()
        finally:
            self._stands_in = False

    def _tell_busy(self, running: tuple[float, Frame, Peer]) -> None:
        """Tell those who wait what they wait for, once a second."""
        since, frame, peer = running
        now = time.monotonic()
        for line in self._ready:
            if line.websocket is None or now - self._told_busy.get(line, since) < _IDLE:
                continue
            self._told_busy[line] = now
            known = _is_known(line, peer)
            operation, user = (described(frame), peer.user) if known else (_ANOTHER, None)
            line.tell(Busy(operation, user, now - since, len(line.inbox)))
            self._unwritten[line] = None

    # ------------------------------------------------------------------- what callers say

    def opened(self, line: Line, opening: Open) -> None:
        """Serve the requests of another worker of the caller."""
        self.on_open(line, opening)

    def reached_for(self, line: Line) -> list[Line]:
        """The lines to workers to which the caller has introduced this one."""
        return self.on_settle(line)

    def left(self, line: Line, reason: str) -> None:
        """Free what a caller had here, and end its line."""
        self.on_left(line, reason)
        super().left(line, reason)

    def said(self, line: Line, control: Control) -> None:
        """Act on what a caller says of a tunnel; it says nothing else of a line yet."""
        if is_about_tunnels(control):
            self.tunnels.said(line, control)

    def passed(self, line: Line, frame: Frame) -> None:
        """Take in bytes of a tunnel that ends here."""
        self.tunnels.passed(line, frame)


def _is_known(line: Line, peer: Peer) -> bool:
    """Whether whoever is at the end of a line may know what is done for ``peer``: it is done for
    itself, or for the same user."""
    peers = [channel.peer for channel in line.channels.values() if channel.peer is not None]
    same_user = peer.user is not None and any(peer.user == one.user for one in peers)
    return same_user or any(peer.session is one.session for one in peers)


def _refuse_channel(line: Line, opening: Open) -> None:
    raise ConnectionAbortedError("no channel can be opened yet")
