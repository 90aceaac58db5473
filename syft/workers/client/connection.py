"""One worker's line to another: requests go out, replies and errors come back to the line that
asked.

Over a connection to an *immediate* worker every request is answered before the call returns, so an
error rises where it was made.  A *queued* worker only takes requests in; a value, a shape or
``sy.synchronize()`` waits, and an error says which line issued the command.

A connection has its parts, each in a file of its own: the replies that came, the requests and how
they are carried, the garbage, known facts, open groups of messages, and the operations.  Here are
questions, whole objects and promises.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Literal, TypeVar

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
from syft.workers.client.facts import Facts
from syft.workers.client.garbage import Garbage
from syft.workers.client.group import MessageGroup
from syft.workers.client.monitor import exclusive
from syft.workers.client.open_groups import OpenGroups
from syft.workers.client.operations import Operations
from syft.workers.client.pending import STORED as STORED
from syft.workers.client.pending import OpenPromise
from syft.workers.client.pending import Pending as Pending
from syft.workers.client.replies import Replies
from syft.workers.client.requests import Requests
from syft.workers.client.transport import Location, Owner, Transport
from syft.workers.core.sent_labels import terms_of, users_of
from syft.workers.labels.guards import Guard
from syft.workers.labels.holders import Holder
from syft.workers.labels.origin import writers_of
from syft.workers.wire import messages
from syft.workers.wire.messages import Message, Move, NotBegun, Put, PutAll, Share
from syft.workers.wire.terms import Terms

_TAKING = frozenset((messages.Fetch, messages.FetchAll))
"""The requests whose answer is the only copy of something."""


PointerMaker = Callable[..., Any]
Made = TypeVar("Made", bound=PointerMaker)


class Connection:
    """The line from worker ``owner`` to the worker ``location``, over ``transport``.

    ``connect`` gives the owner's connection to another worker, by name.  ``makers`` turn a
    reference in a reply into what the caller works with: a pointer to a tensor or to a plan.  Upper
    rooms enter them with :meth:`maker`.
    """

    __slots__ = (
        "connect",
        "contents",
        "core",
        "crossed",
        "facts",
        "garbage",
        "groups",
        "interrupted",
        "location",
        "lock",
        "operations",
        "owner",
        "replies",
        "requests",
        "transport",
    )

    makers: ClassVar[dict[str, PointerMaker]] = {}

    @classmethod
    def maker(cls, kind: Literal["tensor", "plan"]) -> Callable[[Made], Made]:
        """Have the decorated function make pointers to what is of a kind."""

        def enter(made: Made) -> Made:
            cls.makers[kind] = made
            return made

        return enter

    def __init__(
        self,
        owner: Owner,
        location: Location,
        transport: Transport,
        connect: Callable[[str], Connection],
    ) -> None:
        self.owner, self.core = owner, owner.core
        self.location = location
        self.transport = transport
        self.lock = transport.monitor.lock
        """Held by the thread that uses the connection, unless it waits for another process."""
        self.connect = connect
        self.facts = facts = Facts()
        facts.ahead = transport.queued
        self.groups = groups = OpenGroups(self)
        self.garbage = garbage = Garbage(transport, facts, groups)
        self.replies = replies = Replies(self.core.limits, location, transport, facts, self)
        self.requests = Requests(owner, facts, garbage, groups, replies)
        self.operations = Operations(self.requests, replies, facts, garbage, groups, self)
        self.crossed = 0  # graphs that go on, or may, from there to another worker: backward waits
        self.interrupted: dict[Hashable, Pending] = {}
        """Requests that take something away, and whose answer was not waited for to the end."""
        self.contents: dict[int, int] = {}  # where constants are that were sent, by their content

    @property
    def device(self) -> torch.device | None:
        """The device of torch that pointers over this connection are on, if they are on one."""
        return None

    @property
    def line(self) -> Connection:
        """The connection over which requests go: this one, or that of which it is a second one."""
        return self

    def resolve(self, id: int, depth: int = 0) -> Any:
        """A reference in a reply names a result stored at the other end: make a pointer to it."""
        pointer = self.pointer(id)
        pointer.child.may_be_argument = True
        return pointer

    def pointer(self, id: int, **details: Any) -> Any:
        """A new pointer to object ``id`` at the other worker (details as PointerTensor takes
        them)."""
        return self.makers["tensor"](self, id, **details)

    def found(self, id: int, summary: tuple[Any, ...]) -> Any:
        """A pointer to what a search found, which does not own it; a plan's summary has a fourth
        field."""
        maker = self.makers["tensor" if len(summary) == 3 else "plan"]
        return maker(self, id, garbage_collect_data=False, summary=summary)

    def message_group(self, lazy: bool = False) -> MessageGroup:
        """The open group of messages, or a new one, which is not open yet."""
        return self.groups.current or self.groups.new(lazy)

    @property
    def outstanding(self) -> bool:
        """Whether :meth:`synchronize` has anything to send, to wait for or to raise."""
        waits = self.replies.pending or self.replies.unseen or self.transport.replies
        return bool(waits) or bool(self.groups.open)

    @exclusive
    def synchronize(self) -> None:
        """Wait until everything asked for so far has been answered or is parked, and raise the
        first error that nobody has seen yet."""
        self.groups.send()
        self._wait_for_all()
        self.replies.raise_unseen()

    @exclusive
    def let_others_refer(self) -> None:
        """Send what a group holds: another worker is about to be told of an object here.  If its
        requests could arrive before what was asked so far, wait until that is done or parked."""
        self.groups.send()
        if self.transport.overtakes:
            self._wait_for_all()

    def _wait_for_all(self) -> None:
        """Wait until everything asked for so far has been answered or is parked."""
        self.replies.read()
        while any(not pending.parked for pending in self.replies.pending.values()):
            if not self.transport.advance(parked=False):
                break
            self.replies.read()

    def ask(self, kind: type[Message], *fields: Any, **named: Any) -> Any:
        """Make a request of the given kind and return the value of its reply; it waits.

        If something that was asked before has failed, that is raised, and the request is not made.
        """
        with self.lock:  # as `exclusive`, which takes longer
            key = (kind, fields, *named.values()) if self.interrupted else None
            if key in self.interrupted:
                self.requests.check_not_recording(kind.verb)
                earlier = self._settled_earlier(key)
                if type(earlier.reply) is not NotBegun:
                    return self.replies.take(earlier)
            seq, frame, drop = self.requests.question(kind, fields, named)
            try:
                value = self.requests.send(seq, frame, True, drop)
            except (KeyboardInterrupt, WorkerTimeout, WorkerLost):  # the reply may come yet
                pending = self.replies.pending.setdefault(seq, Pending(place_of_user()))
                if kind in _TAKING:
                    self.interrupted[kind, fields, *named.values()] = pending
                raise
            return None if value is STORED else value

    def _settled_earlier(self, key: Hashable) -> Pending:
        """A request that was interrupted, which is made again: what it takes away may be on its way
        here."""
        pending = self.interrupted[key]
        self.replies.wait_for(pending)
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
        value = self._ordered(self.requests.question(kind, fields, named), made)
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
        to.replies.moves.by_id.pop(id, None)
        value = self._ordered(self.requests.question(Move, (id, to.location.id), named), ())
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
        announced = self.start(
            messages.Promise(self.requests.next_seq(), (id,), source.location.id)
        )
        try:
            self.replies.wait(announced)
        except ObjectIdTaken:
            source.replies.wait_for(move)
            if not move.settled:
                raise
        self.replies.moves.by_id[id] = source.replies, move
        source.replies.when_settled(move, partial(self._moved, id, source, move, recorded))

    def _moved(self, id: int, source: Connection, move: Pending, recorded: bool) -> None:
        """What a move has brought is an object as others; nothing need wait any more for one that
        failed."""
        follows = getattr(move.reply, "value", None)
        source.crossed -= follows is not False
        self.crossed -= recorded and follows is not True
        self.replies.moves.settled(id, move)
        if move.failed and not self.transport.closed:
            reason = f"the move from {source.location.id} failed"
            self.requests.tell(messages.GiveUp(self.requests.next_seq(), id, reason))

    def _take_back(self, parked: Pending) -> None:
        """Have the other end not do what it has parked."""
        for seq in [seq for seq, pending in self.replies.pending.items() if pending is parked]:
            self.requests.tell(messages.Cancel(self.requests.next_seq(), seq))

    def _ordered(self, question: tuple[int, Frame, tuple[int, ...]], made: Collection[int]) -> Any:
        """The value that answers a request, or the request if it is parked."""
        seq, frame, drop = question
        value = self.requests.send(seq, frame, False, drop, None, made)
        if type(value) is Pending:
            self.replies.wait_for(value, or_parked=True)
            value = self.requests.outcome(seq, frame, value, not value.parked, drop)
        return None if value is STORED else value

    @exclusive
    def ask_later(self, kind: type[Message], *fields: Any, **named: Any) -> Callable[[], Any]:
        """Make a request as :meth:`ask` does, and return the function that waits for its value.

        So requests to several workers are on their way before the first one is waited for.
        """
        seq, frame, drop = self.requests.question(kind, fields, named)
        pending = self.replies.pending[seq] = Pending(place_of_user())
        self.requests.forward(frame)

        def answer() -> Any:
            with self.lock:
                self.replies.wait_for(pending)
                value = self.requests.outcome(seq, frame, pending, True, drop)
            return None if value is STORED else value

        return answer

    def put_usual(self, tensor: torch.Tensor) -> int | None:
        """Store a copy of a usual tensor with no label at a worker that answers within the call,
        and return its id; None if it is not that, or :meth:`put` has to see to anything else."""
        with self.lock:  # as `exclusive`, which takes longer
            waits = self.requests.exchange is None or self.groups.open or self.replies.unseen
            if waits or self.transport.replies:
                return None
            packed = pack_usual(tensor, 0) if RECORDING.get() is None else None
            if packed is None or tensor.untyped_storage().__dict__:
                return None
            id = new_id()
            self.facts.sent(id, packed[0])
            self.requests.seq = seq = self.requests.seq + 1
            drop = self.garbage.take() if self.garbage.ids else ()
            message = Put(seq, id, packed[0], drop=drop, failures=self.replies.failures)
            frame = Frame(messages.encode(message), [packed[1]])
            self.requests.send(seq, frame, True, drop, None, (id,))
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
            self.requests.check_not_recording(Put.verb)
            drawn = id is None
            if (group := self.groups.current) is not None:
                plain = drawn and source is None and not (guard or writers)
                held = self._put_in(group, value, plain)
                if held is not None:
                    return held
            waits = not self.transport.queued
            if waits:
                self.requests.hear()
            if id is None:
                id = new_id()
            else:
                self.facts.drop((id,))
            packer = Packer(worker=self.core, gradients=True)
            operand = pack(value, packer)
            if packer.leaving:
                packer.hand_over(self.location.id)
            if guard is None and (drawn or self.facts.active):
                self.facts.sent(id, operand)
            seq, drop = self.requests.begin()
            about: Any = (None, False, tuple(sorted(writers)), None, source)
            if guard is not None:
                terms = self._terms(guard, value)
                about = users_of(guard), guard.shape_hidden, about[2], terms, source
            failures = self.replies.failures if waits else None
            message = Put(seq, id, operand, *about, drop, failures)  # type: ignore[call-arg]
            frame = Frame(messages.encode(message), packer.buffers, private=guard is not None)
            self.requests.send(seq, frame, waits, drop, None, (id,))
            if packer.leaving:
                packer.sent()
            if group is not None and plain:
                self.groups.gradients.note_sent(id, value)
            return id

    def show_to(self, id: int, users: Sequence[str]) -> None:
        """Have an object that was just sent be there for other users too, if any are named."""
        if users:
            self.groups.send()  # one may hold it back
            self.requests.tell(Share(id, (), tuple(users)))

    def _put_in(self, group: MessageGroup, value: Any, plain: bool) -> int | None:
        """The id of a value that a group takes; None if it goes by itself.  What a lazy group holds
        need not go before, if it is ``plain``: it knows nothing of the value."""
        held = group.hold_value(value, modes()) if plain else None
        if held is not None:
            self.facts.sent_all((held,), (value,))
        elif not (plain and group.lazy):
            self.groups.send()
        return held

    def follow_last(self, link: Any) -> None:
        """Have the handle of a new pointer tell of the request that was made last, or is held.

        The caller has held the lock since then.
        """
        group = self.groups.current
        if group is not None:
            group.follow(link)
        link.pending = self.replies.pending.get(self.requests.seq)

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
        self.requests.check_not_recording(PutAll.verb)
        guards = guards or {}
        group = self.groups.current
        if group is not None and not group.lazy:
            put = self.put
            return [
                put(value, None, guards.get(at), writers_of(value))
                for at, value in enumerate(values)
            ], None
        if guards:
            self.groups.send()
        waits = not self.transport.queued
        if waits:
            self.requests.hear()
        packer = Packer(worker=self.core, gradients=True)
        operand = pack(Bundle(values), packer)
        packer.hand_over(self.location.id)
        named = tuple(
            (at, tuple(sorted(guard.users)), guard.shape_hidden, self._terms(guard, values[at]))
            for at, guard in guards.items()
        )
        first = first_id(len(values))
        ids = range(first, first + len(values))
        self.facts.sent_all(ids, values, guards)
        seq, drop = self.requests.begin()
        failures = self.replies.failures if waits else None
        writers = tuple(
            (at, tuple(sorted(names))) for at, names in enumerate(map(writers_of, values)) if names
        )
        message = PutAll(seq, first, operand, named, writers, drop, failures)
        frame = Frame(messages.encode(message), packer.buffers, private=bool(guards))
        answer = self.requests.send(seq, frame, waits, drop, None, ids)
        packer.sent()
        if group is not None:
            for place, value in enumerate(values):
                if place not in guards:
                    self.groups.gradients.note_sent(ids[place], value)
        return ids, answer if type(answer) is Pending else None

    def _terms(self, guard: Guard | None, value: Any) -> Terms | None:
        """The fields of a message on the guard of a value, besides the users."""
        return terms_of(guard, self.owner.id, self.core.serving is not None, value)

    @exclusive
    def start(self, message: Message, made: Collection[int] = ()) -> Pending:
        """Send a request whose reply nobody waits for at this line, and that is to make these
        objects; if it names a user, with what proves that it may be made for her."""
        self.requests.check_not_recording(message.verb)
        user: str | None = getattr(message, "user", None)
        if user:
            self.transport.prove(user)
        self.groups.send()
        seq: int = message.seq  # type: ignore[attr-defined]
        pending = self.replies.pending[seq] = Pending(place_of_user(), made=made)
        self.requests.tell(message)
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
        self.requests.check_not_recording(messages.Start.verb)
        self.groups.send()
        self.requests.check_open()
        packer = Packer(worker=self.core)
        operands = tuple(pack(arg, packer) for arg in args)
        packer.hand_over(self.location.id)
        seq, drop = self.requests.begin()
        message = messages.Start(seq, program, execution, parties, rank, operands, outs, drop)
        pending = self.replies.pending[seq] = Pending(place_of_user(), made=outs)
        self.requests.forward(Frame(messages.encode(message), packer.buffers, private=True))
        packer.sent()
        return pending

    @exclusive
    def promise(self, id: int, sender: str | None = None) -> Any:
        """Announce an object that will come from ``sender`` (None: from here); returns a pointer to
        it, which may not be the only one."""
        self.ask(messages.Promise, (id,), sender)
        self.facts.drop((id,))
        self.garbage.start_owning(id)
        pointer = self.pointer(id)
        pointer.child.pending = OpenPromise(id=id, where=place_of_user())
        return pointer

    @exclusive
    def ask_about(self, promise: OpenPromise) -> None:
        """Have the other end say when a promise is kept or given up, unless it was asked before."""
        if promise.asked:
            return
        self.requests.check_not_recording(messages.Await.verb)
        seq = self.requests.next_seq()
        self.requests.tell(messages.Await(seq, promise.id))
        self.replies.pending[seq] = promise
        promise.asked = True

    @exclusive
    def flush(self) -> None:
        """Send the ids of dropped pointers now instead of with the next request, and what a lazy
        connection holds.

        An open group takes them along when it is sent.
        """
        group = self.groups.current
        if group is not None and group is not self.groups.always:
            group.keep_garbage(self.garbage.take())
            return
        self.groups.send()
        if self.garbage.ids:
            self.requests.tell(messages.Drop(0, self.garbage.take()))

    @exclusive
    def flush_before_others(self) -> None:
        """Have the objects of dropped pointers gone before another worker is asked anything."""
        self.groups.send()
        if self.garbage.ids:
            self.start(messages.Drop(self.requests.next_seq(), self.garbage.take()))
            self.let_others_refer()
