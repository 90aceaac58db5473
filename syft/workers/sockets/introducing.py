"""Workers to which a caller introduces this one: how it connects to them, and what it knows.

Two workers speak directly wherever one can reach the other.  Where that fails, since a network or a
gateway is in between or the address is one of the caller's own machine, the caller passes on what
they say, through a tunnel (:mod:`syft.workers.sockets.tunnels`) with TLS from end to end.  The
certificate there is known by its fingerprint, which the caller tells as it tells addresses: who
lies leads this worker to another one, as with an address, and nothing that may only go to a worker
whose fingerprint the owner has named goes there.
"""

from __future__ import annotations

import dataclasses
import functools
import socket
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

from syft.exceptions import (
    FingerprintMismatch,
    InsecureAddress,
    SyftError,
    WorkerLost,
    WorkerRefused,
)
from syft.workers.client.transport import Owner
from syft.workers.sockets.address import Address, is_loopback
from syft.workers.sockets.dial_rules import NOT_CONNECTED, DialRules
from syft.workers.sockets.dialling import FINAL, Target, sensible
from syft.workers.sockets.guests import Guest, Reception
from syft.workers.sockets.line import LOST_AFTER, Channel, Line
from syft.workers.sockets.line_messages import Introduction, Resume, Welcome
from syft.workers.sockets.line_transport import LineTransport, LineWorker
from syft.workers.sockets.serving import ServingBoard
from syft.workers.sockets.sparse_log import LOG
from syft.workers.sockets.tunnels import News
from syft.workers.sockets.websocket import WebSocket

_GLANCE: Final = 0.05
"""Seconds between two looks whether the worker stops."""

_UNREACHABLE: Final = (OSError, InsecureAddress, FingerprintMismatch)
"""What dialling an address raises where somebody else is there, or nobody."""


class Introducible(Protocol):
    """The worker that others are introduced to."""

    id: str
    core: Any
    board: ServingBoard
    reception: Reception
    dial_rules: DialRules

    def introduction(
        self, guest: Guest, name: str, user: str | None, to: str | None = None
    ) -> Introduction:
        """What a caller says of a worker that it calls ``name``."""

    def vouch(self, guest: Guest, to: str, names: set[str]) -> None:
        """Have a caller introduce a worker to others."""

    def in_background(self, act: Callable[[], Any]) -> Any:
        """What ``act`` returns, while others are served."""


class IntroducedTransport(LineTransport):
    """The line to a worker to which ``guest`` has introduced this one."""

    def __init__(
        self, worker: IntroducedWorker, caller: Owner, reception: Reception, guest: Guest
    ) -> None:
        self._reception = reception
        self._guest = guest
        super().__init__(worker.board, caller, worker)

    def _serve_beside(self, channel: Channel) -> Channel:
        super()._serve_beside(channel)
        assert channel.peer is not None
        self._reception.speaks_for(self._guest, channel.peer)
        return channel


class IntroducedWorker(LineWorker):
    """A worker that serves elsewhere, to which a caller has introduced this one."""

    def __init__(
        self, server: Introducible, id: str, line: Line, guest: Guest, target: Target
    ) -> None:
        super().__init__(server.board, id, line, main=server.id)
        self._server = server
        self._guest = guest
        address, tunnel = target.address, target.tunnel
        self.known_by = target.fingerprint if address.scheme == "wss" else str(address)
        """What was verified of it: the fingerprint of its certificate, or its address if that is on
        this machine."""
        if isinstance(tunnel, TunnelTo):
            self.known_by = target.fingerprint or tunnel.fingerprint
        self.vouch = functools.partial(server.vouch, guest, id)

    def transport_for(self, caller: Owner) -> IntroducedTransport:
        """A new transport to this worker, whose requests back are the caller's too."""
        return IntroducedTransport(self, caller, self._server.reception, self._guest)

    def proof(self, user: str | None) -> tuple[str | None, str | None]:
        """A ticket of the caller for another user that it speaks for."""
        return None, self._server.introduction(self._guest, self.id, user).ticket


class TunnelTo:
    """Makes tunnels to the worker ``name``, over the line ``line`` to whoever passes them on."""

    def __init__(self, board: ServingBoard, line: Line, name: str) -> None:
        self.fingerprint: str | None = None
        """That of the certificate at the other end, once it was told: later ones have the same."""
        self._board = board
        self._line = line
        self._name = name

    def dial(self, seconds: float) -> tuple[socket.socket, str]:
        """A connected socket, not encrypted yet, and the fingerprint of who is at the other end.

        Waits some seconds for the tunnel, in a thread that does not serve.  Raises
        :class:`ConnectionError`: that it was refused, if nobody is there any more.
        """
        near, far = socket.socketpair()
        news = News()
        self._board.post(
            functools.partial(self._board.tunnels.begin, self._line, self._name, far, news)
        )
        until = time.monotonic() + seconds
        while time.monotonic() < until and self._board.stopping is None:
            if news.came.wait(_GLANCE):
                break
        if news.fingerprint is None:
            near.close()
            kind = ConnectionRefusedError if news.gone else ConnectionAbortedError
            raise kind(f"there is no tunnel: {news.reason or 'nobody answered'}")
        if self.fingerprint is None:
            self.fingerprint = news.fingerprint
        return near, self.fingerprint


def connect(server: Introducible, guest: Guest, name: str, told: Introduction) -> LineWorker:
    """Connect to a worker elsewhere, to which ``guest`` introduces this one, while others are
    served.

    Raises :class:`~syft.exceptions.WorkerLost`.
    """
    target = Target(
        Address.parse(told.address or ""),
        server.id,
        told.fingerprint,
        ticket=told.ticket,
        limits=server.core.limits,
        heartbeat=server.reception.heartbeat,
    )
    found = _dial_listed(server, guest, name, target)
    if not isinstance(found, Exception):
        return _introduced(server, guest, name, target, *found)
    if not told.relays or not isinstance(found, _UNREACHABLE):
        raise WorkerLost(name, NOT_CONNECTED)
    target = dataclasses.replace(target, tunnel=TunnelTo(server.board, guest.line, name))
    found = _dial(server, target)
    if isinstance(found, Exception):
        raise WorkerLost(name, f"{NOT_CONNECTED}; through its caller: {found}")
    return _introduced(server, guest, name, target, *found)


def _dial_listed(
    server: Introducible, guest: Guest, name: str, target: Target
) -> tuple[WebSocket, Welcome] | Exception:
    """A connection to an address that the owner of this worker has listed, or why there is none;
    the owner's log has it."""
    address = target.address
    found: tuple[WebSocket, Welcome] | Exception
    if not server.dial_rules.allow(address):
        found = ConnectionError("the owner has not listed it")
    elif guest.host is None or is_loopback(guest.host) or address.scheme == "wss":
        found = _dial(server, target)
    else:
        found = ConnectionError("it is on its caller's machine, not on this one")
    if isinstance(found, Exception):
        LOG.info("%s has no connection to %s at %s (%s)", server.id, name, address, found)
    if server.core.audit is not None:
        why = type(found).__name__ if isinstance(found, Exception) else None
        what = "dial" if why is None else "refuse"
        server.core.audit.event(what, guest.peers[0], by="dial", to=[str(address)], error=why)
    return found


def _redial(
    server: Introducible, target: Target, resume: Resume | None, seconds: float
) -> tuple[WebSocket, Welcome]:
    """Connect once more to an introduced worker; where nobody answers as one, an error says the
    same whatever the reason."""
    try:
        return target.dial(resume, seconds)
    except (OSError, SyftError) as error:
        if target.tunnel is not None or isinstance(error, WorkerRefused):
            raise  # it is the worker that was there, or lies beyond the caller
        LOG.info("%s has no connection to %s (%s)", server.id, target.address, error)
        kind = ConnectionRefusedError if isinstance(error, FINAL) else ConnectionError
        raise kind(NOT_CONNECTED) from None


def _dial(server: Introducible, target: Target) -> tuple[WebSocket, Welcome] | Exception:
    """A connection, or why there is none."""
    seconds = LOST_AFTER * server.reception.heartbeat

    def attempt() -> Any:
        try:
            return target.dial(None, seconds)
        except (OSError, SyftError) as error:
            return error

    found: tuple[WebSocket, Welcome] | Exception = server.in_background(attempt)
    return found


def _introduced(
    server: Introducible,
    guest: Guest,
    name: str,
    target: Target,
    websocket: WebSocket,
    welcome: Welcome,
) -> LineWorker:
    """The worker at the other end of a new line."""
    line = Line(name, server.core.limits, odd=False)
    line.id, line.secret, line.user = welcome.line, welcome.secret, welcome.user
    line.heartbeat = sensible(server.reception.heartbeat, welcome.heartbeat)
    worker = IntroducedWorker(server, name, line, guest, target)
    with server.board.io.lock:
        server.board.redialler.keep(line, functools.partial(_redial, server, target))
        server.board.add(line, websocket, welcome.received)
    guest.introduced[name] = worker
    return worker
