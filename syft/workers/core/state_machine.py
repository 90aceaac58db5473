"""The worker itself: a state machine from frames to frames.

``receive(frame, peer)`` takes one frame and returns the frames it leads to, each with the name of
the worker it is for.  The core owns the object store, the table of message handlers, the op
executor and the permissions.  It knows no socket, no thread and no clock.  Shells carry the frames
(:mod:`syft.workers.shells.virtual` in this process), so what runs virtually runs remotely.

Whatever arrives, the worker stays up and its store stays whole: an error becomes a ``Failure``
reply.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from syft.chain.link import Link
from syft.ops.nested import replace
from syft.chain.wrapper import Wrapper, wrap
from syft.exceptions import HookError, MalformedMessage, ObjectIdTaken, ObjectNotReady, WireError
from syft.ids import new_id
from syft.serde.errors import pack_error
from syft.serde.frame import Frame
from syft.serde.limits import Limits
from syft.serde.packer import Packer
from syft.workers.wire import messages
from syft.workers.core.dataflow import Dataflow
from syft.workers.core.holders import Holder
from syft.workers.wire.messages import Done, Failure
from syft.workers.wire.numbering import Table
from syft.workers.core.permissions import Guard, full_guard_of, protect, travelling_guard_of
from syft.workers.wire.references import Reference
from syft.workers.core.stats import Stats
from syft.workers.core.store import ObjectStore

if TYPE_CHECKING:
    from syft.workers.client.connection import Connection

Held = dict[int, Any]
Letter = tuple[str, Frame]
Handler = Callable[["WorkerCore", Any, Frame, "Peer"], "messages.Reply | Answer | None"]

MAX_DEPTH = 64
"""How many ``.child`` steps a reference may take."""

_REPLIES = frozenset((messages.Done, messages.Value, messages.Failure))

FAILED = "the operation that should have made it failed"
"""The tombstone of a result that never came."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Somebody who sends messages: their name, and the user they act for. Shells vouch for both."""

    name: str
    user: str | None = None
    dropped: str = field(init=False)
    """What stands on the tombstone of an object to which nobody there points any more."""

    fetched: str = field(init=False)
    """What stands on the tombstone of an object that was handed over to them."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "dropped", f"{self.name} dropped its last pointer to it")
        object.__setattr__(self, "fetched", f"{self.name} fetched it with get()")


@dataclass(slots=True)
class Answer:
    """A reply that carries tensor data beside it."""

    message: messages.Reply
    buffers: list[torch.Tensor]


class WorkerCore:
    """The state of one worker and what it does with each kind of message.

    ``connect`` gives this worker's own connection to another worker by name; the shell provides it.
    """

    handlers: ClassVar[dict[type[messages.Message], Handler]] = {}

    def __init__(
        self,
        name: str,
        connect: Callable[[str], Connection],
        limits: Limits | None = None,
        allow_plans: bool = False,
    ) -> None:
        self.name = name
        self.connect = connect
        self.limits = limits or Limits()
        self.allow_plans = allow_plans
        """Whether others may store plans here, and run them."""
        self.store = ObjectStore(name)
        self.dataflow = Dataflow(self.store)
        self.sessions: dict[int, Any] = {}
        self.ended: OrderedDict[int, None] = OrderedDict()
        """Collective operations that are over here: what still comes for them is ignored."""
        self.tables: dict[str, Table] = {}
        """What the numbers stand for that each peer has used, by the name of the peer."""
        self.stats = Stats()
        self.guarded = False
        self.acting_guard: Guard | None = None
        self.serving: Peer | None = None
        self._outbox: list[Letter] = []

    # --------------------------------------------------------------------------------- receiving

    def receive(self, frame: Frame, peer: Peer) -> list[Letter]:
        """Act on one frame from ``peer``; return the frames to send, each with its receiver's
        name."""
        try:
            message = messages.read(frame.header)
            handler = self.handlers[type(message)]
        except (*messages.UNREADABLE, KeyError):
            return [(peer.name, self._unreadable(frame))]
        outer, self.serving = self.serving, peer
        try:
            reply = handler(self, message, frame, peer)
        except Exception as error:  # the worker must outlive whatever a message does
            reply = self.failure(getattr(message, "seq", -1), error)
            out = getattr(message, "out", 0)
            if out and not isinstance(error, ObjectIdTaken):
                self.give_up((out,))
        finally:
            self.serving = outer
        if reply is not None and not self._outbox:  # nearly always
            done = type(reply) is Done
            answer = Frame(messages.encode(reply), []) if done else self.frame_of(reply)
            stats = self.stats
            stats.messages_in += 1
            stats.bytes_in += frame.nbytes if frame.buffers else len(frame.header)
            stats.bytes_out += answer.nbytes if answer.buffers else len(answer.header)
            return [(peer.name, answer)]
        letters = self.outgoing()
        if reply is not None:
            letters.append((peer.name, self.frame_of(reply)))
        if type(message) not in _REPLIES:
            self.stats.count(frame, [answer for _, answer in letters])
        return letters

    def _unreadable(self, frame: Frame) -> Frame:
        """The answer to a frame that is no message, or a reply where nobody handles replies."""
        try:
            messages.decode(frame.header)
        except WireError as error:
            return self.frame_of(self.failure(-1, error))
        wrong = MalformedMessage("$[0]", "a request", "a reply")
        return self.frame_of(self.failure(-1, wrong))

    @classmethod
    def handles(cls, kind: type[messages.Message]) -> Callable[[Handler], Handler]:
        """Enter the decorated function as the handler for one kind of message; refuses a second
        one."""

        def enter(handler: Handler) -> Handler:
            if kind in cls.handlers:
                raise HookError(f"{kind.__name__} has a handler already", "keep one of them")
            cls.handlers[kind] = handler
            return handler

        return enter

    def post(
        self, to: str, message: messages.Message, buffers: Sequence[torch.Tensor] = ()
    ) -> None:
        """Queue a message for another worker; it leaves with the frames ``receive`` returns."""
        self._outbox.append((to, Frame(messages.encode(message), list(buffers))))

    def outgoing(self) -> list[Letter]:
        """Take the frames that are queued for other workers."""
        letters, self._outbox = self._outbox, []
        return letters

    # ---------------------------------------------------------------------------------- replying

    def frame_of(self, reply: messages.Reply | Answer) -> Frame:
        """The frame of a reply, with its buffers if it has any."""
        if type(reply) is Answer:
            return Frame(messages.encode(reply.message), reply.buffers)
        return Frame(messages.encode(reply), [])

    def failure(self, seq: int, error: BaseException, hidden: bool = False) -> Failure:
        """An exception as a reply; ``hidden`` keeps its text and traceback here."""
        return Failure(seq, pack_error(error, Packer(), hidden=hidden))

    # ------------------------------------------------------------------------------------ waiting

    def when_ready(
        self,
        seq: int,
        peer: Peer,
        act: Callable[[Held], messages.Reply | Answer | None],
        inputs: Iterable[int],
        outs: tuple[int, ...] = (),
        writes: bool = False,
        now: bool = False,
        barrier: bool = False,
    ) -> messages.Reply | Answer | None:
        """Run ``act`` now, or park it until its inputs are there (then its reply follows later).

        ``act`` gets the inputs it must find even if they are dropped meanwhile, by id.  With
        ``now`` an operation that would have to wait raises
        :class:`~syft.exceptions.ObjectNotReady` instead.  A ``barrier`` may write to anything.
        """
        if not self.dataflow.active:
            return act({})

        def run(held: Held | None) -> None:
            outer, self.serving = self.serving, peer
            try:
                reply = Done(seq) if held is None else act(held)
            except Exception as error:  # as in receive: the worker goes on
                reply = self.failure(seq, error)
            finally:
                self.serving = outer
            if type(reply) is Failure:
                self.bury(outs)
            if reply is not None:
                self._outbox.append((peer.name, self.frame_of(reply)))

        if self.dataflow.admit(run, inputs, outs, writes, now, barrier):
            return None
        reply = act({})
        if type(reply) is Failure:
            self.bury(outs)
        self.dataflow.settle(outs)
        return reply

    def give_up(self, outs: Iterable[int]) -> None:
        """Say that results will never come, to whatever waits for them too."""
        self.bury(outs)
        self.dataflow.settle(outs)

    def bury(self, outs: Iterable[int]) -> None:
        """Write tombstones for results that will never come."""
        for out in outs:
            if out not in self.store.objects:
                self.store.bury(out, FAILED)

    # ----------------------------------------------------------------------------------- objects

    def present(self, id: int) -> Any:
        """The object of an id, now; raises :class:`~syft.exceptions.ObjectNotReady` if it is only
        promised."""
        if id in self.store.promised:
            raise ObjectNotReady(self.name)
        return self.store.read(id)

    def resolve(self, id: int, depth: int = 0, held: Held | None = None) -> Any:
        """The object of an id, ``depth`` steps of ``.child`` down its chain."""
        value = held[id] if held and id in held else self.store.read(id)
        if not depth:
            return value
        inner = descend(value, depth)
        if isinstance(inner, torch.Tensor):
            protect(inner, full_guard_of(value))  # what is inside is as private as what it is in
        return inner

    def forget(self, ids: Sequence[int], peer: Peer) -> None:
        """Drop objects whose last pointers are gone."""
        if not (self.store.promised or self.dataflow.tasks):
            self.store.drop_all(ids, peer.dropped)
            return
        for id in ids:
            if id in self.store.promised:
                self.dataflow.forget(id, peer.dropped)
            else:
                self.store.drop(id, peer.dropped)

    def hold(self, id: int, tensor: torch.Tensor | Holder) -> None:
        """Store a tensor, with the guard it carries, and run whatever waited for it."""
        guard = travelling_guard_of(tensor)
        if guard is not None:
            self.guarded = True
            protect(tensor, guard)
        self.store.put(id, tensor)
        if self.dataflow.active:
            self.dataflow.settle((id,))

    def keep(self, value: Any, out: int) -> Any:
        """Store every tensor in a result, and return the result with references in their place.

        The first tensor is stored under ``out``, each further one under an id of its own.
        """
        ids = [out]

        def reference(leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor):
                return leaf
            id = ids.pop() if ids else new_id()
            self.store.put(id, leaf)
            return Reference(id)

        return replace(value, reference)

    def clear(self, reason: str) -> None:
        """Drop every object, number, promise, parked operation and collective session.

        What the other parties of a collective operation must know waits in :meth:`outgoing`.
        """
        self.dataflow.clear()
        self.tables.clear()
        for execution, session in list(self.sessions.items()):
            session.abandon(self, execution)
        self.sessions.clear()
        self.store.clear(reason)


def descend(value: Any, depth: int) -> Any:
    """Follow ``.child`` ``depth`` times; a link found there comes back under a wrapper of its own.

    Raises :class:`~syft.exceptions.MalformedMessage` when the chain is shorter than that.
    """
    too_deep = MalformedMessage(
        "$.depth", "at most as many .child steps as the chain has", str(depth)
    )
    if not 0 <= depth <= MAX_DEPTH:
        raise too_deep
    link: Any = value
    for _ in range(depth):
        if not isinstance(link, (Wrapper, Link)):
            raise too_deep
        link = link.child if isinstance(link, Wrapper) else link.next_in_chain()
    return wrap(link) if isinstance(link, Link) else link
