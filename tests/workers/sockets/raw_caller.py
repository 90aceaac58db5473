"""A caller that says whatever a test wants to a worker, and shows what comes back."""

from __future__ import annotations

import base64
import socket
from typing import Any

from examples.clients.minimal_client import BINARY, CLOSE, WebSocket, frame, packed, unframe
from tests.workers.sockets.line_records import message_of, said_in

KEY = base64.b64encode(bytes(16)).decode()

HEAD = (
    *("GET / HTTP/1.1", "Host: localhost", "Upgrade: websocket", "Connection: Upgrade"),
    *(f"Sec-WebSocket-Key: {KEY}", "Sec-WebSocket-Version: 13"),
)
HELLO = {"kind": "hello", "protocol": 3, "ops": 0, "name": "raw"}


def opened(port: int, *lines: str) -> tuple[socket.socket, str]:
    """A socket over which a request was sent, and the first line of the answer."""
    sock = socket.create_connection(("127.0.0.1", port), 10)
    sock.sendall("\r\n".join((*lines, "", "")).encode())
    head = b""
    while b"\r\n\r\n" not in head and (data := sock.recv(1)):
        head += data
    return sock, head.decode("latin-1")


class RawCaller(WebSocket):
    """A connection after the opening handshake."""

    def __init__(self, port: int) -> None:
        self.buffer = bytearray()
        self.socket, _ = opened(port, *HEAD, "Sec-WebSocket-Protocol: syft")
        self.binary: list[tuple[int, Any]] = []

    def __enter__(self) -> RawCaller:
        return self

    def __exit__(self, *exception: object) -> None:
        self.socket.close()

    def say(self, **text: Any) -> None:
        """Say something of the line."""
        self.send(*message_of(text))

    def greet(self, **fields: Any) -> dict[str, Any]:
        """Say hello; returns the answer."""
        self.say(**{**HELLO, **fields})
        answer: dict[str, Any] = self.text()
        return answer

    def ask(self, *message: Any, channel: int = 0) -> None:
        """Send a request."""
        whole = bytearray(frame(packed(list(message))))
        whole[6:8] = channel.to_bytes(2, "little")
        self.send(BINARY, bytes(whole))

    def come(self) -> tuple[int, bytes]:
        """The next message, a close frame too; heartbeats of the worker are left out."""
        first, data = self._frame()
        while first == 0x89:
            first, data = self._frame()
        return first & 15, data

    def text(self) -> Any:
        """What is said of the line next."""
        kind, data = self.come()
        said = said_in(kind, data)
        assert said is not None, (kind, data)
        return said

    def reply(self) -> tuple[int, Any]:
        """The channel and the header of the next request or reply."""
        kind, data = self.come()
        while said_in(kind, data) is not None:
            kind, data = self.come()
        assert kind == BINARY, (kind, data)
        return int.from_bytes(data[6:8], "little"), unframe(data)[0]

    def closed(self) -> tuple[int, str]:
        """Code and reason of the close frame that comes next but for other messages."""
        kind, data = self.come()
        while kind != CLOSE:
            kind, data = self.come()
        return int.from_bytes(data[:2], "big"), data[2:].decode()
