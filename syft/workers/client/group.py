"""Holding back messages to one worker, to send them as one program in one message.

While a group is open, a torch call on a pointer becomes an action of a program instead of a
message.  Ids, floats and tensors that go along are inputs of the program, so a group that is run
again is the same program, and travels as its number and what differs.  A question (a value, a
shape, a result whose number is not known beforehand) first sends what is held.

The results get ids that follow one another.  What has no pointer any more when the group is sent
is not stored.  An exception inside the group ends it, and nothing is sent.  An operation that fails
at the worker takes along what depends on it, and nothing else; its error names its own line.

A group takes the operations of the thread that opened it.  If another thread uses a result that it
holds, what is held is sent first.

A *lazy* group (``bob.lazy()``, ``lazy=True``) changes when operations travel and nothing else, so
what is held is sent after an exception too, when it becomes too much, and before the gradients of
another step are taken away, so that the worker has something to do.  A tensor that is sent goes
ahead of what is held, which knows nothing of it.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterable, Iterator, Sequence
from threading import get_ident
from typing import Any, Protocol

import torch

from syft.callers import place_of_user
from syft.chain.wrapper import Wrapper
from syft.exceptions import MalformedMessage, ProgramError
from syft.notebook_html import counted, line
from syft.ops.control import NO_GRADIENT
from syft.ops.nested import replace
from syft.ops.returns import ONE_TENSOR, Returns
from syft.ops.table import BY_NAME
from syft.program.program import Slot
from syft.serde.packer import Unpacker
from syft.serde.registry import unpack
from syft.torch_private import is_tracing
from syft.workers.client.batch import Batch
from syft.workers.client.facts import Facts
from syft.workers.client.monitor import exclusive
from syft.workers.client.pending import Pending
from syft.workers.client.replies import Replies
from syft.workers.client.transport import Location, Owner, Transport, refuse_tracing
from syft.workers.labels.memory_labels import copy_of
from syft.workers.wire.definitions import InputKind
from syft.workers.wire.messages import GRAD_MODE
from syft.workers.wire.references import REF

_PLAIN = frozenset((torch.Tensor, torch.nn.Parameter))
_SAME = frozenset((int, bool, str, type(None)))
_AS_VALUE = (torch.Tensor, torch.Generator)
_GRADIENT = BY_NAME["torch.Tensor.grad.__get__"]
_GRADIENT_KIND = BY_NAME["syft.ops.control.gradient_kind"]

_SET_GRADIENT = BY_NAME["torch.Tensor.grad.__set__"]

_MOST_ACTIONS = 2048
"""How many actions a lazy group holds."""
_MOST_BYTES = 1 << 26
"""How many bytes of values it holds."""

_HOLD_DEPTH = 5
"""How many frames above :meth:`MessageGroup.hold` are syft's for sure: nobody looks at them."""

NOT_HELD = object()
"""The answer of a group when a command has to go by itself, now that everything held has gone."""


class Held(list[Any]):
    """Pointers to the results that a command will have which a group holds."""

    __slots__ = ()


class GroupingConnection(Protocol):
    """The connection of a group, as the group uses it; parts of it know groups themselves."""

    facts: Facts
    garbage: Any
    groups: Any
    location: Location
    lock: Any
    operations: Any
    owner: Owner
    transport: Transport
    replies: Replies

    def pointer(self, id: int) -> Any:
        """A new pointer to an object at the other end."""


class NotHoldable(Exception):
    """An operand that cannot be an input of a program."""


class MessageGroup:
    """The open group of a connection: ``hold`` takes commands, ``flush`` sends what is held.

    It is a context manager; one that is entered while another is open joins it.

    >>> x = torch.tensor([1.0, 2.0]).send(bob)
    >>> with hook.record() as log, bob.group():
    ...     y = (x * 2 + 1).relu()
    >>> [type(entry.message).__name__ for entry in log.to("bob")], y.get()
    (['Run'], tensor([3., 5.]))
    """

    __slots__ = (
        "connection",
        "lazy",
        "pending",
        "_open",
        "_batch",
        "_garbage",
        "_seen",
        "_stepped",
        "_thread",
    )

    def __init__(
        self, connection: GroupingConnection, lazy: bool = False, always: bool = False
    ) -> None:
        self.connection = connection
        self.lazy = lazy
        """Whether nothing but the time changes at which operations travel."""
        self.pending: Pending | None = None
        """The last thing sent, if its reply has not come."""
        self._open = int(always)
        self._batch: Batch | None = None
        self._garbage: list[int] = []
        self._seen: tuple[Batch | None, int] = None, 0
        self._thread = get_ident()
        self._stepped = False
        """Whether there was a backward pass since gradients were taken away."""

    @property
    def lock(self) -> Any:
        """That of the connection."""
        return self.connection.lock

    def __repr__(self) -> str:
        return f"<MessageGroup to {self.connection.location.id}: {self._state()}>"

    def _repr_html_(self) -> str:
        """A notebook shows this."""
        return line(self.connection.location.id, "message group", self._state(), before="→ ")

    @property
    def batch(self) -> Batch | None:
        """What it holds."""
        return self._batch

    def are_dead(self, first: int) -> bool:
        """Whether the pointers to all results from this one on are gone."""
        batch = self._batch
        ids = {*self.connection.garbage.ids, *self._garbage}
        return batch is not None and all(
            batch.base + place in ids or place in batch.unwanted
            for place in range(first, len(batch.results))
        )

    @property
    def count(self) -> int:
        """How many operations it holds."""
        return 0 if self._batch is None else self._batch.count

    def _state(self) -> str:
        held = self.count
        return f"open, {counted(held, 'operation')} held back" if self._open else "closed"

    def __enter__(self) -> MessageGroup:
        self.begin()
        return self

    @exclusive
    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is None or self.lazy:
            self.release()
            return
        self._open -= 1
        if not self._open:
            self._close()
            self._dropped(error)
            self.connection.groups.holding -= 1

    @exclusive
    def begin(self) -> None:
        """Open the group, or go one level deeper."""
        self.connection.groups.holding += not self._open
        self._open += 1
        if self is not self.connection.groups.always:
            self.connection.groups.current = self

    @exclusive
    def release(self) -> None:
        """Close one level; the last one sends what is held.

        Raises :class:`~syft.exceptions.ProgramError` when the group is not open.
        """
        if not self._open:
            place = self.connection.location.id
            raise ProgramError(
                f"no group of messages for worker {place!r} is open: begin one first"
            )
        self._open -= 1
        if not self._open:
            self._close()
            try:
                self.flush()
            finally:
                self.connection.groups.holding -= 1

    def _close(self) -> None:
        self.connection.groups.current = None
        self.connection.garbage.ids.extend(self._garbage)
        self._garbage.clear()

    def _dropped(self, error: BaseException) -> None:
        """Nothing is sent: say so, here and to who uses what would have been made."""
        batch, self._batch = self._batch, None
        if batch is None or not batch.count:
            return
        place, count = self.connection.location.id, batch.count
        what = "operation was" if count == 1 else "operations were"
        error.add_note(
            f"{count} {what} held back in a group for worker {place!r} and dropped: nothing of the "
            "group was sent."
        )
        self.connection.replies.dropped.append(range(batch.base, batch.base + len(batch.results)))
        self.connection.facts.forget()  # it holds as if they had been done

    # ---------------------------------------------------------------------------------- holding

    def hold(
        self,
        op: int,
        args: Iterable[Any],
        kwargs: dict[str, Any] | None,
        made: Returns | None,
        buffers: list[torch.Tensor],
        mode: tuple[int, Any],
    ) -> Any:
        """Take a command; returns :class:`Held`, or ``NOT_HELD``.

        ``made`` is as :meth:`Batch.add` has it.
        """
        batch = self._fitting(mode)
        if self.lazy and (len(batch.actions) >= _MOST_ACTIONS or batch.bytes > _MOST_BYTES):
            self.flush()
            batch = self._fitting(mode)
        known = len(batch.inputs)
        named: dict[str, Any] = {}
        try:
            packed = [self._operand(batch, arg, buffers) for arg in args]
            if kwargs:
                named = {name: self._operand(batch, arg, buffers) for name, arg in kwargs.items()}
        except NotHoldable:
            self._undo(batch, known)
            self.flush()
            return NOT_HELD
        first = len(batch.results)
        batch.add(op, tuple(packed), named, mode[0], made, place_of_user(_HOLD_DEPTH))
        return Held([self._pointer(batch, index) for index in range(first, len(batch.results))])

    def hold_value(self, value: Any, mode: tuple[int, Any]) -> int | None:
        """Take a tensor that is sent; returns its id over there, or None if it cannot be held."""
        if self.lazy:
            return None
        if type(value) not in _PLAIN:
            self.flush()
            return None
        batch = self._fitting(mode)
        batch.results.append(batch.taken(copy_of(value), InputKind.VALUE))
        return batch.base + len(batch.results) - 1

    def ask_gradients(self, links: Sequence[Any], mode: tuple[int, Any]) -> list[tuple[int, Any]]:
        """The kind of gradient that each of these leaves has, and a pointer to it (None without
        one).

        What is held goes along in the same message, unless it is known what the answer will be.
        """
        batch = self._fitting(mode)
        known = self.connection.groups.gradients
        key = known.key(batch, links)
        kinds = None if key is None else known.find(key)
        if kinds is not None:
            return self._expect_gradients(batch, links, kinds, mode)
        ids = [link.id_at_location for link in links]
        first, where = len(batch.results), place_of_user()
        for id in ids:
            leaf = batch.object(id)
            batch.add(_GRADIENT_KIND, (leaf,), {}, mode[0], ONE_TENSOR, where)
            batch.add(_GRADIENT, (leaf,), {}, mode[0], ONE_TENSOR, where)
        self._batch = None
        values = self._alone(batch, answered=True)
        for value in values[:first]:  # to each of these there is a pointer, or there was one
            if value is not None:
                value.child.garbage_collect_data = False
        answers = list(zip(values[first::2], values[first + 1 :: 2], strict=True))
        if key is not None:
            known.learn(key, [kind for kind, _ in answers])
        return answers

    def _expect_gradients(
        self, batch: Batch, links: Sequence[Any], kinds: Sequence[int], mode: tuple[int, Any]
    ) -> list[tuple[int, Any]]:
        """The same where the kinds are known, which the worker compares."""
        where, place = place_of_user(), len(batch.results)
        leaves = [batch.object(link.id_at_location) for link in links]
        numbers = tuple([leaf.index for leaf in leaves])

        def add() -> None:
            for leaf, kind in zip(leaves, kinds, strict=True):
                batch.expect(leaf, kind, mode[0], where)

        repeated = self.connection.groups.repeated
        batch.repeat(repeated, ("expect", numbers, kinds, mode[0]), where, add)
        answers = []
        for kind in kinds:
            gradient = None
            if kind != NO_GRADIENT:
                gradient = self._pointer(batch, place)
                gradient.child.may_be_argument = True
                place += 1
            answers.append((kind, gradient))
        return answers

    def clear_gradients(self, links: Iterable[Any], mode: tuple[int, Any]) -> None:
        """Take away the gradients of these leaves; a lazy group sends a step before that."""
        if self.lazy and self._stepped:
            self.flush()
        self._stepped = False
        batch, where = self._fitting(mode), place_of_user()
        leaves = [batch.object(link.id_at_location) for link in links]
        numbers = tuple([leaf.index for leaf in leaves])

        def add() -> None:
            for leaf in leaves:
                batch.add(_SET_GRADIENT, (leaf, None), {}, mode[0], None, where)

        batch.repeat(self.connection.groups.repeated, ("clear", numbers, mode[0]), where, add)

    def note_backward(self, passes: int) -> None:
        """Note that the operation taken last was a backward pass; gradients had changed ``passes``
        times before."""
        batch, self._stepped = self._batch, True
        if batch is not None:
            if not batch.passes:
                batch.first_pass = passes
            batch.passes += 1

    def _fitting(self, mode: tuple[int, Any]) -> Batch:
        """The batch for a command in these modes: only grad mode may change inside a batch."""
        if is_tracing():
            refuse_tracing()
        flags, autocast = mode
        batch = self._batch
        if batch is not None:
            differs = (flags ^ batch.flags) & ~GRAD_MODE
            if not differs and autocast == batch.autocast:
                return batch
            self.flush()
        batch = self._batch = Batch(flags, autocast)
        batch.user = self.connection.owner.user
        self._thread = get_ident()
        return batch

    def is_quiet(self) -> bool:
        """Whether it holds something, and as much as at the last call."""
        before, self._seen = self._seen, (self._batch, self.count)
        return self._batch is not None and before == self._seen

    @staticmethod
    def _undo(batch: Batch, known: int) -> None:
        """Take back the inputs of a command that is not held after all."""
        for id in batch.inputs[known:]:
            if type(id) is int:
                batch.places.pop(id, None)
        del batch.inputs[known:], batch.given[known:], batch.kinds[known:]

    def _operand(self, batch: Batch, operand: Any, buffers: list[torch.Tensor]) -> Any:
        """An operand as it stands in a program."""
        kind = type(operand)
        if kind is float:
            return batch.taken(operand, InputKind.NUMBER)
        if kind in _SAME:
            return operand
        if len(operand) == 2 and operand[0] == REF:
            return batch.object(operand[1])
        unpacker = Unpacker(buffers, worker=_Slots(batch), owns_buffers=False)
        try:
            value = unpack(operand, unpacker)
        except MalformedMessage:
            raise NotHoldable from None
        numbers: dict[float, Slot] = {}  # an optimizer's are often the same for all parameters
        return replace(value, lambda leaf: _as_input(batch, leaf, numbers))

    def _pointer(self, batch: Batch, index: int) -> Any:
        pointer = self.connection.pointer(batch.base + index)
        batch.links.append(weakref.ref(pointer.child))
        return pointer

    def follow(self, link: Any, written: bool = False) -> None:
        """Have the handle of a pointer to what is held, or will be written, tell of it once it is
        sent."""
        if self._batch is not None and (written or self._batch.holds(link.id_at_location)):
            self._batch.links.append(weakref.ref(link))

    def uses(self, id: int | None) -> bool:
        """Whether something is still to be done with an object, or to be made as it."""
        batch = self._batch
        if batch is None or id is None:
            return False
        return batch.holds(id) or id in batch.places

    def follow_all(self, links: Iterable[Any]) -> None:
        """Have the handles of pointers to what is written tell of it once it is sent."""
        if self.connection.transport.queued:
            for link in links:
                self.follow(link, written=True)

    def holds(self, operands: Any) -> bool:
        """Whether one of the operands is still to be made by what is held."""
        return self._batch is not None and self._batch.is_used(operands)

    def kept_from(self, ids: list[int]) -> list[int]:
        """The ids of dropped pointers that another request may take along: not those of what is
        held, nor of what that uses, which go with the group."""
        batch = self._batch
        if batch is None:
            return ids
        mine = {id for id in ids if batch.holds(id) or id in batch.places}
        self._garbage.extend(mine)
        return [id for id in ids if id not in mine]

    def keep_garbage(self, ids: Iterable[int]) -> None:
        """Take the ids of dropped pointers, to send them with the group."""
        self._garbage.extend(ids)

    # ---------------------------------------------------------------------------------- sending

    @exclusive
    def flush(self) -> None:
        """Send what is held; the group stays open."""
        batch, self._batch = self._batch, None
        if batch is not None and (batch.actions or batch.results):
            self._alone(batch)

    def _alone(self, batch: Batch, answered: bool = False) -> Any:
        """Send a batch, which is not held back by the group itself."""
        connection = self.connection
        groups = connection.groups
        group = groups.open.pop(get_ident(), None)
        groups.holding += 1
        try:
            with as_before(connection, batch.user):
                return self._send(connection, batch, answered)
        finally:
            groups.holding -= 1
            if group is not None:
                groups.current = group

    def _send(self, connection: GroupingConnection, batch: Batch, answered: bool) -> Any:
        dead, later = self._sorted_garbage(batch)
        places = range(len(batch.results))
        wanted = [batch.base + at not in dead and at not in batch.unwanted for at in places]
        results = tuple([slot.index for slot in batch.results])
        key = (bytes(batch.kinds), bytes(wanted), batch.flags, results, batch.key())
        connection.replies.lines = batch.lines
        try:
            _, value = connection.operations.run(
                key,
                lambda: batch.program(wanted),
                batch.inputs,
                len(batch.results),
                answered,
                first=batch.base,
                mode=(batch.flags, batch.autocast),
            )
        finally:
            connection.replies.lines = ()
            connection.garbage.ids.extend(later)
        self.pending = value if type(value) is Pending else None
        if self.pending is not None:
            self.pending.thread = self._thread
        for link in (reference() for reference in batch.links):
            if link is not None and self.pending is not None:
                link.pending, link.asked = self.pending, None
        return value

    def _sorted_garbage(self, batch: Batch) -> tuple[set[int], list[int]]:
        """The results nobody wants, and the inputs that nobody will want after this."""
        garbage = self.connection.garbage.ids
        ids = [garbage.pop() for _ in range(len(garbage))] + self._garbage
        self._garbage = []
        dead = {id for id in ids if batch.holds(id)}
        later = [id for id in ids if id in batch.places]
        garbage.extend(id for id in ids if id not in dead and id not in batch.places)
        return dead, later


@contextlib.contextmanager
def as_before(connection: Any, user: str | None) -> Iterator[None]:
    """A context in which requests are made for ``user`` by the program itself: what is held was
    asked for then, and not by whom a worker of this process serves now.

    >>> with as_before(hook.local_worker.connection_to(bob), None):
    ...     pass
    """
    owner, core = connection.owner, connection.core
    if owner.user == user and core.serving is None:
        yield
        return
    before = owner.user, core.serving, core.acting_guard
    owner.user, core.serving, core.acting_guard = user, None, None
    try:
        yield
    finally:
        owner.user, core.serving, core.acting_guard = before


class _Slots:
    """A worker as unpacking an operand sees it: a slot in the place of every object."""

    __slots__ = ("_batch",)

    def __init__(self, batch: Batch) -> None:
        self._batch = batch

    def resolve(self, id: int, depth: int = 0) -> Slot:
        """The slot of an object; what is inside a chain is none."""
        if depth:
            raise NotHoldable
        return self._batch.object(id)


def _as_input(batch: Batch, leaf: Any, numbers: dict[float, Slot]) -> Any:
    """A leaf of an operand: tensors and floats are inputs, and equal ``numbers`` are one."""
    if isinstance(leaf, Wrapper):
        raise NotHoldable
    if isinstance(leaf, _AS_VALUE):
        return batch.taken(leaf, InputKind.VALUE)
    if type(leaf) is float:
        if leaf not in numbers or leaf == 0:  # of which there are two
            numbers[leaf] = batch.taken(leaf, InputKind.NUMBER)
        return numbers[leaf]
    return leaf
