"""One worker's line to another: requests go out, replies and errors come back to the line that
asked.

Over a connection to an *immediate* worker every request is answered before the call returns, so an
error rises where it was made.  A *queued* worker only takes requests in; a value, a shape or
``sy.synchronize()`` waits, and an error says which line issued the command.

Each layer has a file of its own: replies, requests and ownership of objects, operations, and here
whole objects and promises.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from syft.callers import place_of_user
from syft.exceptions import MalformedMessage, ObjectIdTaken, WorkerLost, WorkerTimeout
from syft.ids import first_id, new_id
from syft.ops.control import RECORDING
from syft.serde.frame import Frame
from syft.serde.packer import Packer
from syft.serde.registry import pack
from syft.serde.tensors.bundle import Bundle
from syft.serde.tensors.strided import pack_usual
from syft.workers.client.caller_modes import modes
from syft.workers.client.monitor import exclusive
from syft.workers.client.operation_sender import OperationSender
from syft.workers.client.pending import STORED as STORED
from syft.workers.client.pending import OpenPromise
from syft.workers.client.pending import Pending as Pending
from syft.workers.client.transport import Location, Owner, Transport
from syft.workers.core.sent_labels import terms_of, users_of
from syft.workers.labels.guards import Guard
from syft.workers.labels.holders import Holder
from syft.workers.labels.origin import writers_of
from syft.workers.wire import messages
from syft.workers.wire.messages import Message, Move, NotBegun, Put, PutAll
from syft.workers.wire.terms import Terms

_TAKING = frozenset((messages.Fetch, messages.FetchAll))
"""The requests whose answer is the only copy of something."""
_MOST_FAILED = 64
"""Moves that failed and are remembered, to say why there is nothing."""


class Connection(OperationSender):
    """The line from worker ``owner`` to the worker ``location``, over ``transport``.

    ``connect`` gives the owner's connection to another worker, by name.
    """

    __slots__ = ("connect", "crossed", "contents", "interrupted")

    def __init__(
        self,
        owner: Owner,
        location: Location,
        transport: Transport,
        connect: Callable[[str], Connection],
    ) -> None:
        super().__init__(owner, location, transport)
        self.connect = connect
        self.crossed = 0  # graphs that go on, or may, from there to another worker: backward waits
        self.interrupted: dict[Hashable, Pending] = {}
        """Requests that take something away, and whose answer was not waited for to the end."""
        self.contents: dict[int, int] = {}  # where constants are that were sent, by their content

    @property
    def outstanding(self) -> bool:
        """Whether :meth:`synchronize` has anything to send, to wait for or to raise."""
        waits = self.pending or self.unseen or self.transport.replies
        return bool(waits) or self.group is not None

    @exclusive
    def synchronize(self) -> None:
        """Wait until everything asked for so far has been answered or is parked, and raise the
        first error that nobody has seen yet."""
        self.send_held()
        self._wait_for_all()
        self.raise_unseen()

    @exclusive
    def let_others_refer(self) -> None:
        """Send what a group holds: another worker is about to be told of an object here.  If its
        requests could arrive before what was asked so far, wait until that is done or parked."""
        self.send_held()
        if self.transport.overtakes:
            self._wait_for_all()

    def _wait_for_all(self) -> None:
        """Wait until everything asked for so far has been answered or is parked."""
        self.read_replies()
        while any(not pending.parked for pending in self.pending.values()):
            if not self.transport.advance(parked=False):
                break
            self.read_replies()

    def ask(self, kind: type[Message], *fields: Any, **named: Any) -> Any:
        """Make a request of the given kind and return the value of its reply; it waits.

        If something that was asked before has failed, that is raised, and the request is not made.
        """
        with self.lock:  # as `exclusive`, which takes longer
            key = (kind, fields, *named.values()) if self.interrupted else None
            if key in self.interrupted:
                self.check_not_recording(kind.verb)
                earlier = self._settled_earlier(key)
                if type(earlier.reply) is not NotBegun:
                    return self.take(earlier)
            seq, frame, drop = self._question(kind, fields, named)
            try:
                value = self._request(seq, frame, True, drop)
            except (KeyboardInterrupt, WorkerTimeout, WorkerLost):  # the reply may come yet
                pending = self.pending.setdefault(seq, Pending(place_of_user()))
                if kind in _TAKING:
                    self.interrupted[kind, fields, *named.values()] = pending
                raise
            return None if value is STORED else value

    def _settled_earlier(self, key: Hashable) -> Pending:
        """A request that was interrupted, which is made again: what it takes away may be on its way
        here."""
        pending = self.interrupted[key]
        self._wait(pending)
        if not pending.settled:
            raise pending.not_ready(self.location.id)
        del self.interrupted[key]
        return pending

    @exclusive
    def order(
        self, kind: type[Message], /, *fields: Any, made: Collection[int] = (), **named: Any
    ) -> Pending | None:
        """Have something done that answers nothing but that it is done.

        Waits for that, unless the request has to wait for promised objects.  Returns what is on its
        way then, and otherwise None.  Raises :class:`~syft.exceptions.MalformedMessage` for another
        answer, and drops what was ``made``.
        """
        value = self._ordered(self._question(kind, fields, named), made)
        if value is None or isinstance(value, Pending):
            return value
        self.garbage.extend(made)
        raise MalformedMessage("$", "an answer without a value", type(value).__name__)

    @exclusive
    def move(
        self, id: int, to: Connection, requires_grad: bool | None, user: str | None
    ) -> Pending | None:
        """Have an object moved to the worker of the connection ``to``, as :meth:`order` does it.

        If a graph goes on from where it arrives, or perhaps does, backward passes there wait; and
        those here, if graphs here go on to there.  A parked move promises the object there.
        """
        named = {"requires_grad": requires_grad, "user": user}
        to.moves.pop(id, None)
        value = self._ordered(self._question(Move, (id, to.location.id), named), ())
        if not isinstance(value, Pending):
            to.crossed += value is True
            self.crossed += value is False
            return None
        try:
            to._expect(id, self, value, requires_grad is not False)
        except BaseException:
            self._take_back(value)
            raise
        self.crossed += 1  # until it is known whether it is a leaf at which graphs end
        to.crossed += requires_grad is not False  # until it is known whether a graph goes on
        return value

    @exclusive
    def move_home(self, id: int, requires_grad: bool | None, user: str | None) -> None:
        """Have an object moved to the owner of this connection, which serves that meanwhile."""
        home = self.owner
        value = self.ask(Move, id, home.id, requires_grad=requires_grad, user=user)
        self.crossed += value is False

    def _expect(self, id: int, source: Connection, move: Pending, recorded: bool) -> None:
        """Announce an object that a parked move is to bring, unless it has brought it already.

        Raises :class:`~syft.exceptions.ObjectIdTaken` if another object has its id here.
        """
        announced = self.start(messages.Promise(self.next_seq(), (id,), source.location.id))
        try:
            self.wait(announced)
        except ObjectIdTaken:
            source._wait(move)
            if not move.settled:
                raise
        self.moves[id] = source, move
        source.when_settled(move, partial(self._moved, id, source, move, recorded))

    def _moved(self, id: int, source: Connection, move: Pending, recorded: bool) -> None:
        """What a move has brought is an object as others; nothing need wait any more for one that
        failed."""
        follows = getattr(move.reply, "value", None)
        source.crossed -= follows is not False
        self.crossed -= recorded and follows is not True
        if not move.failed:
            self.moves.pop(id, None)
            return
        failed = [other for other, (_, known) in self.moves.items() if known.failed]
        for other in failed[:-_MOST_FAILED]:
            del self.moves[other]
        if not self.transport.closed:
            reason = f"the move from {source.location.id} failed"
            self.tell(messages.GiveUp(self.next_seq(), id, reason))

    def _take_back(self, parked: Pending) -> None:
        """Have the other end not do what it has parked."""
        for seq in [seq for seq, pending in self.pending.items() if pending is parked]:
            self.tell(messages.Cancel(self.next_seq(), seq))

    def _ordered(self, question: tuple[int, Frame, tuple[int, ...]], made: Collection[int]) -> Any:
        """The value that answers a request, or the request if it is parked."""
        seq, frame, drop = question
        value = self._request(seq, frame, False, drop, None, made)
        if type(value) is Pending:
            self._wait(value, or_parked=True)
            value = self._outcome(seq, frame, value, not value.parked, drop)
        return None if value is STORED else value

    @exclusive
    def ask_later(self, kind: type[Message], *fields: Any, **named: Any) -> Callable[[], Any]:
        """Make a request as :meth:`ask` does, and return the function that waits for its value.

        So requests to several workers are on their way before the first one is waited for.
        """
        seq, frame, drop = self._question(kind, fields, named)
        pending = self.pending[seq] = Pending(place_of_user())
        self.forward(frame)

        def answer() -> Any:
            with self.lock:
                self._wait(pending)
                value = self._outcome(seq, frame, pending, True, drop)
            return None if value is STORED else value

        return answer

    def _question(
        self, kind: type[Message], fields: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[int, Frame, tuple[int, ...]]:
        """A request that is not made if an earlier one failed: number, frame and dropped ids."""
        if RECORDING.get() is not None:
            self.check_not_recording(kind.verb)
        if self.groups or self._exchange is None or self.transport.replies or self.unseen:
            self._catch_up(fields)  # an exchange sees whether the other end is open
        if named.get("user"):
            self.transport.prove(named["user"])
        self._seq = seq = self._seq + 1
        drop = self._take_garbage() if self.garbage else ()
        message = kind(seq, *fields, drop=drop, failures=self._failures, **named)
        return seq, Frame(messages.encode(message), []), drop

    def _catch_up(self, used: Any = ()) -> None:
        """Send what is held, and raise what is known to have failed."""
        if self.groups:
            self.send_held()
            self._send_held_elsewhere(used)
        self.check_open()
        if self.transport.replies:
            self.read_replies()
        if self.unseen:
            self.raise_unseen()

    def put_usual(self, tensor: torch.Tensor) -> int | None:
        """Store a copy of a usual tensor with no label at a worker that answers within the call,
        and return its id; None if it is not that, or :meth:`put` has to see to anything else."""
        with self.lock:  # as `exclusive`, which takes longer
            waits = self._exchange is None or self.groups or self.unseen
            if waits or self.transport.replies:
                return None
            packed = pack_usual(tensor, 0) if RECORDING.get() is None else None
            if packed is None or tensor.untyped_storage().__dict__:
                return None
            id = new_id()
            self.facts.sent(id, packed[0])
            self._seq = seq = self._seq + 1
            drop = self._take_garbage() if self.garbage else ()
            message = Put(seq, id, packed[0], drop=drop, failures=self._failures)
            frame = Frame(messages.encode(message), [packed[1]])
            self._request(seq, frame, True, drop, None, (id,))
            return id

    def put(
        self,
        value: torch.Tensor | Holder,
        id: int | None,
        guard: Guard | None = None,
        writers: Iterable[str] = (),
        source: int | None = None,
    ) -> int:
        """Store a copy of ``value`` at the other worker under ``id`` (drawn here if None), and
        return the id; ``writers`` may change it too, and its gradients come to object ``source``.

        To a queued worker this returns at once; the data is copied first.
        """
        with self.lock:  # as `exclusive`, which takes longer
            self.check_not_recording(Put.verb)
            drawn = id is None
            if self.groups and (group := self.group) is not None:
                plain = drawn and not guard and not writers
                held = group.hold_value(value, modes()) if plain else None
                if held is not None:
                    self.facts.sent_all((held,), (value,))
                    return held
                self.send_held()
            waits = not self.transport.queued
            if waits:
                self._catch_up()
            if id is None:
                id = new_id()
            else:
                self.facts.drop((id,))
            packer = Packer(worker=self._core, gradients=True)
            operand = pack(value, packer)
            if packer.leaving:
                packer.hand_over(self.location.id)
            if guard is None and (drawn or self.facts.active):
                self.facts.sent(id, operand)
            self._seq = seq = self._seq + 1
            drop = self._take_garbage() if self.garbage else ()
            about: Any = (None, False, tuple(sorted(writers)), None, source)
            if guard is not None:
                terms = self._terms(guard, value)
                about = users_of(guard), guard.shape_hidden, about[2], terms, source
            failures = self._failures if waits else None
            message = Put(seq, id, operand, *about, drop, failures)  # type: ignore[call-arg]
            frame = Frame(messages.encode(message), packer.buffers, private=guard is not None)
            self._request(seq, frame, waits, drop, None, (id,))
            if packer.leaving:
                packer.sent()
            return id

    def follow_last(self, link: Any) -> None:
        """Have the handle of a new pointer tell of the request that was made last, or is held.

        The caller has held the lock since then.
        """
        group = self.group
        if group is not None:
            group.follow(link)
        link.pending = self.pending.get(self._seq)

    @exclusive
    def put_all(
        self, values: Sequence[torch.Tensor], guards: Mapping[int, Guard] | None = None
    ) -> tuple[Sequence[int], Pending | None]:
        """Store a copy of each of the tensors at the other worker, in one message; ``guards`` are
        those of the private ones, by their place.

        Returns their ids there, and the request if it is still on its way: to a queued worker this
        returns at once, and the data is copied first.  An open group holds each tensor back as
        :meth:`put` has it do.
        """
        self.check_not_recording(PutAll.verb)
        guards = guards or {}
        if self.group is not None:
            put = self.put
            return [
                put(value, None, guards.get(at), writers_of(value))
                for at, value in enumerate(values)
            ], None
        waits = not self.transport.queued
        if waits:
            self._catch_up()
        packer = Packer(worker=self._core, gradients=True)
        operand = pack(Bundle(values), packer)
        packer.hand_over(self.location.id)
        named = tuple(
            (at, tuple(sorted(guard.users)), guard.shape_hidden, self._terms(guard, values[at]))
            for at, guard in guards.items()
        )
        first = first_id(len(values))
        ids = range(first, first + len(values))
        self.facts.sent_all(ids, values, guards)
        self._seq = seq = self._seq + 1
        drop = self._take_garbage()
        failures = self._failures if waits else None
        writers = tuple(
            (at, tuple(sorted(names))) for at, names in enumerate(map(writers_of, values)) if names
        )
        message = PutAll(seq, first, operand, named, writers, drop, failures)
        frame = Frame(messages.encode(message), packer.buffers, private=bool(guards))
        answer = self._request(seq, frame, waits, drop, None, ids)
        packer.sent()
        return ids, answer if type(answer) is Pending else None

    def _terms(self, guard: Guard | None, value: Any) -> Terms | None:
        """The fields of a message on the guard of a value, besides the users."""
        return terms_of(guard, self.owner.id, self._core.serving is not None, value)

    @exclusive
    def start(self, message: Message, made: Collection[int] = ()) -> Pending:
        """Send a request whose reply nobody waits for at this line, and that is to make these
        objects."""
        self.check_not_recording(message.verb)
        self.send_held()
        seq: int = message.seq  # type: ignore[attr-defined]
        pending = self.pending[seq] = Pending(place_of_user(), made=made)
        self.tell(message)
        return pending

    @exclusive
    def start_part(
        self,
        program: int,
        execution: int,
        parties: tuple[str, ...],
        rank: int,
        args: Iterable[Any],
        outs: tuple[int, ...],
    ) -> Pending:
        """Start the other worker's part of a collective operation, without waiting for it.

        ``args`` are values, or references to objects there.  The objects ``outs`` are promised.
        """
        self.check_not_recording(messages.Start.verb)
        self.send_held()
        self.check_open()
        packer = Packer(worker=self._core)
        operands = tuple(pack(arg, packer) for arg in args)
        packer.hand_over(self.location.id)
        seq = self.next_seq()
        drop = self._take_garbage()
        message = messages.Start(seq, program, execution, parties, rank, operands, outs, drop)
        pending = self.pending[seq] = Pending(place_of_user(), made=outs)
        self.forward(Frame(messages.encode(message), packer.buffers, private=True))
        packer.sent()
        return pending

    @exclusive
    def promise(self, id: int, sender: str | None = None) -> Any:
        """Announce an object that will come from ``sender`` (None: from here); returns a pointer to
        it, which may not be the only one."""
        self.ask(messages.Promise, (id,), sender)
        self.facts.drop((id,))
        self.start_owning(id)
        pointer = self.pointer(id)
        pointer.child.pending = OpenPromise(id=id, where=place_of_user())
        return pointer

    @exclusive
    def ask_about(self, promise: OpenPromise) -> None:
        """Have the other end say when a promise is kept or given up, unless it was asked before."""
        if promise.asked:
            return
        self.check_not_recording(messages.Await.verb)
        seq = self.next_seq()
        self.tell(messages.Await(seq, promise.id))
        self.pending[seq] = promise
        promise.asked = True

    @exclusive
    def flush(self) -> None:
        """Send the ids of dropped pointers now instead of with the next request.

        An open group takes them along when it is sent.
        """
        group = self.group
        if group is not None:
            group.keep_garbage(self._take_garbage())
        elif self.garbage:
            self.tell(messages.Drop(0, self._take_garbage()))

    @exclusive
    def flush_before_others(self) -> None:
        """Have the objects of dropped pointers gone before another worker is asked anything."""
        self.send_held()
        if self.garbage:
            self.start(messages.Drop(self.next_seq(), self._take_garbage()))
            self.let_others_refer()
