"""One worker's line to another: requests go out, replies and errors come back to the line that
asked.

Over a connection to an *immediate* worker every request is answered before the call returns, so an
error rises where it was made.  A *queued* worker only takes requests in; a value, a shape or
``sy.synchronize()`` waits, and an error says which line issued the command.

A pointer that dies only leaves its id in ``garbage``; the next request carries it away.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import Any, ClassVar

import torch

from syft.callers import line_of_user
from syft.exceptions import (
    MalformedMessage,
    ObjectNotFound,
    ObjectNotReady,
    WireError,
    WorkerClosed,
)
from syft.ids import new_id
from syft.serde.errors import unpack_error
from syft.serde.frame import Frame
from syft.serde.packer import Packer, Unpacker
from syft.serde.registry import pack, unpack_at
from syft.torch_private import any_autocast_enabled
from syft.workers.client.caller_modes import autocast_state, mode_without_grad, modes
from syft.workers.client.group import NOT_HELD, MessageGroup
from syft.workers.client.pending import STORED as STORED
from syft.workers.client.pending import Pending as Pending
from syft.workers.client.sent_calls import Calls, ranges
from syft.workers.client.transport import Location, Owner, Transport
from syft.workers.core.holders import Holder
from syft.workers.core.permissions import Guard
from syft.workers.wire import messages
from syft.workers.wire.definitions import Definition
from syft.workers.wire.messages import (
    GRAD_MODE,
    Cancel,
    Command,
    Done,
    Failure,
    Forgotten,
    Message,
    Parked,
    Put,
    Reply,
    Run,
    Skipped,
    Value,
)

NEVER_SENT = "it was to be made in a group of messages that an exception ended before it was sent"
"""Why an object of such a group is not there."""

PointerMaker = Callable[..., Any]

_WORTH_NUMBERING = range(256, 1 << 16)
"""Bytes of tensor data from which on a command travels by its number: less is no gain, and to hash
more takes longer than to copy it."""

_IDS = 2**63
"""How many ids there are."""


class IdleGarbage(list[int]):
    """The ids of dropped pointers to a queued worker, which are sent at once if it is idle.

    Otherwise they would wait for the next request, which may never come.
    """

    __slots__ = ("flush", "is_idle")

    def __init__(self, flush: Callable[[], None], is_idle: Callable[[], bool]) -> None:
        self.flush, self.is_idle = flush, is_idle

    def append(self, id: int) -> None:
        """Keep an id; called when a pointer dies, at any line of the program."""
        super().append(id)
        if self.is_idle():
            self.flush()


class Connection:
    """The line from worker ``owner`` to the worker ``location``, over ``transport``.

    ``connect`` gives the owner's connection to another worker, by name.  ``make_pointer`` turns a
    reference in a reply into what the caller works with; the layer that defines pointers sets it.
    """

    __slots__ = (
        "owner",
        "location",
        "transport",
        "connect",
        "garbage",
        "pending",
        "unseen",
        "crossed",
        "calls",
        "group",
        "dropped",
        "contents",
        "_core",
        "_exchange",
        "_failures",
        "_seq",
        "_user",
        "_owners",
    )

    make_pointer: ClassVar[PointerMaker]
    make_plan_pointer: ClassVar[PointerMaker]

    def __init__(
        self,
        owner: Owner,
        location: Location,
        transport: Transport,
        connect: Callable[[str], Connection],
    ) -> None:
        self.owner = owner
        self.location = location
        self.transport = transport
        self.connect = connect
        self.garbage: list[int] = []
        if transport.queued:
            self.garbage = IdleGarbage(self._drop_idle, transport.is_idle)
        self.pending: dict[int, Pending] = {}
        self.unseen: list[Pending] = []
        self.crossed = False  # a graph goes on from there to another worker: backward must wait
        self.calls = Calls()
        self.group: MessageGroup | None = None  # the open one
        self.dropped: deque[range] = deque(maxlen=64)  # ids of groups that were never sent
        self.contents: dict[int, int] = {}  # where constants are that were sent, by their content
        self._core = owner.core
        self._exchange = transport.exchange
        self._failures = 0  # how many failures came over this connection
        self._seq = 0
        self._user: str | None = None
        self._owners: dict[int, int] = {}

    # --------------------------------------------------------------------------------- torch calls

    def command(
        self,
        op: int,
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None,
        out: int,
        buffers: list[torch.Tensor],
        answered: bool,
    ) -> Any:
        """Run operation ``op`` at the other worker.

        ``answered`` says that the caller cannot go on without the reply.  Returns ``STORED`` when
        the single result is stored under ``out``, a :class:`Pending` when nobody knows yet, and
        otherwise what the operation returned.
        """
        if self.group is not None or buffers:
            held = self._hold(op, args, kwargs, out, buffers, answered)
            if held is not NOT_HELD:
                return held
        flags = GRAD_MODE if torch.is_grad_enabled() else mode_without_grad()
        autocast = autocast_state() if any_autocast_enabled() else None
        failures = self._failures if answered else None
        self._seq = seq = self._seq + 1
        drop = self._take_garbage() if self.garbage else ()
        message = Command(seq, op, args, out, flags, drop, kwargs, autocast, failures)
        return self._request(seq, Frame(messages.encode(message), buffers), answered, drop)

    def run(
        self,
        key: Hashable,
        definition: Callable[[], Definition],
        inputs: Sequence[Any],
        results: int = 1,
        answered: bool = False,
        first: int | None = None,
        mode: tuple[int, Any] | None = None,
    ) -> tuple[int, Any]:
        """Run what ``key`` names at the other worker, on ids of objects there, numbers and values.

        ``definition`` makes what it names, and is called only when the other end does not know it.
        The ``results`` are stored under ``first`` (drawn here if None) and the ids that follow.
        ``mode`` is a pair of flags and autocast, if it is not that of the caller.
        Returns the first id, and what :meth:`command` would: ``STORED`` when all results are
        tensors, a :class:`Pending` when nobody knows yet, and otherwise a tuple of the results.
        """
        if self.group is not None:
            self.group.flush()
        if self.transport.replies:
            self.read_replies()  # the numbers may have been forgotten
        if first is None:
            first = min(new_id(), _IDS - results)
        flags, autocast = modes() if mode is None else mode
        try:
            seq, frame, drop = self._run_frame(
                key, definition, inputs, first, flags, autocast, answered
            )
            return first, self._request(seq, frame, answered, drop, key)
        except Exception:
            self.calls.forget(key)
            raise

    def _run_frame(
        self,
        key: Hashable,
        definition: Callable[[], Definition],
        inputs: Sequence[Any],
        first: int,
        flags: int,
        autocast: Any,
        answered: bool,
    ) -> tuple[int, Frame, tuple[int, ...]]:
        serving = self._core.serving
        user = self.owner.user if serving is None else serving.user
        if user != self.calls.user:
            self.calls.clear()
            self.calls.user = user
        entry = self.calls.find(key)
        define: Any = None
        buffers: list[torch.Tensor] = []
        if entry is not None and entry.bare:
            changes = entry.differences(inputs)
        else:
            packer = Packer(worker=self._core)
            if entry is None:
                made = definition()
                define = pack(made, packer)
                entry = self.calls.define(key, made)
            changes = self.calls.changes(entry, inputs, packer)
            buffers = packer.buffers
        failures = self._failures if answered else None
        self._seq = seq = self._seq + 1
        drop = self._take_garbage() if self.garbage else ()
        dropped = ranges(drop) if len(drop) > 2 else drop
        message = Run(seq, entry.number, changes, first, flags, dropped, define, autocast, failures)
        return seq, Frame(messages.encode(message), buffers), drop

    # -------------------------------------------------------------------- the one way of a request

    def _request(
        self,
        seq: int,
        frame: Frame,
        answered: bool,
        drop: tuple[int, ...],
        key: Hashable = None,
    ) -> Any:
        """Carry a request; returns what :meth:`command` does."""
        serving = self._core.serving
        if (self.owner.user if serving is None else serving.user) != self._user:
            self._speak_for()
        if self._exchange is None:
            return self._carry(seq, frame, answered, drop, key)
        answer = self._exchange(frame)
        try:
            reply = messages.read_reply(answer.header)
        except messages.UNREADABLE:
            raise _no_reply(answer) from None
        if type(reply) is Done and reply.seq == seq:
            return STORED
        return self._received(seq, frame, reply, answer, answered, drop, key)

    def _speak_for(self) -> None:
        """Tell the other end for whom the next requests are made.

        What a worker asks while it serves somebody, it asks for them: nobody may borrow the rights
        of a worker in between.
        """
        serving = self._core.serving
        self._user = self.owner.user if serving is None else serving.user
        self.transport.speak_for(self._user)

    def _received(
        self,
        seq: int,
        frame: Frame,
        reply: Reply,
        answer: Frame,
        answered: bool,
        drop: tuple[int, ...],
        key: Hashable,
    ) -> Any:
        """What a request returns whose first reply is this one."""
        if type(reply) in _ANSWERS and reply.seq in (seq, -1):  # type: ignore[union-attr]
            if type(reply) is Failure:
                self._failures += 1
            if type(reply) is Skipped:
                self._skipped(drop)
            return self._value(reply, answer, None)
        pending = self.pending[seq] = Pending(line_of_user(), key)
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
    ) -> Any:
        """Carry a request to a worker that does not answer within a call."""
        self.check_open()
        if self.transport.replies:
            self.read_replies()
        if answered and self.unseen:
            self.garbage.extend(drop)  # the frame will not be sent
            self.raise_unseen()
        pending = self.pending[seq] = Pending(line_of_user(), key)
        self.transport.deliver(frame)
        if answered or not self.transport.queued:
            self._wait(pending, or_parked=not answered)
        return self._outcome(seq, frame, pending, answered, drop)

    def _outcome(
        self, seq: int, frame: Frame, pending: Pending, answered: bool, drop: tuple[int, ...]
    ) -> Any:
        """What a request returns that was waited for, or is not waited for."""
        if not pending.settled:
            if answered:
                self._give_up(seq, frame)
                raise ObjectNotReady(self.location.id)
            return pending
        if type(pending.reply) is Skipped:
            self._skipped(drop)
        if answered and type(pending.reply) is Failure:
            self.raise_unseen()
        value = self.take(pending)
        return STORED if type(pending.reply) is Done else value

    def _skipped(self, drop: tuple[int, ...]) -> None:
        """An earlier request failed, and this one was not made."""
        self.garbage.extend(drop)
        self.read_replies()
        self.raise_unseen()
        raise MalformedMessage("$[0]", "an answer", "a skipped request, and no failure before it")

    def _give_up(self, seq: int, frame: Frame) -> None:
        """Take back a request that nothing under way can answer."""
        self.pending.pop(seq, None)
        if not self.transport.withdraw(frame):
            self.tell(Cancel(self.next_seq(), seq))

    def _wait(self, pending: Pending, or_parked: bool = False) -> None:
        """Wait for a reply, as long as something under way may bring it."""
        self.read_replies()
        while not (pending.settled or (or_parked and pending.parked)):
            if not self.transport.advance(pending.parked):
                return
            self.read_replies()

    def wait(self, pending: Pending) -> None:
        """Wait until a request is settled, and raise what it raised.

        Raises :class:`~syft.exceptions.ObjectNotReady` when nothing under way can settle it.
        """
        self._wait(pending)
        if not pending.settled:
            raise ObjectNotReady(self.location.id)
        self.take(pending)

    def catch_up(self, pending: Pending) -> bool:
        """Whether a request is settled by what has arrived; never waits."""
        self.read_replies()
        return pending.settled

    def poll(self) -> bool:
        """Let something happen that may bring a reply, without waiting; whether anything did."""
        moved = self.transport.advance(block=False)
        self.read_replies()
        return moved

    def synchronize(self) -> None:
        """Wait until everything asked for so far has been answered or is parked, and raise the
        first error that nobody has seen yet."""
        self.send_held()
        self.read_replies()
        while any(not pending.parked for pending in self.pending.values()):
            if not self.transport.advance(parked=False):
                break
            self.read_replies()
        self.raise_unseen()

    def _hold(
        self,
        op: int,
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None,
        out: int,
        buffers: list[torch.Tensor],
        answered: bool,
    ) -> Any:
        """Have the open group hold a command back, unless it must be answered now.

        Without one, a command with enough tensor data makes a group of its own, if it goes to a
        queued worker: when it comes again, data that is as it was need not travel.  An immediate
        worker gets it as it is, since looking for what differs takes longer than a copy.
        """
        group = self.group
        if group is not None and not answered:
            return group.hold(op, args, kwargs, out, buffers, modes())
        self.send_held()
        size = sum(buffer.numel() for buffer in buffers)
        if answered or not self.transport.queued or size not in _WORTH_NUMBERING:
            return NOT_HELD
        with MessageGroup(self) as own:
            return own.hold(op, args, kwargs, out, buffers, modes())

    def send_held(self) -> None:
        """Send what an open group holds back: something that comes now may depend on it."""
        if self.group is not None:
            self.group.flush()

    def message_group(self) -> MessageGroup:
        """The open group of messages, or a new one, which is not open yet."""
        return self.group or MessageGroup(self)

    def _take_garbage(self) -> tuple[int, ...]:
        # Popped one by one: a pointer may die, here or in another thread, at any line of this.
        garbage = self.garbage
        ids = [garbage.pop() for _ in range(len(garbage))]
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

    def start_owning(self, id: int) -> None:
        """Count the pointers here that own an object, of which there is one."""
        self._owners[id] = 1

    def promise(self, id: int) -> Any:
        """Announce an object that will come; returns a pointer to it, which may not be the only
        one."""
        self.ask(messages.Promise, (id,))
        self.start_owning(id)
        return self.pointer(id)

    def check_open(self) -> None:
        """Raise :class:`~syft.exceptions.WorkerClosed` if the other worker was closed."""
        if self.transport.closed:
            raise WorkerClosed(self.location.id)

    # ---------------------------------------------------------------------------- whole requests

    def ask(self, kind: Callable[..., Message], *fields: Any, **named: Any) -> Any:
        """Make a request of the given kind and return the value of its reply; it waits.

        If something that was asked before has failed, that is raised, and the request is not made.
        """
        self._catch_up()
        self._seq = seq = self._seq + 1
        drop = self._take_garbage() if self.garbage else ()
        message = kind(seq, *fields, drop=drop, failures=self._failures, **named)
        value = self._request(seq, Frame(messages.encode(message), []), True, drop)
        return None if value is STORED else value

    def _catch_up(self) -> None:
        """Send what is held, and raise what is known to have failed."""
        if self.group is not None:
            self.group.flush()
        self.check_open()
        if self.transport.replies:
            self.read_replies()
        if self.unseen:
            self.raise_unseen()

    def put(self, value: torch.Tensor | Holder, id: int | None, guard: Guard | None = None) -> int:
        """Store a copy of ``value`` at the other worker under ``id`` (drawn here if None), and
        return the id.

        To a queued worker this returns at once; the data is copied first.
        """
        if self.group is not None:
            held = self.group.hold_value(value, modes()) if id is None and not guard else None
            if held is not None:
                return held
            self.send_held()
        id = new_id() if id is None else id
        waits = not self.transport.queued
        if waits:
            self._catch_up()
        packer = Packer(worker=self._core)
        operand = pack(value, packer)
        users = None if guard is None else tuple(sorted(guard.users))
        self._seq = seq = self._seq + 1
        drop = self._take_garbage()
        hidden = guard is not None and guard.shape_hidden
        failures = self._failures if waits else None
        message = Put(seq, id, operand, users, hidden, drop, failures)
        self._request(seq, Frame(messages.encode(message), packer.buffers), waits, drop)
        packer.sent()
        return id

    def start(self, message: Message) -> Pending:
        """Send a request whose reply nobody waits for at this line."""
        self.send_held()
        seq: int = message.seq  # type: ignore[attr-defined]
        pending = self.pending[seq] = Pending(line_of_user())
        self.tell(message)
        return pending

    def tell(self, message: Message, buffers: Sequence[torch.Tensor] = ()) -> None:
        """Send a message, and look at no reply."""
        self.forward(Frame(messages.encode(message), list(buffers)))

    def forward(self, frame: Frame) -> None:
        """Send a message that was encoded already, and look at no reply."""
        self.check_open()
        serving = self._core.serving
        if (self.owner.user if serving is None else serving.user) != self._user:
            self._speak_for()
        self.transport.deliver(frame)

    def next_seq(self) -> int:
        """Take the next sequence number, for a message that the caller makes."""
        self._seq += 1
        return self._seq

    def flush(self) -> None:
        """Send the ids of dropped pointers now instead of with the next request.

        An open group takes them along when it is sent.
        """
        if self.group is not None:
            self.group.keep_garbage(self._take_garbage())
        elif self.garbage:
            self.tell(messages.Drop(0, self._take_garbage()))

    def _drop_idle(self) -> None:
        """As :meth:`flush`, while a pointer dies: it takes no number that a request could take."""
        if self.group is None and not self._owners and not self.transport.closed:
            ids = self._take_garbage()
            if ids:
                self.transport.deliver(Frame(messages.encode(messages.Drop(0, ids)), []))
                self.transport.advance(block=False)

    # ------------------------------------------------------------------------------------ replies

    def read_replies(self) -> None:
        """Take in the replies that have come."""
        replies = self.transport.replies
        while replies:
            frame = replies.popleft()
            try:
                reply = messages.read_reply(frame.header)
            except messages.UNREADABLE:
                raise _no_reply(frame) from None
            self._settle(reply, frame)

    def _settle(self, reply: Reply, frame: Frame) -> None:
        """Take in a reply to a request that was made at an earlier line, or to none."""
        kind = type(reply)
        if kind is Forgotten:
            self.calls.clear()
            return
        seq: int = reply.seq  # type: ignore[union-attr]
        if kind is Parked:
            if seq in self.pending:
                self.pending[seq].parked = True
            return
        if kind is Failure:
            self._failures += 1
        pending = self.pending.pop(seq, None)
        if pending is None:
            if kind is not Failure or seq != -1:
                return
            # The other end could not read a request, and does not know its number; replies come in
            # the order of requests.
            order = (seq for seq, other in self.pending.items() if not other.parked)
            pending = self.pending.pop(next(order, -1), None) or Pending()
        pending.reply, pending.frame = reply, frame
        if kind is Failure:
            self.unseen.append(pending)
            if pending.key is not None:
                self.calls.forget(pending.key)

    def take(self, pending: Pending) -> Any:
        """The value of a request that is settled; raises what it raised.

        The exception is made anew each time: kept here, it would keep (through its traceback) every
        pointer of the frames it passed.
        """
        if type(pending.reply) is Failure:
            if pending in self.unseen:
                self.unseen.remove(pending)
            raise self._error(pending.reply, pending.where)
        if pending.reply is None or type(pending.reply) is Done:
            return None
        return self._value(pending.reply, pending.frame or Frame(b"", []), pending.where)

    def raise_unseen(self) -> None:
        """Raise the first error that nobody has seen yet: later ones mostly follow from it."""
        if self.unseen:
            first = self.unseen[0]
            self.unseen.clear()
            if type(first.reply) is Failure:
                raise self._error(first.reply, first.where)

    def _value(self, reply: Reply, frame: Frame, where: str | None) -> Any:
        if type(reply) is Failure:
            raise self._error(reply, where)
        unpacker = Unpacker(
            frame.buffers, self._core.limits, worker=self, owns_buffers=frame.exclusive
        )
        return unpack_at(reply.value, unpacker, ".value")  # type: ignore[union-attr]

    def _error(self, reply: Failure, where: str | None) -> Exception:
        """Rebuild a remote exception, with the remote traceback and the local line as notes."""
        error, trace = unpack_error(reply.error, Unpacker([], self._core.limits))
        name = self.location.id
        if type(error) is ObjectNotFound and any(error.id in ids for ids in self.dropped):
            error = ObjectNotFound(error.id, error.worker, NEVER_SENT)
        error.add_note(f"Raised on worker {name!r}, asked for at {where or line_of_user()}.")
        if trace:
            error.add_note(f"Traceback on worker {name!r}:\n{trace.rstrip()}")
        return error

    # ------------------------------------------------- what unpacking a reply sees of this end

    def resolve(self, id: int, depth: int = 0) -> Any:
        """A reference in a reply names a result stored at the other end: make a pointer to it."""
        return self.pointer(id)

    def pointer(self, id: int, **details: Any) -> Any:
        """A new pointer to object ``id`` at the other worker (details as PointerTensor takes
        them)."""
        return type(self).make_pointer(self, id, **details)

    def found(self, id: int, card: tuple[Any, ...]) -> Any:
        """A pointer to what a search found, which does not own it; a plan's card has a fourth
        field."""
        kind = type(self)
        maker = kind.make_pointer if len(card) == 3 else kind.make_plan_pointer
        return maker(self, id, garbage_collect_data=False, card=card)


_ANSWERS = frozenset((Done, Value, Failure, Skipped))


def _no_reply(frame: Frame) -> Exception:
    """What is wrong with a frame that came in the place of a reply."""
    try:
        messages.decode(frame.header)
    except WireError as error:
        return error
    return MalformedMessage("$[0]", "a reply", "a request")
