"""Connecting to a worker: the socket, the encryption, the opening handshake, hello and welcome."""

from __future__ import annotations

import socket
import ssl
import time
from dataclasses import dataclass
from typing import Any, Protocol

from syft.exceptions import MalformedMessage, WorkerRefused
from syft.ops.table import NAMES
from syft.serde.limits import Limits
from syft.trust.certificates import client_context
from syft.trust.pinned_tls import check_pin
from syft.version import software
from syft.workers.sockets.address import Address
from syft.workers.sockets.guests import ops_fingerprint, sizes_of
from syft.workers.sockets.handshake import open_client
from syft.workers.sockets.line_texts import (
    PROTOCOL,
    Hello,
    Refused,
    Resume,
    Welcome,
    decode_control,
    encode_control,
)
from syft.workers.sockets.streams import PlainStream, Stream, TlsStream
from syft.workers.sockets.websocket import TEXT, WebSocket

_LEAST = 0.05
"""Seconds between two heartbeats, at least."""


def sensible(mine: float, theirs: float) -> float:
    """The seconds between heartbeats that both ends bear; what the other end says is not trusted.

    >>> sensible(2.0, 0.5), sensible(2.0, 0.0), sensible(2.0, float("nan"))
    (0.5, 0.05, 2.0)
    """
    return max(_LEAST, min(mine, theirs)) if theirs == theirs else mine


class TunnelDialler(Protocol):
    """Makes connections through tunnels."""

    def dial(self, seconds: float) -> tuple[socket.socket, str]:
        """A connected socket, not encrypted yet, and the fingerprint of the worker that is said to
        be at the other end: the same one each time."""


@dataclass(frozen=True)
class Target:
    """A worker to connect to, and with what: an address, what its certificate must be, and what
    proves for whom the caller speaks."""

    address: Address
    name: str
    """What the caller calls itself."""
    fingerprint: str | None = None
    ca_file: str | None = None
    token: str | None = None
    ticket: str | None = None
    limits: Limits = Limits()
    heartbeat: float = 2.0
    tunnel: TunnelDialler | None = None
    """What makes connections in the place of the address, where that cannot be reached."""

    def dial(self, resume: Resume | None, seconds: float) -> tuple[WebSocket, Welcome]:
        """Connect within some seconds, to begin a line or to go on with one.

        Raises :class:`OSError` if nobody answers, :class:`~syft.exceptions.WorkerRefused`,
        :class:`~syft.exceptions.InsecureAddress` and
        :class:`~syft.exceptions.FingerprintMismatch`.
        """
        until = time.monotonic() + seconds
        stream = self._stream(seconds)
        try:
            rest = open_client(stream, self.address.uri, until)
            websocket = WebSocket(stream, True, self.limits)
            websocket.feed(rest)
            websocket.put([encode_control(self._hello(resume))], TEXT)
            welcome = self._welcome(websocket, until)
        except BaseException:
            stream.close()
            raise
        stream.set_patience(sensible(self.heartbeat, welcome.heartbeat) / 2)
        return websocket, welcome

    def _stream(self, seconds: float) -> Stream:
        if self.tunnel is not None:
            sock, shown = self.tunnel.dial(seconds)
            sock.settimeout(seconds)
            return self._secured(sock, self.fingerprint or shown, None)
        sock = self.address.dial(seconds)
        if self.address.scheme != "wss":
            return PlainStream(sock)
        return self._secured(sock, self.fingerprint, self.address.host)

    def _secured(self, sock: socket.socket, fingerprint: str | None, host: str | None) -> Stream:
        try:
            context = client_context(fingerprint, self.ca_file)
            secured = context.wrap_socket(sock, server_hostname=host)
            if fingerprint is not None:
                check_pin(secured, fingerprint)
        except BaseException:
            sock.close()
            raise
        assert isinstance(secured, ssl.SSLSocket)
        return TlsStream(secured, tunnelled=self.tunnel is not None)

    def _hello(self, resume: Resume | None) -> Hello:
        return Hello(
            protocol=PROTOCOL,
            ops=len(NAMES),
            name=self.name,
            software=software(),
            fingerprint=ops_fingerprint(len(NAMES)),
            sizes=sizes_of(self.limits),
            heartbeat=self.heartbeat,
            token=self.token,
            ticket=None if resume is not None else self.ticket,
            resume=resume,
        )

    def _welcome(self, websocket: WebSocket, until: float) -> Welcome:
        """Wait for the answer to the hello."""
        while True:
            written = websocket.flush()
            if websocket.messages:
                break
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError("the worker did not answer in time")
            websocket.stream.wait(not written, left)
            websocket.receive()
        opcode, value = websocket.messages.popleft()
        if opcode != TEXT:
            raise ConnectionResetError("the worker has closed the connection")
        answer: Any = decode_control(value)
        if type(answer) is Refused:
            raise WorkerRefused(str(self.address), answer.code, answer.reason)
        if type(answer) is not Welcome:
            raise MalformedMessage("$", "a welcome", type(answer).__name__)
        shared = answer.ops <= len(NAMES)
        if shared and answer.fingerprint not in ("", ops_fingerprint(answer.ops)):
            raise WorkerRefused(str(self.address), "operations", "it numbers operations otherwise")
        return answer
