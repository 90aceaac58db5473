"""The lines of a program that calls: whoever waits for a reply reads the socket itself.

There is no loop: a hand-over between threads, or into an event loop, costs more than the network
does on one machine, and a notebook has a loop of its own already.  A thread that waits reads all
lines that no other thread reads, since the worker that it waits for may wait for another one.

What happens while nobody waits is the business of one thread, the *keeper*
(:mod:`syft.workers.sockets.keeper`): it writes what is left to be written, answers heartbeats, and
tells the workers which pointers are gone.
"""

from __future__ import annotations

import contextlib
import math
import select
import threading
import time
from collections.abc import Callable, Collection
from typing import Any, Final

from syft.exceptions import SyftError, WireError, WorkerLost, WorkerRefused, WorkerTimeout
from syft.serde.frame import Frame
from syft.workers.core.peer import Peer, Session
from syft.workers.shells.network import Network
from syft.workers.sockets.large_memory import LargeMemory
from syft.workers.sockets.line import Line
from syft.workers.sockets.line_texts import Busy, Bye, Control, Introduction, Meet, Open, Resume
from syft.workers.sockets.looking import give_way, look
from syft.workers.sockets.relaying import Relays
from syft.workers.sockets.switchboard import Switchboard
from syft.workers.sockets.tunnel_ends import is_about_tunnels
from syft.workers.sockets.websocket import GOING_AWAY, NORMAL, PROTOCOL_ERROR, WebSocket

Dial = Callable[[Resume | None, float], tuple[WebSocket, Any]]
"""Connects to a worker within some seconds; returns the connection and the welcome."""

_NEVER: Final = (math.inf, 0.0)
_READ: Final = select.POLLIN | select.POLLHUP | select.POLLERR


class CallingBoard(Switchboard):
    """The lines from this process to workers of others."""

    def __init__(self, network: Network) -> None:
        super().__init__(network)
        self._reading: set[Line] = set()
        self._gives_way = give_way()
        self._dials: dict[Line, Dial] = {}
        self.memory = LargeMemory()
        """Where large tensors of all lines are received."""
        self.unwritten: dict[Line, None] = {}
        """Lines with something to write."""
        self._breaking: set[Line] = set()
        self.busy: dict[Line, Busy] = {}
        """What a worker said of what it is doing."""
        self._moved_when_told = -1  # the requests that had been made when it was said
        self.introduce: Callable[[Line, Meet], Introduction] = _nobody
        self.relays = Relays(self)

    # ------------------------------------------------------------------------------- waiting

    def turn(self, line: Line | None, wait: bool) -> bool:
        """Take in and serve what has come; see :meth:`Switchboard.turn`."""
        with self.monitor.lock:
            self.active = time.monotonic()
            if wait and [line] == self.lines and self._read_alone(self.lines[0]):
                return True
            if self._handle_all() or (wait and not self._is_readable(line)):
                return True
            free = [one for one in self.lines if one.websocket and one not in self._reading]
            self._reading.update(free)
            try:
                self._read(free, wait)
            finally:
                self._reading.difference_update(free)
                self.monitor.notify()
            return self._handle_all() or wait

    def glance(self, seconds: float) -> bool:
        """See :meth:`Switchboard.glance`."""
        with self.monitor.lock:
            free = [one for one in self.lines if one.websocket and one not in self._reading]
            if not free:
                return False
            self._reading.update(free)
            try:
                self._poll(free, seconds)
                self.beat(free)
            finally:
                self._reading.difference_update(free)
                self.monitor.notify()
            return self._handle_all()

    def _is_readable(self, line: Line | None) -> bool:
        """Whether this thread may read a line: it has a connection, and no other thread reads it.
        Otherwise waits a little for that."""
        assert line is not None, "nobody waits for no line"
        if line.deadlines:
            self._check_time(line)
        if line.websocket is None:
            self._revive(line)
            return False
        if line in self._reading or line not in self.lines:
            self.monitor.wait(min(line.heartbeat, _left([line])))
            return False
        return True

    def _read_alone(self, line: Line) -> bool:
        """Wait for the only line, and take in what comes; False if there is something else to do
        first.  This is what :meth:`turn` does nearly always, in fewer steps."""
        websocket = line.websocket
        if websocket is None or websocket.messages or websocket.queued or self._reading:
            return False
        if line.waiting or line.deadlines or not websocket.stream.blocks:
            return False
        self._reading.add(line)
        try:
            if not self._receive(line, True):
                self.beat((line,))
        finally:
            self._reading.discard(line)
            if self.monitor.waiting:
                self.monitor.notify()
        self._handle(line)
        return True

    def _check_time(self, line: Line) -> None:
        """Raise :class:`~syft.exceptions.WorkerTimeout` if the wait of this thread has lasted too
        long."""
        until, seconds = line.deadlines.get(threading.get_ident(), _NEVER)
        if time.monotonic() < until:
            return
        busy = self.busy.get(line)
        why = "it has not said why" if busy is None else _what_it_runs(busy)
        raise WorkerTimeout(line.name, seconds, why)

    def awaited(self) -> str:
        """What some thread waits for, as far as workers have said it; empty if nobody waits.

        It is called by the keeper beside threads that wait, so what it says may be over.
        """
        if self._moved_when_told != self.moved:  # what is waited for was asked later
            return ""
        reading, busy = tuple(self._reading), self.busy
        told = [(line, busy[line]) for line in reading if line in busy]
        return "; ".join(f"{line.name}: {_what_it_runs(one)}" for line, one in told)

    def _read(self, lines: list[Line], wait: bool) -> None:
        """Read the lines; with ``wait`` one time until something comes, or a heartbeat is due."""
        if wait:
            self._poll(lines)
            self.beat(lines)
        else:
            for one in lines:
                self._receive(one, False)

    def _receive(self, line: Line, wait: bool) -> bool:
        try:
            assert line.websocket is not None
            return line.websocket.receive(self.monitor if wait else None)
        except Exception as error:  # nothing that comes over one line may end the thread
            self.failed(line, error)
            return True
        except KeyboardInterrupt:  # perhaps between reading and noting what was read
            self._drop(line, "it was interrupted while it was read")
            raise

    def _poll(self, lines: list[Line], most: float = math.inf) -> None:
        """Wait until one of the lines can be read, or written if it has something to write; some
        seconds at ``most``."""
        poller = select.poll()
        by_number = {}
        for one in lines:
            websocket: Any = one.websocket
            number = websocket.stream.fileno()
            by_number[number] = one
            poller.register(number, _READ | (select.POLLOUT if websocket.queued else 0))
        pause = min(_pause(lines), most)
        held = self.monitor.leave()
        try:
            ready = look(lambda: poller.poll(0), self._gives_way) if self._gives_way else []
            ready = ready or poller.poll(pause * 1000)
        finally:
            self.monitor.enter_again(held)
        for number, event in ready:
            one = by_number[number]
            if event & select.POLLOUT:
                self.push(one)
            if event & _READ and one.websocket is not None:
                self._receive(one, False)

    def _handle_all(self) -> bool:
        """Take in and serve what was read; whether anything was."""
        handled = False
        for line in self.lines[:]:
            if line.inbox or line.urgent or (line.websocket and line.websocket.messages):
                handled |= self._handle(line)
        return handled

    def _handle(self, line: Line) -> bool:
        """Take in and serve what was read from a line; whether anything was."""
        handled: bool = self.contain(line, self.take, line)
        if line.inbox or line.urgent:
            handled |= self.contain(line, self.serve, line)
            self.push(line)
        return handled

    # ------------------------------------------------------------------------------ heartbeats

    def beat(self, own: Collection[Line] = ()) -> None:
        """Ask the workers that have been silent for a sign of life, and give up those that gave
        none; ``own`` are the lines that this thread reads."""
        now = time.monotonic()
        for line in list(self.lines):
            if line in own or line not in self._reading:  # else who reads it sees to it
                self.contain(line, self.beat_line, line, now)

    def put_ping(self, line: Line) -> None:
        """See :class:`Switchboard`."""
        self.push(line)

    def has_come(self, line: Line) -> bool:
        """See :class:`Switchboard`; other threads may not have read."""
        return bool(self._receive(line, False))

    def sign(self, since: float) -> None:
        """Have each worker hear of this program although the monitor has been held ``since``, and
        nobody answers heartbeats: for an operation of a worker of this process, say."""
        now = time.monotonic()
        for line in list(self.lines):
            websocket = line.websocket
            if websocket is not None and now - max(since, line.signed) >= line.heartbeat:
                line.signed = now
                websocket.sign()

    def failed(self, line: Line | None, error: Exception) -> None:
        """See :meth:`Switchboard.failed`; whoever waits for the line is told what was raised."""
        if line is not None and not isinstance(error, OSError | WireError):
            line.ended = line.ended or f"a fault of this program: {error!r}"
        super().failed(line, error)

    # --------------------------------------------------------------------------- connections

    def add(self, line: Line, dial: Dial) -> None:
        """Begin to carry a line; ``dial`` makes its connections."""
        line.unwritten = self.unwritten
        if line.websocket is not None:
            line.websocket.memory = self.memory.take
        self._dials[line] = dial
        self.lines.append(line)

    def leave(self, line: Line) -> None:
        """Say that this end leaves, and end the line: when the other end has freed what was there,
        if that does not take long."""
        if line.websocket is not None:
            line.tell(Bye(f"{line.name}'s caller has left"))
            until = time.monotonic() + line.heartbeat
            while line.websocket is not None and time.monotonic() < until:
                try:
                    written = line.flush()
                except OSError:
                    break
                line.websocket.stream.wait(not written, 0.1)
                self._receive(line, False)
                self._handle_all()
        self.remove(line, "this program has closed it")

    def remove(self, line: Line, reason: str) -> None:
        """End a line."""
        websocket = line.websocket
        if websocket is not None:
            websocket.close(NORMAL, reason)
        line.end(reason)
        for channel in line.channels.values():  # the worker asks nothing any more
            if channel.host is not None:
                channel.host.callers.pop(channel.peer, None)
        for table in (self._dials, self.unwritten, self.busy):
            table.pop(line, None)
        if line in self.lines:
            self.lines.remove(line)

    def broke(self, line: Line, error: Exception) -> None:
        """Note that a connection is gone: the next wait for the line tries to go on with it."""
        if line in self._breaking:
            return  # an answer to its last words cannot be written either
        if not isinstance(error, SyftError):
            self._breaking.add(line)
            try:
                self._hear_last_words(line)
            finally:
                self._breaking.discard(line)
        websocket = line.websocket
        if websocket is None:
            return
        if isinstance(error, SyftError):
            websocket.close(PROTOCOL_ERROR, str(error))
            line.end(str(error))
        else:
            self._drop(line, text_of(error))

    def comes_back(self, line: Line) -> bool:
        """No: this end makes the connections, when it waits for a line."""
        return False

    def _drop(self, line: Line, why: str) -> None:
        """Close the connection of a line that goes on."""
        if line.websocket is not None:
            line.websocket.close(GOING_AWAY, "")
        line.detach()
        line.why = why

    def _hear_last_words(self, line: Line) -> None:
        """Take in what came before a connection broke: replies, and why the other end has left."""
        websocket = line.websocket
        if websocket is not None:
            with contextlib.suppress(OSError, WireError):
                websocket.receive()
            with contextlib.suppress(OSError, WireError):
                self.take(line)

    def _revive(self, line: Line) -> None:
        """Go on with a line over a new connection, once; raises WorkerLost if that fails."""
        if line.ended is not None:
            raise WorkerLost(line.name, line.ended)
        if line in self._reading:
            self.monitor.wait(line.heartbeat)
            return
        self._reading.add(line)
        held = self.monitor.leave()
        try:
            resume = Resume(line.id, line.secret, line.received)
            try:
                websocket, welcome = self._dials[line](resume, line.heartbeat)
            finally:
                self.monitor.enter_again(held)
                self._reading.discard(line)
                self.monitor.notify()
        except (OSError, WireError) as error:
            raise WorkerLost(line.name, f"{line.why} ({text_of(error)})") from None
        except WorkerRefused as error:
            line.end(error.reason)
            raise WorkerLost(line.name, error.reason) from None
        websocket.memory = self.memory.take
        line.attach(websocket, welcome.received)
        self.push(line)

    # ---------------------------------------------------------------------- what workers ask

    def opened(self, line: Line, opening: Open) -> None:
        """Serve the requests that the worker at the other end has for another one of this program.

        Whatever it says of their source: only the worker itself speaks over its line.
        """
        channel = line.opened(opening.channel)
        channel.host = self.network.hosts.get(opening.target)
        channel.peer = Peer(line.name, None, Session(), users=())
        channel.caller = self.network.workers.get(line.name)
        if channel.host is not None:
            channel.host.callers[channel.peer] = channel

    def said(self, line: Line, control: Control) -> None:
        """Answer where workers are, and keep what the worker says it is busy with."""
        if type(control) is Busy:
            self.busy[line] = control
            self._moved_when_told = self.moved
        elif type(control) is Meet:
            line.tell(self.introduce(line, control))
            self.push(line)
        elif is_about_tunnels(control):
            self.relays.said(line, control)

    def passed(self, line: Line, frame: Frame) -> None:
        """Pass on what a worker sends to another one through a tunnel."""
        self.relays.passed(line, frame)

    def revive(self, line: Line) -> None:
        """Go on with a line over a new connection, if that is possible now."""
        with contextlib.suppress(WorkerLost):
            if line.websocket is None:
                self._revive(line)

    def reached_for(self, line: Line) -> list[Line]:
        """None: this program asks each worker itself."""
        return []


def _pause(lines: list[Line]) -> float:
    """Seconds until a heartbeat of one of the lines, or the end of a wait, is due."""
    return min(_left(lines), *(one.heartbeat / 2 for one in lines))


def _left(lines: list[Line]) -> float:
    """Seconds until the wait of this thread for one of the lines is over."""
    thread = threading.get_ident()
    ends = [one.deadlines[thread][0] for one in lines if thread in one.deadlines]
    return max(0.0, min(ends) - time.monotonic()) if ends else math.inf


def _nobody(line: Line, meet: Meet) -> Introduction:
    return Introduction(meet.number, meet.name, unknown=True)


def text_of(error: BaseException) -> str:
    """What an error says, without its number.

    >>> text_of(ConnectionRefusedError(111, "Connection refused")), text_of(TimeoutError())
    ('Connection refused', 'TimeoutError')
    """
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _what_it_runs(busy: Busy) -> str:
    """What a worker has said that it is busy with."""
    whose = "" if busy.user is None else f" for user {busy.user!r}"
    return f"it runs {busy.operation}{whose} since {busy.seconds:.1f} s"
