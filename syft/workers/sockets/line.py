"""A line: the messages between two processes, in order, whichever connection carries them.

A connection may break while both ends live on.  So each end counts the messages that it sent and
received, and keeps what it sent until the other end says that it has arrived.  Over the next
connection only what did not arrive is sent again, so nothing is done twice and nothing is lost.

Requests go both ways.  A line has *channels*, one for each pair of workers that speak over it: on
each, one end's requests and the other end's replies are told apart by the numbers of the messages.
Next to each channel lies another one for requests that are made while one is served: the other end
may be waiting for them, so they do not queue up behind what was asked before.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, Protocol

from syft.codes import MessageCode
from syft.exceptions import BrokenFraming, MalformedMessage
from syft.serde.frame import Frame, to_parts
from syft.serde.limits import Limits
from syft.workers.core.peer import Peer
from syft.workers.sockets.line_messages import Control, Received, encode_control
from syft.workers.sockets.named_workers import named_workers
from syft.workers.sockets.streams import Piece
from syft.workers.sockets.websocket import BINARY, REFUSED, WebSocket

LARGE: Final = 1 << 14
"""Bytes from which on a message is kept where its tensors lie, and acknowledged at once."""

LOST_AFTER: Final = 3
"""Heartbeats of silence after which a connection is given up, and after which nobody waits for
another one."""

_REPORT_AFTER: Final = 128
"""Messages after which the other end is told that they have arrived."""

_MOST_KEPT: Final = 1 << 13
"""Messages that have been sent and may not have arrived; with more nothing is served."""
_FEW: Final = 64
_MOST_KEPT_BYTES: Final = 1 << 26
"""Bytes of them."""

_FIRST_REPLY: Final = int(MessageCode.DONE)

MOST_CHANNELS: Final = 256
"""Channels of one line: one for each of the workers and users at its ends."""

NESTED: Final = 1
"""What is added to the number of a channel for requests that are made while one is served."""


TUNNELS: Final = 2
"""The number under which bytes of tunnels travel: it is that of no channel."""


class Carries(Protocol):
    """Takes the replies to the requests of one worker."""

    def take(self, frame: Frame) -> None:
        """Keep a reply until it is read."""


class Channel:
    """The requests and replies between two workers over a line.

    ``transport`` takes the replies to requests made here, ``host`` serves the requests of the other
    end, which come from ``peer``; ``caller`` stands here for the worker at the other end.
    """

    __slots__ = ("line", "number", "transport", "host", "peer", "caller", "refused")

    def __init__(self, line: Line, number: int) -> None:
        self.line = line
        self.number = number
        self.transport: Carries | None = None
        self.host: Any = None
        self.peer: Peer | None = None
        self.caller: Any = None
        self.refused: Exception | None = None
        """Why requests on it are not served, although it was opened."""

    @property
    def serves(self) -> bool:
        """Whether requests on it are served here.

        >>> Line("bob", Limits(), odd=True).channel(0).serves
        False
        """
        return self.host is not None and self.peer is not None

    def take(self, frame: Frame) -> None:
        """Carry a reply to the other end."""
        vouch = None if self.caller is None else self.caller.vouch
        if vouch is not None and (names := named_workers(frame)):
            vouch(names)
        self.line.send(frame, self.number)


class LeftOut:
    """A request that its caller has withdrawn, in the place where it would be served."""

    __slots__ = ("channel", "frame")

    def __init__(self, channel: Channel, frame: Frame) -> None:
        self.channel = channel
        self.frame = Frame(frame.header, [])  # its tensors are of no use any more


class Line:
    """One end of a line.  ``name`` is what errors call the worker at the other end.

    ``odd`` says which numbers this end gives to channels that it opens.
    """

    def __init__(self, name: str, limits: Limits, odd: bool) -> None:
        self.name = name
        self.limits = limits
        self.websocket: WebSocket | None = None
        """The connection that carries it now, if one does."""
        self.id = ""
        self.secret = ""
        self.user: str | None = None
        """For whom requests are made over it, as the serving end has verified."""
        self.users: set[str | None] = set()
        """For whom the calling end has proved to speak."""
        self.channels: dict[int, Channel] = {}
        self.inbox: deque[tuple[Channel, Frame, int] | Control | LeftOut] = deque()
        """What has come and is not served yet; requests with their bytes."""
        self.urgent: deque[tuple[Channel, Frame, int]] = deque()
        """Requests that came while the other end served one."""
        self.serving = 0
        """How many requests of the line are being served, one inside another."""
        self.moved_before = -1
        """How many messages the process had taken in when the other end asked last."""
        self.waiting = 0
        """Bytes of the requests that wait."""
        self.writes = False
        """Whether it waits for room to write."""
        self.sent = self.received = self.acknowledged = 0
        self.ended: str | None = None
        """Why nothing can be carried any more, once that is so."""
        self.broken_since: float | None = None
        """Since when no connection carries it."""
        self.awaited_until = 0.0
        """When nobody waits any more for a connection in the place of one that broke."""
        self.unwritten: dict[Line, None] = {}
        """Where it enters itself when it has something to write."""
        self.deadlines: dict[int, tuple[float, float]] = {}
        """By the numbers of threads that wait for the other end: the monotonic time at which the
        wait is over, and how many seconds it may last."""
        self.ahead = 0.0
        """Seconds by which the clock of the worker at the other end is ahead of this one's."""
        self.heartbeat = 2.0
        self.pinged = self.signed = 0.0
        self.why = ""
        """Why the last connection is gone."""
        self.refused, self.why_not = False, ""
        """Whether nobody was there any more when another connection was tried last, and why not."""
        self.report_at = _REPORT_AFTER
        """How many messages have arrived when the other end is told of it next."""
        self._kept: deque[Sequence[Piece]] = deque()
        self.kept_bytes = 0
        """Bytes of the messages that are kept because they may not have arrived."""
        self._next_channel = 6 if odd else 4

    # ----------------------------------------------------------------------------------- out

    def send(self, frame: Frame, channel: int) -> None:
        """Send a request or a reply, or keep it for the next connection."""
        parts: Sequence[Piece] = to_parts(frame, True, channel)
        size = len(parts[0]) if len(parts) == 1 else sum(map(len, parts))
        if len(parts) > 1 and size < LARGE:
            parts = [b"".join(parts)]  # the tensors may change before it has arrived
        self.kept_bytes += size
        self._kept.append(parts)
        self.sent += 1
        self.unwritten[self] = None
        if self.websocket is not None:
            self.websocket.put(parts, BINARY)

    def tell(self, control: Control) -> None:
        """Say something about the line."""
        frame = encode_control(control)
        if control.counted:
            self.kept_bytes += len(frame)
            self._kept.append([frame])
            self.sent += 1
        if self.websocket is not None:
            self.unwritten[self] = None
            self.websocket.put([frame], BINARY)

    def flush(self) -> bool:
        """Write what can be written now; whether nothing is left.

        Raises :class:`OSError` if the connection is broken.
        """
        return self.websocket is None or self.websocket.flush()

    # ------------------------------------------------------------------------------------ in

    def report(self) -> None:
        """Tell the other end how many messages have arrived."""
        self.report_at = self.received + _REPORT_AFTER
        self.tell(Received(self.received))

    def acknowledge(self, count: int) -> None:
        """Forget messages that have arrived at the other end.

        Raises :class:`~syft.exceptions.MalformedMessage` for more than were sent.
        """
        if not self.acknowledged <= count <= self.sent:
            raise MalformedMessage("$.count", f"at most {self.sent}", str(count))
        for _ in range(count - self.acknowledged):
            parts = self._kept.popleft()
            self.kept_bytes -= len(parts[0]) if len(parts) == 1 else sum(map(len, parts))
        self.acknowledged = count

    @property
    def is_unacknowledged(self) -> bool:
        """Whether so much is kept that the other end has to say first what has arrived.

        Otherwise one that never does would have this one keep all that it asks for.

        >>> line = Line("bob", Limits(), odd=True)
        >>> for _ in range(8200):
        ...     line.send(Frame(b"", []), 0)
        >>> line.is_unacknowledged
        True
        """
        return len(self._kept) > _MOST_KEPT or self.kept_bytes > _MOST_KEPT_BYTES

    @property
    def must_break_off(self) -> bool:
        """Whether the other end has not said for far too long what has arrived."""
        many = len(self._kept) > 8 * _MOST_KEPT
        return many or (self.kept_bytes > 16 * _MOST_KEPT_BYTES and len(self._kept) > _FEW)

    @property
    def kept(self) -> int:
        """How many messages are kept because they may not have arrived."""
        return len(self._kept)

    # --------------------------------------------------------------------------- connections

    def attach(self, websocket: WebSocket, received: int) -> None:
        """Go on over a connection; the other end has ``received`` so many messages."""
        self.acknowledge(received)
        self.report_at = self.received + _REPORT_AFTER
        self.websocket, self.broken_since, self.pinged, self.refused = websocket, None, 0.0, False
        for parts in self._kept:
            websocket.put(parts, BINARY)

    def detach(self) -> None:
        """Note that the connection is gone."""
        if self.websocket is not None:
            self.websocket.abandon()
            heard, self.websocket = self.websocket.heard, None
            self.broken_since = now = time.monotonic()
            self.awaited_until = max(heard + LOST_AFTER * self.heartbeat, now + self.heartbeat)

    @property
    def is_awaited(self) -> bool:
        """Whether its connection broke so lately that another one may come, whoever makes it.

        >>> Line("bob", Limits(), odd=True).is_awaited
        False
        """
        broken = self.ended is None and self.broken_since is not None
        return broken and time.monotonic() < self.awaited_until

    def end(self, reason: str) -> None:
        """Note that the line is over, for ``reason``."""
        self.detach()
        self.ended = self.ended or reason
        self.inbox.clear()
        self.waiting = 0
        self.urgent.clear()
        self._kept.clear()
        self.kept_bytes = 0

    # ------------------------------------------------------------------------------ channels

    def channel(self, number: int) -> Channel:
        """The channel of a number, made if it is new; that beside it is the same."""
        number &= ~NESTED
        known = self.channels.get(number)
        if known is None:
            known = Channel(self, number)
            self.channels[number] = self.channels[number + NESTED] = known
        return known

    def opened(self, number: int) -> Channel:
        """A channel that the other end opens, and that was not opened before.

        Raises :class:`~syft.exceptions.BrokenFraming` for a number that none can have, and if there
        are too many.

        >>> line = Line("bob", Limits(), odd=False)
        >>> line.opened(6).number
        6
        >>> line.opened(7)
        Traceback (most recent call last):
        ...
        syft.exceptions.BrokenFraming: The connection broke a rule of WebSockets: no \
channel can be opened with number 7.
        """
        if len(self.channels) >= 2 * MOST_CHANNELS:  # each has one beside it
            raise BrokenFraming(REFUSED, f"more than {MOST_CHANNELS} channels were opened")
        if not TUNNELS < number < 1 << 16 or number & NESTED:
            raise BrokenFraming(REFUSED, f"no channel can be opened with number {number}")
        channel = self.channel(number)
        if channel.peer is not None or channel.refused is not None:
            raise BrokenFraming(REFUSED, f"channel {number} is open already")
        return channel

    def new_channel(self) -> Channel:
        """A channel that this end opens."""
        number, self._next_channel = self._next_channel, self._next_channel + 4
        return self.channel(number)


def is_reply(frame: Frame) -> bool:
    """Whether a frame is a reply, as far as its first bytes tell.

    >>> from syft.workers.wire.messages import Done, encode
    >>> is_reply(Frame(encode(Done(7)), [])), is_reply(Frame(b"", []))
    (True, False)
    """
    header = frame.header
    at = 3 if header[:1] == b"\xdc" else 1
    return len(header) > at and _FIRST_REPLY <= header[at] < 128
