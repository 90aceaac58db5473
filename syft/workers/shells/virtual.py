"""Workers in this process.

A :class:`VirtualWorker` has the same core as a worker in another process, and the same messages in
the same wire format; only the delivery is a function call.  So code for it works with remote ones,
and a notebook needs no server.  ``pipelined=True`` gives the timing of a network without one:
messages stay in the worker's inbox until a caller waits for a result.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from threading import get_ident
from typing import Any, Protocol

import torch

from syft.exceptions import (
    NotSendable,
    ObjectNotFound,
    ProgramError,
    UnusableSetting,
    WorkerIdTaken,
)
from syft.ids import new_id
from syft.notebook_html import names
from syft.serde.frame import Frame
from syft.serde.limits import Limits
from syft.workers.client.answers import summaries_in
from syft.workers.client.connection import Connection
from syft.workers.client.monitor import exclusive
from syft.workers.client.transport import Location, Owner
from syft.workers.core.peer import Peer
from syft.workers.core.peer_limits import PeerLimits
from syft.workers.core.shares import numbers_of
from syft.workers.core.state_machine import AddressedFrame, WorkerCore
from syft.workers.core.stats import Stats
from syft.workers.execution.operation import neutral_mode
from syft.workers.execution.private_memory import ready_to_hold
from syft.workers.labels.origin import names_in, writers_of
from syft.workers.shells.asked_again import AskedAgain, Reconnecting, WorkerArguments
from syft.workers.shells.connection_table import ConnectionTable
from syft.workers.shells.named_datasets import NamedDatasets
from syft.workers.shells.network import Network
from syft.workers.shells.virtual_transport import VirtualTransport
from syft.workers.shells.shown_objects import ShownObjects
from syft.workers.shells.worker import Query, Worker, found_by, words_in
from syft.workers.wire.messages import Search


class Hooked(Protocol):
    """The part of the hook that a worker uses: the local worker of the user's program."""

    local_worker: VirtualWorker


class VirtualWorker(Worker, NamedDatasets, metaclass=Reconnecting):
    """A worker in this process: an object store that runs torch operations for others.

    ``hook`` gives the network the worker joins (without one it starts its own). ``data`` are
    tensors it holds from the start.  ``pipelined`` makes it a queued worker.  ``lazy`` has what
    is asked of it travel together (:meth:`~syft.workers.shells.worker.Worker.lazy`).  ``user`` is
    the user on whose behalf this worker requests private values of others.  ``allow_plans`` says
    whether others may store plans here and run them.  ``peer_limits`` bounds what each caller may
    have and ask for here; the owner's own program has no limits.

    Whoever asks for the same again (the same ``data``: the same tensors), as a notebook does, gets
    the same object, with all that it holds.  ``verbose`` and ``log_msgs`` are taken for programs
    written for earlier versions, and change nothing: ``sy.trace()`` lists messages.

    Raises :class:`~syft.exceptions.WorkerIdTaken`, which says what is different, if another worker
    has that name.

    >>> alice = VirtualWorker(None, id="alice", data=[torch.ones(2), torch.zeros(3)])
    >>> alice
    <VirtualWorker id:alice #objects:2>
    """

    announces = True

    def __init__(
        self,
        hook: Hooked | None = None,
        id: str = "worker",
        data: Iterable[torch.Tensor] = (),
        pipelined: bool = False,
        is_client_worker: bool = False,
        user: str | None = None,
        limits: Limits | None = None,
        allow_plans: bool = True,
        peer_limits: PeerLimits | None = None,
        *,
        lazy: bool = False,
        log_msgs: bool = False,
        verbose: bool = False,
    ) -> None:
        self.id = id
        data = _only_tensors(data)
        if hook is not None and not hasattr(hook, "local_worker"):
            raise UnusableSetting(
                "hook", "what sy.TorchHook(torch) gives", f"a {type(hook).__name__}"
            )
        self.network = Network() if hook is None else hook.local_worker.network
        settings = {
            "hook": hook is not None,
            "pipelined": pipelined,
            "is_client_worker": is_client_worker,
            "user": user,
            "limits": limits,
            "allow_plans": allow_plans,
            "peer_limits": peer_limits,
            "lazy": lazy,
        }
        self.asked = WorkerArguments(data, settings)
        """With what it was made."""
        self._check_free(id)
        self.core: WorkerCore = WorkerCore(id, self._connect, limits, allow_plans, peer_limits)
        self.pipelined = pipelined
        self.is_lazy = lazy
        self.is_client_worker = is_client_worker
        self.user = user
        self.inbox: deque[tuple[Frame, Peer, int]] = deque()
        """The messages that wait, with who sent each, and on which thread."""
        self.busy, self._before = 0, 0
        """The thread that handles a message of the inbox, 0 if none does; how many came before."""
        self.closed = False
        self.network.monitor.guard(self.core)
        self._table = ConnectionTable(self, self.network)
        self.callers = self._table.callers
        """The peers that send requests, each with the line for its replies."""
        self.network.workers[id] = self.network.hosts[id] = self
        self._networks = [self.network]
        self.hold(*data)

    def _check_free(self, id: str) -> None:
        """Raise unless no worker has this name; give the one that is there if it is the same."""
        there = self.network.workers.get(id)
        if there is None:
            return
        if type(there) is not type(self):
            raise WorkerIdTaken(id, ("class",))
        differs = there.asked.differences(self.asked)
        if differs:
            raise WorkerIdTaken(id, differs)
        raise AskedAgain(there)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} id:{self.id} #objects:{self.objects_count()}>"

    @exclusive
    def cells_shown(self) -> tuple[str, ...]:
        """Its row in a table of workers: what it holds now, which is looked at and not collected.

        >>> ids = bob.hold(torch.ones(2).tag("#digits"))
        >>> bob.cells_shown()
        ('bob', 'VirtualWorker', 'in this process', '1', '#digits')
        """
        store = self.core.store
        tags = frozenset[str]().union(*map(store.tags.of, store))
        return *super().cells_shown()[:3], f"{len(store):,}", names(tags)

    def place_shown(self) -> str:
        """That it is in this process, for whom it speaks, and whether it was closed."""
        user = "" if self.user is None else f"as {self.user}"
        queued = "queued" if self.pipelined else ""
        return " · ".join(filter(None, ["in this process", user, queued, super().place_shown()]))

    # ---------------------------------------------------------------------------- other workers

    def connection_to(self, worker: str | Location) -> Connection:
        """This worker's connection to another one (or to itself).

        >>> hook.local_worker.connection_to(bob).location
        <VirtualWorker id:bob #objects:0>
        """
        try:
            found: Any = self.network.workers.get(worker, worker)  # type: ignore[arg-type]
            known = self._table.open.get(found)
        except TypeError:  # unhashable, so no worker, which ``get_worker`` says
            known = None
        if known is not None and not known.transport.closed:
            return known
        with self.lock:
            return self._table.to(self.get_worker(worker))

    def _connect(self, to: str | Peer) -> Connection:
        """The connection that the core asks for: to the worker of a name, or back to a caller."""
        return self._table.back_to(to) if isinstance(to, Peer) else self.connection_to(to)

    def transport_for(self, caller: Owner) -> VirtualTransport:
        """A new transport from ``caller`` to this worker.

        >>> bob.transport_for(hook.local_worker).queued
        False
        """
        network = caller.network if isinstance(caller, VirtualWorker) else self.network
        return VirtualTransport(caller, self, network)

    def connections(self) -> list[Connection]:
        """This worker's open connections.

        >>> x = torch.tensor([1.0, 2.0]).send(bob)
        >>> [connection.location.id for connection in hook.local_worker.connections()]
        ['bob']
        """
        return self._table.opened()

    def reply(self, peer: Peer, frame: Frame) -> None:
        """Pass a reply to the line over which the request came, if it is still open."""
        line = self.callers.get(peer)
        if line is not None:
            line.take(frame)

    def join(self, network: Network) -> None:
        """Announce queued messages to ``network`` too, which knows it from now on.

        >>> dan = sy.VirtualWorker(None, id="dan")
        >>> dan.join(bob.network)
        """
        if network not in self._networks:
            self._networks.append(network)
        self.announce()

    def announce(self) -> None:
        """Tell the networks that know this worker that a message is queued for it.

        >>> bob.announce()
        >>> list(bob.network.mail)
        [<VirtualWorker id:bob #objects:0>]
        """
        for network in self._networks:
            network.mail[self] = None

    @property
    def lock(self) -> Any:
        """What a thread holds while it uses the worker."""
        return self.network.monitor.lock

    @exclusive
    def work(self, most: int = 1) -> bool:
        """Handle one message of the inbox; False if there is none, or another thread handles one.

        With ``most`` it may handle that many, as long as each causes nothing but its reply.  In the
        middle of one, it handles those that this thread has sent since: their senders are on the
        stack above.  Those of other threads come in their turn, after what they sent before.

        >>> VirtualWorker(None, id="alice").work()
        False
        """
        busy, thread = self.busy, get_ident()
        before = self._before if busy else 0
        if len(self.inbox) <= before or busy not in (0, thread):
            return False
        place = self._sent_since(before, thread) if busy else 0
        if place is None:
            return False
        self.busy = thread
        try:
            with neutral_mode():
                alone = not busy and self.network.is_quiet()
                letters = self._handle(place, most if alone else 1)
        finally:
            self.busy, self._before = busy, before
            self.network.monitor.notify()
        self.network.carry(letters, self)
        return True

    def _sent_since(self, before: int, thread: int) -> int | None:
        """The place of the first message that a thread has sent since there were so many."""
        places = range(before, len(self.inbox))
        return next((place for place in places if self.inbox[place][2] == thread), None)

    def _handle(self, place: int, most: int) -> list[AddressedFrame]:
        """Handle messages and hand over the replies; returns what the last one causes."""
        core, inbox, network = self.core, self.inbox, self.network
        while True:
            frame, peer, _ = inbox[place]
            del inbox[place]
            self._before = len(inbox)
            if network.observers:
                network.observe(peer.name, self.id, frame)
            reply = core.respond(frame, peer)
            most -= 1
            if most <= 0 or len(inbox) <= place or core.outbox:
                letters = core.outgoing()
                return letters if reply is None else [*letters, (peer, reply)]
            if reply is not None:
                self.reply(peer, reply)

    @exclusive
    def add_worker(self, worker: Worker) -> VirtualWorker:
        """Make a worker of another network known here, under its id; returns this worker.

        >>> dan = sy.VirtualWorker(None, id="dan")  # starts a network of its own
        >>> bob.add_worker(dan).get_worker("dan")
        <VirtualWorker id:dan #objects:0>
        """
        if not isinstance(worker, Worker):
            raise UnusableSetting("worker", "a worker", f"a {type(worker).__name__}")
        known = self.network.workers
        if known.get(worker.id, worker) is not worker:
            raise WorkerIdTaken(worker.id)
        known[worker.id] = worker
        if isinstance(worker, VirtualWorker):
            worker.join(self.network)
        return self

    def add_workers(self, workers: Iterable[Worker]) -> VirtualWorker:
        """Make several workers known here.

        >>> bob.add_workers([sy.VirtualWorker(None, id="dan")]).get_worker("dan")
        <VirtualWorker id:dan #objects:0>
        """
        for worker in workers:
            self.add_worker(worker)
        return self

    def get_worker(self, worker: str | Location) -> Any:
        """The worker of that id; raises :class:`~syft.exceptions.UnknownWorker`.

        >>> hook.local_worker.get_worker("bob") is bob
        True
        """
        if isinstance(worker, Worker):
            return worker
        return self.network.find(worker, self.id)  # raises for a value that is not a name

    @exclusive
    def close(self) -> None:
        """Leave the network and drop everything held. Later requests raise WorkerClosed.

        >>> x = torch.tensor([1.0, 2.0]).send(bob)
        >>> bob.close()
        >>> x.get()
        Traceback (most recent call last):
        ...
        syft.exceptions.WorkerClosed: ...
        """
        if self.closed:
            return
        if self.inbox and not self.busy:
            self.network.run()  # requests sent before are still handled, above all drops
        self.inbox.clear()
        self._clear(f"worker {self.id} was closed")
        self._table.close()
        self.closed = True
        for network in self._networks:
            network.mail.pop(self, None)
        if self.id in self.network.workers:
            del self.network.workers[self.id]
        self.network.hosts.pop(self.id, None)

    def _clear(self, reason: str) -> None:
        self.core.clear(reason)
        self.network.carry(self.core.outgoing(), self)

    # ------------------------------------------------------------------------------ what it holds

    @exclusive
    def hold(self, *tensors: torch.Tensor, allow_writes: Iterable[str] = ()) -> list[int]:
        """Put tensors of the data owner into the store; returns their ids.

        No copy is made, unless torch did not allocate the memory (``torch.from_numpy``), or it is
        private: what callers may do is not safe there.  Callers may read what is not private.  Only
        those named by ``allow_writes``, users or callers without a user, may change or take them.

        >>> alice = VirtualWorker(None, id="alice")
        >>> len(alice.hold(torch.ones(2)))
        1
        """
        ids = []
        for tensor in _only_tensors(tensors):
            id = new_id()
            ready_to_hold(tensor)
            self.core.hold(id, tensor)
            self.core.own(id, {*names_in("allow_writes", allow_writes), *writers_of(tensor)})
            ids.append(id)
        self.core.store.show_to_owner(ids)
        return ids

    @exclusive
    def approve(self, digest: bytes | str, destinations: Iterable[str]) -> None:
        """Let a role of a protocol send private values of this worker to the workers named, for
        whoever runs it; without any, no more.

        ``digest`` stands for all that the role computes and sends, whatever its state is; in text
        it is hexadecimal.  A value keeps its label there: who may read it does not change.
        Raises :class:`~syft.exceptions.UnusableSetting` for what is no digest of 32 bytes.

        >>> alice = VirtualWorker(None, id="alice")
        >>> alice.approve("00" * 32, ["bob"])
        """
        try:
            key = bytes.fromhex(digest) if isinstance(digest, str) else digest
        except ValueError:
            key = b""
        if len(key) != 32:
            expected = "the 32 bytes of a digest, or 64 hexadecimal digits"
            raise UnusableSetting("digest", expected, repr(digest)[:100])
        places = frozenset(names_in("destinations", destinations))
        if places:
            self.core.approved[key] = places
        else:
            self.core.approved.pop(key, None)

    @property
    @exclusive
    def _objects(self) -> dict[int, torch.Tensor]:
        """Everything in the store, by id, as the data owner sees it; it is not the store."""
        self.collect()
        return ShownObjects(self.core.store.show_all_to_owner())

    @property
    def _tensors(self) -> dict[int, torch.Tensor]:
        """The tensors among ``_objects``; of a shared one, the integers of the worker's share."""
        held = ((id, numbers_of(value)) for id, value in self._objects.items())
        return {id: value for id, value in held if isinstance(value, torch.Tensor)}

    @exclusive
    def collect(self) -> None:
        """Send the ids of all dropped pointers, and let queued workers finish.

        An object dropped at one worker may contain the last pointer to an object at another.

        >>> x = torch.tensor([1.0, 2.0]).send(bob)
        >>> del x
        >>> bob.collect()
        >>> bob
        <VirtualWorker id:bob #objects:0>
        """
        while self.network.flush():
            self.network.run()
        self.network.run()

    @exclusive
    def objects_count(self) -> int:
        """How many objects the worker holds.

        >>> VirtualWorker(None, id="alice").objects_count()
        0
        """
        self.collect()
        return len(self.core.store)

    @exclusive
    def list_objects(self) -> list[int]:
        """The ids of the objects the worker holds.

        >>> x = torch.tensor([1.0, 2.0]).send(bob)
        >>> bob.list_objects() == [x.id_at_location]
        True
        """
        self.collect()
        return list(self.core.store)

    @exclusive
    def clear_objects(self, return_self: bool = True) -> VirtualWorker | None:
        """Drop every object; pointers to them raise when they are used.

        >>> x = torch.tensor([1.0, 2.0]).send(bob)
        >>> bob.clear_objects()
        <VirtualWorker id:bob #objects:0>
        """
        self.collect()
        self._clear(f"worker {self.id} was cleared with clear_objects()")
        return self if return_self else None

    @exclusive
    def give_up_promises_of(self, caller: str, reason: str) -> None:
        """Give up every promise of the callers of that name, and what they wait for together.

        A promise that nobody keeps holds back what waits for it, also requests of others that touch
        the same tensors.  Everything that waits for it fails with
        :class:`~syft.exceptions.PromiseGivenUp`.

        >>> x = bob.promise()
        >>> y = x + 1
        >>> bob.give_up_promises_of("me", "it took too long")
        >>> y.get()
        Traceback (most recent call last):
        ...
        syft.exceptions.PromiseGivenUp: ... was given up: it took too long. ...
        """
        self.collect()
        sessions = {peer.session for peer in self.callers if peer.name == caller}
        self.core.give_up_all(sessions, reason)
        self.network.carry(self.core.outgoing(), self)

    def request_search(self, query: Query, location: str | Worker) -> list[Any]:
        """Search another worker; as :meth:`search`, with this worker as the pointers' owner.

        >>> ids = bob.hold(torch.ones(2).tag("#digits"))
        >>> [found.owner.id for found in alice.request_search("#digits", location=bob)]
        ['alice']
        """
        return found_by(self.connection_to(location), query)

    def fetch_plan(self, id: str | int, location: str | Worker, copy: bool = False) -> Any:
        """A copy of the plan that has this id, or tag, at another worker; it stays there too.

        The id is that of the plan that was sent, or the one that the sent copy has there
        (``pointer.id_at_location``).  Of several copies of one plan it is the one that came last.
        ``copy`` is taken for programs written for earlier versions, and changes nothing.

        Raises :class:`~syft.exceptions.ObjectNotFound` if there is none, and
        :class:`~syft.exceptions.ProgramError` if several have the tag.

        >>> plan = sy.func2plan(args_shape=[(2,)])(lambda x: x + x)
        >>> pointer = plan.send(bob)
        >>> hook.local_worker.fetch_plan(plan.id, bob)(torch.ones(2))
        tensor([2., 2.])
        """
        connection = self.connection_to(location)
        found = summaries_in(connection.ask(Search, words_in(id)))
        plans = [(number, summary) for number, summary in found if len(summary) > 3]
        name = connection.location.id
        if not plans:
            reason = (
                "there is no plan of that id or tag that you may find: send it there, or tag it"
            )
            raise ObjectNotFound(id, name, reason)  # type: ignore[arg-type]
        if len(tagged := [number for number, summary in plans if id in summary[0]]) > 1:
            ids = ", ".join(map(str, tagged))
            raise ProgramError(f"{name!r} has several plans {id!r}: fetch one of {ids}")
        return connection.found(*plans[0]).copy().get()

    @property
    def stats(self) -> Stats:
        """The messages and bytes that reached this worker and left it, and the cache hits.

        >>> x = torch.tensor([1.0, 2.0]).send(bob)
        >>> bob.stats.messages_in, bob.stats.messages_out
        (1, 1)
        """
        return self.core.stats


def _only_tensors(values: Iterable[Any]) -> tuple[torch.Tensor, ...]:
    """The values, if each is a tensor that a worker can hold."""
    tensors = tuple(values)
    for value in tensors:
        if not isinstance(value, torch.Tensor):
            raise NotSendable(f"a value of type {type(value).__name__}", "hold tensors")
    return tensors
