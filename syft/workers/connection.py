"""One worker's line to another: requests go out, replies and errors come back to the line that
asked.

Over a connection to an *immediate* worker every request is answered before the call returns, so an
error rises where it was made.  To a *queued* worker (``pipelined=True``) commands are only put in
its inbox; a value, a shape or ``sy.synchronize()`` waits, and an error says which line issued the
command.

A pointer that dies only leaves its id in ``garbage``; the next request carries it away.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from syft.program.torch_private import NO_FUNCTION, any_autocast_enabled, inside_custom_function
from syft.exceptions import ObjectNotReady, UnsupportedOperation, WorkerClosed
from syft.serde.errors import unpack_error
from syft.serde.frame import Frame
from syft.serde.packer import Packer, Unpacker
from syft.serde.registry import pack, unpack_at
from syft.workers import messages
from syft.workers.core import Peer, WorkerCore
from syft.workers.messages import (
    GRAD_MODE,
    INFERENCE_MODE,
    NOW,
    Command,
    Done,
    Failure,
    Put,
    Reply,
    Value,
)
from syft.workers.permissions import Guard

if TYPE_CHECKING:
    from syft.workers.virtual import VirtualWorker

_HIDDEN = tuple(
    os.path.dirname(os.path.dirname(os.path.abspath(path))) + os.sep
    for path in (__file__, torch.nn.__file__)
)
"""Folders whose frames are not the user's line: syft's own and torch's."""

STORED = object()
"""What a command returns when its result is one tensor, stored under the id the caller chose."""

PointerMaker = Callable[..., Any]


class Pending:
    """A request on its way: what came back, or where in the user's program it was made."""

    __slots__ = ("reply", "frame", "where")

    def __init__(self, where: str | None = None) -> None:
        self.reply: Reply | None = None
        self.frame: Frame | None = None
        self.where = where

    @property
    def settled(self) -> bool:
        """Whether the reply has come."""
        return self.reply is not None


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
        "_seq",
        "_receive",
        "_observers",
        "_owners",
    )

    make_pointer: ClassVar[PointerMaker]

    def __init__(self, owner: VirtualWorker, location: VirtualWorker) -> None:
        self.owner = owner
        self.location = location
        self.peer: Peer = location.peer_of(owner)
        self.garbage: list[int] = []
        self.pending: dict[int, Pending] = {}
        self.unseen: list[Pending] = []
        self.crossed = False  # a graph goes on from there to another worker: backward must wait
        self.unread: Failure | None = None  # came for a request that the other end could not read
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
        flags = GRAD_MODE if torch.is_grad_enabled() else _mode_without_grad()
        if answered:
            flags |= NOW
        autocast = _autocast_state() if any_autocast_enabled() else None
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
            reply_frame = letters[0][1]
            reply = messages.decode(reply_frame.header)
            if reply.seq == seq:  # type: ignore[union-attr]
                if type(reply) is Done:
                    return STORED
                return self._value(reply, reply_frame, None)  # type: ignore[arg-type]
        pending = self.pending[seq] = Pending(_line_of_user())
        self.unread = None
        self.owner.network.route(letters, self.location.id)
        return self._outcome(seq, pending, answered)

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

    def promise(self, id: int) -> Any:
        """Announce an object that will come; returns a pointer to it, which may not be the only
        one."""
        self.ask(messages.Promise, (id,))
        self._owners[id] = 1
        return self.pointer(id)

    def _carried(self, seq: int, frame: Frame, answered: bool, drop: tuple[int, ...]) -> Any:
        """The way of a command through the network: to a queued worker, or under observation."""
        network = self.owner.network
        self.check_open()
        if answered:
            network.run()
            if self.unseen:
                self.garbage.extend(drop)  # the frame will not be sent
                self.raise_unseen()
        pending = self.pending[seq] = Pending(_line_of_user())
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
        self._catch_up()
        self._seq = seq = self._seq + 1
        drop = self._take_garbage()
        message = kind(seq, *fields, drop=drop, **named)
        return self._ask(seq, Frame(messages.encode(message), []))

    def _catch_up(self) -> None:
        self.check_open()
        if self._others_first():
            self.owner.network.run()
        self.raise_unseen()

    def _ask(self, seq: int, frame: Frame) -> Any:
        pending = self.pending[seq] = Pending(_line_of_user() if self.location.pipelined else None)
        network = self.owner.network
        self.unread = None
        network.send(self.location.id, frame, self.peer)
        network.run()
        if not pending.settled:
            del self.pending[seq]
            self.location.withdraw(frame)
            raise self._unanswered()
        if type(pending.reply) is Failure:
            self.raise_unseen()  # the first error: this one mostly follows from it
        return self.take(pending)

    def put(self, value: torch.Tensor, id: int, guard: Guard | None = None) -> None:
        """Store a copy of ``value`` at the other worker under ``id``.

        To a queued worker this returns at once; the data is copied first.
        """
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
            self._ask(seq, frame)
        else:
            self.pending[seq] = Pending(_line_of_user())
            self.location.enqueue(frame, self.location.peer_of(self.owner))
        packer.sent()

    def start(self, message: messages.Message) -> Pending:
        """Send a request whose reply nobody waits for at this line."""
        self.check_open()
        seq: int = message.seq  # type: ignore[attr-defined]
        pending = self.pending[seq] = Pending(_line_of_user())
        self.owner.network.send(self.location.id, Frame(messages.encode(message), []), self.peer)
        return pending

    def next_seq(self) -> int:
        """Take the next sequence number, for a message that the caller makes."""
        self._seq += 1
        return self._seq

    def flush(self) -> None:
        """Send the ids of dropped pointers now instead of with the next request."""
        if self.garbage:
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
        error.add_note(f"Raised on worker {name!r}, asked for at {where or _line_of_user()}.")
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

    def connect(self, name: str) -> Connection:
        """The owner's connection to a worker, for pointers that come home."""
        return self.owner.core.connect(name)


@WorkerCore.handles(Done)
@WorkerCore.handles(Value)
@WorkerCore.handles(Failure)
def settle(core: WorkerCore, reply: Reply, frame: Frame, peer: Peer) -> None:
    """Replies take the same way in as requests do."""
    core.connect(peer.name).settle(reply, frame)


def _mode_without_grad() -> int:
    if torch.is_inference_mode_enabled():
        return INFERENCE_MODE
    if inside_custom_function():
        raise UnsupportedOperation("torch.autograd.Function", "PointerTensor", NO_FUNCTION)
    return 0


def _autocast_state() -> tuple[Any, ...]:
    """``(device type, packed dtype)`` for each device on which autocast is on."""
    return tuple(
        (device, pack(torch.get_autocast_dtype(device), Packer()))
        for device in ("cpu", "cuda")
        if torch.is_autocast_enabled(device)
    )


def _line_of_user() -> str:
    """``file:line`` of the innermost frame that is neither syft's nor torch's."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HIDDEN):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
