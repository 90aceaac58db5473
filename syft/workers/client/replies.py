"""The replies that come over a connection: each goes to the line that asked.

A reply to a request that somebody waits for is the value of the call.  Any other is kept with its
request until somebody asks for it; an error that nobody has seen is raised at the next question of
the thread that made the request, or of any thread once that one has ended.

Whichever thread reads, it takes in all that has come: ``pending`` has the requests of all threads
by their numbers, and each waits for its own.

What parked moves are to bring is made by requests over other connections:
:mod:`syft.workers.client.parked_moves`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, Protocol, cast

from syft.callers import Place, line_at, place_of_user
from syft.exceptions import (
    MalformedMessage,
    ObjectNotFound,
    RequestWithdrawn,
)
from syft.serde.errors import unpack_error
from syft.serde.frame import Frame
from syft.serde.limits import Limits
from syft.serde.packer import Unpacker
from syft.serde.registry import unpack_at
from syft.serde.tensors.strided import unpack_usual
from syft.workers.client.facts import Facts
from syft.workers.client.monitor import exclusive
from syft.workers.client.parked_moves import ParkedMoves
from syft.workers.client.pending import OpenPromise
from syft.workers.client.pending import Pending as Pending
from syft.workers.client.pending import maker_of_missing, origin_of, seq_of
from syft.workers.client.sent_calls import Calls
from syft.workers.client.transport import Location, Transport
from syft.workers.core.store import TAKEN_BACK
from syft.workers.wire import messages
from syft.workers.wire.messages import (
    Cancelled,
    Done,
    Failure,
    Forgotten,
    NotBegun,
    Parked,
    Reply,
    Stale,
    Value,
)

NEVER_SENT = "it was to be made in a group of messages that an exception ended before it was sent"
"""Why an object of such a group is not there."""

_BARE = frozenset((type(None), bool, bytes))
"""The values of replies that are as they came."""


class Pointers(Protocol):
    """What makes a pointer of a reference in a reply."""

    def resolve(self, id: int, depth: int = 0) -> Any:
        """A pointer to a result that is stored at the other end, perhaps to one that was there."""

    def pointer(self, id: int) -> Any:
        """A new pointer to an object at the other end."""

    contents: dict[int, int]
    """Where constants are that were sent, by their content."""


class Replies:
    """The requests that a connection made, and the replies that came."""

    __slots__ = (
        "calls",
        "callbacks",
        "dropped",
        "failures",
        "lines",
        "location",
        "lock",
        "moves",
        "pending",
        "raised",
        "taken_back",
        "transport",
        "unseen",
        "_facts",
        "_parked",
        "_limits",
        "_pointers",
    )

    def __init__(
        self,
        limits: Limits,
        location: Location,
        transport: Transport,
        facts: Facts,
        pointers: Pointers,
    ) -> None:
        self.location = location
        self.transport = transport
        self.lock = transport.monitor.lock
        """Held by the thread that uses the connection, unless it waits for another process."""
        self.pending: dict[int, Pending] = {}
        self.unseen: list[Pending] = []
        self.raised: deque[Pending] = deque(maxlen=64)
        """Failures that somebody has seen: what follows from them may come later."""
        self.calls = Calls()
        self.dropped: deque[range] = deque(maxlen=64)  # ids of groups that were never sent
        self.taken_back: deque[Collection[int]] = deque(maxlen=1024)
        """The results that withdrawn requests were to make."""
        self.callbacks: dict[Pending, list[Callable[[], object]]] = {}
        """Functions to call when the reply to a request has come."""
        self.moves = ParkedMoves()
        """The parked moves that are to bring objects to the other end."""
        self.lines: Sequence[Place] = ()
        """The lines of the actions of the group that is being sent."""
        self.failures = 0
        """How many failures came over this connection."""
        self._facts = facts
        self._parked = False  # whether a request was parked, and may still be
        self._limits = limits
        self._pointers = pointers

    def read(self) -> None:
        """Take in the replies that have come."""
        unread = self.transport.replies
        while unread:
            frame = unread.popleft()
            reply = reply_in(frame)
            if type(reply) is Done and reply.seq in self.pending:  # nearly always
                self.pending.pop(reply.seq).reply = reply
            else:
                self.settle(reply, frame)
        if self.callbacks:
            self._call_back()

    @property
    def waits(self) -> bool:
        """Whether a request waits at the other end for what was promised."""
        if self._parked:
            self._parked = any(one.parked for one in self.pending.values())
        return self._parked

    @exclusive
    def when_settled(self, pending: Pending, callback: Callable[[], object]) -> None:
        """Call back when the reply to a request has come: at once if it is there."""
        if self.catch_up(pending):
            callback()
        else:
            self.callbacks.setdefault(pending, []).append(callback)

    def _call_back(self) -> None:
        """Call what waits for replies that have come; what it raises is raised here."""
        for pending in [pending for pending in self.callbacks if pending.settled]:
            for callback in self.callbacks.pop(pending):
                callback()

    def settle(self, reply: Reply, frame: Frame) -> None:
        """Take in a reply to a request that was made at an earlier line, or to none."""
        kind = type(reply)
        if kind is Forgotten or kind is Stale:
            self._notified(reply)
            return
        seq: int = reply.seq  # type: ignore[union-attr]
        if kind is Parked:
            if seq in self.pending:
                self.pending[seq].wait = cast(Parked, reply)
                self._parked = True
            return
        if kind is Failure:
            self.count_failure()
        pending = self._answered(seq, unread=seq == -1 and kind is Failure)
        if pending is not None:
            if kind is Value and type(pending) is OpenPromise:
                reply = Failure(seq, cast(Value, reply).value)
            pending.reply, pending.frame = reply, frame
            _NOTED.get(kind, _ignored)(self, pending)

    def _answered(self, seq: int, unread: bool) -> Pending | None:
        """The request of that number, or the one that the other end could not read."""
        pending = self.pending.pop(self._oldest_unanswered() if unread else seq, None)
        return Pending() if unread and pending is None else pending

    def _note_failure(self, pending: Pending) -> None:
        """Keep a failure until somebody sees it, and forget what the other end may not know now."""
        mine = [other for other in self.raised if other.thread == pending.thread]
        if mine and maker_of_missing(pending, mine, self._limits) is not None:
            self.raised.append(pending)
        else:
            self.unseen.append(pending)
        if pending.key is not None:
            self.calls.forget(pending.key)

    def withdrawn(self, pending: Pending) -> None:
        """Forget what was noted of a request that was withdrawn, as if it were done.

        It is no failure to be raised at the next question: whoever withdrew it knows.
        """
        self._facts.forget()
        if pending.made:
            self.taken_back.append(pending.made)
        if pending.key is not None:
            self.calls.forget(pending.key)

    def _oldest_unanswered(self) -> int:
        """The number of the oldest request to which nothing was said; -1 if there is none."""
        return next((number for number, one in self.pending.items() if not one.parked), -1)

    def count_failure(self) -> None:
        """Count a failure; what was noted of the request, as if it were done, does not hold."""
        self.failures += 1
        self._facts.forget()

    def _notified(self, notice: Reply) -> None:
        """Forget what does not hold any more."""
        if type(notice) is Forgotten:
            self.calls.clear()
            self._facts.changed_by_others(gradients=False)
        else:
            self._facts.changed_by_others(notice.gradients)  # type: ignore[union-attr]

    def take(self, pending: Pending) -> Any:
        """The value of a request that is settled; raises what it raised, or what another one raised
        that should have made what this one was to use.

        The exception is made anew each time: kept here, it would keep (through its traceback) every
        pointer of the frames it passed.
        """
        if type(pending.reply) is Failure:
            origin = self._origin_of(pending)
            self._saw(pending, origin)
            raise self._error(cast(Failure, origin.reply), origin.where, origin.lines)
        if pending.reply is None or type(pending.reply) in (Done, Cancelled):
            return None
        return self.value_of(pending.reply, pending.frame or Frame(b"", []), pending.where)

    def _saw(self, pending: Pending, origin: Pending) -> None:
        """Note that this thread is told of a failure, and so of all of its own that have the same
        origin."""
        same = [other for other in self.unseen if self._origin_of(other) is origin]
        seen = [other for other in same if other is pending or other.is_mine]
        self.unseen = [other for other in self.unseen if other not in seen]
        self.raised.extend((*seen, origin))

    def has_unseen(self) -> bool:
        """Whether a request has failed that :meth:`raise_unseen` would raise in this thread."""
        return any(pending.is_mine for pending in self.unseen)

    def raise_unseen(self) -> None:
        """Raise the error of a request of this thread that it has not seen yet: where there are
        several, the one from which the failure of the earliest request follows.  The others are not
        raised any more.

        Replies come in the order in which requests were done, so the first one may be that of a
        request that was to use what another one failed to make.
        """
        mine = [pending for pending in self.unseen if pending.is_mine]
        if mine:
            origin = self._origin_of(min(mine, key=seq_of))
            self.raised.extend(mine)
            self.unseen = [pending for pending in self.unseen if pending not in mine]
            raise self._error(cast(Failure, origin.reply), origin.where, origin.lines)

    def _origin_of(self, failed: Pending) -> Pending:
        told = [other for other in self.raised if other.thread != failed.thread]
        return origin_of(failed, [*self.unseen, *told], self._limits)

    def value_of(self, reply: Reply, frame: Frame, where: Place | None) -> Any:
        """The value that a reply carries; raises the error that it carries."""
        if type(reply) is Failure:
            raise self._error(reply, where, self.lines)
        if type(reply) is NotBegun:
            raise self._withdrawal(where)
        value = reply.value  # type: ignore[union-attr]
        if value is None or type(value) in _BARE:  # most answers to questions
            return value
        if not frame.exclusive:
            usual = unpack_usual(value, frame.buffers, self._limits)
            if usual is not None:
                return usual
        unpacker = Unpacker(frame.buffers, self._limits, self._pointers, None, frame.exclusive)
        return unpack_at(value, unpacker, ".value")

    def take_in(self) -> None:
        """Take in the replies that have come, and what has become of moves to the other end."""
        if self.moves.by_id:
            self.moves.hear()
        self.read()

    def _error(self, reply: Failure, where: Place | None, lines: Sequence[Place]) -> Exception:
        """Rebuild a remote exception, with the remote traceback and the local line as notes;
        ``lines`` are those of a group's actions."""
        error, trace = unpack_error(reply.error, Unpacker([], self._limits))
        if self.moves.by_id and (failure := self.moves.failure_behind(error)) is not None:
            return failure
        name = self.location.id
        if type(error) is ObjectNotFound and any(error.id in ids for ids in self.dropped):
            error = ObjectNotFound(error.id, error.worker, NEVER_SENT)
        elif type(error) is ObjectNotFound and error.reason is None:
            error = ObjectNotFound(error.id, error.worker, self._why_missing(error.id))
        line = line_at(_place_of(reply, lines, where) or place_of_user())
        error.add_note(f"Raised on worker {name!r}, asked for at {line}.")
        if trace:
            error.add_note(f"Traceback on worker {name!r}:\n{trace.rstrip()}")
        return error

    def _why_missing(self, id: int) -> str | None:
        """The reason, if this end knows it, why the other end does not remember an object."""
        return TAKEN_BACK if any(id in made for made in self.taken_back) else None

    def _withdrawal(self, where: Place | None) -> RequestWithdrawn:
        """The error of a request that was withdrawn, with the line that had made it."""
        error = RequestWithdrawn(self.location.id)
        error.add_note(f"It was made at {line_at(where or place_of_user())}.")
        return error

    def wait_for(self, pending: Pending, or_parked: bool = False, most: int = 1) -> None:
        """Wait for a reply, as long as something under way may bring it.

        ``most`` is how many messages may be handled at once: many for the request that was made
        last.
        """
        self.take_in()
        with self.transport.limited():
            while not (pending.settled or (or_parked and pending.parked)):
                if not self.transport.advance(pending.parked, True, most):
                    if not self.moves.advance():
                        return
                self.take_in()

    @exclusive
    def wait(self, pending: Pending) -> None:
        """Wait until a request is settled, and raise what it raised.

        Raises :class:`~syft.exceptions.ObjectNotReady` when nothing under way can settle it.
        """
        self.wait_settled(pending)
        self.take(pending)

    @exclusive
    def wait_settled(self, pending: Pending) -> None:
        """Wait until a request is settled; raises as :meth:`wait`, but not what it raised."""
        self.wait_for(pending)
        if not pending.settled:
            raise pending.not_ready(self.location.id)

    @exclusive
    def catch_up(self, pending: Pending) -> bool:
        """Whether a request is settled by what has arrived; never waits."""
        self.take_in()
        return pending.settled

    @exclusive
    def poll(self) -> bool:
        """Let something happen that may bring a reply, without waiting; whether anything did.

        Raises :class:`~syft.exceptions.WorkerLost` if the connection is lost, and stays so.
        """
        moved = self.transport.advance(block=False)
        self.read()
        if not moved:
            self.transport.check_there()
        return moved


def _ignored(replies: Replies, pending: Pending) -> None:
    """Nothing more is to be noted of a request that was answered."""


_NOTED: Final[dict[type[Reply], Callable[[Replies, Pending], None]]] = {
    Failure: Replies._note_failure,
    NotBegun: Replies.withdrawn,
}


def _place_of(failure: Failure, lines: Sequence[Place], where: Place | None) -> Place | None:
    """Where the action of a group was asked for that failed, if a failure tells which it is."""
    action = failure.action
    return lines[action] if action is not None and 0 <= action < len(lines) else where


def reply_in(frame: Frame) -> Reply:
    """The reply that a frame carries.

    Raises :class:`~syft.exceptions.MalformedMessage`, or what else is wrong with the frame.

    >>> reply_in(Frame(messages.encode(Done(7)), []))
    Done(seq=7)
    """
    try:
        return messages.read_reply(frame.header)  # type: ignore[no-any-return]
    except messages.UNREADABLE:
        messages.decode(frame.header)  # raises a precise error, unless it is a request
    raise MalformedMessage("$[0]", "a reply", "a request")
