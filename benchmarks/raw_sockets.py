"""The floor of a worker in another process: as many bytes over a plain socket, and nothing else.

The other end is a process of its own, as a server process is, with one blocking thread for each
connection and no event loop.  What is large is received into memory that is made for it, since
whoever makes a tensor of it needs such memory: into numpy's, which asks Linux for huge pages and so
takes half as long to fill as torch's own.  Run as a program, this is that other end.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import tempfile
import threading
from typing import Final

import numpy as np

from benchmarks.child import Child

_SIZES: Final = struct.Struct("<QQ")
_LARGE: Final = 1 << 16
"""Bytes from which on they are received into memory of their own."""

Address = tuple[str, int] | str
"""Host and port, or the path of a Unix socket."""


def connected(address: Address) -> socket.socket:
    """A blocking connection that sends small messages at once."""
    sock = socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET)
    sock.connect(address)
    _without_delay(sock)
    return sock


def _without_delay(sock: socket.socket) -> None:
    if sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class _Memory:
    """Where messages of one size are received: small ones in one place, each large one in a new
    place."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._kept: memoryview | None = None
        if size < _LARGE:
            self._kept = memoryview(bytearray(size))

    def receive(self, sock: socket.socket) -> bool:
        """Receive one message; False if the other end has closed the connection."""
        memory = self._kept
        if memory is None:
            memory = memoryview(np.empty(self._size, np.uint8))  # type: ignore[arg-type]
        got = 0
        while got < self._size:
            count = sock.recv_into(memory[got:] if got else memory)
            if not count:
                return False
            got += count
        return True


class RawLine:
    """A connection to the other end: requests of one size, replies of another."""

    def __init__(self, address: Address, request: int, reply: int) -> None:
        self._socket = connected(address)
        self._socket.sendall(_SIZES.pack(request, reply))
        self._request = bytes(request)
        self._memory = _Memory(reply)

    def round_trip(self) -> None:
        """Send a request, and wait for the whole reply."""
        self._socket.sendall(self._request)
        if not self._memory.receive(self._socket):
            raise ConnectionError("the other end has gone")

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


class RawProcess:
    """The other end as a process, reached over TCP and over a Unix socket."""

    def __init__(self) -> None:
        self._child = Child("benchmarks.raw_sockets")
        port, self.path = self._child.said
        self.tcp = ("127.0.0.1", int(port))
        self._lines: list[RawLine] = []

    def line(self, request: int, reply: int, unix: bool = False) -> RawLine:
        """A new connection."""
        line = RawLine(self.path if unix else self.tcp, request, reply)
        self._lines.append(line)
        return line

    def close(self) -> None:
        """End the process."""
        for line in self._lines:
            line.close()
        self._child.close()


def _answer(sock: socket.socket) -> None:
    """Answer the requests of one connection, until it is closed."""
    with sock:
        _without_delay(sock)
        request, reply = _SIZES.unpack(sock.recv(_SIZES.size, socket.MSG_WAITALL))
        memory, answer = _Memory(request), bytes(reply)
        while memory.receive(sock):
            sock.sendall(answer)


def _accept(listener: socket.socket) -> None:
    while True:
        sock, _ = listener.accept()
        threading.Thread(target=_answer, args=(sock,), daemon=True).start()


def _listen(listener: socket.socket, address: Address) -> None:
    listener.bind(address)
    listener.listen()
    threading.Thread(target=_accept, args=(listener,), daemon=True).start()


def main() -> None:
    """Answer until the standard input is closed."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "raw")
        tcp, unix = socket.socket(), socket.socket(socket.AF_UNIX)
        _listen(tcp, ("127.0.0.1", 0))
        _listen(unix, path)
        print(tcp.getsockname()[1], path, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
