"""A client of the standard library alone, which keeps the rules only where a test wants it to.

It shares no code with the worker that it attacks, but for the encoding of messages.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import socket
import struct
from typing import Any

from tests.workers.sockets.line_records import message_of, said_in

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10

_PREFIX = struct.Struct("<4sBBHII")


def frame(
    opcode: int,
    payload: bytes = b"",
    final: bool = True,
    key: bytes | None = b"\x01\x02\x03\x04",
    reserved: int = 0,
    size: int | None = None,
    wide: int | None = None,
) -> bytes:
    """A WebSocket frame.

    ``size`` is what it says of its length, ``wide`` in how many bytes (0, 2 or 8); ``key`` is the
    mask, or None for no mask.
    """
    size = len(payload) if size is None else size
    if wide is None:
        wide = 0 if size < 126 else 2 if size < 1 << 16 else 8
    first = (0x80 if final else 0) | reserved << 4 | opcode
    masked = 0 if key is None else 0x80
    short = {0: size, 2: 126, 8: 127}[wide]
    head = bytes((first, masked | short)) + (size.to_bytes(wide, "big") if wide else b"")
    if key is None:
        return head + payload
    turned = (key * (len(payload) // 4 + 1))[: len(payload)]
    mixed = int.from_bytes(payload, "big") ^ int.from_bytes(turned, "big")
    return head + key + mixed.to_bytes(len(payload), "big")


def syft_frame(header: bytes, channel: int = 0) -> bytes:
    """A frame of syft without buffers."""
    return _PREFIX.pack(b"syft", 1, 0, channel, 0, len(header)) + header


def hello(**fields: Any) -> dict[str, Any]:
    """What a caller says first."""
    return {"kind": "hello", "protocol": 3, "ops": 0, "name": "stranger", **fields}


class Stranger:
    """A socket to the worker at a port, and how to write to it what is right or wrong."""

    def __init__(self, port: int, upgrade: bool = True) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), 20)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._read = b""
        self.welcome: dict[str, Any] = {}
        if upgrade:
            self.upgrade()

    def __enter__(self) -> Stranger:
        return self

    def __exit__(self, *exception: object) -> None:
        self.socket.close()

    def upgrade(self, **headers: str) -> str:
        """The opening handshake; returns the head of the answer."""
        fields = {
            "Host": "localhost",
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(),
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Protocol": "syft",
            **headers,
        }
        lines = ["GET / HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
        self.send("\r\n".join(lines).encode())
        while b"\r\n\r\n" not in self._read:
            self._more()
        head, _, self._read = self._read.partition(b"\r\n\r\n")
        return head.decode()

    def greet(self, **fields: Any) -> dict[str, Any]:
        """Say hello; returns the answer, a welcome or a refusal."""
        self.tell(hello(**fields))
        self.welcome = json.loads(self.read()[1])
        return self.welcome

    def tell(self, record: Any) -> None:
        """Say something of the line."""
        self.send(frame(*message_of(record)))

    def ask(self, message: Any, channel: int = 0) -> Any:
        """Make a request; returns the reply as a message, or what else the worker says."""
        from syft.workers.wire import messages

        self.send(frame(BINARY, syft_frame(messages.encode(message), channel)))
        while True:
            opcode, data = self.read()
            if opcode == PING:
                self.send(frame(PONG, data))
            said = said_in(opcode, data)
            if said is not None and said["kind"] == "meet":
                answer = {"kind": "introduction", "number": said["number"], "unknown": True}
                self.tell({**answer, "name": said["name"]})
            if opcode == BINARY and said is None:
                count, size = struct.unpack_from("<II", data, 8)
                at = 16 + 24 * count
                reply = messages.decode(data[at : at + size])
                if not isinstance(reply, messages.Stale):
                    return reply

    def send(self, data: bytes) -> None:
        """Write bytes; raises :class:`OSError` once the worker has closed the connection."""
        self.socket.sendall(data)

    def attempt(self, data: bytes) -> None:
        """Write bytes, if the worker still takes any."""
        with contextlib.suppress(OSError):
            self.socket.sendall(data)

    def read(self) -> tuple[int, bytes]:
        """The next WebSocket frame: opcode and payload; raises :class:`ConnectionError`."""
        head = self._take(2)
        assert not head[1] & 0x80, "a server masks nothing"
        assert head[0] & 0x80, "the worker sends messages in one frame"
        size = head[1] & 127
        if size > 125:
            size = int.from_bytes(self._take(2 if size == 126 else 8), "big")
        return head[0] & 15, self._take(size)

    def closing_code(self) -> int | None:
        """Read until the worker closes; returns with which code, or None if it gave none."""
        try:
            while True:
                opcode, data = self.read()
                if opcode == CLOSE:
                    return int.from_bytes(data[:2], "big")
        except ConnectionError:
            return None

    def is_served(self) -> bool:
        """Whether the worker still answers on this connection."""
        try:
            self.send(frame(PING, b"there?"))
            while True:
                opcode, data = self.read()
                if opcode == PONG and data == b"there?":
                    return True
                if opcode == CLOSE:
                    return False
        except ConnectionError:
            return False

    def _take(self, count: int) -> bytes:
        while len(self._read) < count:
            self._more()
        data, self._read = self._read[:count], self._read[count:]
        return data

    def _more(self) -> None:
        data = self.socket.recv(1 << 16)
        if not data:
            raise ConnectionResetError("the worker has closed the connection")
        self._read += data
