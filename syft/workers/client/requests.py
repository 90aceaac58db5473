"""The half of a connection that carries requests, decides whether to wait, and knows which objects
at the other end pointers here own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Any

import msgspec
import torch

from syft.callers import place_of_user
from syft.exceptions import (
    MalformedMessage,
    WorkerClosed,
)
from syft.ops.control import RECORDING
from syft.serde.frame import Frame
from syft.workers.client.monitor import exclusive
from syft.workers.client.replies import ReplyReader, reply_in
from syft.workers.client.pending import STORED as STORED
from syft.workers.client.pending import Pending as Pending
from syft.workers.client.transport import BATCH, Location, Owner, Transport
from syft.workers.wire import messages
from syft.workers.wire.messages import (
    Cancel,
    Done,
    Failure,
    Message,
    NotBegun,
    Skipped,
    Value,
)

_MOST_REPEATS = 64
"""How often a request is made again; each time, a failure has come that nobody had to see."""

_BEFORE = (
    "a plan asks nothing of workers. Send or fetch before it is built; to have it work there, send "
    "the plan (plan.send(worker)) and call that with pointers"
)
"""Advice for those who talk to a worker in a plan."""

_CALL_DEPTH = 3
"""How many frames above the one that carries it a request is made, at least."""

NOBODY = ""
"""Stands for the user of requests that a worker makes while it serves somebody without a user.

What it asks by itself, without a user too, has the rights that its program proves; these have none.
"""

_ANSWERS = frozenset((Failure, Skipped, NotBegun))


class IdleGarbage(list[int]):
    """The ids of dropped pointers to a worker that need not wait for the next request.

    They are sent at once if the worker is idle, and otherwise when the transport comes to it: the
    next request may never come.
    """

    __slots__ = ("flush", "is_idle", "flush_soon")

    def __init__(
        self,
        flush: Callable[[], None],
        is_idle: Callable[[], bool],
        flush_soon: Callable[[], None],
    ) -> None:
        self.flush, self.is_idle, self.flush_soon = flush, is_idle, flush_soon

    def append(self, id: int) -> None:
        """Keep an id; called when a pointer dies, at any line of the program."""
        list.append(self, id)  # super() costs more
        if self.is_idle():
            self.flush()
        else:
            self.flush_soon()


class RequestSender(ReplyReader):
    """The one way of every request: for whom it is made, over the transport, and its outcome.

    A pointer that dies only leaves its id in ``garbage``; the next request carries it away, or an
    idle line does.
    """

    __slots__ = (
        "garbage",
        "groups",
        "holding",
        "_exchange",
        "_owners",
        "_repeats",
        "_seq",
        "_user",
    )

    def __init__(self, owner: Owner, location: Location, transport: Transport) -> None:
        super().__init__(owner, location, transport)
        self.garbage: list[int] = []
        if transport.exchange is None:
            self.garbage = IdleGarbage(self._drop_now, transport.is_idle, transport.flush_soon)
        self.groups: dict[int, Any] = {}
        """The open group of messages of each thread that has one."""
        self.holding = 0  # groups that are open, or whose operations are being sent
        self._owners: dict[int, int] = {}
        self._exchange = transport.exchange
        self._seq = 0
        self._repeats = 0  # of the present request
        self._user: str | None = None

    def check_not_recording(self, what: str) -> None:
        """Raise :class:`~syft.exceptions.CannotRecord` while a plan is being built: the request
        would be made then, and not when the plan is called."""
        recording = RECORDING.get()
        if recording is not None:
            recording.refuse(f"{what} worker {self.location.id!r}", _BEFORE)

    def check_open(self) -> None:
        """Raise :class:`~syft.exceptions.WorkerClosed` if the other worker was closed."""
        if self.transport.closed:
            raise self.transport.gone(self.location.id)

    def next_seq(self) -> int:
        """Take the next sequence number, for a message that the caller makes."""
        self._seq += 1
        return self._seq

    def _request(
        self,
        seq: int,
        frame: Frame,
        answered: bool,
        drop: tuple[int, ...],
        key: Hashable = None,
        made: Collection[int] = (),
    ) -> Any:
        """Carry a request that is to make these objects; returns what :meth:`command` does."""
        serving = self._core.serving
        if (self.owner.user if serving is None else serving.user or NOBODY) is not self._user:
            self._check_user()
        if self._exchange is None:
            return self._carry(seq, frame, answered, drop, key, made)
        answer = self._exchange(frame)
        if answer.done == seq:
            return STORED
        return self._received(seq, frame, answer, answered, drop, key, made)

    def _speak_for(self) -> None:
        """Tell the other end for whom the next requests are made.

        What a worker asks while it serves somebody, it asks for them: nobody may borrow the rights
        of a worker in between.
        """
        serving = self._core.serving
        self._user = self.owner.user if serving is None else serving.user or NOBODY
        self.transport.speak_for(self._user or None)
        self.facts.changed_by_others(gradients=False)  # they were told to another user

    def _check_user(self) -> None:
        """Tell the other end if the next request is made for another user than the last one."""
        serving = self._core.serving
        if (self.owner.user if serving is None else serving.user or NOBODY) != self._user:
            self._speak_for()

    def _received(
        self,
        seq: int,
        frame: Frame,
        answer: Frame,
        answered: bool,
        drop: tuple[int, ...],
        key: Hashable,
        made: Collection[int],
    ) -> Any:
        """The value of a request whose first reply is this one."""
        try:
            reply = messages.read_reply(answer.header)
        except messages.UNREADABLE:
            reply = reply_in(answer)  # raises
        kind = type(reply)
        if kind is Done and reply.seq == seq:
            return STORED
        if kind is Value and reply.seq == seq:
            return reply.value if type(reply.value) is bool else self._value(reply, answer, None)
        unread = kind is Failure and reply.seq == -1
        if unread or (kind in _ANSWERS and reply.seq == seq):
            if kind is Failure:
                self._failed()
            if kind is Skipped:
                return self._again(frame, drop, key, made)
            if type(reply) is NotBegun:
                self._withdrawn(Pending(key=key, made=made))
            return self._value(reply, answer, None)
        pending = self.pending[seq] = Pending(place_of_user(), key, made, lines=self.lines)
        self._settle(reply, answer)
        self._wait(pending, or_parked=not answered)
        return self._outcome(seq, frame, pending, answered, drop)

    def _carry(
        self,
        seq: int,
        frame: Frame,
        answered: bool,
        drop: tuple[int, ...],
        key: Hashable,
        made: Collection[int],
    ) -> Any:
        """Carry a request to a worker that does not answer within a call."""
        transport = self.transport
        if transport.replies:
            self.read_replies()
        if answered and self.has_unseen():
            self.garbage.extend(drop)  # the frame will not be sent
            self.raise_unseen()
        where = place_of_user(_CALL_DEPTH)
        pending = self.pending[seq] = Pending(where, key, made, lines=self.lines)
        try:
            transport.deliver(frame)
        except WorkerClosed:
            del self.pending[seq]
            raise
        if transport.queued and not answered:
            return pending
        try:
            self._wait(pending, not answered, BATCH)
        except BaseException:  # the user has interrupted it, or it took too long
            if answered:
                self.garbage.extend(made)
            raise
        return self._outcome(seq, frame, pending, answered, drop)

    def _outcome(
        self, seq: int, frame: Frame, pending: Pending, answered: bool, drop: tuple[int, ...]
    ) -> Any:
        """The value of a request that was waited for, or is not waited for."""
        if not pending.settled:
            if answered:
                self._give_up(seq, frame, drop)
                raise pending.not_ready(self.location.id)
            return pending
        if type(pending.reply) is Skipped:
            return self._again(frame, drop, pending.key, pending.made)
        if answered and type(pending.reply) is Failure:
            self.raise_unseen()
        value = self.take(pending)
        return STORED if type(pending.reply) is Done else value

    def _again(
        self, frame: Frame, drop: tuple[int, ...], key: Hashable, made: Collection[int]
    ) -> Any:
        """Raise the failure because of which a request was skipped; make it again if that was
        raised already, or followed from one that was."""
        self.read_replies()
        message: Any = messages.read_request(frame.header)
        failures = getattr(message, "failures", None)
        fails = failures is None or failures >= self._failures or self._repeats == _MOST_REPEATS
        if fails or self.has_unseen():
            self.garbage.extend(drop)
            self.raise_unseen()
            raise MalformedMessage(
                "$[0]", "an answer", "a skipped request, and no failure before it"
            )
        seq = self.next_seq()
        message = msgspec.structs.replace(message, seq=seq, failures=self._failures)
        again = Frame(messages.encode(message), frame.buffers, frame.exclusive, frame.private)
        self._repeats += 1
        try:
            return self._request(seq, again, True, drop, key, made)
        finally:
            self._repeats -= 1

    def _give_up(self, seq: int, frame: Frame, drop: tuple[int, ...]) -> None:
        """Take back a request that nothing under way can answer."""
        self.pending.pop(seq, None)
        if self.transport.withdraw(frame):
            self.garbage.extend(drop)
        else:
            self.tell(Cancel(self.next_seq(), seq))

    @exclusive
    def cancel(self) -> int:
        """Withdraw what was asked and has not begun; returns how many requests that were.

        Each of them fails with :class:`~syft.exceptions.RequestWithdrawn`.  What an open group
        holds has not been asked.
        """
        self.check_open()
        self.calls.clear()  # what is withdrawn defines nothing at the other end
        count = self.transport.withdraw_all()
        self.read_replies()
        parked = [(seq, one) for seq, one in self.pending.items() if one.waits_its_turn]
        for seq, pending in reversed(parked):  # what follows from others first: none has to fail
            self.tell(Cancel(self.next_seq(), seq))
            del self.pending[seq]
            pending.reply = NotBegun(seq)
            self._withdrawn(pending)
        self.read_replies()
        return count + len(parked)

    @exclusive
    def tell(self, message: Message, buffers: Sequence[torch.Tensor] = ()) -> None:
        """Send a message, and look at no reply."""
        self.forward(Frame(messages.encode(message), list(buffers)))

    @exclusive
    def forward(self, frame: Frame) -> None:
        """Send a message that was encoded already, and look at no reply."""
        self.check_open()
        self._check_user()
        self.transport.deliver(frame)

    # ------------------------------------------------------------ which objects pointers here own

    @exclusive
    def flush_idle(self) -> bool:
        """Send the ids of dropped pointers now, from any thread; whether there were any.

        It takes no number that a request could take.  A request in the making names no dropped
        pointer: the arguments of the call keep theirs.  Only a group may, so ids stay here while a
        group is open; these ids were there before it was found that none is.
        """
        ids = list(self.garbage)
        if self.holding or self._owners or self.transport.closed:
            return False
        taken = tuple(filter(self._take, ids))
        if taken:
            self.transport.deliver(Frame(messages.encode(messages.Drop(0, taken)), []))
        return bool(taken)

    def _take(self, id: int) -> bool:
        """Take an id out of the garbage, unless a request of another thread has taken it."""
        try:
            self.garbage.remove(id)
        except ValueError:
            return False
        return True

    def _drop_now(self) -> None:
        """Send the ids of dropped pointers, while a pointer dies; if other threads are at work, the
        next request takes them along."""
        if self.lock.acquire(blocking=False):  # a destructor must not wait
            try:
                if self.flush_idle():
                    self.transport.advance(block=False)
            finally:
                self.lock.release()

    def _take_garbage(self) -> tuple[int, ...]:
        # Popped one by one: a pointer may die, here or in another thread, at any line of this.
        garbage, ids = self.garbage, []
        try:
            if len(garbage) == 1 and not (self._owners or self.groups):  # nearly always
                last = (garbage.pop(),)
                if self.facts.active:
                    self.facts.drop(last)
                return last
            for _ in range(len(garbage)):
                ids.append(garbage.pop())
        except IndexError:  # another thread has sent the rest
            pass
        for group in self.groups.values():
            ids = group.kept_from(ids)
        if self.facts.active:
            self.facts.drop(ids)
        return tuple(filter(self._is_last, ids) if self._owners else ids)

    def _is_last(self, id: int) -> bool:
        """Whether nobody else here points to an object that several pointers own."""
        left = self._owners.pop(id, 1) - 1
        if left:
            self._owners[id] = left
        return not left

    def add_owner(self, id: int) -> None:
        """Count one more pointer that owns an object (of a promise: the one that keeps it too)."""
        if id in self._owners:
            self._owners[id] += 1

    def owns(self, id: int) -> bool:
        """Whether pointers here to this object are counted, and one is left."""
        return id in self._owners

    def has_owners(self, id: int) -> bool:
        """Whether several pointers here own this object."""
        return self._owners.get(id, 0) > 1

    @exclusive
    def start_owning(self, id: int) -> None:
        """Count the pointers here that own an object, of which there is one."""
        self._owners[id] = 1

    def stop_owning(self, id: int) -> None:
        """Count no more: the object has left, and what may get its id is another one."""
        with self.lock:  # as `exclusive`, which takes longer
            self._owners.pop(id, None)
            self.facts.drop((id,))  # it may come back as it is not now
