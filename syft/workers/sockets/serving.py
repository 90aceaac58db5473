"""The lines of a worker that serves: one thread polls, reads, executes and replies.

There is one thread for all of it, and a second one that sleeps: when an operation takes more than a
quarter of a second, it takes the reading over.  It answers heartbeats, lets new callers in, takes
requests in, and tells those who wait what they wait for.  It executes nothing.

The monitor is left while nothing is to be done, so that the owner's own program can use the worker;
``io`` is left while an operation runs, so that the second thread can read.

What callers whom nobody knows have a worker hold, all of them together, is bounded: whoever has
less than an equal share of it is served whatever the others do.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from typing import Any, Final

from syft.exceptions import BrokenFraming, SyftError, UnknownWorker, WorkerLost
from syft.ops.table import NAMES
from syft.serde.frame import Frame
from syft.workers.client.monitor import Monitor
from syft.workers.core.audit import Audit
from syft.workers.core.peer import Peer
from syft.workers.core.state_machine import WorkerCore
from syft.workers.shells.network import Network
from syft.workers.sockets.board import IDLE, Board
from syft.workers.sockets.dialling import Redialler
from syft.workers.sockets.line import Line
from syft.workers.sockets.line_messages import Busy, Bye
from syft.workers.sockets.openings import Opening, Openings
from syft.workers.sockets.readiness import READ
from syft.workers.sockets.sparse_log import LOG, STRANGERS
from syft.workers.sockets.tunnels import TunnelEnds
from syft.workers.sockets.websocket import REFUSED
from syft.workers.wire import messages
from syft.workers.wire.messages import Command

LONG: Final = 0.25
"""Seconds of an operation after which the other thread reads."""
_ANOTHER: Final = "another caller's request"
_TICK: Final = 0.05
_MOST_WAITING: Final = 1 << 26
"""Bytes of requests of one line that wait; more are not read until some have been served."""
_UNASKED: Final = 1 << 14
"""Messages and their bytes that are on their way without a closer look at how many."""
_MOST_UNREAD: Final = 1 << 26
"""Bytes of replies that a caller has not read; until it does, nothing is served to it."""
_MOST_HELD: Final = 1 << 28
"""Bytes of requests and replies that all callers without a user together have the worker hold; with
more, whoever has more than an equal share of them is not served, and not read."""
_LEAST_SHARE: Final = 1 << 21
"""Bytes that are never too many: what clients receive before they say that it has arrived."""
_SUM_EVERY: Final = 0.05
"""Seconds between two looks at how many these are."""


class OutsideNetwork(Network):
    """The workers that a serving worker reaches; ``lookup`` finds those of the present caller.

    >>> network = OutsideNetwork()
    >>> network.lookup = {"alice": "a worker"}.get
    >>> network.find("alice", "bob")
    'a worker'
    """

    lookup: Callable[[str], Any]

    def __init__(self) -> None:
        super().__init__()
        self.monitor = Monitor()  # its own: it is held by the thread that serves

    def find(self, name: Any, asked: str) -> Any:
        """The worker of that name; :class:`~syft.exceptions.UnknownWorker` if there is none."""
        if isinstance(name, str) and name not in self.workers:
            found = self.lookup(name)
            if found is not None:
                return found
            raise UnknownWorker(name, asked, ())
        return super().find(name, asked)


def _refuse_tunnel(line: Line, sock: socket.socket) -> str:
    raise ConnectionRefusedError("no tunnel leads here")


class ServingBoard(Board):
    """The lines to one worker that serves, and those that it has made to others.

    ``accept`` makes an opening of a new connection, and ``house`` is called now and then.
    ``accept_tunnel`` takes the near end of a tunnel: see
    :class:`~syft.workers.sockets.tunnels.TunnelEnds`.
    """

    network: OutsideNetwork
    end = "worker"
    log = LOG.name
    gathers = 1 << 12

    def __init__(
        self,
        network: OutsideNetwork,
        accept: Callable[[socket.socket], Opening],
        house: Callable[[float], None],
        accept_tunnel: Callable[[Line, socket.socket], str] = _refuse_tunnel,
    ) -> None:
        super().__init__(network, Monitor())
        self.owners_log: Audit | None = None
        self.stopping: str | None = None
        """Why the worker stops, once it does."""
        self.openings = Openings(self, accept)
        self._house = house
        self._running: tuple[float, Frame, Peer] | None = None
        self.served_for = 0.0
        """Seconds that requests have taken."""
        self.serves = False
        """Whether the loop runs."""
        self._ended = False
        self._share = EqualShare(self.lines)
        self._told_busy: dict[Line, float] = {}
        self.redialler = Redialler(self.post, self.add, self.remove)
        self._posted: deque[Callable[[], None]] = deque()
        self._lost: deque[tuple[str, str]] = deque()  # by the other thread, and why
        self._stands_in = False  # whether the standby thread reads
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_read.setblocking(False)
        self.watched.watch(self._wake_read.fileno(), READ, self._woken)
        self.tunnels = TunnelEnds(self, accept_tunnel)

    # ------------------------------------------------------------------------------- the loop

    def run(self) -> None:
        """Serve until :meth:`stop` is called."""
        standby = threading.Thread(target=self._stand_by, name="syft standby", daemon=True)
        standby.start()
        self.serves = True
        try:
            with self.monitor, self.io:
                while self.stopping is None:
                    self._loop(True)
        finally:
            self.stopping = self.stopping or "it has stopped"
            self.serves, self._ended = False, True
            standby.join()

    def stop(self, reason: str) -> None:
        """Have the loop end when what is running is done; may be called from any thread."""
        self.stopping = self.stopping or reason
        self.wake()

    def wake(self) -> None:
        """Have the loop look again; may be called from any thread and from a signal handler."""
        with contextlib.suppress(OSError):
            self._wake_write.send(b"\0", socket.MSG_DONTWAIT)

    def post(self, act: Callable[[], None]) -> None:
        """Have the thread that serves call something; may be called from any thread."""
        self._posted.append(act)
        self.wake()

    def close(self) -> None:
        """Close what is open, also of callers that have not said who they are."""
        self.redialler.close()
        self._act()
        self.openings.close(self.stopping or "")
        self.tunnels.look(all_of_them=True)
        self.watched.close()
        self._wake_read.close()
        self._wake_write.close()

    def _beside(self, line: Line | None, wait: bool, most: float) -> bool:
        """A request that waits for another worker comes here, so that others are served."""
        running, self._running = self._running, None
        try:
            return super()._beside(line, wait, most)
        finally:
            self._running = running

    def look_for(self, line: Line) -> None:
        """Nothing: the redialler does."""

    def reconnects(self, line: Line) -> bool:
        """Nothing but to wait: a connection is made by the redialler, or by the other end."""
        if not line.is_awaited:
            raise WorkerLost(line.name, line.ended or line.why)
        return False

    def _woken(self, event: int) -> None:
        with contextlib.suppress(BlockingIOError):
            self._wake_read.recv(4096)
        self._act()

    def _act(self) -> None:
        """Do what other threads have posted."""
        while self._posted:
            self.contain(None, self._posted.popleft())

    # ------------------------------------------------------------- what callers may have it hold

    def holds_back(self, line: Line) -> bool:
        """Whether a caller has not read, or not said that it has, too much of what was sent."""
        if line.sent - line.acknowledged + line.kept_bytes <= _UNASKED:
            return False
        if self._share.is_exceeded(line, line.kept_bytes):
            if line in self._stalled:  # nobody hears what it says of what has arrived
                self.broke(line, BrokenFraming(REFUSED, "too little of what was sent has arrived"))
            return True
        if line.is_unacknowledged and line not in self._stalled:  # else nobody hears of it
            return True
        return line.websocket is not None and line.websocket.queued > _MOST_UNREAD

    def has_taken_in(self, line: Line) -> None:
        """Read no more of a caller that has too much waiting; break off if it says nothing of what
        has arrived there."""
        much = line.sent - line.acknowledged + line.kept_bytes > _UNASKED
        if much and line.must_break_off:
            self.broke(line, BrokenFraming(REFUSED, "nothing of what was sent has arrived"))
        elif line not in self._stalled:
            if line.waiting > _MOST_WAITING or self._share.is_exceeded(line, line.waiting):
                self.stall(line)

    def _respond(self, core: WorkerCore, frame: Frame, peer: Peer) -> Frame | None:
        """Serve a request while the other thread may read."""
        self._running = (time.monotonic(), frame, peer)
        held = self.io.leave()
        try:
            return core.respond(frame, peer)
        finally:
            self.io.enter_again(held)
            self.served_for += time.monotonic() - self._running[0]
            self._running = None
            while self._lost:  # before the next request asks what has become of it
                self._lose(*self._lost.popleft())

    # ------------------------------------------------------------------------------- the lines

    def remove(self, line: Line, reason: str) -> None:
        """End a line, and close its connection."""
        dialled = self.redialler.knows(line)
        super().remove(line, reason)
        self.redialler.forget(line)
        self._told_busy.pop(line, None)
        if dialled:
            if self._stands_in:  # that thread executes nothing
                self._lost.append((line.name, reason))
            else:
                self._lose(line.name, reason)

    def _lose(self, name: str, reason: str) -> None:
        """Fail what the worker does together with one that is gone."""
        try:
            self.network.lose(name, reason)
        except Exception as error:  # whoever leaves may not end the worker
            STRANGERS.warning("a fault of this worker, as %s was lost: %r", name, error)

    def part(self, line: Line, reason: str) -> None:
        """Say that this end leaves, as far as that can be written at once, and end a line."""
        line.tell(Bye(reason))
        with contextlib.suppress(OSError):
            line.flush()
        self.remove(line, reason)

    def is_at_work(self) -> bool:
        """See :meth:`Switchboard.is_at_work`: whoever waits for a line that is dialled again is
        told what becomes of it."""
        return super().is_at_work() or self.redialler.is_at_work

    def comes_back(self, line: Line) -> bool:
        """Whether this end makes another connection for a line."""
        return self.redialler.knows(line)

    def gone(self, line: Line, error: Exception) -> None:
        """Dial again, if this end has made the line; a broken rule ends it."""
        if isinstance(error, SyftError):
            STRANGERS.warning("closed %s: %s", line.name, error)
            if self.redialler.knows(line):
                self.remove(line, str(error))
        else:
            STRANGERS.info("lost %s: %s", line.name, line.why)
            self.redialler.start(line)

    # -------------------------------------------------------------------- now and then

    def look_around(self, now: float) -> None:
        """See :meth:`Board.look_around`: callers that say nothing, leases, and what is left."""
        super().look_around(now)
        self.openings.look(now)
        self.contain(None, self.tunnels.look)
        self.contain(None, self._house, now)
        self.contain(None, self.network.flush)

    def _stand_by(self) -> None:
        """What the other thread does: it writes the owner's log, and reads while an operation takes
        long."""
        while not self._ended:
            time.sleep(_TICK)
            log = self.owners_log
            if log is not None:
                self.contain(None, log.tick)
            running = self._running
            if running is None or time.monotonic() - running[0] < LONG:
                continue
            with self.io:
                if self._running is running:
                    self._read_meanwhile(running)

    def _read_meanwhile(self, running: tuple[float, Frame, Peer]) -> None:
        """Read and write while an operation takes long."""
        self._stands_in = True
        try:
            for what, event in self.watched.wait(0):
                self._on_event(what, event)
            self.contain(None, self._tell_busy, running)
            self.beat(time.monotonic())
            self.write_all()
        finally:
            self._stands_in = False

    @property
    def running_for(self) -> float:
        """Seconds that the request takes which is being served; 0 if there is none."""
        running = self._running
        return 0.0 if running is None else time.monotonic() - running[0]

    def doing(self) -> str:
        """Which operation runs, and for whom."""
        if self._running is None:
            return "no request"
        _, frame, peer = self._running
        return f"{described(frame)} for {peer.user or peer.called}"

    def _tell_busy(self, running: tuple[float, Frame, Peer]) -> None:
        """Tell those who wait what they wait for, once a second."""
        since, frame, peer = running
        now = time.monotonic()
        for line in self._ready:
            if line.websocket is None or now - self._told_busy.get(line, since) < IDLE:
                continue
            self._told_busy[line] = now
            known = _is_known(line, peer)
            operation, user = (described(frame), peer.user) if known else (_ANOTHER, None)
            line.tell(Busy(operation, user, now - since, len(line.inbox)))
            self.unwritten[line] = None


def _is_known(line: Line, peer: Peer) -> bool:
    """Whether whoever is at the end of a line may know what is done for ``peer``: it is done for
    itself, or for the same user."""
    peers = [channel.peer for channel in line.channels.values() if channel.peer is not None]
    same_user = peer.user is not None and any(peer.user == one.user for one in peers)
    return same_user or any(peer.session is one.session for one in peers)


class EqualShare:
    """The bound on what strangers have a worker hold; ``lines`` are all lines to the worker.

    >>> from syft.serde.limits import Limits
    >>> line = Line("eve", Limits(), odd=True)
    >>> EqualShare([line]).is_exceeded(line, held=10_000)
    False
    """

    def __init__(self, lines: Collection[Line]) -> None:
        self._lines = lines
        self._held = 0  # bytes, as far as is known
        self._next_sum = 0.0

    def is_exceeded(self, line: Line, held: int) -> bool:
        """Whether ``held`` bytes are more than the share of a line whose caller nobody knows, while
        all of these together have the worker hold too many."""
        if line.user is not None or held <= _LEAST_SHARE:
            return False
        if held <= _MOST_HELD // max(1, len(self._lines)):
            return False
        now = time.monotonic()
        if now >= self._next_sum:
            strangers = [one for one in self._lines if one.user is None]
            self._held = sum(one.kept_bytes + one.waiting for one in strangers)
            self._next_sum = now + _SUM_EVERY
        return self._held > _MOST_HELD


def described(frame: Frame) -> str:
    """The operation of a command, or the kind of another request.

    >>> from syft.workers.wire.messages import Drop, encode
    >>> described(Frame(encode(Drop(0, (5,))), [])), described(Frame(b"", []))
    ('Drop', 'an unreadable request')
    """
    try:
        message = messages.read_request(frame.header)
    except messages.UNREADABLE:
        return "an unreadable request"
    if type(message) is Command and 0 <= message.op < len(NAMES):
        return NAMES[message.op]
    return type(message).__name__
