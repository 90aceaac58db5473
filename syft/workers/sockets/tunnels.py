"""Tunnels: connections between two workers that cannot reach each other, passed on by their caller.

Both workers are connected to the program that calls them.  At each of the two a tunnel ends in a
pair of connected sockets: one is used as any other connection, with TLS from end to end, and what
comes out of the other one goes over the line to the caller, who passes it on.  So neither those who
serve and dial, nor their limits, know of tunnels, and the caller sees what a network sees: sealed
bytes, how many and when.

An end sends as many bytes as the other one has said that it has room for.  So nobody on the way
keeps more than that, however slowly the other end reads; an end that sends more breaks a rule.

Tunnels are an extension: they enter themselves with the lines of a process
(:class:`~syft.workers.sockets.switchboard.Switchboard`) for four kinds of messages
about a line, and for a channel.
"""

from __future__ import annotations

import socket
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar, Final

import torch

from syft.exceptions import BrokenFraming
from syft.serde.buffers import fresh_buffer
from syft.serde.frame import Frame
from syft.workers.sockets.board import Board
from syft.workers.sockets.line import TUNNELS, Line
from syft.workers.sockets.line_messages import Closed, Control, Opened, Room, Tunnel
from syft.workers.sockets.readiness import READ, WRITE
from syft.workers.sockets.switchboard import Switchboard
from syft.workers.sockets.websocket import REFUSED
from syft.workers.wire.sealed_bytes import MOST_SEALED, read_sealed, sealed_frame

ROOM: Final = 1 << 20
"""Bytes that an end may send before it hears of more room."""
MOST_TUNNELS: Final = 16
"""Tunnels of one line that one end may open."""
_PAUSE: Final = 0.1
"""Seconds between two attempts to go on with a line that tunnels need."""


class End(ABC):
    """Where a tunnel leaves a process: a line, and its number there. Abstract."""

    def __init__(self, line: Line, number: int) -> None:
        self.line = line
        self.number = number
        self.room = ROOM
        """Bytes that may come, or be sent, before more room was told of."""

    @abstractmethod
    def opened(self, fingerprint: str) -> None:
        """Note whose certificate is at the other end, as who passes the bytes says."""

    @abstractmethod
    def granted(self, count: int) -> None:
        """Note that so many more bytes may be sent.

        Raises :class:`~syft.exceptions.BrokenFraming` for more than were.
        """

    @abstractmethod
    def arrived(self, data: torch.Tensor) -> None:
        """Take in bytes that have come over the line."""

    @abstractmethod
    def closed(self, reason: str, gone: bool = False) -> None:
        """Note that the tunnel is over: nothing more comes.  ``gone``: nor through another one."""

    @abstractmethod
    def lost(self, reason: str, gone: bool = False) -> None:
        """Note that the line is over, or this process ends."""

    def check_room(self, count: int, why: str) -> None:
        """Raise for more room than was used."""
        if not 0 < count <= ROOM - self.room:
            raise BrokenFraming(REFUSED, why)


class Tunnels(ABC):
    """The ends of tunnels in one process, which enter themselves with its lines. Abstract.

    ``theirs`` is what numbers of tunnels have as their last bit that the other end opens.
    """

    theirs: ClassVar[int]

    def __init__(self, board: Switchboard) -> None:
        self._ends: dict[tuple[Line, int], End] = {}
        said: Callable[[Line, Any], None] = lambda line, control: self.said(line, control)
        board.acts |= dict.fromkeys((Tunnel, Opened, Room, Closed), said)
        board.passes[TUNNELS] = lambda line, frame: self.passed(line, frame)

    def __len__(self) -> int:
        return len(self._ends)

    def said(self, line: Line, control: Any) -> None:
        """Act on a message about a tunnel.

        Raises :class:`~syft.exceptions.BrokenFraming` for one that breaks a rule.
        """
        number = control.number
        end = self._ends.get((line, number))
        if type(control) is not Tunnel:
            if end is not None:
                _ACTIONS[type(control)](end, control)
            return
        if number < 1 or number % 2 != self.theirs or end is not None:
            raise BrokenFraming(REFUSED, f"no tunnel can have the number {number}")
        known = (one for one in self._ends.values() if one.line is line)
        if sum(one.number % 2 == self.theirs for one in known) >= MOST_TUNNELS:
            self.tell(line, Closed(number, f"there are {MOST_TUNNELS} tunnels already"))
        else:
            self.begun(line, control)

    @abstractmethod
    def begun(self, line: Line, control: Tunnel) -> None:
        """Take a tunnel that the other end of a line has opened."""

    def passed(self, line: Line, frame: Frame) -> None:
        """Take in bytes of a tunnel; those of one that is over are dropped.

        Raises :class:`~syft.exceptions.MalformedMessage`, and
        :class:`~syft.exceptions.BrokenFraming` for more than there is room for.
        """
        number, data = read_sealed(frame)
        end = self._ends.get((line, number))
        if end is not None:
            end.arrived(data)

    def keep(self, *ends: End) -> None:
        """Begin to take in what comes for these ends."""
        self._ends.update({(end.line, end.number): end for end in ends})

    def forget(self, end: End) -> bool:
        """Take in no more for an end; whether it was known."""
        return self._ends.pop((end.line, end.number), None) is not None

    def tell(self, line: Line, control: Control) -> None:
        """Say something about a tunnel, unless the line is over."""
        if line.ended is None:
            line.tell(control)

    def look(self, all_of_them: bool = False) -> None:
        """Forget the ends whose lines are over."""
        for end in list(self._ends.values()):
            if all_of_them or end.line.ended is not None:
                end.lost(end.line.ended or "this worker has stopped")


_ACTIONS: Final[dict[type[Control], Callable[[End, Any], None]]] = {
    Opened: lambda end, control: end.opened(control.fingerprint),
    Room: lambda end, control: end.granted(control.count),
    Closed: lambda end, control: end.closed(control.reason, control.gone),
}


# ------------------------------------------------------------------------ at the two workers


class News:
    """What comes of an attempt to open a tunnel."""

    def __init__(self) -> None:
        self.came = threading.Event()
        self.fingerprint: str | None = None
        self.reason = ""
        self.gone = False

    def opened(self, fingerprint: str) -> None:
        """The tunnel is there."""
        self.fingerprint = fingerprint
        self.came.set()

    def closed(self, reason: str, gone: bool = False) -> None:
        """It is not, or not any more."""
        self.reason, self.gone = reason, gone
        self.came.set()


class TunnelEnd(End):
    """An end at a worker: bytes of ``sock`` go over ``line``, and the other way round."""

    def __init__(
        self, tunnels: TunnelEnds, line: Line, number: int, sock: socket.socket, news: News
    ) -> None:
        super().__init__(line, number)
        self._news = news
        self._tunnels = tunnels
        self.socket = sock
        self._taken = 0  # bytes that the other end does not know of, since they left _out
        self._out: deque[memoryview] = deque()
        self._queued = 0
        self._ending = False
        sock.setblocking(False)
        self._watch()

    def _watch(self) -> None:
        events = READ if self.room and not self._ending else 0
        events |= WRITE if self._out else 0
        if events:
            self._tunnels.watched.watch(self.socket.fileno(), events, self)
        else:
            self._tunnels.watched.forget(self.socket.fileno())

    def __call__(self, event: int) -> None:
        """Write and read what can be; called by the thread that serves."""
        try:
            if event & WRITE:
                self._write()
            if event & READ:
                self._read()
        except OSError as error:
            self._tunnels.close(self, str(error))

    def _read(self) -> None:
        """Send what comes out of the socket."""
        while self.room:
            buffer = fresh_buffer(min(self.room, MOST_SEALED))
            try:
                count = self.socket.recv_into(memoryview(buffer.numpy()))  # type: ignore[arg-type]
            except BlockingIOError:
                return
            if not count:
                self._tunnels.close(self, "its end was closed")
                return
            self.room -= count
            self.line.send(sealed_frame(self.number, buffer[:count]), TUNNELS)
        self._watch()

    def _write(self) -> None:
        """Write into the socket what has come, and tell the other end of the room."""
        while self._out:
            try:
                count = self.socket.send(self._out[0])
            except BlockingIOError:
                break
            self._queued -= count
            self._taken += count
            self._out[0] = self._out[0][count:]
            if not self._out[0]:
                self._out.popleft()
        if self._ending and not self._out:
            self._tunnels.drop(self)
            return
        if self._taken >= ROOM // 4 and not self._ending:
            self.line.tell(Room(self.number, self._taken))
            self._taken = 0
        self._watch()

    def opened(self, fingerprint: str) -> None:
        """See :meth:`End.opened`."""
        self._news.opened(fingerprint)

    def granted(self, count: int) -> None:
        """See :meth:`End.granted`."""
        self.check_room(count, f"there is no room for {count} more bytes in a tunnel")
        self.room += count
        self._watch()

    def arrived(self, data: torch.Tensor) -> None:
        """See :meth:`End.arrived`."""
        self._out.append(memoryview(data.numpy()))  # type: ignore[arg-type]
        self._queued += data.numel()
        if self._queued + self._taken > ROOM:
            self._tunnels.close(self, "more came than there was room for")
        else:
            self(WRITE)

    def closed(self, reason: str, gone: bool = False) -> None:
        """Write what is left, and close the socket then."""
        self._news.closed(reason, gone)
        self._ending = True
        self(WRITE)

    def lost(self, reason: str, gone: bool = False) -> None:
        """See :meth:`End.lost`."""
        self._news.closed(reason, gone)
        self._tunnels.drop(self)


class TunnelEnds(Tunnels):
    """The ends of tunnels at a worker, whose loop is that of ``board``.

    ``accept`` takes the near socket of a tunnel that a caller has opened, with its line, as one
    more connection, and returns the fingerprint of the certificate that is shown there.  It raises
    :class:`OSError` if the caller may open none.
    """

    theirs = 0

    def __init__(self, board: Board, accept: Callable[[Line, socket.socket], str]) -> None:
        super().__init__(board)
        self.watched = board.watched
        self._accept = accept
        self._next = 1

    def begin(self, line: Line, name: str, sock: socket.socket, news: News) -> None:
        """Open a tunnel to the worker that the other end of ``line`` calls ``name``."""
        if line.ended is not None:
            sock.close()
            news.closed(line.ended)
            return
        number, self._next = self._next, self._next + 2
        line.tell(Tunnel(number, name))
        self.keep(TunnelEnd(self, line, number, sock, news))

    def begun(self, line: Line, control: Tunnel) -> None:
        """Take a tunnel that a caller has opened as one more connection."""
        near, far = socket.socketpair()
        try:
            fingerprint = self._accept(line, near)
        except OSError as error:
            near.close()
            far.close()
            line.tell(Closed(control.number, str(error)))
            return
        line.tell(Opened(control.number, fingerprint))
        self.keep(TunnelEnd(self, line, control.number, far, News()))

    def close(self, end: TunnelEnd, reason: str) -> None:
        """Close an end, and tell the other one."""
        if self._ends.get((end.line, end.number)) is end:
            self.tell(end.line, Closed(end.number, reason))
        self.drop(end)

    def drop(self, end: TunnelEnd) -> None:
        """Forget an end, and close its socket."""
        if self.forget(end):
            self.watched.forget(end.socket.fileno())
            end.socket.close()


# -------------------------------------------------------------- at the program that passes on


class Side(End):
    """An end at the program: what comes goes on to the ``other`` one."""

    def __init__(self, relays: Relays, line: Line, number: int) -> None:
        super().__init__(line, number)
        self._relays = relays
        self.other = self

    def opened(self, fingerprint: str) -> None:
        """See :meth:`End.opened`."""
        self._relays.tell(self.other.line, Opened(self.other.number, fingerprint))

    def granted(self, count: int) -> None:
        """See :meth:`End.granted`."""
        self.other.check_room(count, "a tunnel has no such room")
        self.other.room += count
        self._relays.tell(self.other.line, Room(self.other.number, count))

    def arrived(self, data: torch.Tensor) -> None:
        """See :meth:`End.arrived`."""
        if self.other.line.ended is not None:
            return
        self.room -= data.numel()
        if self.room < 0:
            raise BrokenFraming(REFUSED, "more came through a tunnel than there was room for")
        self._relays.pass_on(self, data)

    def closed(self, reason: str, gone: bool = False) -> None:
        """See :meth:`End.closed`."""
        other, self.other = self.other, self  # else the two would keep each other alive
        other.other = other
        self._relays.forget(self)
        self._relays.forget(other)
        self._relays.tell(other.line, Closed(other.number, reason, gone))

    lost = closed


class Relays(Tunnels):
    """The tunnels that lead through this program.

    ``leads_to`` finds the line to the worker to which a worker wants a tunnel; None if this program
    does not introduce the two to each other.  ``revive`` makes a new connection for a line, if that
    is possible now; it returns why not, if nobody is there any more who knows the line.
    """

    theirs = 1

    def __init__(self, board: Switchboard, revive: Callable[[Line], str | None]) -> None:
        super().__init__(board)
        self.leads_to: Callable[[Line, str], Line | None] = lambda line, name: None
        self.passed_on = 0
        """Bytes that were passed on."""
        self._board = board
        self._revive = revive
        self._next = 2
        self._next_attempt = 0.0

    def __len__(self) -> int:
        return len(self._ends) // 2

    def begun(self, line: Line, control: Tunnel) -> None:
        """Open a tunnel on to where a worker wants one."""
        there = self.leads_to(line, control.name or "")
        if there is None or there.ended is not None:
            why = "this program does not introduce the two workers to each other"
            self.tell(line, Closed(control.number, (there and there.ended) or why))
            return
        here, far = Side(self, line, control.number), Side(self, there, self._next)
        self._next += 2
        here.other, far.other = far, here
        self.keep(here, far)
        self.tell(there, Tunnel(far.number))

    def pass_on(self, side: Side, data: torch.Tensor) -> None:
        """Send on what has come from one side."""
        other, network = side.other, self._board.network
        self.passed_on += data.numel()
        if network.observers:
            network.observe(side.line.name, other.line.name, sealed_frame(side.number, data))
        other.line.send(sealed_frame(other.number, data), TUNNELS)
        self._board.push(other.line)

    def tell(self, line: Line, control: Control) -> None:
        """See :meth:`Tunnels.tell`; it is written at once."""
        super().tell(line, control)
        if line.ended is None:
            self._board.push(line)

    def look(self, all_of_them: bool = False) -> None:
        """Close the tunnels of lines that are over, or to whom nobody is there any more; go on with
        the others that tunnels need."""
        super().look(all_of_them)
        now = time.monotonic()
        if not self._ends or now < self._next_attempt:
            return
        self._next_attempt = now + _PAUSE
        for line in {end.line for end in self._ends.values()}:
            reason = self._revive(line)
            if reason is not None:
                for end in [end for end in self._ends.values() if end.line is line]:
                    end.lost(reason, gone=True)
