"""The requests of a connection: how one is carried, and whether somebody waits for its reply."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
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
from syft.workers.client.facts import Facts
from syft.workers.client.garbage import Garbage
from syft.workers.client.monitor import exclusive
from syft.workers.client.open_groups import OpenGroups
from syft.workers.client.pending import STORED, Pending
from syft.workers.client.replies import Replies, reply_in
from syft.workers.client.transport import BATCH, Owner
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


class Requests:
    """The one way of every request: for whom it is made, over the transport, and its outcome."""

    __slots__ = (
        "exchange",
        "location",
        "lock",
        "owner",
        "seq",
        "transport",
        "user",
        "_core",
        "_facts",
        "_garbage",
        "_groups",
        "_repeats",
        "_replies",
    )

    def __init__(
        self,
        owner: Owner,
        facts: Facts,
        garbage: Garbage,
        groups: OpenGroups,
        replies: Replies,
    ) -> None:
        self.owner = owner
        self.location = replies.location
        self.lock = replies.lock
        self.transport = replies.transport
        self.exchange = replies.transport.exchange
        self.seq = 0
        """The number of the request that was made last."""
        self.user: str | None = None
        """For whom that was made, as the other end was told."""
        self._core = owner.core
        self._facts = facts
        self._garbage = garbage
        self._groups = groups
        self._repeats = 0  # of the present request
        self._replies = replies

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
        self.seq += 1
        return self.seq

    def begin(self) -> tuple[int, tuple[int, ...]]:
        """The number of a new request, and the ids of dropped pointers that it takes along."""
        self.seq = seq = self.seq + 1
        return seq, self._garbage.take() if self._garbage.ids else ()

    def question(
        self, kind: type[Message], fields: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[int, Frame, tuple[int, ...]]:
        """A request that is not made if an earlier one failed: number, frame and dropped ids."""
        if RECORDING.get() is not None:
            self.check_not_recording(kind.verb)
        if (
            self._groups.open
            or self.exchange is None
            or self.transport.replies
            or self._replies.unseen
        ):
            self.catch_up(fields)  # an exchange sees whether the other end is open
        if named.get("user"):
            self.transport.prove(named["user"])
        self.seq = seq = self.seq + 1
        drop = self._garbage.take() if self._garbage.ids else ()
        message = kind(seq, *fields, drop=drop, failures=self._replies.failures, **named)
        return seq, Frame(messages.encode(message), []), drop

    def catch_up(self, used: Any = ()) -> None:
        """Send what is held, and raise what is known to have failed."""
        if self._groups.open:
            self._groups.send()
            self._groups.send_elsewhere(used)
        self.hear()

    def hear(self) -> None:
        """Raise what is known to have failed."""
        self.check_open()
        if self.transport.replies:
            self._replies.read()
        if self._replies.unseen:
            self._replies.raise_unseen()

    def send(
        self,
        seq: int,
        frame: Frame,
        answered: bool,
        drop: tuple[int, ...],
        key: Hashable = None,
        made: Collection[int] = (),
    ) -> Any:
        """Carry a request that is to make these objects; returns what
        :meth:`~syft.workers.client.operations.Operations.command` does."""
        if self._core.serving is not None or self.owner.user is not self.user:
            self.check_user()
        if self.exchange is None:
            return self.carry(seq, frame, answered, drop, key, made)
        answer = self.exchange(frame)
        if answer.done == seq:
            return STORED
        return self.received(seq, frame, answer, answered, drop, key, made)

    def check_user(self) -> None:
        """Tell the other end for whom the next request is made, if that is another user.

        What a worker asks while it serves somebody, it asks for them: nobody may borrow the rights
        of a worker in between.
        """
        serving = self._core.serving
        user = self.owner.user if serving is None else serving.user or NOBODY
        if user != self.user:
            self.user = user
            self.transport.speak_for(user or None)
            self._facts.changed_by_others(gradients=False)  # they were told to another user

    def received(
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
            return (
                reply.value
                if type(reply.value) is bool
                else self._replies.value_of(reply, answer, None)
            )
        return self._otherwise(seq, frame, reply, answer, answered, drop, key, made)

    def _otherwise(
        self,
        seq: int,
        frame: Frame,
        reply: Any,
        answer: Frame,
        answered: bool,
        drop: tuple[int, ...],
        key: Hashable,
        made: Collection[int],
    ) -> Any:
        """What a request returns whose first reply is no result of it."""
        kind = type(reply)
        unread = kind is Failure and reply.seq == -1
        if unread or (kind in _ANSWERS and reply.seq == seq):
            if kind is Failure:
                self._replies.count_failure()
            if kind is Skipped:
                return self._again(frame, drop, key, made)
            if type(reply) is NotBegun:
                self._replies.withdrawn(Pending(key=key, made=made))
            return self._replies.value_of(reply, answer, None)
        pending = self._replies.pending[seq] = Pending(
            place_of_user(), key, made, lines=self._replies.lines
        )
        self._replies.settle(reply, answer)
        self._replies.wait_for(pending, or_parked=not answered)
        return self.outcome(seq, frame, pending, answered, drop)

    def carry(
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
            self._replies.read()
        if answered and self._replies.has_unseen():
            self._garbage.extend(drop)  # the frame will not be sent
            self._replies.raise_unseen()
        where = place_of_user(_CALL_DEPTH)
        pending = self._replies.pending[seq] = Pending(where, key, made, lines=self._replies.lines)
        try:
            transport.deliver(frame)
        except WorkerClosed:
            del self._replies.pending[seq]
            raise
        if transport.queued and not answered:
            return pending
        try:
            self._replies.wait_for(pending, not answered, BATCH)
        except BaseException:  # the user has interrupted it, or it took too long
            if answered:
                self._garbage.extend(made)
            raise
        return self.outcome(seq, frame, pending, answered, drop)

    def outcome(
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
            self._replies.raise_unseen()
        value = self._replies.take(pending)
        return STORED if type(pending.reply) is Done else value

    def _again(
        self, frame: Frame, drop: tuple[int, ...], key: Hashable, made: Collection[int]
    ) -> Any:
        """Raise the failure because of which a request was skipped; make it again if that was
        raised already, or followed from one that was."""
        self._replies.read()
        message: Any = messages.read_request(frame.header)
        failures = getattr(message, "failures", None)
        fails = (
            failures is None or failures >= self._replies.failures or self._repeats == _MOST_REPEATS
        )
        if fails or self._replies.has_unseen():
            self._garbage.extend(drop)
            self._replies.raise_unseen()
            raise MalformedMessage(
                "$[0]", "an answer", "a skipped request, and no failure before it"
            )
        seq = self.next_seq()
        message = msgspec.structs.replace(message, seq=seq, failures=self._replies.failures)
        again = Frame(messages.encode(message), frame.buffers, frame.exclusive, frame.private)
        self._repeats += 1
        try:
            return self.send(seq, again, True, drop, key, made)
        finally:
            self._repeats -= 1

    def _give_up(self, seq: int, frame: Frame, drop: tuple[int, ...]) -> None:
        """Take back a request that nothing under way can answer."""
        self._replies.pending.pop(seq, None)
        if self.transport.withdraw(frame):
            self._garbage.extend(drop)
        else:
            self.tell(Cancel(self.next_seq(), seq))

    @exclusive
    def cancel(self) -> int:
        """Withdraw what was asked and has not begun; returns how many requests that were.

        Each of them fails with :class:`~syft.exceptions.RequestWithdrawn`.  What an open group
        holds has not been asked; what a lazy connection holds is one request.
        """
        self.check_open()
        if self._groups.always is not None:
            self._groups.send()
        self._replies.calls.clear()  # what is withdrawn defines nothing at the other end
        count = self.transport.withdraw_all()
        self._replies.read()
        parked = [(seq, one) for seq, one in self._replies.pending.items() if one.waits_its_turn]
        for seq, pending in reversed(parked):  # what follows from others first: none has to fail
            self.tell(Cancel(self.next_seq(), seq))
            del self._replies.pending[seq]
            pending.reply = NotBegun(seq)
            self._replies.withdrawn(pending)
        self._replies.read()
        return count + len(parked)

    @exclusive
    def tell(self, message: Message, buffers: Sequence[torch.Tensor] = ()) -> None:
        """Send a message, and look at no reply."""
        self.forward(Frame(messages.encode(message), list(buffers)))

    @exclusive
    def forward(self, frame: Frame) -> None:
        """Send a message that was encoded already, and look at no reply."""
        self.check_open()
        self.check_user()
        self.transport.deliver(frame)
