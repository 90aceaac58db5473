"""The transport of one connection over a line, and the worker at the other end as users see it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from threading import get_ident
from typing import Any, Final

from syft.exceptions import TokenMissing, WorkerClosed, WorkerLost
from syft.serde.frame import Frame
from syft.torch_private import tracing_state
from syft.workers.client.transport import Owner, Transport, refuse_tracing
from syft.workers.core.peer import Peer, Session
from syft.workers.shells.network import Network
from syft.workers.shells.worker import Worker
from syft.workers.sockets.line import LARGE, NESTED, Channel, Line
from syft.workers.sockets.line_messages import Open, Withdraw, Withdrawn
from syft.workers.sockets.named_workers import named_workers
from syft.workers.sockets.switchboard import Switchboard

_NO_LIMIT: Final = contextlib.nullcontext()
_NOBODY: Final = object()
"""The key of the channel on which requests are made for nobody."""

_COPIED: Final = 1 << 20
"""Bytes of tensors up to which they are copied, so that nobody waits until they have arrived."""
_MOST_COPIED: Final = 1 << 23
"""Bytes that may be on their way; with more, the next tensors are waited for."""
_MOST_LASTING: Final = 1 << 26
"""The same for tensors to which nobody writes."""
_MOST_QUEUED: Final = 1 << 12
"""Bytes of requests that are collected in a row."""
_MOST_DELAYED: Final = 2e-4
"""Seconds for which they are: to write each by itself takes longer than to make it."""
_PATIENCE: Final = 0.05
"""Seconds that something is waited for before the workers are asked whether anything is under way:
each of them asks its own acquaintances, which takes them from their work."""


class LineTransport(Transport):
    """Carries the requests of ``caller`` to ``worker``, which is at the other end of a line."""

    overtakes = True

    def __init__(self, board: Switchboard, caller: Owner, worker: LineWorker) -> None:
        super().__init__(board.monitor)
        self.board = board
        self.caller = caller
        self.worker = worker
        self.line = line = worker.line
        self.queued = not worker.blocking
        self._channels: dict[Any, Channel] = {}
        self._core = caller.core
        self._observers = board.network.observers
        if worker.channel is not None:
            self.channel = worker.channel
            self.channel.transport = self
        elif worker.main == caller.id and line.channel(0).transport is None:
            self.channel = self._serve_beside(line.channel(0))
        else:
            self.channel = self._serve_beside(line.new_channel())
            line.tell(Open(self.channel.number, caller.id, worker.target, *worker.proof(line.user)))
            if worker.vouch is not None:
                worker.vouch({caller.id})
        self._channels[line.user] = self._channels[None] = self.channel
        if line.user is None:
            self._channels[_NOBODY] = self.channel
        self._written = 0.0

    @property
    def closed(self) -> bool:
        """Whether the worker was closed, or the line is over."""
        return self.worker.closed or self.line.ended is not None

    def speak_for(self, user: str | None) -> None:
        """Make the requests that follow for ``user``, over a channel with the proof of that.

        None is whom the line was made for, if this program speaks for itself.  While it serves
        somebody, it has the rights of whom it serves: nobody may borrow others.

        Requests back to a caller have the rights of nobody at the caller's end, whatever is said.

        Raises :class:`~syft.exceptions.TokenMissing` if nothing here proves who the user is.
        """
        if self.worker.channel is not None:
            return
        key: Any = user if self._core.serving is None or user is not None else _NOBODY
        channel = self._channels.get(key)
        if channel is None:
            channel = self._open(user)
        self._channels[key] = channel
        self.channel = channel

    def prove(self, user: str) -> None:
        """Prove that requests may be made for ``user``, whom one of them names.

        Raises :class:`~syft.exceptions.TokenMissing` if nothing here proves it.
        """
        if user not in self._channels:
            self._channels[user] = self._open(user)

    def _open(self, user: str | None) -> Channel:
        """A channel on which requests are made for a user, or for nobody."""
        if user is not None:
            self.worker.check_speaks_for(user)
        proof = self.worker.proof(user) if user is not None else (None, None)
        line = self.line
        line.users.add(user)
        channel = self._serve_beside(line.new_channel())
        beside = self._channels[None].number
        line.tell(Open(channel.number, self.caller.id, self.worker.target, *proof, beside))
        return channel

    def _serve_beside(self, channel: Channel) -> Channel:
        """Take the replies on a channel, and have the caller serve what comes back on it."""
        channel.transport = self
        if channel.peer is None:
            caller: Any = self.caller
            channel.host, channel.caller = caller, self.worker
            channel.peer = Peer(self.worker.id, None, Session(), users=())
            caller.callers[channel.peer] = channel
        return channel

    def deliver(self, frame: Frame) -> None:
        """Write a request, or collect it with others while the worker is busy.

        One with a megabyte of tensors, or more, has arrived when the call returns, since they may
        change afterwards.  Smaller tensors are copied: to wait for the worker takes longer.  Those
        to which nobody writes any more are neither waited for nor copied.
        """
        with self.board.io.lock:
            self._deliver(frame)

    def _deliver(self, frame: Frame) -> None:
        if self._send(frame):
            return
        now = time.monotonic()
        websocket = self.line.websocket
        if not self.queued:  # the reply is waited for next
            self.board.push(self.line)
            return
        if websocket is None or (
            websocket.queued < _MOST_QUEUED and now - self._written < _MOST_DELAYED
        ):
            return
        self._written = self.board.active = now
        self.board.push(self.line)
        if not frame.lasting:  # such a letter has no reply, and whoever sends it reads on
            self.collect()

    def _send(self, frame: Frame) -> bool:
        """Queue a request; whether it has arrived already."""
        line = self.line
        if line.websocket is None:
            self.board.look_for(line)
        if line.ended is not None or self.worker.closed:
            raise self.worker.gone()
        if tracing_state() is not None:
            refuse_tracing()
        if self._observers:
            self.board.network.observe(self.caller.id, self.worker.id, frame)
        if self.worker.vouch is not None and (names := named_workers(frame)):
            self.worker.vouch(names)
        nested = self._core.serving is not None
        self.board.moved += 1
        channel = self.channel.number + NESTED if nested else self.channel.number
        if frame.buffers:
            return self._send_tensors(frame, channel)
        line.send(frame, channel)
        return False

    def _send_tensors(self, frame: Frame, channel: int) -> bool:
        """Queue a request with tensors, which may change as soon as this returns; whether it has
        arrived already."""
        line, size = self.line, frame.nbytes
        if size < LARGE or (frame.lasting and line.kept_bytes < _MOST_LASTING):
            line.send(frame, channel)  # a small one is copied there
        elif self.queued and size < _COPIED and line.kept_bytes < _MOST_COPIED:
            line.send(frame.owned(), channel)
        else:
            line.send(frame, channel)
            with self.worker.limited():
                self.board.wait_until_arrived(line)
            return True
        return False

    def take(self, frame: Frame) -> None:
        """Keep a reply until the connection reads it."""
        if self._observers:
            self.board.network.observe(self.worker.id, self.caller.id, frame)
        self.replies.append(frame)

    def advance(self, parked: bool = True, block: bool = True, most: int = 1) -> bool:
        """Take in what has come, or wait for something; False if nothing is under way."""
        line, board = self.line, self.board
        if self.replies:
            return True
        if line.ended is not None:
            raise self.worker.gone()
        waits = block and not (parked and line.websocket)  # without one the worker may be gone
        moved, network = board.turn(line, waits), board.network
        if moved or not block:
            return moved
        return (
            not network.mail and network.is_quiet() and board.glance(_PATIENCE)
        ) or network.step()

    def check_there(self) -> None:
        """Make the connection again if it is lost; see :meth:`Transport.check_there`."""
        if self.line.ended is not None:
            raise self.worker.gone()
        if self.line.websocket is None:
            self.board.turn(self.line, True)

    def limited(self) -> contextlib.AbstractContextManager[None]:
        """A context in which a wait of this thread ends after the seconds that it may last."""
        worker = self.worker
        return _NO_LIMIT if worker.patience is None else worker.limited()

    def collect(self) -> None:
        """Take in what the worker has sent."""
        websocket = self.line.websocket
        if websocket is not None and (websocket.messages or websocket.stream.has_more()):
            self.board.turn(self.line, False)

    def gone(self, worker: str) -> WorkerClosed:
        """Why no request can be delivered any more."""
        return self.worker.gone()

    def withdraw_all(self) -> int:
        """Have the worker leave out what it has not begun of all that this process asked it."""
        if self.closed:
            raise self.worker.gone()
        number = self.board.next_number()
        with self.board.monitor.lock, self.worker.limited():
            answer: Withdrawn = self.board.ask(self.line, number, Withdraw(number))
        return answer.count

    def close(self) -> None:
        """Send what is left."""
        with self.board.io.lock:
            self.board.push(self.line)


class LineWorker(Worker):
    """A worker in another process, as this one sees it.

    ``id`` is its name here and ``target`` the one that it has there.  ``main`` is the worker of
    this process for which the line was made.  ``channel`` is that of a caller, to which requests go
    back.
    """

    def __init__(
        self,
        board: Switchboard,
        id: str,
        line: Line,
        main: str = "",
        target: str = "",
        channel: Channel | None = None,
    ) -> None:
        self.channel = channel
        self.board = board
        self.id = id
        self.line = line
        self.network: Network = board.network
        self.main = main
        self.target = target or id
        self.timeout: float | None = None
        """Seconds after which a wait for the worker ends; None: never."""
        self.blocking = True
        """Whether each request waits for its reply.  Those of a worker do, since its caller may go
        on elsewhere with what they make."""
        self.vouch: Callable[[set[str]], None] | None = None
        """Has this worker introduced to others, since they are named to it."""

    @property
    def pipelined(self) -> bool:
        """Whether requests do not wait for their replies."""
        return not self.blocking

    def __repr__(self) -> str:
        return f"<{type(self).__name__} id:{self.id}>"

    def transport_for(self, caller: Owner) -> LineTransport:
        """A new transport from ``caller`` to this worker."""
        return LineTransport(self.board, caller, self)

    def check_known(self, network: Network, asked: str) -> None:
        """Nothing: whoever has this object was introduced to the worker."""

    def gone(self) -> WorkerClosed:
        """Why no request can be made."""
        if self.line.ended is None or self.closed:
            return WorkerClosed(self.id)
        return WorkerLost(self.id, self.line.ended)

    def check_speaks_for(self, user: str) -> None:
        """Raise :class:`~syft.exceptions.TokenMissing` if nothing here proves who the user is."""
        if self.proof(user) == (None, None):
            raise TokenMissing(self.id, user)

    def proof(self, user: str | None) -> tuple[str | None, str | None]:
        """A token, or a ticket, that proves to the worker that requests are made for ``user``."""
        return None, None

    def work(self, most: int = 1) -> bool:
        """Have the worker finish what it was asked; whether anything happened."""
        with self.board.monitor, self.limited():
            return not self.closed and self.board.settle([self.line])

    @property
    def patience(self) -> float | None:
        """Seconds that a wait of this thread for the worker may last; None: it has no end."""
        return self.timeout

    @contextlib.contextmanager
    def limited(self) -> Iterator[None]:
        """A context in which a wait of this thread ends after the seconds that it may last."""
        deadlines, seconds, thread = self.line.deadlines, self.patience, get_ident()
        if seconds is None or thread in deadlines:
            yield
            return
        deadlines[thread] = time.monotonic() + seconds, seconds
        try:
            yield
        finally:
            del deadlines[thread]

    def close(self) -> None:
        """Make no more requests."""
        self.closed = True
