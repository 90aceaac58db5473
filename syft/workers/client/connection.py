"""One worker's line to another: requests go out, replies and errors come back to the line that
asked.

Over a connection to an *immediate* worker every request is answered before the call returns, so an
error rises where it was made.  To a *queued* worker (``pipelined=True``) commands are only put in
its inbox; a value, a shape or ``sy.synchronize()`` waits, and an error says which line issued the
command.

A pointer that dies only leaves its id in ``garbage``; the next request carries it away.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from syft.torch_private import any_autocast_enabled
from syft.exceptions import ObjectNotFound, ObjectNotReady, WorkerClosed
from syft.ids import new_id
from syft.serde.errors import unpack_error
from syft.serde.frame import Frame
from syft.serde.packer import Packer, Unpacker
from syft.serde.registry import pack, unpack_at
from syft.workers.wire import messages
from syft.workers.client.sent_calls import Calls, ranges
from syft.workers.core.state_machine import Letter, Peer, WorkerCore
from syft.workers.core.holders import Holder
from syft.workers.wire.messages import (
    GRAD_MODE,
    NOW,
    Command,
    Done,
    Failure,
    Put,
    Reply,
    Run,
    Value,
)
from syft.workers.client.group import NOT_HELD, MessageGroup
from syft.workers.client.caller_modes import autocast_state, mode_without_grad, modes
from syft.workers.client.pending import STORED as STORED
from syft.workers.client.pending import Pending as Pending
from syft.callers import line_of_user
from syft.workers.core.permissions import Guard
from syft.workers.core.programs import Definition

if TYPE_CHECKING:
    from syft.workers.shells.virtual import VirtualWorker

NEVER_SENT = "it was to be made in a group of messages that an exception ended before it was sent"
"""Why an object of such a group is not there."""

PointerMaker = Callable[..., Any]

_WORTH_NUMBERING = range(256, 1 << 16)
"""Bytes of tensor data from which on a command travels by its number: less is no gain, and to hash
more takes longer than to copy it."""

_IDS = 2**63
"""How many ids there are."""


class Connection:
    """The line from worker ``owner`` to worker ``location`` (both in this process).

    ``make_pointer`` turns a reference in a reply into what the caller works with; the layer that
    defines pointers sets it.
    """

    __slots__ = (
        "owner",
        "location",
        "peer",
        "garbage",
        "pending",
        "unseen",
        "crossed",
        "unread",
        "calls",
        "group",
        "dropped",
        "contents",
        "_seq",
        "_receive",
        "_observers",
        "_owners",
    )

    make_pointer: ClassVar[PointerMaker]
    make_plan_pointer: ClassVar[PointerMaker]

    def __init__(self, owner: VirtualWorker, location: VirtualWorker) -> None:
        self.owner = owner
        self.location = location
        self.peer: Peer = location.peer_of(owner)
        self.garbage: list[int] = []
        self.pending: dict[int, Pending] = {}
        self.unseen: list[Pending] = []
        self.crossed = False  # a graph goes on from there to another worker: backward must wait
        self.unread: Failure | None = None  # came for a request that the other end could not read
        self.calls = Calls()
        self.group: MessageGroup | None = None  # the open one
        self.dropped: deque[range] = deque(maxlen=64)  # ids of groups that were never sent
        self.contents: dict[int, int] = {}  # where constants are that were sent, by their content
        self._seq = 0
        self._receive = location.core.receive
        self._observers = owner.network.observers
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
        if answered:
            flags |= NOW
        autocast = autocast_state() if any_autocast_enabled() else None
        self._seq = seq = self._seq + 1
        drop = self._take_garbage() if self.garbage else ()
        frame = Frame(
            messages.encode(Command(seq, op, args, out, flags, drop, kwargs, autocast)), buffers
        )
        if self.location.pipelined or self._observers or (answered and self._others_first()):
            return self._carried(seq, frame, answered, drop)
        peer = self.peer
        if self.owner.user != peer.user or self.owner.core.serving is not None:
            peer = self.location.peer_of(self.owner)
        letters = self._receive(frame, peer)
        if len(letters) == 1 and letters[0][0] == peer.name:
            reply = messages.read(letters[0][1].header)
            if type(reply) is Done and reply.seq == seq:
                return STORED
        return self._arrived(seq, letters, answered, None)

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
        if first is None:
            first = min(new_id(), _IDS - results)
        flags, autocast = modes() if mode is None else mode
        if answered:
            flags |= NOW
        try:
            seq, frame, drop = self._run_frame(key, definition, inputs, first, flags, autocast)
            if self.location.pipelined or self._observers or (answered and self._others_first()):
                return first, self._carried(seq, frame, answered, drop, key)
            peer = self.peer
            if self.owner.user != peer.user or self.owner.core.serving is not None:
                peer = self.location.peer_of(self.owner)
            letters = self._receive(frame, peer)
            if len(letters) == 1 and letters[0][0] == peer.name:
                reply = messages.read(letters[0][1].header)
                if type(reply) is Done and reply.seq == seq:
                    return first, STORED
            return first, self._arrived(seq, letters, answered, key)
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
    ) -> tuple[int, Frame, tuple[int, ...]]:
        serving = self.owner.core.serving
        user = self.owner.user if serving is None else serving.user
        if user != self.calls.user:
            self.calls.clear()
            self.calls.user = user
        entry = self.calls.find(key)
        define = None
        if entry is not None and entry.bare:
            changes = entry.differences(inputs)
            self._seq = seq = self._seq + 1
            drop = self._take_garbage() if self.garbage else ()
            dropped = ranges(drop) if len(drop) > 2 else drop
            message = Run(seq, entry.number, changes, first, flags, dropped, None, autocast)
            return seq, Frame(messages.encode(message), []), drop
        packer = Packer(worker=self.owner.core)
        if entry is None:
            made = definition()
            define = pack(made, packer)
            entry = self.calls.define(key, made)
        changes = self.calls.changes(entry, inputs, packer)
        self._seq = seq = self._seq + 1
        drop = self._take_garbage() if self.garbage else ()
        dropped = ranges(drop) if len(drop) > 2 else drop
        message = Run(seq, entry.number, changes, first, flags, dropped, define, autocast)
        return seq, Frame(messages.encode(message), packer.buffers), drop

    def _delivered(
        self, seq: int, frame: Frame, answered: bool, drop: tuple[int, ...], key: Hashable = None
    ) -> Any:
        """Carry a frame as :meth:`command` does, the short way if there is one."""
        if self.location.pipelined or self._observers or (answered and self._others_first()):
            return self._carried(seq, frame, answered, drop, key)
        return self._direct(seq, frame, answered, key)

    def _direct(self, seq: int, frame: Frame, answered: bool, key: Hashable = None) -> Any:
        """The short way of a frame, which is a function call."""
        peer = self.peer
        if self.owner.user != peer.user or self.owner.core.serving is not None:
            peer = self.location.peer_of(self.owner)
        return self._arrived(seq, self._receive(frame, peer), answered, key)

    def _arrived(self, seq: int, letters: list[Letter], answered: bool, key: Hashable) -> Any:
        """What a command returns whose frame led to these letters."""
        if len(letters) == 1 and letters[0][0] == self.peer.name:
            reply_frame = letters[0][1]
            reply = messages.read(reply_frame.header)
            if reply.seq == seq:
                if type(reply) is Done:
                    return STORED
                return self._value(reply, reply_frame, None)
        pending = self.pending[seq] = Pending(line_of_user(), key)
        self.unread = None
        self.owner.network.route(letters, self.location.id)
        return self._outcome(seq, pending, answered)

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
        if answered or not self.location.pipelined or size not in _WORTH_NUMBERING:
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

    def _carried(
        self,
        seq: int,
        frame: Frame,
        answered: bool,
        drop: tuple[int, ...],
        key: Hashable = None,
    ) -> Any:
        """The way of a command through the network: to a queued worker, or under observation."""
        network = self.owner.network
        self.check_open()
        if answered:
            network.run()
            if self.unseen:
                self.garbage.extend(drop)  # the frame will not be sent
                self.raise_unseen()
        pending = self.pending[seq] = Pending(line_of_user(), key)
        self.unread = None
        network.send(self.location.id, frame, self.peer)
        if answered:
            network.run()
            if not pending.settled:
                self.location.withdraw(frame)
        return self._outcome(seq, pending, answered)

    def _others_first(self) -> bool:
        """Whether queued workers have to work before the other end can answer: it is one of them,
        or waits for something that they may bring."""
        return self.location.pipelined or self.location.core.dataflow.active

    def check_open(self) -> None:
        """Raise :class:`~syft.exceptions.WorkerClosed` if the other worker was closed."""
        if self.location.closed:
            raise WorkerClosed(self.location.id)

    def _outcome(self, seq: int, pending: Pending, answered: bool) -> Any:
        if not pending.settled:
            if answered or self.unread is not None:
                self.pending.pop(seq, None)
                raise self._unanswered()
            return pending
        if answered and type(pending.reply) is Failure:
            self.raise_unseen()
        value = self.take(pending)
        return STORED if type(pending.reply) is Done else value

    # ---------------------------------------------------------------------------- whole requests

    def ask(self, kind: Callable[..., messages.Message], *fields: Any, **named: Any) -> Any:
        """Make a request of the given kind and return the value of its reply; it waits.

        If something that was asked before has failed, that is raised, and the request is not made.
        """
        quiet = self._is_quiet()
        if not quiet:
            self._catch_up()
        self._seq = seq = self._seq + 1
        drop = self._take_garbage() if self.garbage else ()
        frame = Frame(messages.encode(kind(seq, *fields, drop=drop, **named)), [])
        if not quiet:
            return self._ask(seq, frame, drop)
        value = self._direct(seq, frame, True)
        return None if value is STORED else value

    def _is_quiet(self) -> bool:
        """Whether nothing is on its way or held back, so that a request can take the short way."""
        location = self.location
        return not (
            location.pipelined
            or self.group is not None
            or self._observers
            or self.unseen
            or location.core.dataflow.active
        )

    def _catch_up(self) -> None:
        self.send_held()
        self.check_open()
        if self._others_first():
            self.owner.network.run()
        self.raise_unseen()

    def _ask(self, seq: int, frame: Frame, drop: tuple[int, ...]) -> Any:
        value = self._delivered(seq, frame, True, drop)
        return None if value is STORED else value

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
        queued = self.location.pipelined
        if queued:
            self.check_open()
        else:
            self._catch_up()
        packer = Packer(worker=self.owner.core)
        operand = pack(value, packer)
        users = None if guard is None else tuple(sorted(guard.users))
        self._seq = seq = self._seq + 1
        drop = self._take_garbage()
        hidden = guard is not None and guard.shape_hidden
        message = Put(seq, id, operand, users, hidden, drop)
        frame = Frame(messages.encode(message), packer.buffers)
        if not queued:
            self._ask(seq, frame, drop)
        else:
            self.pending[seq] = Pending(line_of_user())
            self.location.enqueue(frame, self.location.peer_of(self.owner))
        packer.sent()
        return id

    def start(self, message: messages.Message) -> Pending:
        """Send a request whose reply nobody waits for at this line."""
        self.send_held()
        self.check_open()
        seq: int = message.seq  # type: ignore[attr-defined]
        pending = self.pending[seq] = Pending(line_of_user())
        self.owner.network.send(self.location.id, Frame(messages.encode(message), []), self.peer)
        return pending

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
            self.start(messages.Drop(self.next_seq(), self._take_garbage()))

    # ------------------------------------------------------------------------------------ replies

    def settle(self, reply: Reply, frame: Frame) -> None:
        """Take in a reply that came by itself (queued and parked requests, collective results)."""
        pending = self.pending.pop(reply.seq, None)
        if pending is None:
            if reply.seq == -1 and type(reply) is Failure:
                self.unread = reply
            return
        pending.reply, pending.frame = reply, frame
        if type(reply) is Failure:
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
            frame.buffers, self.owner.core.limits, worker=self, owns_buffers=frame.exclusive
        )
        return unpack_at(reply.value, unpacker, ".value")  # type: ignore[union-attr]

    def _unanswered(self) -> Exception:
        """Why a request got no reply: the other end could not read it, or it waits for a
        promise."""
        unread, self.unread = self.unread, None
        return ObjectNotReady(self.location.id) if unread is None else self._error(unread, None)

    def _error(self, reply: Failure, where: str | None) -> Exception:
        """Rebuild a remote exception, with the remote traceback and the local line as notes."""
        error, trace = unpack_error(reply.error, Unpacker([], self.owner.core.limits))
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

    def connect(self, name: str) -> Connection:
        """The owner's connection to a worker, for pointers that come home."""
        return self.owner.core.connect(name)


@WorkerCore.handles(Done)
@WorkerCore.handles(Value)
@WorkerCore.handles(Failure)
def settle(core: WorkerCore, reply: Reply, frame: Frame, peer: Peer) -> None:
    """Replies take the same way in as requests do."""
    core.connect(peer.name).settle(reply, frame)
