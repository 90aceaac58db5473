"""The transport to a worker of this process: a call of its core, or its inbox."""

from __future__ import annotations

from threading import get_ident
from typing import Any, Final
from weakref import WeakKeyDictionary, finalize

from syft.exceptions import WorkerClosed
from syft.serde.frame import Frame
from syft.torch_private import is_tracing
from syft.workers.client.transport import Owner, Transport, refuse_tracing
from syft.workers.core.peer import Peer, Session
from syft.workers.core.state_machine import AddressedFrame
from syft.workers.handlers.withdrawing import may_be_withdrawn, withdraw
from syft.workers.shells.network import Network

_GLANCE: Final = 0.05
"""Seconds between two looks whether another thread has done with a worker."""


class VirtualTransport(Transport):
    """The transport to a worker in the same process: a function call or an inbox."""

    def __init__(self, caller: Owner, worker: Any, network: Network) -> None:
        super().__init__(network.monitor)
        self.queued = worker.pipelined
        self.exchange = None if worker.pipelined else self._exchange
        self.collects = worker.pipelined
        self.caller = caller
        """The worker whose requests it carries."""
        self._worker = worker
        self._network = network
        self._observers = network.observers
        self._core = worker.core
        self._session = Session()
        self._peers: dict[str | None, Peer] = {}
        self._to_itself = caller is worker
        self._for_callers: WeakKeyDictionary[Peer, Peer] = WeakKeyDictionary()
        """As whom a worker asks itself, by the caller whom it serves."""
        self._peer: Peer
        self.speak_for(None)

    @property
    def closed(self) -> bool:
        return bool(self._worker.closed)

    def speak_for(self, user: str | None) -> None:
        """Send the following requests on behalf of ``user``, which is not verified here."""
        peer = self._peers.get(user)
        if peer is None:
            peer = self._peers[user] = Peer(self.caller.id, user, self._session, self._to_itself)
            self._worker.callers[peer] = self
        self._peer = peer

    def _asking(self) -> Peer:
        """Whose request is sent: that of the caller whom a worker serves while it asks itself."""
        serving = self._core.serving if self._to_itself else None
        if serving is None or serving.identity is None:
            return self._peer
        peer = self._for_callers.get(serving)
        if peer is None:
            peer = serving.asking_itself(self.caller.id, self._session)
            self._for_callers[serving] = peer
            self._worker.callers[peer] = self
            finalize(serving, self._worker.callers.pop, peer, None)
        return peer

    def _exchange(self, frame: Frame) -> Frame:
        """Let the worker handle a request, and return the reply, which comes at once."""
        if self._worker.closed:
            raise WorkerClosed(self._worker.id)
        if is_tracing():
            refuse_tracing()
        core, observed = self._core, self._observers
        if observed:
            self._network.observe(self.caller.id, self._worker.id, frame)
        reply: Frame = core.respond(frame, self._asking())
        if core.outbox:
            self._hand_out(core.outgoing())
        if observed:
            self._network.observe(self._worker.id, self.caller.id, reply)
        return reply

    def deliver(self, frame: Frame) -> None:
        """Put a request in the inbox of a queued worker, or let the worker handle it."""
        worker = self._worker
        if worker.closed:
            raise WorkerClosed(worker.id)
        if is_tracing():
            refuse_tracing()
        if self.queued:
            if not worker.inbox:
                worker.announce()
            kept = frame.owned() if frame.buffers else frame
            worker.inbox.append((kept, self._asking(), get_ident()))
            return
        if self._observers:
            self._network.observe(self.caller.id, worker.id, frame)
        self._hand_out(self._core.receive(frame, self._asking()))

    def _hand_out(self, letters: list[AddressedFrame]) -> None:
        """Store the replies for this transport, and deliver the other frames."""
        others = []
        for letter in letters:
            peer = letter[0]
            if type(peer) is Peer and peer.session is self._session:
                self.take(letter[1])
            else:
                others.append(letter)
        if others:
            self._worker.network.carry(others, self._worker)

    def take(self, frame: Frame) -> None:
        """Store a reply until the connection reads it."""
        if self._observers:
            self._network.observe(self._worker.id, self.caller.id, frame)
        self.replies.append(frame)

    def advance(self, parked: bool = True, block: bool = True, most: int = 1) -> bool:
        """Let the worker at the other end handle a message, or any worker of this process."""
        if self._worker.work(most) or self._network.step():
            return True
        if block and self._worker.busy not in (0, get_ident()):  # it waits for another process
            self.monitor.wait(_GLANCE)
            return True
        return False

    def withdraw(self, frame: Frame) -> bool:
        """Remove a request from the inbox; False if it is not there."""
        inbox = self._worker.inbox
        kept = [letter for letter in inbox if letter[0].header is not frame.header]
        if len(kept) == len(inbox):
            return False
        inbox.clear()
        inbox.extend(kept)  # in place: the worker may be in the middle of it
        return True

    def withdraw_all(self) -> int:
        """Leave out what waits in the inbox of a queued worker and came from here."""
        worker, peers = self._worker, {*self._peers.values(), *self._for_callers.values()}
        letters = list(worker.inbox)
        taken: list[tuple[Frame, Peer, int]] = []
        worker.inbox.clear()
        for letter in letters:
            mine = letter[1] in peers and may_be_withdrawn(letter[0])
            (taken if mine else worker.inbox).append(letter)
        for frame, peer, _ in taken:
            self.take(withdraw(self._core, frame, peer))
        self._network.carry(self._core.outgoing(), worker)
        return len(taken)

    def is_idle(self) -> bool:
        """Whether a queued worker has an empty inbox and is not handling a request."""
        return self.queued and not (self._worker.inbox or self._worker.busy)

    def close(self) -> None:
        """Unregister this caller at the worker."""
        for peer in (*self._peers.values(), *self._for_callers.values()):
            self._worker.callers.pop(peer, None)
