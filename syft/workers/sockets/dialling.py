"""Connecting to a worker: the socket, the encryption, the opening handshake, hello and welcome; and
going on with a line when its connection breaks.

A program dials again when it waits for a worker (:mod:`syft.workers.sockets.calling`).  A worker
that serves has nobody to wait for: it dials in a thread, while it serves others, and whoever needs
the line waits for the outcome (:class:`Redialler`).  The other end keeps the line for its lease,
but whoever waits may have a caller that waits too, so the line is given up after as long as a
silent one is, counted from its last sign of life.
"""

from __future__ import annotations

import functools
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from syft.exceptions import MalformedMessage, SyftError, WireError, WorkerRefused
from syft.ops.table import NAMES
from syft.serde.limits import Limits
from syft.trust.certificates import client_context
from syft.trust.pinned_tls import check_pin
from syft.version import software
from syft.workers.sockets.address import Address
from syft.workers.sockets.handshake import open_client
from syft.workers.sockets.line import LOST_AFTER, Line
from syft.workers.sockets.line_messages import (
    PROTOCOL,
    Hello,
    Refused,
    Resume,
    Welcome,
    decode_greeting,
    encode_greeting,
    ops_fingerprint,
    sizes_of,
)
from syft.workers.sockets.streams import PlainStream, Stream, TlsStream
from syft.workers.sockets.websocket import CLOSE, TEXT, WebSocket

Dial = Callable[[Resume | None, float], tuple[WebSocket, Any]]
"""Connects to a worker within some seconds; returns the connection and the welcome."""

_LEAST = 0.05
"""Seconds between two heartbeats, at least."""
_FIRST_PAUSE: Final = 0.02
_LONGEST_PAUSE: Final = 0.5
"""Seconds between two attempts to dial again."""

NOBODY_IS_THERE: Final = (ConnectionRefusedError, FileNotFoundError)
FINAL: Final = (SyftError, *NOBODY_IS_THERE)
"""After these no attempt is made any more: a process that knew the line would be listening."""

_OF_TARGET = ("address", "token", "fingerprint", "ca_file", "limits", "heartbeat")
_OWN = ("tokens", "blocking", "timeout", "lazy")


def text_of(error: BaseException) -> str:
    """What an error says, without its number.

    >>> text_of(ConnectionRefusedError(111, "Connection refused")), text_of(TimeoutError())
    ('Connection refused', 'TimeoutError')
    """
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


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
            websocket.put([encode_greeting(self._hello(resume))], TEXT)
            welcome = self._welcome(websocket, until)
        except BaseException:
            stream.close()
            raise
        stream.set_patience(sensible(self.heartbeat, welcome.heartbeat) / 2)
        return websocket, welcome

    def _stream(self, seconds: float) -> Stream:
        if self.tunnel is not None:
            until = time.monotonic() + seconds
            sock, shown = self.tunnel.dial(seconds)
            sock.settimeout(max(until - time.monotonic(), _LEAST))
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
        """Wait for the answer to the hello; who refuses it may have gone when that is read."""
        while not websocket.messages:
            written = websocket.flush()
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError("the worker did not answer in time")
            websocket.stream.wait(not written, left)
            websocket.receive()
        opcode, value = websocket.messages.popleft()
        if opcode == CLOSE:
            raise ConnectionResetError("the worker has closed the connection")
        answer: Any = decode_greeting(value) if opcode == TEXT else None
        if type(answer) is Refused:
            raise WorkerRefused(str(self.address), answer.code, answer.reason)
        if type(answer) is not Welcome:
            raise MalformedMessage("$", "a welcome", type(answer).__name__)
        shared = answer.ops <= len(NAMES)
        if shared and answer.fingerprint not in ("", ops_fingerprint(answer.ops)):
            raise WorkerRefused(str(self.address), "operations", "it numbers operations otherwise")
        return answer


@dataclass(frozen=True)
class AskedFor:
    """With what a program has asked for a connection: all arguments that change something.

    Whoever asks for the same again gets the same (:mod:`syft.workers.shells.asked_again`).

    >>> here = Target(Address.parse("unix:///tmp/bob.sock"), "me", token="syft_1")
    >>> AskedFor(here, {}, False, None) == AskedFor(here, {}, False, None)
    True
    """

    target: Target
    tokens: Mapping[str, str]
    blocking: bool
    timeout: float | None
    lazy: bool = False

    def differences(self, other: AskedFor) -> tuple[str, ...]:
        """The names of the arguments that are others there; no values, since tokens are secret.

        >>> here = Target(Address.parse("unix:///tmp/bob.sock"), "me", token="syft_1")
        >>> there = Target(Address.parse("unix:///tmp/bob.sock"), "me", token="syft_2")
        >>> AskedFor(here, {}, False, None).differences(AskedFor(there, {}, True, None))
        ('token', 'blocking')
        """
        pairs = [(self.target, other.target, name) for name in _OF_TARGET]
        found = [name for one, two, name in pairs if getattr(one, name) != getattr(two, name)]
        found += [name for name in _OWN if getattr(self, name) != getattr(other, name)]
        return tuple(found if self.target.name == other.target.name else ["local worker", *found])


class Redialler:
    """Makes new connections for lines.

    ``post`` has the thread that serves call something.  There, ``resume`` is called with a line,
    its new connection and how many messages have arrived at the other end, or ``give_up`` with a
    line and the reason.

    >>> line = Line("alice", hook.local_worker.core.limits, odd=False)
    >>> redialler = Redialler(lambda act: act(), print, lambda line, reason: print(reason))
    >>> def dial(resume, seconds):
    ...     raise ConnectionRefusedError("nobody is there")
    >>> redialler.keep(line, dial)
    >>> redialler.start(line), redialler.close()
    it is gone (nobody is there)
    (None, None)
    """

    def __init__(
        self,
        post: Callable[[Callable[[], None]], None],
        resume: Callable[[Line, WebSocket, int], None],
        give_up: Callable[[Line, str], None],
    ) -> None:
        self._post = post
        self._resume = resume
        self._give_up = give_up
        self._dials: dict[Line, Dial] = {}
        self._threads: dict[Line, threading.Thread] = {}
        self._closing = threading.Event()

    def keep(self, line: Line, dial: Dial) -> None:
        """Remember how the connections of a line are made."""
        self._dials[line] = dial

    def knows(self, line: Line) -> bool:
        """Whether this end makes the connections of a line."""
        return line in self._dials

    @property
    def is_at_work(self) -> bool:
        """Whether it makes a connection now."""
        return bool(self._threads)

    def forget(self, line: Line) -> None:
        """Make no more connections for a line."""
        self._dials.pop(line, None)

    def start(self, line: Line) -> None:
        """Begin to dial, if this end made the line."""
        dial = self._dials.get(line)
        if dial is None or line in self._threads or self._closing.is_set():
            return
        resume = Resume(line.id, line.secret, line.received)
        until = line.awaited_until or time.monotonic() + LOST_AFTER * line.heartbeat
        run = functools.partial(self._run, line, dial, resume, until)
        thread = threading.Thread(target=run, name="syft redial", daemon=True)
        self._threads[line] = thread
        thread.start()

    def close(self) -> None:
        """Make no more attempts, and wait for the last ones."""
        self._closing.set()
        for thread in list(self._threads.values()):
            thread.join()

    def _run(self, line: Line, dial: Dial, resume: Resume, until: float) -> None:
        """What the thread does."""
        try:
            websocket, welcome = self._persist(dial, resume, until)
        except (OSError, *FINAL) as error:
            reason = f"{line.why or 'it is gone'} ({text_of(error)})"
            self._post(functools.partial(self._lost, line, reason))
        except Exception as error:  # whatever else dialling raises: the line is not to wait for it
            self._post(functools.partial(self._failed, line, error))
        else:
            self._post(functools.partial(self._found, line, websocket, welcome.received))

    def _persist(self, dial: Dial, resume: Resume, until: float) -> tuple[WebSocket, Any]:
        """A connection, made in the last of several attempts."""
        pause = _FIRST_PAUSE
        while True:
            try:
                return dial(resume, max(until - time.monotonic(), _FIRST_PAUSE))
            except FINAL:
                raise
            except OSError:
                if time.monotonic() + pause > until or self._closing.wait(pause):
                    raise
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _found(self, line: Line, websocket: WebSocket, received: int) -> None:
        del self._threads[line]
        if line.ended is not None or self._closing.is_set():
            websocket.stream.close()
            return
        try:
            self._resume(line, websocket, received)
        except WireError as error:  # it has received more than was sent, it says
            websocket.stream.close()
            self._give_up(line, str(error))

    def _lost(self, line: Line, reason: str) -> None:
        del self._threads[line]
        if line.ended is None:
            self._give_up(line, reason)

    def _failed(self, line: Line, error: Exception) -> None:
        """Give a line up for a fault, which is raised where it is logged."""
        self._lost(line, "a fault of this worker")
        raise error
