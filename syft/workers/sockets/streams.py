"""Connected sockets as streams of bytes: plain ones and encrypted ones, which never block by
themselves.

Everything above reads and writes without waiting, and waits for readiness in one place.  Only a
client that talks to one worker reads with a blocking call, on its own thread: that saves a system
call for each reply.
"""

from __future__ import annotations

import contextlib
import fcntl
import select
import socket
import ssl
import struct
import sys
import termios
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Final

from syft.exceptions import BrokenFraming
from syft.workers.sockets.readiness import MOMENT, give_way

Piece = bytes | bytearray | memoryview

_REFUSED: Final = 1008
"""Why a connection is closed, as RFC 6455 numbers it."""

_RECORDS: Final = 1 << 18
"""Bytes that are handed to OpenSSL at once."""

_TIMEVAL: Final = struct.Struct("ll")

_NOW: Final = int(socket.MSG_DONTWAIT)

_MOST_PIECES: Final = 64
"""How many pieces one system call writes: Linux takes 1,024, others fewer."""


class Stream(ABC):
    """A connected socket. Abstract.

    >>> sorted(Stream.__abstractmethods__)
    ['read', 'write']
    """

    blocks: ClassVar[bool] = False
    """Whether ``read(…, wait=True)`` waits."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self._poller: Any = None

    def fileno(self) -> int:
        """The number of the file; -1 once it is closed."""
        return self.socket.fileno()

    @abstractmethod
    def read(self, memory: memoryview, wait: bool = False) -> int | None:
        """Read what is there into ``memory``: how many bytes came, 0 if the other end has closed,
        None if nothing is there.

        With ``wait`` a plain stream waits for some, at most as long as :meth:`set_patience` says.
        """

    @abstractmethod
    def write(self, pieces: Sequence[Piece]) -> int:
        """Write what fits now; returns how many bytes that was."""

    def set_patience(self, seconds: float) -> None:
        """Have a read that waits give up after some time."""
        return

    def unsent(self) -> int:
        """Bytes that were written and are still on this machine; 0 where that is not known."""
        try:
            answer = fcntl.ioctl(self.socket, termios.TIOCOUTQ, bytes(4))
        except (OSError, ValueError):  # it is closed, or the system does not tell
            return 0
        return int.from_bytes(answer, sys.byteorder)

    def wait(self, write: bool, seconds: float | None = None) -> None:
        """Wait until there is something to read or, with ``write``, room to write."""
        fd = self.fileno()
        if fd >= 0:
            poller = select.poll()  # select() takes no numbers above 1,023
            poller.register(fd, select.POLLIN | (select.POLLOUT if write else 0))
            poller.poll(None if seconds is None else seconds * 1000)

    def has_more(self) -> bool:
        """Whether a read would bring something, or an error; to ask takes less than to try."""
        if self._poller is None:
            self._poller = select.poll()
            self._poller.register(self.fileno(), select.POLLIN)
        return bool(self._poller.poll(0))

    def close(self) -> None:
        """Close the socket."""
        with contextlib.suppress(OSError):
            self.socket.close()


class PlainStream(Stream):
    """A socket as it is.

    >>> end, other = socket.socketpair()
    >>> one, two = PlainStream(end), PlainStream(other)
    >>> one.write([b"ab", b"c"]), two.read(memoryview(bytearray(8)))
    (3, 3)
    >>> one.read(memoryview(bytearray(8))) is None
    True
    >>> one.close(), two.close()
    (None, None)
    """

    blocks = True

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        sock.settimeout(None)
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._receive = sock.recv_into
        self._gives_way = give_way()

    def set_patience(self, seconds: float) -> None:
        """Have a read that waits give up after some time."""
        whole = int(seconds)
        value = _TIMEVAL.pack(whole, int((seconds - whole) * 1e6))
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, value)

    def read(self, memory: memoryview, wait: bool = False) -> int | None:
        """Read into ``memory``; see :meth:`Stream.read`."""
        if wait and self._gives_way is not None:
            until = time.perf_counter() + MOMENT
            while time.perf_counter() < until:
                try:
                    return self._receive(memory, 0, _NOW)
                except (BlockingIOError, InterruptedError):
                    self._gives_way()
        try:
            return self._receive(memory, 0, 0 if wait else _NOW)
        except (BlockingIOError, InterruptedError):
            return None

    def write(self, pieces: Sequence[Piece]) -> int:
        """Write what fits now."""
        try:
            if len(pieces) == 1:
                return self.socket.send(pieces[0], _NOW)
            return self.socket.sendmsg(pieces[:_MOST_PIECES], [], _NOW)
        except (BlockingIOError, InterruptedError):
            return 0


class TlsStream(Stream):
    """An encrypted socket whose handshake is done, or goes on with each read and write.

    OpenSSL keeps one state for both directions, so a lock guards it: one thread may read while
    another one writes.

    ``tunnelled`` says that the bytes are passed on by a program that is no part of the network.
    Who changes them there would do so again: that breaks a rule, and not the connection alone.
    """

    def __init__(self, sock: ssl.SSLSocket, tunnelled: bool = False) -> None:
        super().__init__(sock)
        sock.setblocking(False)
        self._tunnelled = tunnelled
        self._tls = sock
        self._lock = threading.Lock()

    def read(self, memory: memoryview, wait: bool = False) -> int | None:
        """Read into ``memory``; see :meth:`Stream.read`.

        Raises :class:`~syft.exceptions.BrokenFraming` for what was changed in a tunnel.
        """
        with self._lock:
            try:
                return self._tls.recv_into(memory)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return None
            except ssl.SSLEOFError:
                return 0
            except ssl.SSLError:
                if not self._tunnelled:
                    raise
                raise BrokenFraming(_REFUSED, "what came was changed on its way") from None

    def write(self, pieces: Sequence[Piece]) -> int:
        """Write what fits now: one record after another, each from one piece."""
        done = 0
        with self._lock, contextlib.suppress(ssl.SSLWantReadError, ssl.SSLWantWriteError):
            for piece in pieces:
                sent = 0
                while sent < len(piece):
                    count = self._tls.send(memoryview(piece)[sent : sent + _RECORDS])
                    sent += count
                    done += count
        return done

    def wait(self, write: bool, seconds: float | None = None) -> None:
        """Wait for readiness; what is decrypted already is there at once."""
        if not self._tls.pending():
            super().wait(write, seconds)

    def has_more(self) -> bool:
        """Whether something is decrypted already, or has come."""
        with self._lock:
            return self._tls.pending() > 0 or super().has_more()
