"""Tunnels, at the two workers between which they lead: sockets whose bytes go over other lines.

Two workers that cannot reach each other are both connected to their caller.  A tunnel is a pair of
connected sockets in each of the two: one of each pair is used as any other connection, with TLS
from end to end, and what comes out of the other one goes over the line to the caller, who passes it
on (:mod:`syft.workers.sockets.relaying`).  So neither those who serve and dial, nor their limits,
know of tunnels, and the caller sees what a network sees.

An end sends as many bytes as the other one has said that it has room for.  So nobody on the way
keeps more than that, however slowly the other end reads.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

from syft.exceptions import BrokenFraming
from syft.serde.buffers import fresh_buffer
from syft.serde.frame import Frame
from syft.workers.sockets.line import TUNNELS, Line
from syft.workers.sockets.line_texts import Closed, Control, Opened, Room, Tunnel
from syft.workers.sockets.board import Board
from syft.workers.sockets.readiness import READ, WRITE
from syft.workers.sockets.websocket import REFUSED
from syft.workers.wire.sealed_bytes import MOST_SEALED, read_sealed, sealed_frame

ROOM: Final = 1 << 20
"""Bytes that an end may send before it hears of more room."""
MOST_TUNNELS: Final = 16
"""Tunnels of one line that one end may open."""


class Enterable(Protocol):
    """Lines for whose texts and channels somebody may enter himself: see
    :class:`~syft.workers.sockets.switchboard.Switchboard`."""

    acts: dict[type[Control], Callable[[Line, Any], None]]
    passes: dict[int, Callable[[Line, Frame], None]]


def enter(board: Enterable, tunnels: Any) -> None:
    """Have ``tunnels`` act on all texts about tunnels that come over lines, and take their bytes.

    >>> from types import SimpleNamespace
    >>> board = SimpleNamespace(acts={}, passes={})
    >>> enter(board, "whoever knows what to do")
    >>> print(*(kind.__name__ for kind in board.acts), *board.passes)
    Tunnel Opened Room Closed 2
    """
    board.acts |= dict.fromkeys((Tunnel, Opened, Room, Closed), lambda *about: tunnels.said(*about))
    board.passes[TUNNELS] = lambda *about: tunnels.passed(*about)


class Hears(Protocol):
    """What the end that has opened a tunnel is told of it."""

    def opened(self, fingerprint: str) -> None:
        """Note whose certificate is at the other end, as who passes the bytes says."""

    def closed(self, reason: str) -> None:
        """Note that the tunnel is over."""


class TunnelEnd:
    """One end: bytes of ``sock`` go over ``line``, and the other way round."""

    def __init__(
        self, tunnels: TunnelEnds, line: Line, number: int, sock: socket.socket, hears: Hears | None
    ) -> None:
        self.line = line
        self.number = number
        self.hears = hears
        self._tunnels = tunnels
        self._socket = sock
        self._room = ROOM  # bytes that may be sent
        self._taken = 0  # bytes that the other end does not know of, since they left _out
        self._out: deque[memoryview] = deque()
        self._queued = 0
        self._ending = False
        sock.setblocking(False)
        self._watch()

    def _watch(self) -> None:
        events = READ if self._room and not self._ending else 0
        events |= WRITE if self._out else 0
        if events:
            self._tunnels.watcher.watch(self._socket.fileno(), events, self)
        else:
            self._tunnels.watcher.forget(self._socket.fileno())

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
        while self._room:
            buffer = fresh_buffer(min(self._room, MOST_SEALED))
            try:
                count = self._socket.recv_into(memoryview(buffer.numpy()))  # type: ignore[arg-type]
            except BlockingIOError:
                return
            if not count:
                self._tunnels.close(self, "its end was closed")
                return
            self._room -= count
            self.line.send(sealed_frame(self.number, buffer[:count]), TUNNELS)
        self._watch()

    def _write(self) -> None:
        """Write into the socket what has come, and tell the other end of the room."""
        while self._out:
            try:
                count = self._socket.send(self._out[0])
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

    def arrived(self, data: memoryview) -> None:
        """Take in bytes that have come over the line."""
        self._out.append(data)
        self._queued += len(data)
        if self._queued + self._taken > ROOM:
            self._tunnels.close(self, "more came than there was room for")
        else:
            self(WRITE)

    def grant(self, count: int) -> None:
        """Note that so many more bytes may be sent."""
        if not 0 < count <= ROOM - self._room:
            raise BrokenFraming(REFUSED, f"there is no room for {count} more bytes in a tunnel")
        self._room += count
        self._watch()

    def end(self) -> None:
        """Write what is left, and close the socket then: nothing more comes."""
        self._ending = True
        self(WRITE)

    def abandon(self) -> None:
        """Close the socket."""
        self._tunnels.watcher.forget(self._socket.fileno())
        self._socket.close()


class TunnelEnds:
    """The ends of tunnels in this process, whose loop is that of ``board``.

    ``accept`` takes the near socket of a tunnel that a caller has opened, with its line, as one
    more connection, and returns the fingerprint of the certificate that is shown there.  It raises
    :class:`OSError` if the caller may open none.
    """

    def __init__(self, board: Board, accept: Callable[[Line, socket.socket], str]) -> None:
        self.watcher = board.watched
        enter(board, self)
        self._accept = accept
        self._ends: dict[tuple[Line, int], TunnelEnd] = {}
        self._next = 1

    def __len__(self) -> int:
        return len(self._ends)

    def begin(self, line: Line, name: str, sock: socket.socket, hears: Hears) -> None:
        """Open a tunnel to the worker that the other end of ``line`` calls ``name``."""
        if line.ended is not None:
            sock.close()
            hears.closed(line.ended)
            return
        number, self._next = self._next, self._next + 2
        line.tell(Tunnel(number, name))
        self._ends[line, number] = TunnelEnd(self, line, number, sock, hears)

    def said(self, line: Line, control: Any) -> None:
        """Act on a text about a tunnel.

        Raises :class:`~syft.exceptions.BrokenFraming` for one that breaks a rule.
        """
        if type(control) is Tunnel:
            self._begun(line, control.number)
            return
        end = self._ends.get((line, control.number))
        if end is not None:
            _ACTIONS[type(control)](self, end, control)

    def passed(self, line: Line, frame: Frame) -> None:
        """Take in bytes of a tunnel; those of one that is over are dropped.

        Raises :class:`~syft.exceptions.MalformedMessage`.
        """
        number, data = read_sealed(frame)
        end = self._ends.get((line, number))
        if end is not None:
            end.arrived(memoryview(data.numpy()))  # type: ignore[arg-type]

    def _begun(self, line: Line, number: int) -> None:
        """Take a tunnel that a caller has opened as one more connection."""
        if number < 2 or number % 2 or (line, number) in self._ends:
            raise BrokenFraming(REFUSED, f"no tunnel can have the number {number}")
        theirs = [one for one in self._ends.values() if one.line is line and not one.number % 2]
        if len(theirs) >= MOST_TUNNELS:
            line.tell(Closed(number, f"there are {MOST_TUNNELS} tunnels already"))
            return
        near, far = socket.socketpair()
        try:
            fingerprint = self._accept(line, near)
        except OSError as error:
            near.close()
            far.close()
            line.tell(Closed(number, str(error)))
            return
        line.tell(Opened(number, fingerprint))
        self._ends[line, number] = TunnelEnd(self, line, number, far, None)

    def _opened(self, end: TunnelEnd, control: Opened) -> None:
        if end.hears is not None:
            end.hears.opened(control.fingerprint)

    def _granted(self, end: TunnelEnd, control: Room) -> None:
        end.grant(control.count)

    def _closed(self, end: TunnelEnd, control: Closed) -> None:
        if end.hears is not None:
            end.hears.closed(control.reason)
        end.end()

    def close(self, end: TunnelEnd, reason: str) -> None:
        """Close an end, and tell the other one."""
        if self._ends.get((end.line, end.number)) is end and end.line.ended is None:
            end.line.tell(Closed(end.number, reason))
        self.drop(end)

    def drop(self, end: TunnelEnd) -> None:
        """Forget an end."""
        if self._ends.pop((end.line, end.number), None) is not None:
            end.abandon()

    def look(self, all_of_them: bool = False) -> None:
        """Forget the ends whose lines are over."""
        for end in list(self._ends.values()):
            if all_of_them or end.line.ended is not None:
                if end.hears is not None:
                    end.hears.closed(end.line.ended or "this worker has stopped")
                self.drop(end)


_ACTIONS: Final[dict[type[Control], Callable[[TunnelEnds, TunnelEnd, Any], None]]] = {
    Opened: TunnelEnds._opened,
    Room: TunnelEnds._granted,
    Closed: TunnelEnds._closed,
}
