"""A TCP proxy between a client and a worker, which records, cuts, or holds back what passes."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from typing import cast


class Proxy:
    """Carries connections to ``port`` on a thread of its own.

    ``cuts`` says after how many bytes each connection is cut, one after another; after the last
    one they live on.  While ``stalls`` is set nothing is carried.  ``seen`` is all that went
    through, if ``records``.
    """

    def __init__(self, port: int, cuts: list[int] | None = None, records: bool = False) -> None:
        self.target = port
        self.cuts = list(cuts or [])
        self.done = 0
        """How many connections were cut."""
        self.stalls = threading.Event()
        self.seen = bytearray()
        self.records = records
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._left: dict[socket.socket, int | None] = {}
        self._stop = False
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Proxy:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop = True
        self._thread.join()
        for end in [*self._pairs, self._listener]:
            end.close()

    def _run(self) -> None:
        while not self._stop:
            ends = [] if self.stalls.is_set() else [self._listener, *self._pairs]
            for end in _readable(ends):
                if end is self._listener:
                    self._accept()
                elif end in self._pairs:
                    self._carry(end)

    def _accept(self) -> None:
        end, _ = self._listener.accept()
        there = socket.create_connection(("127.0.0.1", self.target))
        self._pairs[end], self._pairs[there] = there, end
        self._left[end] = self._left[there] = None
        if self.cuts:
            self._left[end] = self.cuts.pop(0)

    def _carry(self, end: socket.socket) -> None:
        other = self._pairs[end]
        caller = end if self._left[end] is not None else other
        data = b""
        with contextlib.suppress(OSError):
            data = end.recv(1 << 16)
        left = self._left[caller]
        if left is not None:
            data, cut = data[:left], left <= len(data)
            self._left[caller] = left - len(data)
        else:
            cut = False
        if self.records:
            self.seen += data
        with contextlib.suppress(OSError):
            other.sendall(data)
        if cut or not data:
            self.done += cut
            for one in (end, other):
                del self._pairs[one], self._left[one]
                one.close()


def _readable(ends: list[socket.socket]) -> list[socket.socket]:
    """Those of some sockets that can be read within 10 ms; any number of files may be open."""
    with selectors.DefaultSelector() as selector:
        for end in ends:
            selector.register(end, selectors.EVENT_READ)
        return [cast(socket.socket, key.fileobj) for key, _ in selector.select(0.01)]
