"""One end of a socket between two processes, and the notes that cross it."""

from __future__ import annotations

import select
import socket
import struct
from typing import Any

import msgspec

_LENGTHS = struct.Struct(">II")

Note = tuple[str, str, str, Any, bytearray]
"""What crosses a socket: its kind, two names, a user or a number, and what it holds."""


class Link:
    """One end of a socket. Whoever waits reads it; there is no thread."""

    def __init__(self, end: socket.socket) -> None:
        self.end, self.incoming, self.closed = end, bytearray(), False
        self.left = False  # closed on this side only: the socket stays open

    def send(self, kind: str, source: str, target: str, extra: Any, body: Any) -> None:
        """Send a note; what arrives meanwhile is read, or both ends could wait for ever."""
        head = msgspec.msgpack.encode((kind, source, target, extra))
        data = memoryview(_LENGTHS.pack(len(head), len(body)) + head + body)
        while data and not self.closed:
            readable, writable, _ = select.select([self.end], [self.end], [])
            if readable:
                self.fill()
            elif writable:
                data = data[self.end.send(data, socket.MSG_DONTWAIT) :]

    def leave(self) -> None:
        """Close this side: what follows on the socket is for another link."""
        self.closed = self.left = True

    def wait(self) -> None:
        """Wait until something comes, and read it."""
        select.select([self.end], [], [])
        self.fill()

    def fill(self) -> None:
        """Read what has come."""
        try:
            data = self.end.recv(1 << 20, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        self.incoming += data
        self.closed = not data

    def take(self) -> Note | None:
        """The next note that is complete."""
        if len(self.incoming) >= _LENGTHS.size:
            head, body = _LENGTHS.unpack_from(self.incoming)
            start, end = _LENGTHS.size + head, _LENGTHS.size + head + body
            if len(self.incoming) >= end:
                fields = msgspec.msgpack.decode(self.incoming[_LENGTHS.size : start])
                note = (*fields, self.incoming[start:end])
                del self.incoming[:end]
                return note
        return None
