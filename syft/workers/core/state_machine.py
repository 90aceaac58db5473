"""The worker itself: a state machine from frames to frames.

``receive(frame, peer)`` handles one request and returns the frames to send.  A reply is addressed
to the peer that sent the request, a request of this worker's own to the name of another worker.
The core owns the object store, the table of message handlers, the op executor and the permissions.
It uses no socket, no thread and no clock.  Shells carry the frames
(:mod:`syft.workers.shells.virtual` in this process), so code that runs virtually also runs
remotely.

No request stops the worker or corrupts its store: an error becomes a ``Failure`` reply.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Sequence
from operator import attrgetter
from typing import Any, ClassVar, get_args
from weakref import WeakKeyDictionary

import msgspec
import torch
from torch import is_anomaly_enabled, is_inference_mode_enabled

from syft.exceptions import (
    HookError,
    MalformedMessage,
    ObjectIdTaken,
    ObjectNotReady,
    PermissionDenied,
    PromiseGivenUp,
    WireError,
    WorkerLost,
)
from syft.serde.errors import pack_error
from syft.serde.frame import Frame
from syft.serde.limits import Limits
from syft.serde.packer import Packer
from syft.serde.registry import check_complete
from syft.torch_private import dispatch_modes, function_modes, saved_tensor_hooks
from syft.workers.core.accepted_results import accepted_results
from syft.workers.core.access import READS, Access
from syft.workers.core.audit import Audit, Log
from syft.workers.core.dataflow import Dataflow
from syft.workers.core.evictions import Evictions
from syft.workers.core.findable import check_named
from syft.workers.core.open_promises import named
from syft.workers.core.outgoing import Outgoing
from syft.workers.core.owners import Owners
from syft.workers.core.peer import (
    EVERYTHING,
    GRADIENTS,
    Peer,
    Place,
    RisingNumbers,
    Session,
)
from syft.workers.core.peer_limits import Nesting
from syft.workers.core.peer_limits import DEFAULT_PEER_LIMITS, Account, PeerLimits
from syft.workers.core.shares import Confined
from syft.workers.core.stats import Stats
from syft.workers.core.store import FAILED, NOT_MADE, ObjectStore, why_missing
from syft.workers.core.stored_tensors import StoredTensors
from syft.workers.execution.operation import neutral_mode, without_device
from syft.workers.labels.cell import Stored
from syft.workers.labels.guards import Guard
from syft.workers.labels.holders import Holder
from syft.workers.labels.memory_labels import protect_all, travelling_guard_of
from syft.workers.labels.origin import ObjectOrigin
from syft.workers.wire import messages
from syft.workers.wire.messages import (
    Cancelled,
    Done,
    Failure,
    Forgotten,
    Parked,
    Skipped,
    Stale,
    encode,
    read_request,
)

HeldInputs = dict[int, Any]
AddressedFrame = tuple[Peer | str, Frame]
"""A frame, with the peer it replies to or the name of the worker it sends a request to."""
Handler = Callable[["WorkerCore", Any, Frame, Peer], "messages.Reply | Answer | None"]


class Answer(msgspec.Struct):
    """A reply with tensor data; it is not compressed if that is private."""

    message: messages.Reply
    buffers: list[torch.Tensor]
    private: bool = False


_WITHOUT_BUFFERS = frozenset((Done, messages.Value))
"""Most replies, if they are no :class:`Answer`."""
_HANDLERS: dict[type[messages.Message], Handler] = {}


class WorkerCore:
    """The state of one worker, and its handlers of messages.

    ``connect`` returns this worker's own connection to another worker: to the one of a name, or
    back to the one whose requests come from a :class:`Peer`.  The shell provides it.

    Raises :class:`~syft.exceptions.HookError` if a kind of request has no handler, because a part
    of the package that registers one was not imported.
    """

    handlers: ClassVar[dict[type[messages.Message], Handler]] = _HANDLERS

    addressed: Callable[[str], Any] = str
    """Whom a name means while the present request is served: a name, or a worker.  A shell sets it
    whose callers have names of their own for other workers."""
    place_of_caller: Callable[[Peer], str] = attrgetter("name")
    """The worker that a caller is, likewise."""
    trace_of: Callable[[BaseException], str | None] = staticmethod(lambda error: None)
    """What a caller is told in the place of the traceback of an error; None: the traceback."""
    place_of: Callable[[str], str] = str
    """The worker that a name means, for guards that name workers: a name that the owner of this one
    knows it by, or one that no guard has."""

    def __init__(
        self,
        name: str,
        connect: Callable[[str | Peer], Outgoing],
        limits: Limits | None = None,
        allow_plans: bool = False,
        peer_limits: PeerLimits | None = None,
    ) -> None:
        missing = sorted(
            kind.__name__ for kind in get_args(messages.Request) if kind not in self.handlers
        )
        if missing:
            raise HookError(f"no handler for {', '.join(missing)}", "import syft as a whole")
        check_complete()
        self.name = name
        self.connect = connect
        self.limits = limits or Limits()
        self.allow_plans = allow_plans
        """Whether callers may store plans at this worker, and run them."""
        limits_of_peers = peer_limits or DEFAULT_PEER_LIMITS
        self.store = ObjectStore(name, limits_of_peers, self._payer, self._reader)
        self.owners = Owners(self.store)
        self.contested = False
        """Whether objects here belong to more than one, so that their owners are looked up."""
        self.confined = False
        """Whether objects have been stored that only one connection may use and drop."""
        self._latest: tuple[str | None, str] | None = None
        """Who made the latest request."""
        self.dataflow = Dataflow(self.store)
        under_way = attrgetter("waiting")
        self.holdings = StoredTensors(
            self.store, self.dataflow, lambda: map(under_way, self.sessions.values())
        )
        """What is told of tensors that are moved to private memory."""
        self.sessions: dict[int, Any] = {}
        self.past: WeakKeyDictionary[object, RisingNumbers] = WeakKeyDictionary()
        """The numbers of collective operations that have ended here, by the program that has
        started them (this core, for those in its process): what comes late for them is refused."""
        self.ended: OrderedDict[int, Any] = OrderedDict()
        """Those of them on shared tensors: what fails late may have to be undone."""
        self.aborted: dict[tuple[int, Place], Any] = {}
        """Parties that have failed of those that have not begun here, and why."""
        self.approved: dict[bytes, frozenset[str]] = {}
        """To which workers the owner lets private values go that a role sends, by its digest."""
        self.waiting_to_go: Evictions[int] = Evictions()
        self.failures_to_go: Evictions[tuple[int, Place]] = Evictions()
        """Which of those that have not begun, and of their failures, go if there are too many."""
        self.watched = False
        """Whether a caller may keep answers about shapes and gradients: see :meth:`watch`."""
        self._watchers: WeakKeyDictionary[Peer, None] = WeakKeyDictionary()
        self._only_session: Session | None = None
        """That of all watchers, if they have one: nobody else is told of what it does."""
        self.peers: WeakKeyDictionary[Peer, None] = WeakKeyDictionary()
        """The peers that have used numbers: they are notified when the worker is cleared."""
        self.stats = Stats()
        self.audit: Audit | None = None
        """What the owner is told of what callers do: see :meth:`keep_audit`."""
        self.acting_guard: Guard | None = None
        self.serving: Peer | None = None
        self._nesting = Nesting(name)
        self.to_return: list[Callable[[], None]] = []
        """What sends the gradients of leaves from other workers, after the present request."""
        self.outbox: list[AddressedFrame] = []
        """Frames to send besides the reply: see :meth:`outgoing`."""

    def _payer(self) -> Account | None:
        """The account of the caller that is served; None for the owner's program."""
        return None if self.serving is None else self.serving.account

    def _reader(self) -> tuple[str | None, str | None]:
        """The user for whom the caller asks that is served, and who that is for guards."""
        peer = self.serving
        return (None, None) if peer is None else (peer.user, peer.identity)

    def keep_audit(self, log: Log) -> Audit:
        """Write to a log, from now on, what callers do; where that fails, nothing is done."""
        self.audit = Audit(log, self.store, self.owners, self._look_again)
        return self.audit

    def _look_again(self) -> None:
        """Have the next request be met, whoever makes it."""
        self._latest = None

    # --------------------------------------------------------------------------------- receiving

    def receive(self, frame: Frame, peer: Peer) -> list[AddressedFrame]:
        """Handle one request from ``peer``; return the frames to send, the reply last."""
        reply = self.respond(frame, peer)
        letters = self.outgoing() if self.outbox else []
        return letters if reply is None else [*letters, (peer, reply)]

    def respond(self, frame: Frame, peer: Peer) -> Frame | None:
        """Handle one request from ``peer``; return the reply, if it is answered now.

        The other frames that it causes are left in :attr:`outbox`.  No mode or hook of the thread
        sees a tensor of the worker: what modes change is in the messages.
        """
        observed = function_modes() or dispatch_modes() or saved_tensor_hooks(True)
        if observed or is_inference_mode_enabled() or is_anomaly_enabled():
            return self._respond_unobserved(frame, peer)
        try:
            message = read_request(frame.header)
        except messages.UNREADABLE:
            return self.stats.count(frame, self._unreadable(frame, peer))
        if message.failures not in (None, peer.session.failures):
            return self.stats.count(frame, Frame(encode(Skipped(message.seq)), []))
        outer, self.serving = self.serving, peer
        try:
            if outer is not None or peer.who is not self._latest or peer.reads is not None:
                self._meet(peer, message, outer is not None)
            reply = _HANDLERS[type(message)](self, message, frame, peer)
            plain = type(reply) in _WITHOUT_BUFFERS and peer.account.unseen is None
            header = encode(reply) if plain else b""
            if self.audit is not None:
                self.audit.served(message, peer, len(header))
        except Exception as error:  # no message may end the worker
            reply, header = self._failed(message, error, peer), b""
        finally:
            if outer is not None:
                self._nesting.leave()
            self.serving = outer
        if self.to_return or not header:
            return self._framed(message, frame, reply, peer)
        stats = self.stats
        stats.messages_in += 1
        stats.bytes_in += frame.nbytes if frame.buffers else len(frame.header)
        stats.bytes_out += len(header)
        return Frame(header, [], False, False, False, reply.seq if type(reply) is Done else None)

    def _respond_unobserved(self, frame: Frame, peer: Peer) -> Frame | None:
        """Handle a request without the modes of a caller on whose thread this worker runs."""
        with neutral_mode():
            return self.respond(frame, peer)

    def _framed(self, message: Any, frame: Frame, reply: Any, peer: Peer) -> Frame | None:
        """Count a request and its reply, if there is one, which is returned as a frame."""
        if self.to_return:
            reply = self._after_returning(message, reply, peer)
        return self.stats.count(frame, None if reply is None else self.frame_of(reply, peer))

    def _meet(self, peer: Peer, message: messages.Request, inside: bool) -> None:
        """Note whose request this is, and whether it is made inside another one; it names nothing
        that its caller may not find."""
        if inside:
            self._nesting.enter()
        if self.audit is not None:
            self.audit.check()
        self._latest = peer.who
        self.contested |= self.owners.meet(peer)
        check_named(self, peer, message)

    def _after_returning(self, message: Any, reply: Any, peer: Peer) -> Any:
        """Send the gradients that came for other workers; returns the reply then."""
        outer, self.serving = self.serving, peer
        try:
            self._nesting.enter()
            self._return_gradients(raises=type(reply) is not Failure)
        except Exception as error:  # as above
            reply = self._failed(message, error, peer)
        finally:
            self._nesting.leave()
            self.serving = outer
        return reply

    def _return_gradients(self, raises: bool = True) -> None:
        """Send the gradients that came for other workers; without ``raises`` the request failed."""
        while self.to_return:
            try:
                self.to_return.pop(0)()
            except Exception:  # whatever the others raise
                self._return_gradients(raises=False)  # the next get their gradients
                if raises:
                    raise

    def _failed(self, message: messages.Request, error: Exception, peer: Peer) -> Failure:
        """The reply to a request whose handler raised; its results are marked as failed."""
        if not isinstance(error, ObjectIdTaken):
            outs: Sequence[int] = accepted_results(message, peer.session.numbers)
            if self.store.promised:
                outs = [out for out in outs if self.store.may_keep(out, peer.names)]
            self.fail_results(outs, error)
        return self.failure(getattr(message, "seq", 0), error)

    def _unreadable(self, frame: Frame, peer: Peer) -> Frame:
        """The reply to a frame that is not a request."""
        try:
            messages.decode(frame.header)
        except WireError as error:
            return self.frame_of(self.failure(-1, error), peer)
        wrong = MalformedMessage("$[0]", "a request", "a reply")
        return self.frame_of(self.failure(-1, wrong), peer)

    def post(
        self,
        to: str,
        message: messages.Message,
        buffers: Sequence[torch.Tensor] = (),
        private: bool = False,
    ) -> None:
        """Queue a message for another worker; ``receive`` returns it with its frames.

        ``private`` says that a value in it is.  Nobody writes to the buffers any more.
        """
        frame = Frame(encode(message), list(buffers), private=private, lasting=True)
        receiver = self.addressed(to)  # others may be served meanwhile, and the outbox emptied
        self.outbox.append((receiver, frame))

    def answer(self, peer: Peer, reply: messages.Reply | Answer) -> None:
        """Queue a reply to an earlier request of ``peer``."""
        frame = self.frame_of(reply, peer)
        self.outbox.append((peer, frame))

    def outgoing(self) -> list[AddressedFrame]:
        """Return the queued frames, and empty the queue."""
        letters, self.outbox = self.outbox, []
        self.stats.count_more(letter for _, letter in letters)
        return letters

    # ---------------------------------------------------------------------------------- replying

    def frame_of(self, reply: messages.Reply | Answer, peer: Peer) -> Frame:
        """The frame of a reply to ``peer``, with its buffers if it has any.

        One that no message can carry is a failure, of which nothing is told.
        """
        if peer.account.unseen is not None:
            reply = peer.account.unseen.in_reply(reply)
        try:
            if type(reply) is Answer:
                return Frame(encode(reply.message), reply.buffers, False, reply.private)
            header = encode(reply)
        except Exception as error:  # as in respond
            seq = getattr(reply.message if type(reply) is Answer else reply, "seq", 0)
            return self.frame_of(self.failure(seq, error, hidden=True), peer)
        if type(reply) is Failure:
            peer.session.failures += 1
        return Frame(header, [])

    def failure(
        self, seq: int, error: BaseException, hidden: bool = False, action: int | None = None
    ) -> Failure:
        """An exception as a reply; ``hidden`` leaves out its text and traceback.  ``action`` says
        which one of a group raised it."""
        if self.audit is not None:
            self.audit.failed(error, self.serving)
        told = without_device(error, self.name)
        trace = None if hidden else self.trace_of(told)
        return Failure(seq, pack_error(told, Packer(), trace, hidden), action)

    # ------------------------------------------------------------------------------------ waiting

    def when_ready(
        self,
        seq: int,
        peer: Peer,
        act: Callable[[HeldInputs], messages.Reply | Answer | None],
        inputs: Iterable[int],
        outs: tuple[int, ...] = (),
        access: Access = READS,
    ) -> messages.Reply | Answer | None:
        """Run ``act`` now, or park it until its inputs are present and reply later.

        ``act`` is called with the inputs held for it, by id, in case they are dropped meanwhile.
        ``access`` says what it does to the inputs.
        """
        if not self.dataflow.active:
            return act({})
        self.check_keeps(outs, peer)

        def run(held: HeldInputs | None) -> None:
            outer, self.serving = self.serving, peer
            why = FAILED
            try:
                reply = Cancelled(seq) if held is None else act(held)
                self._return_gradients()
            except Exception as error:  # as in receive: no message may end the worker
                self._return_gradients(raises=False)
                self._give_up(outs, error)
                reply = self.failure(seq, error)
                why = why_missing(error)
            finally:
                self.serving = outer
            self._mark_missing(outs, why if type(reply) is Failure else NOT_MADE)
            if reply is not None and type(reply) is not Parked:
                self.answer(peer, reply)

        session = peer.session
        task = self.dataflow.admit(run, inputs, outs, access, (session, seq), peer.account)
        if task is not None:
            if self.contested:
                self.owners.made(peer, outs)
            return Parked(seq, *named(task.awaits, self.store.promisers, peer.session))
        reply = act({})
        self._mark_missing(outs, FAILED if type(reply) is Failure else NOT_MADE)
        self.dataflow.settle(outs)
        return reply

    def fail_results(
        self, outs: Sequence[int], error: Exception | None = None, why: str | None = None
    ) -> None:
        """Mark results as failed, and run the operations that wait for them, which fail too."""
        self._give_up(outs, error)
        self._mark_missing(outs, why or why_missing(error))
        self.dataflow.settle(outs)

    def give_up_all(self, sessions: Container[object], reason: str) -> None:
        """Give up every promise of some callers, and end the collective operations they started."""
        for id, session in list(self.store.promisers.items()):
            if session in sessions and id in self.store.promised:
                self.store.give_up(id, id, reason)
                self.dataflow.settle((id,))
        for execution, started in list(self.sessions.items()):
            started.leave(self, execution, sessions, reason)

    def _mark_missing(self, outs: Iterable[int], reason: str) -> None:
        """Write tombstones for those results of an operation that it did not make."""
        for out in outs:
            if out not in self.store and out not in self.store.given_up:
                self.store.mark_gone(out, reason)

    def _give_up(self, outs: Iterable[int], error: Exception | None) -> None:
        """Give up the results of an operation that failed because a promise was given up."""
        if isinstance(error, PromiseGivenUp):
            for out in outs:
                if out not in self.store:
                    self.store.give_up(out, error.id, error.reason)

    # ----------------------------------------------------------------------------------- objects

    def check_keeps(self, ids: Iterable[int], peer: Peer) -> None:
        """Raise :class:`~syft.exceptions.PermissionDenied` if one of these objects was promised to
        come from somebody else than ``peer``, and :class:`~syft.exceptions.ObjectIdTaken` if an
        operation here is to make it."""
        store = self.store
        for id in ids if store.promised else ():
            if not store.may_keep(id, peer.names):
                for sender in store.senders.get(id, ()):
                    who = peer.identity or peer.name
                    raise PermissionDenied("keep a promise", self.name, who, id, sender=sender)
                raise ObjectIdTaken(id, self.name)

    def present(self, id: int) -> Stored:
        """The object of an id, or its cell; raises :class:`~syft.exceptions.ObjectNotReady` if it
        is only promised."""
        if id in self.store.promised:
            raise ObjectNotReady(self.name, *self.promises_named(id, self.serving))
        return self.store.read(id)

    def promises_named(self, id: int, peer: Peer | None) -> tuple[tuple[int, ...], bool]:
        """The promises behind a promised object that ``peer`` may know of, and whether there are
        others."""
        session = None if peer is None else peer.session
        return named(self.dataflow.promises_behind(id), self.store.promisers, session)

    def forget(self, ids: Sequence[int], peer: Peer) -> None:
        """Drop objects whose last pointers are gone; those of others stay."""
        if self.confined:
            shares = self.store.confined(ids)
            ids = [id for id in ids if id not in shares or shares[id].session.is_owner(peer)]
        if self.contested:
            ids = self.owners.droppable(peer, ids)
        if not (self.store.promised or self.dataflow.tasks):
            return self.store.drop_all(ids, peer.dropped)
        for id in ids:
            if id in self.store.promised:
                self.dataflow.forget(id, peer.dropped)
            else:
                self.store.drop(id, peer.dropped)

    def guard(self) -> None:
        """Note that something at this worker is private."""
        self.store.charges.guarded = True
        self.store.charges.graphs.changes += 1

    def hold(self, id: int, tensor: torch.Tensor | Holder) -> None:
        """Store a tensor with its guard, and run the parked operations that waited for it."""
        guard = travelling_guard_of(tensor)
        if guard is not None:
            self.guard()
            protect_all(tensor, guard)
        self.store.put(id, tensor)
        if not isinstance(tensor, torch.Tensor) and isinstance(tensor, Confined):
            self.confined = True
        if self.dataflow.active:
            self.dataflow.settle((id,))

    def own(self, id: int, writers: Iterable[str] = ()) -> None:
        """Note that the owner's program holds an object: it outlives its pointers."""
        self.store.origins[id] = ObjectOrigin(None, self.name, writers, held=True)
        self.contested = True

    def note_made(self, ids: Iterable[int], backing: ObjectOrigin | None = None) -> None:
        """Note that the request which is being served made these objects."""
        if self.contested and self.serving is not None:
            self.owners.made(self.serving, ids, backing)

    def watch(self, peer: Peer, knows: int = EVERYTHING) -> None:
        """Note that a caller sent a tensor, or was told of the shape or the gradient of one, and
        may keep that."""
        peer.knows |= knows
        if not self.watched:
            self._only_session = peer.session
        elif peer.session is not self._only_session:
            self._only_session = None
        self._watchers[peer] = None
        self.watched = True

    def altered(self, acting: Peer | None, lost: int = EVERYTHING) -> None:
        """Notify the callers that know of shapes, or of gradients, that somebody else may have
        changed; called if anything is :attr:`watched`."""
        if acting is not None and acting.session is self._only_session:
            return
        told = set()
        for peer in list(self._watchers):
            if peer.knows & lost and (acting is None or peer.session is not acting.session):
                peer.knows &= ~lost
                if not peer.knows:
                    self._watchers.pop(peer, None)
                if peer.session not in told:
                    told.add(peer.session)
                    self.answer(peer, Stale(lost == GRADIENTS))
        self.watched = bool(self._watchers)
        sessions = {peer.session for peer in self._watchers}
        self._only_session = sessions.pop() if len(sessions) == 1 else None

    def comes_back(self, ids: Iterable[int], acting: Peer) -> None:
        """Notify the other callers if an object is about to be stored where another one was: it may
        be what they know by that id."""
        if self.watched and any(map(self.store.has_gone, ids)):
            self.altered(acting)

    def leave(self, peers: Sequence[Peer], name: str, objects: bool = True) -> None:
        """Give up the promises of a caller that is gone for good, end the collective operations
        that it started, and free the ``objects`` that belong to it.

        ``peers`` are all of its connections and users.  Notices to others wait in the outbox.
        """
        reason = f"{name} has left"
        self.give_up_all({peer.session for peer in peers}, reason)
        for request in self.dataflow.requests_of({peer.session for peer in peers}):
            self.fail_results(self.dataflow.cancel(request))
        self.lose(name, reason, {peer.session for peer in peers})
        for peer in peers:
            if objects:
                self.store.drop_all(self.owners.belonging(peer), reason)
            self.owners.left(peer)

    def lose(self, name: str, reason: str, gone: Container[Session] = ()) -> None:
        """Fail the collective operations in which worker ``name`` takes part, or that callers who
        are ``gone`` have started: nothing comes from there any more.
        """
        error = WorkerLost(name, reason)
        for execution, session in list(self.sessions.items()):
            session.lose(self, execution, gone, error)

    def clear(self, reason: str) -> None:
        """Drop every object, number, promise, parked operation and collective session.

        Notices to peers and other workers are queued: see :meth:`outgoing`.
        """
        self.dataflow.clear()
        for peer in list(self.peers):
            if peer.session.numbers is not None:
                peer.session.numbers = None
                self.answer(peer, Forgotten())
        self.peers.clear()
        if self.watched:
            self.altered(None)
        for execution, session in list(self.sessions.items()):
            session.abandon(self, execution)
        self.sessions.clear()
        self.aborted.clear()
        self.store.clear(reason)
        self.owners.forget()
        self.contested, self._latest = False, None
