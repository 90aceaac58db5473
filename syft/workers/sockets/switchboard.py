"""What comes over the lines of a process, and where it goes.

Replies go to the transport whose requests they answer, requests to the worker of this process that
serves them, and what is said about a line to whoever has entered itself in :attr:`Switchboard.acts`
for that kind of text.  How a process waits is another matter (:mod:`syft.workers.sockets.board`).

Extensions enter themselves there, and in :attr:`Switchboard.passes` for the frames of a channel of
their own: tunnels do (:mod:`syft.workers.sockets.tunnels`), and nothing here knows of them.

A thread that looks after several lines goes on whatever one of them brings about.  All that such a
thread calls, it calls by :meth:`Switchboard.contain`, or tells :meth:`Switchboard.failed` what was
raised: that is logged, and ends the line to which it belongs, so whoever waits for that is told.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Final

from syft.exceptions import BrokenFraming, UnknownWorker, WireError, WorkerLost, WorkerTimeout
from syft.serde.errors import pack_error
from syft.serde.frame import Frame
from syft.serde.packer import Packer
from syft.workers.core.peer import Peer
from syft.workers.core.state_machine import WorkerCore
from syft.workers.execution.operation import neutral_mode
from syft.workers.handlers.withdrawing import may_be_withdrawn, withdraw
from syft.workers.shells.network import Network
from syft.workers.sockets.line import LARGE, LOST_AFTER, NESTED, Channel, LeftOut, Line, is_reply
from syft.workers.sockets.line_messages import (
    Bye,
    CONTROLS,
    Control,
    Introduction,
    Meet,
    Received,
    Settle,
    Settled,
    Tell,
    Told,
    Withdraw,
    Withdrawn,
    decode_control,
)
from syft.workers.sockets.sparse_log import SparseLog
from syft.workers.sockets.websocket import BINARY, FAULT, PING, PROTOCOL_ERROR, REFUSED, TEXT
from syft.workers.wire import messages
from syft.workers.wire.messages import Failure, encode

_Question = tuple[Line, int, type[Control]]

_AT_ONCE: Final = 256
"""Requests of one line that are served before others have their turn."""
_OVERHEAD: Final = 256
"""Bytes that a request takes which waits, besides what it says."""


class Switchboard(ABC):
    """The lines of the workers of one network. Abstract.

    >>> print(*sorted(Switchboard.__abstractmethods__))
    broke comes_back glance has_come look_for push remove turn
    """

    end: ClassVar[str] = "program"
    """What errors call this end of the lines."""
    log: ClassVar[str] = "syft.client"
    """The name of its log."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.faults = SparseLog(logging.getLogger(self.log))
        self.lines: list[Line] = []
        self.monitor = network.monitor
        """What a thread holds while it uses the network, its workers and the lines."""
        self.io = self.monitor
        """What a thread holds while it uses the sockets."""
        self.active = time.monotonic()
        """When a thread last waited, or wrote a request that nobody waits for."""
        self.moved = 0
        """How many requests and replies were taken in, and requests made."""
        self.at_work = 0
        """How many requests are being served, one inside another, that do not wait for others."""
        self.acts: dict[type[Control], Callable[[Line, Any], None]] = {
            Received: self._acknowledged,
            Withdraw: self._withdraw,
        }
        """Who acts on what the other end says of a line, by its kind; others are not answered."""
        self.passes: dict[int, Callable[[Line, Frame], None]] = {}
        """Who takes the frames of channels that carry no requests, by their numbers."""
        self.reached_for: Callable[[Line], list[Line]] = lambda line: []
        """The lines that were made to other workers on behalf of whoever is at the end of one."""
        self.has_left: Callable[[Line, str], None] = lambda line, reason: None
        """Frees what somebody had here who leaves, and says why."""
        self._asked: dict[_Question, Any] = {}  # to which line, the number, the kind of the answer
        self._numbers = itertools.count(1)

    # ------------------------------------------------------------------------------- waiting

    @abstractmethod
    def turn(self, line: Line | None, wait: bool) -> bool:
        """Take in and serve what has come; whether anything had.

        With ``wait`` something is waited for, at most as long as ``line`` lives: raises
        :class:`~syft.exceptions.WorkerLost` if it does not.
        """

    @abstractmethod
    def glance(self, seconds: float) -> bool:
        """Wait so many seconds at most for anything to come, and serve it; whether it has."""

    @abstractmethod
    def broke(self, line: Line, error: Exception) -> None:
        """Note that the connection of a line is gone, or cannot be used any more."""

    @abstractmethod
    def comes_back(self, line: Line) -> bool:
        """Whether a new connection for a line without one is being made by itself."""

    @abstractmethod
    def remove(self, line: Line, reason: str) -> None:
        """End a line, and close its connection."""

    def beat_line(self, line: Line, now: float) -> None:
        """Ask the other end of a line that has been silent for a sign of life, and give the
        connection up if it gave none."""
        websocket = line.websocket
        if websocket is None or now - websocket.heard < line.heartbeat or websocket.is_taken(now):
            return
        if websocket.heard > line.pinged:
            line.pinged = now
            websocket.put([b""], PING)
            self.push(line)
        elif now - line.pinged > (LOST_AFTER - 1) * line.heartbeat and not self.has_come(line):
            silence = now - websocket.heard
            self.broke(line, TimeoutError(f"it has been silent for {silence:.1f} s"))

    @abstractmethod
    def has_come(self, line: Line) -> bool:
        """Read a line that was not heard of for long; whether something has come."""

    def contain(self, line: Line | None, act: Callable[..., Any], *args: Any) -> Any:
        """What ``act`` returns; True if it raises, which ends the line to which it belongs, and not
        the thread."""
        try:
            return act(*args)
        except WorkerTimeout:  # of the wait in which this is called
            raise
        except Exception as error:  # whatever a callback raises
            self.failed(line, error)
            return True

    def failed(self, line: Line | None, error: Exception) -> None:
        """Give up the connection of a line; for a fault of this end, which is logged, the line."""
        if not isinstance(error, OSError | WireError):
            self.faults.warning(f"a fault of this {self.end}: %r", error)
            error = BrokenFraming(FAULT, f"a fault of this {self.end}")
        if line is not None:
            self.broke(line, error)

    @abstractmethod
    def push(self, line: Line) -> None:
        """See to it that what a line has to write is written, now or soon."""

    def wait_until_arrived(self, line: Line) -> None:
        """Wait until all that was sent so far has arrived.

        Raises :class:`~syft.exceptions.WorkerLost`.
        """
        last = line.sent
        while line.acknowledged < last:
            if line.ended is not None:
                raise WorkerLost(line.name, line.ended)
            self.push(line)
            if line.acknowledged < last:
                self.turn(line, True)

    def ask(self, line: Line, number: int, control: Control) -> Any:
        """Say something that is answered, and wait for the answer of that line.

        Raises :class:`~syft.exceptions.WorkerLost`.
        """
        question = self._ask(line, number, control)
        try:
            while self._asked[question] is None:
                if line.ended is not None:
                    raise WorkerLost(line.name, line.ended)
                self.turn(line, True)
            return self._asked[question]
        finally:
            del self._asked[question]

    def _ask(self, line: Line, number: int, control: Control) -> _Question:
        """Say something that is answered; the answer of another line, or of another kind, is
        none."""
        question = line, number, _ANSWERS[type(control)]
        self._asked[question] = None
        line.tell(control)
        self.push(line)
        return question

    def next_number(self) -> int:
        """A number for a question about a line."""
        return next(self._numbers)

    def settle(self, lines: Iterable[Line], on: bool = True) -> bool:
        """Have the workers at the other ends finish; whether anything has happened there since
        this was asked last, or is at work."""
        questions = []
        moved = False
        work, self.at_work = self.at_work, 0  # what is being served waits for them
        try:
            for line in lines:
                if self._is_there(line):
                    number = self.next_number()
                    questions.append(self._ask(line, number, Settle(number, on)))
            for question in questions:
                with contextlib.suppress(WorkerLost):
                    while self._asked[question] is None and self._is_there(question[0]):
                        self.turn(question[0], True)
                answer = self._asked[question]
                moved |= answer is None or answer.moved  # who waits for one that is lost is told
        finally:
            self.at_work += work
            for question in questions:
                del self._asked[question]
        return moved

    @abstractmethod
    def look_for(self, line: Line) -> None:
        """See to a line without a connection, before something is sent over it.

        Raises :class:`~syft.exceptions.WorkerLost`; what cannot be sent yet is kept.
        """

    def is_at_work(self) -> bool:
        """Whether something may come of what this process does now."""
        return self.at_work > 0

    def _is_there(self, line: Line) -> bool:
        """Whether something can be carried over a line, now or soon."""
        return line.ended is None and (line.websocket is not None or self.comes_back(line))

    # --------------------------------------------------------------------------- taking in

    def take(self, line: Line) -> bool:
        """Take in what was read from a line; whether anything was.

        Raises :class:`~syft.exceptions.WireError` and :class:`ConnectionError`.
        """
        websocket = line.websocket
        if websocket is None or not websocket.messages:
            return False
        arrived = websocket.messages
        while arrived:
            opcode, value = arrived.popleft()
            if opcode == BINARY:
                number, frame = value
                if number == CONTROLS:
                    self._told(line, decode_control(frame))
                else:
                    self._arrived(line, number, frame)
            elif opcode == TEXT:
                raise BrokenFraming(PROTOCOL_ERROR, "a text comes after the welcome")
            else:
                raise ConnectionResetError(value[1] or "the other end has closed the connection")
        return True

    def _arrived(self, line: Line, number: int, frame: Frame) -> None:
        """Take in a request or a reply."""
        line.received += 1
        size = frame.nbytes if frame.buffers else len(frame.header)
        if line.received >= line.report_at or (size >= LARGE and frame.buffers):
            line.report()
        channel = line.channels.get(number)
        if channel is None:
            if number in self.passes:
                self.passes[number](line, frame)
                return
            raise BrokenFraming(REFUSED, f"channel {number} was not opened")
        self.moved += 1
        if is_reply(frame):
            if channel.transport is None:
                raise BrokenFraming(REFUSED, f"nothing was asked on channel {number}")
            channel.transport.take(frame)
        else:
            line.waiting += _OVERHEAD + size
            (line.urgent if number & NESTED else line.inbox).append((channel, frame, size))

    def _told(self, line: Line, control: Control) -> None:
        """Take in what is said of a line: at once, or in its place among the requests."""
        if control.counted:
            line.received += 1
            line.report()
        kind = type(control)
        if kind in _IN_ORDER:
            line.waiting += _OVERHEAD
            line.inbox.append(control)
        elif kind in _KINDS_OF_ANSWERS:
            question = line, control.number, kind  # type: ignore[attr-defined]
            if question in self._asked:
                self._asked[question] = control
        else:
            act = self.acts.get(kind)
            if act is not None:
                act(line, control)

    def _acknowledged(self, line: Line, control: Received) -> None:
        line.acknowledge(control.count)

    def _withdraw(self, line: Line, control: Withdraw) -> None:
        """Have what was asked before, and waits, be left out when its turn comes.

        An operation may be running: nothing of the worker is touched now.  What was looked at the
        last time is not looked at again, however often this is said.
        """
        inbox, count = line.inbox, 0
        fresh: list[Any] = []
        while inbox and type(inbox[-1]) is not Withdraw:
            fresh.append(inbox.pop())
        for item in reversed(fresh):
            if type(item) is tuple and item[0].serves and may_be_withdrawn(item[1]):
                count += 1
                channel, frame, size = item
                line.waiting -= size
                item = LeftOut(channel, frame)
            inbox.append(item)
        if fresh:
            inbox.append(control)  # up to here
            line.waiting += _OVERHEAD
        line.tell(Withdrawn(control.number, count))

    def _leave_out(self, item: LeftOut) -> None:
        """Answer a request that is not begun."""
        host: Any = item.channel.host
        peer: Any = item.channel.peer
        reply = withdraw(host.core, item.frame, peer)
        self.network.carry([*host.core.outgoing(), (peer, reply)], host)

    # ------------------------------------------------------------------------------- serving

    def serve(self, line: Line) -> bool:
        """Serve what the other end has asked, in its order; whether there was anything.

        While one request waits for another worker, only those are served that belong to it.
        """
        served = bool(line.urgent)
        if served:
            with neutral_mode():
                while line.urgent:
                    self._serve(line, *line.urgent.popleft())
        if line.serving or not line.inbox:
            return served
        line.serving = 1
        try:
            with neutral_mode():
                for _ in range(_AT_ONCE):
                    if not line.inbox:
                        break
                    item = line.inbox.popleft()
                    if type(item) is tuple:
                        self._serve(line, *item)
                    else:
                        line.waiting -= _OVERHEAD
                        self.serve_control(line, item)
        finally:
            line.serving = 0
        return True

    def _serve(self, line: Line, channel: Channel, frame: Frame, size: int) -> None:
        """Serve one request, and send what follows from it."""
        line.waiting -= _OVERHEAD + size
        host, peer = channel.host, channel.peer
        if host is None or peer is None:
            channel.take(_refusal(channel, frame, self.network))
            return
        network = self.network
        if network.observers:
            network.observe(peer.name, host.id, frame)
        core = host.core
        self.at_work += 1
        try:
            reply = self._respond(core, frame, peer)
        finally:
            self.at_work -= 1
        if core.outbox:
            letters = core.outgoing()
            network.carry(letters if reply is None else [*letters, (peer, reply)], host)
        elif reply is not None:
            if network.observers:
                network.observe(host.id, peer.name, reply)
            channel.take(reply)

    def _respond(self, core: WorkerCore, frame: Frame, peer: Peer) -> Frame | None:
        """Have a request handled; returns the reply, if there is one now."""
        return core.respond(frame, peer)

    def serve_control(self, line: Line, control: Any) -> None:
        """Act on what has its place among the requests."""
        if type(control) is LeftOut:
            self._leave_out(control)
        elif type(control) is Bye:
            self.has_left(line, control.reason)
            self.remove(line, control.reason)
        elif type(control) is Settle:
            self.turn(None, False)  # what has come over other lines counts
            moved = self.network.flush()
            if control.on:
                moved |= self.settle(self.reached_for(line), on=False)
            moved |= self.is_at_work() or line.moved_before != self.moved
            line.moved_before = self.moved
            line.tell(Settled(control.number, moved))


_IN_ORDER: Final = frozenset((Bye, Settle))
_ANSWERS: Final[dict[type[Control], type[Control]]] = {
    Meet: Introduction,
    Settle: Settled,
    Tell: Told,
    Withdraw: Withdrawn,
}
_KINDS_OF_ANSWERS: Final = frozenset(_ANSWERS.values())


def _refusal(channel: Channel, frame: Frame, network: Network) -> Frame:
    """The reply to a request for a worker that is not here, or for whom nobody has vouched."""
    try:
        seq = messages.read_request(frame.header).seq
    except messages.UNREADABLE:
        seq = -1
    here = tuple(sorted(network.hosts))
    error = channel.refused or UnknownWorker("this worker", here[0] if here else "", here)
    return Frame(encode(Failure(seq, pack_error(error, Packer()))), [])
