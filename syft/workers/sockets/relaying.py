"""What a program does with tunnels between two workers that cannot reach each other: it passes on.

It sees sealed bytes, how many and when.  It keeps as many as an end may send ahead, for each
tunnel, and no more: an end that sends more breaks a rule.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from syft.exceptions import BrokenFraming
from syft.serde.frame import Frame
from syft.workers.shells.network import Network
from syft.workers.sockets.line import TUNNELS, Line
from syft.workers.sockets.line_texts import Closed, Control, Opened, Room, Tunnel
from syft.workers.sockets.tunnel_ends import MOST_TUNNELS, ROOM, Enterable, enter
from syft.workers.sockets.websocket import REFUSED
from syft.workers.wire.sealed_bytes import read_sealed, sealed_frame

_PAUSE: Final = 0.1
"""Seconds between two attempts to go on with a line that tunnels need."""


class Carrier(Enterable, Protocol):
    """What relays need of the lines of a program."""

    network: Network

    def push(self, line: Line) -> None:
        """Write what a line has to write, as far as that is possible now."""

    def revive(self, line: Line) -> None:
        """Go on with a line over a new connection, if that is possible now."""


@dataclass(eq=False)
class _Side:
    """Where a tunnel leaves this program: a line, and its number there."""

    line: Line
    number: int
    room: int = ROOM
    """Bytes that may come from there before more room was told of."""
    other: _Side | None = None


def _nowhere(line: Line, name: str) -> Line | None:
    return None


class Relays:
    """The tunnels that lead through this program.

    ``leads_to`` finds the line to the worker to which a worker wants a tunnel; None if this program
    does not introduce the two to each other.
    """

    def __init__(self, carrier: Carrier) -> None:
        self.leads_to: Callable[[Line, str], Line | None] = _nowhere
        self.passed_on = 0
        """Bytes that were passed on."""
        self._carrier = carrier
        enter(carrier, self)
        self._sides: dict[tuple[Line, int], _Side] = {}
        self._next = 2
        self._next_attempt = 0.0

    def __len__(self) -> int:
        return len(self._sides) // 2

    def said(self, line: Line, control: Any) -> None:
        """Act on a text about a tunnel.

        Raises :class:`~syft.exceptions.BrokenFraming` for one that breaks a rule.
        """
        if type(control) is Tunnel:
            self._begin(line, control)
            return
        side = self._sides.get((line, control.number))
        if side is not None and side.other is not None:
            _ACTIONS[type(control)](self, side, side.other, control)

    def passed(self, line: Line, frame: Frame) -> None:
        """Pass bytes on; those of a tunnel that is over are dropped.

        Raises :class:`~syft.exceptions.MalformedMessage`, and
        :class:`~syft.exceptions.BrokenFraming` for more than there is room for.
        """
        number, data = read_sealed(frame)
        side = self._sides.get((line, number))
        if side is None or side.other is None or side.other.line.ended is not None:
            return
        side.room -= data.numel()
        if side.room < 0:
            raise BrokenFraming(REFUSED, "more came through a tunnel than there was room for")
        other, network = side.other, self._carrier.network
        self.passed_on += data.numel()
        if network.observers:
            network.observe(line.name, other.line.name, frame)
        other.line.send(sealed_frame(other.number, data), TUNNELS)
        self._carrier.push(other.line)

    def _begin(self, line: Line, control: Tunnel) -> None:
        number = control.number
        if number < 1 or not number % 2 or (line, number) in self._sides:
            raise BrokenFraming(REFUSED, f"no tunnel can have the number {number}")
        why = "this program does not introduce the two workers to each other"
        there = self.leads_to(line, control.name or "")
        begun = [one for one in self._sides.values() if one.line is line and one.number % 2]
        if len(begun) >= MOST_TUNNELS:
            there, why = None, f"there are {MOST_TUNNELS} tunnels already"
        if there is None or there.ended is not None:
            reason = why if there is None else there.ended
            self._tell(line, Closed(number, reason or why))
            return
        here, far = _Side(line, number), _Side(there, self._next)
        self._next += 2
        here.other, far.other = far, here
        for side in (here, far):
            self._sides[side.line, side.number] = side
        self._tell(there, Tunnel(far.number))

    def _tell(self, line: Line, control: Control) -> None:
        if line.ended is None:
            line.tell(control)
            self._carrier.push(line)

    def _opened(self, side: _Side, other: _Side, control: Opened) -> None:
        self._tell(other.line, Opened(other.number, control.fingerprint))

    def _granted(self, side: _Side, other: _Side, control: Room) -> None:
        if not 0 < control.count <= ROOM - other.room:
            raise BrokenFraming(REFUSED, "a tunnel has no such room")
        other.room += control.count
        self._tell(other.line, Room(other.number, control.count))

    def _closed(self, side: _Side, other: _Side, control: Closed) -> None:
        self._forget(side, other)
        self._tell(other.line, Closed(other.number, control.reason))

    def _forget(self, *sides: _Side) -> None:
        for side in sides:
            self._sides.pop((side.line, side.number), None)
            side.other = None  # else the two would keep each other alive

    def look(self) -> None:
        """Close the tunnels of lines that are over, and go on with lines that tunnels need."""
        if not self._sides:
            return
        for side in list(self._sides.values()):
            other = side.other
            if other is not None and side.line.ended is not None:
                self._forget(side, other)
                self._tell(other.line, Closed(other.number, side.line.ended))
        now = time.monotonic()
        if now >= self._next_attempt:
            self._next_attempt = now + _PAUSE
            for line in {side.line for side in self._sides.values()}:
                self._carrier.revive(line)


_ACTIONS: Final[dict[type[Control], Callable[[Relays, _Side, _Side, Any], None]]] = {
    Opened: Relays._opened,
    Room: Relays._granted,
    Closed: Relays._closed,
}
