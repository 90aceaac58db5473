"""One worker's line to another: requests go out, replies and errors come back to the line that
asked.

Over a connection to an *immediate* worker every request is answered before the call returns, so an
error rises where it was made.  A *queued* worker only takes requests in; a value, a shape or
``sy.synchronize()`` waits, and an error says which line issued the command.

A pointer that dies only leaves its id in ``garbage``; the next request carries it away.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import Any

import torch

from syft.callers import line_of_user
from syft.exceptions import MalformedMessage, ObjectIdTaken, ObjectNotFound
from syft.ids import first_id, new_id
from syft.ops.control import LIKE_LEAF, RECORDING
from syft.ops.returns import ONE_TENSOR, Returns
from syft.ops.table import NAMES
from syft.serde.frame import Frame
from syft.serde.packer import Packer
from syft.serde.registry import pack
from syft.serde.tensors.bundle import Bundle
from syft.torch_private import any_autocast_enabled
from syft.workers.client.caller_modes import autocast_state, mode_without_grad, modes
from syft.workers.client.facts import UNKNOWN
from syft.workers.client.group import NOT_HELD, Held, MessageGroup
from syft.workers.client.pending import STORED as STORED
from syft.workers.client.pending import Pending as Pending
from syft.workers.client.requests import RequestSender
from syft.workers.client.sent_calls import ranges
from syft.workers.client.transport import Location, Owner, Transport
from syft.workers.execution.holders import Holder
from syft.workers.execution.permissions import Guard
from syft.workers.wire import messages
from syft.workers.wire.definitions import Definition
from syft.workers.wire.references import REF
from syft.workers.wire.messages import (
    COUNT_SHIFT,
    GRAD_MODE,
    Command,
    Message,
    Put,
    PutAll,
    Run,
)

_WORTH_NUMBERING = range(256, 1 << 16)
"""Bytes of tensor data from which on a command travels by its number: less is no gain, and to hash
more takes longer than to copy it."""


_ONE_EXPECTED = 1 << COUNT_SHIFT
"""The flags of a command whose caller expects one tensor."""


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
        super().append(id)
        if self.is_idle():
            self.flush()
        else:
            self.flush_soon()


class Connection(RequestSender):
    """The line from worker ``owner`` to the worker ``location``, over ``transport``.

    ``connect`` gives the owner's connection to another worker, by name.
    """

    __slots__ = ("connect", "crossed", "group", "holding", "contents", "_owners")

    def __init__(
        self,
        owner: Owner,
        location: Location,
        transport: Transport,
        connect: Callable[[str], Connection],
    ) -> None:
        super().__init__(owner, location, transport)
        self.connect = connect
        if transport.exchange is None:
            self.garbage = IdleGarbage(self._drop_now, transport.is_idle, transport.flush_soon)
        self.crossed = False  # a graph goes on from there to another worker: backward must wait
        self.group: MessageGroup | None = None  # the open one
        self.holding = False  # a group is open, or what it held is being sent
        self.contents: dict[int, int] = {}  # where constants are that were sent, by their content
        self._owners: dict[int, int] = {}

    def command(
        self,
        op: int,
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None,
        out: int,
        buffers: list[torch.Tensor],
        expected: Returns | None = ONE_TENSOR,
    ) -> Any:
        """Run operation ``op`` at the other worker.

        ``expected`` is what the operation returns, stored under ``out`` and the ids that follow;
        None says that the caller cannot go on without the reply.  An ``out`` of 0 says that the
        result is an argument.  Returns ``STORED`` when the results are stored, a :class:`Pending`
        when nobody knows yet, ``Held`` from an open group, and otherwise what the operation
        returned.
        """
        if RECORDING.get() is not None:
            self.check_not_recording(f"{NAMES[op]} at")
        if self.group is not None or buffers:
            held = self._hold(op, args, kwargs, out, buffers, expected)
            if held is not NOT_HELD:
                return held
        flags = GRAD_MODE if torch.is_grad_enabled() else mode_without_grad()
        autocast = autocast_state() if any_autocast_enabled() else None
        answered = expected is None
        failures = self._failures if answered else None
        made: Collection[int] = ()
        if self.facts.active:
            self.facts.note(op, args, kwargs, out, expected, autocast)
        if out:
            count = 1 if expected is ONE_TENSOR else 0 if expected is None else expected.count
            flags |= count << COUNT_SHIFT
            made = (out,) if count < 2 else range(out, out + count)
        self._seq = seq = self._seq + 1
        drop = self._take_garbage() if self.garbage else ()
        message = Command(seq, op, args, out, flags, drop, kwargs, autocast, failures)
        return self._request(
            seq, Frame(messages.encode(message), buffers), answered, drop, None, made
        )

    def make(self, op: int, args: Any, out: int) -> Any:
        """The same for the commonest command: flat operands, no keywords, one new tensor."""
        if (
            RECORDING.get() is not None
            or self.group is not None
            or self.facts.active
            or any_autocast_enabled()
        ):
            return self.command(op, args, None, out, [])
        flags = _ONE_EXPECTED | (GRAD_MODE if torch.is_grad_enabled() else mode_without_grad())
        self._seq = seq = self._seq + 1
        drop = self._take_garbage() if self.garbage else ()
        frame = Frame(messages.encode(Command(seq, op, args, out, flags, drop)), [])
        return self._request(seq, frame, False, drop, None, (out,))

    def results(self, value: Any, out: int, expected: Returns | None) -> Any:
        """What a call returns whose :meth:`command` gave back ``value``.

        That is the value itself, or pointers to the objects ``out`` and following in the container
        that ``expected`` says.

        >>> connection = hook.local_worker.connection_to(bob)
        >>> connection.results("what came back", 7, None)
        'what came back'
        """
        if type(value) is Held:
            pointers: list[Any] = value
        elif value is STORED or type(value) is Pending:
            count = 1 if expected is None else expected.count
            pointers = [self.pointer(id) for id in range(out, out + count)]
            if value is not STORED:
                for pointer in pointers:
                    pointer.child.pending = value
        else:
            return value
        return pointers[0] if expected is None else expected.build(pointers)

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
        self.check_not_recording(Run.verb)
        if self.group is not None:
            self.group.flush()
        if self.facts.active and mode is None:  # not the commands of a group, which are noted
            self.facts.forget()
        if self.transport.replies:
            self.read_replies()  # the numbers may have been forgotten
        if first is None:
            first = first_id(results)
        flags, autocast = modes() if mode is None else mode
        try:
            seq, frame, drop = self._run_frame(
                key, definition, inputs, first, flags, autocast, answered
            )
            made = range(first, first + results)
            return first, self._request(seq, frame, answered, drop, key, made)
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

    def _hold(
        self,
        op: int,
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None,
        out: int,
        buffers: list[torch.Tensor],
        expected: Returns | None,
    ) -> Any:
        """Have the open group hold a command back, unless it must be answered now.

        Without one, a command with enough tensor data makes a group of its own, if it goes to a
        queued worker: when it comes again, data that is as it was need not travel.  An immediate
        worker gets it as it is, since looking for what differs takes longer than a copy.
        """
        group = self.group
        present = () if expected is None or not out else expected.present
        if group is not None and expected is not None:
            made = group.hold(op, args, kwargs, present, buffers, modes())
            if self.facts.active and made is not NOT_HELD:
                self._note_held(op, args, kwargs, made)
            return made
        self.send_held()
        size = sum(buffer.numel() for buffer in buffers)
        if expected is None or not self.transport.queued or size not in _WORTH_NUMBERING:
            return NOT_HELD
        with MessageGroup(self) as own:
            return own.hold(op, args, kwargs, present, buffers, modes())

    def _note_held(
        self, op: int, args: tuple[Any, ...], kwargs: dict[str, Any] | None, made: Held
    ) -> None:
        """Note a command that a group holds, which chose the ids of its results."""
        out = made[0].child.id_at_location if made else 0
        expected = Returns(None, (True,) * len(made))
        self.facts.note(op, args, kwargs, out, expected, modes()[1])

    def fact(self, op: int, id: int) -> Any:
        """The answer to a question about the kind of an object at the other end (its dtype, how
        many dimensions it has), asked for only if it is not known.

        >>> x = torch.ones(2, 3).send(bob)
        >>> from syft.ops.table import number_of
        >>> x.child.connection.fact(number_of(torch.Tensor.dim), x.id_at_location)
        2
        """
        if self.facts.active:
            self._hear()
            answer = self.facts.known(op, id)
            if answer is not UNKNOWN:
                return answer
        answer = self.command(op, ((REF, id),), None, new_id(), [], None)
        self.facts.learn(op, id, answer)
        return answer

    def gradient(self, link: Any) -> Any:
        """The gradient of the leaf behind a pointer: a pointer to it, or None.

        The gradients of all leaves that were asked for over this connection are asked for together,
        and again only after something may have changed them.
        """
        if self.facts.active:
            self._hear()
            answer = self.facts.gradient(link)
            if answer is not UNKNOWN:
                return answer
        group = self.message_group()
        leaves = self.facts.leaves_with(link)
        try:
            answers = group.ask_gradients([leaf.id_at_location for leaf in leaves], modes())
        except ObjectNotFound:  # of another leaf, perhaps
            if len(leaves) == 1:
                raise
            self.facts.forget_leaves()
            return self.gradient(link)
        for leaf, (kind, gradient) in zip(leaves, answers, strict=True):
            self.facts.set_gradient(leaf, gradient)
            if kind == LIKE_LEAF:
                self.facts.alike(gradient.child.id_at_location, leaf.id_at_location)
        return answers[0][1]

    def _hear(self) -> None:
        """Take in what the other end has said without being asked."""
        self.transport.collect()
        if self.transport.replies:
            self.read_replies()

    def send_held(self) -> None:
        """Send what an open group holds back: something that comes now may depend on it."""
        if self.group is not None:
            self.group.flush()

    def message_group(self) -> MessageGroup:
        """The open group of messages, or a new one, which is not open yet."""
        return self.group or MessageGroup(self)

    @property
    def outstanding(self) -> bool:
        """Whether :meth:`synchronize` has anything to send, to wait for or to raise."""
        waits = self.pending or self.unseen or self.transport.replies
        return bool(waits) or self.group is not None

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

    def ask(self, kind: type[Message], *fields: Any, **named: Any) -> Any:
        """Make a request of the given kind and return the value of its reply; it waits.

        If something that was asked before has failed, that is raised, and the request is not made.
        """
        self.check_not_recording(kind.verb)
        self._catch_up()
        self._seq = seq = self._seq + 1
        drop = self._take_garbage() if self.garbage else ()
        message = kind(seq, *fields, drop=drop, failures=self._failures, **named)
        value = self._request(seq, Frame(messages.encode(message), []), True, drop)
        return None if value is STORED else value

    def order(
        self, kind: type[Message], *fields: Any, made: Collection[int] = (), **named: Any
    ) -> Pending | None:
        """Have something done that answers nothing but that it is done.

        Waits for that, unless the request has to wait for promised objects.  Returns what is on its
        way then, and otherwise None.  Raises :class:`~syft.exceptions.MalformedMessage` for another
        answer, and drops what was ``made``.
        """
        seq, frame, drop = self._question(kind, fields, named)
        value = self._request(seq, frame, False, drop, None, made)
        if type(value) is Pending:
            self._wait(value, or_parked=True)
            value = self._outcome(seq, frame, value, not value.parked, drop)
        if value is STORED:
            return None
        if isinstance(value, Pending):
            return value
        self.garbage.extend(made)
        raise MalformedMessage("$", "an answer without a value", type(value).__name__)

    def ask_later(self, kind: type[Message], *fields: Any, **named: Any) -> Callable[[], Any]:
        """Make a request as :meth:`ask` does, and return the function that waits for its value.

        So requests to several workers are on their way before the first one is waited for.
        """
        seq, frame, drop = self._question(kind, fields, named)
        pending = self.pending[seq] = Pending(line_of_user())
        self.forward(frame)

        def answer() -> Any:
            self._wait(pending)
            value = self._outcome(seq, frame, pending, True, drop)
            return None if value is STORED else value

        return answer

    def _question(
        self, kind: type[Message], fields: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[int, Frame, tuple[int, ...]]:
        """A request that is not made if an earlier one failed: number, frame and dropped ids."""
        self.check_not_recording(kind.verb)
        self._catch_up()
        self._seq = seq = self._seq + 1
        drop = self._take_garbage() if self.garbage else ()
        message = kind(seq, *fields, drop=drop, failures=self._failures, **named)
        return seq, Frame(messages.encode(message), []), drop

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
        self.check_not_recording(Put.verb)
        if self.group is not None:
            held = self.group.hold_value(value, modes()) if id is None and not guard else None
            if held is not None:
                if self.facts.active:
                    self.facts.sent(held, value)
                return held
            self.send_held()
        id = new_id() if id is None else id
        waits = not self.transport.queued
        if waits:
            self._catch_up()
        if self.facts.active:
            self.facts.sent(id, value)
        packer = Packer(worker=self._core)
        operand = pack(value, packer)
        users = None if guard is None else tuple(sorted(guard.users))
        self._seq = seq = self._seq + 1
        drop = self._take_garbage()
        hidden = guard is not None and guard.shape_hidden
        failures = self._failures if waits else None
        message = Put(seq, id, operand, users, hidden, drop, failures)
        frame = Frame(messages.encode(message), packer.buffers)
        self._request(seq, frame, waits, drop, None, (id,))
        packer.sent()
        return id

    def follow_last(self, link: Any) -> None:
        """Have the handle of a new pointer tell of the request that was made last, or is held."""
        if self.group is not None:
            self.group.follow(link)
        link.pending = self.pending.get(self._seq)

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
            return [self.put(value, None, guards.get(at)) for at, value in enumerate(values)], None
        waits = not self.transport.queued
        if waits:
            self._catch_up()
        packer = Packer(worker=self._core)
        operand = pack(Bundle(values), packer)
        named = tuple(
            (at, tuple(sorted(guard.users)), guard.shape_hidden) for at, guard in guards.items()
        )
        first = first_id(len(values))
        ids = range(first, first + len(values))
        if self.facts.active:
            for id, value in zip(ids, values, strict=True):
                self.facts.sent(id, value)
        self._seq = seq = self._seq + 1
        drop = self._take_garbage()
        failures = self._failures if waits else None
        message = PutAll(seq, first, operand, named, drop, failures)
        frame = Frame(messages.encode(message), packer.buffers)
        answer = self._request(seq, frame, waits, drop, None, ids)
        packer.sent()
        return ids, answer if type(answer) is Pending else None

    def start(self, message: Message, made: Collection[int] = ()) -> Pending:
        """Send a request whose reply nobody waits for at this line, and that is to make these
        objects."""
        self.check_not_recording(message.verb)
        self.send_held()
        seq: int = message.seq  # type: ignore[attr-defined]
        pending = self.pending[seq] = Pending(line_of_user(), made=made)
        self.tell(message)
        return pending

    def promise(self, id: int) -> Any:
        """Announce an object that will come; returns a pointer to it, which may not be the only
        one."""
        self.ask(messages.Promise, (id,))
        self.start_owning(id)
        return self.pointer(id)

    def expect(self, id: int) -> None:
        """Announce an object that another worker is to bring, unless it has brought it already."""
        with contextlib.suppress(ObjectIdTaken):
            self.ask(messages.Promise, (id,))

    def flush(self) -> None:
        """Send the ids of dropped pointers now instead of with the next request.

        An open group takes them along when it is sent.
        """
        if self.group is not None:
            self.group.keep_garbage(self._take_garbage())
        elif self.garbage:
            self.tell(messages.Drop(0, self._take_garbage()))

    def flush_idle(self) -> bool:
        """As :meth:`flush`, but for any thread, and at any line of the others; whether it sent any.

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
        """Send the ids of dropped pointers, while a pointer dies."""
        if self.flush_idle():
            self.transport.advance(block=False)

    def _take_garbage(self) -> tuple[int, ...]:
        # Popped one by one: a pointer may die, here or in another thread, at any line of this.
        garbage = self.garbage
        if len(garbage) == 1 and not self._owners and not self.facts.active:  # nearly always
            return (garbage.pop(),)
        ids = [garbage.pop() for _ in range(len(garbage))]
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

    def start_owning(self, id: int) -> None:
        """Count the pointers here that own an object, of which there is one."""
        self._owners[id] = 1

    def stop_owning(self, id: int) -> None:
        """Count no more: the object has left, and what may get its id is another one."""
        self._owners.pop(id, None)
