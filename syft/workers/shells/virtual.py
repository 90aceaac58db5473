"""Workers in this process, and the network between them.

A :class:`VirtualWorker` is the same core as a worker in another process, with the same messages
through the same wire format; only the carrying is a function call.  So what works here works
there, and a notebook needs no server.  ``pipelined=True`` gives the timing of a network without
one: messages lie in the worker's inbox until somebody waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import torch

from syft.exceptions import NotSendable, UnknownWorker, WireError, WorkerClosed, WorkerIdTaken
from syft.ids import new_id
from syft.serde.frame import Frame
from syft.serde.limits import Limits
from syft.workers.wire import messages
from syft.workers.client.connection import Connection
from syft.workers.core.state_machine import Letter, Peer, WorkerCore
from syft.workers.core.execution import neutral_mode
from syft.workers.client.group import MessageGroup
from syft.workers.shells.namespace import RemoteNamespace
from syft.workers.core.stats import Stats

Observer = Callable[[str, str, Frame], None]


class Hooked(Protocol):
    """What a worker needs of the hook: the worker on whose behalf the user's program speaks."""

    local_worker: VirtualWorker


class VirtualNetwork:
    """Carries frames between the workers of one process, and lets observers see every one.

    >>> import torch, syft as sy
    >>> hook = sy.TorchHook(torch)
    >>> bob = sy.VirtualWorker(hook, id="bob")
    >>> list(bob.network.workers), bob.network.local.id
    (['me', 'bob'], 'me')
    """

    def __init__(self) -> None:
        self.workers: dict[str, VirtualWorker] = {}
        self.observers: list[Observer] = []

    @property
    def local(self) -> VirtualWorker:
        """The worker on whose behalf the user's program speaks: the first one that joined."""
        return next(iter(self.workers.values()))

    def find(self, name: str, asked: str) -> VirtualWorker:
        """The worker of that name; :class:`~syft.exceptions.UnknownWorker` if there is none."""
        try:
            return self.workers[name]
        except (KeyError, TypeError):  # an unhashable value is no worker's name either
            others = tuple(sorted(set(self.workers) - {asked}))
            raise UnknownWorker(str(name), asked, others) from None

    def observe(self, sender: str, receiver: str, frame: Frame) -> None:
        """Show one frame to every observer."""
        for observer in self.observers:
            observer(sender, receiver, frame)

    def send(self, to: str, frame: Frame, peer: Peer) -> None:
        """Carry one frame, and whatever follows from it; frames for queued workers stay in
        inboxes."""
        self.find(to, peer.name)
        self.route([(to, frame)], peer.name)

    def route(self, letters: Iterable[Letter], sender: str) -> None:
        """Carry frames from ``sender``, and the frames they lead to, until nothing immediate is
        left."""
        waiting = deque((to, frame, sender) for to, frame in letters)
        while waiting:
            to, frame, origin = waiting.popleft()
            worker = self.workers.get(to)
            if worker is None:
                continue  # it left meanwhile: what is on its way to it is lost, as on any network
            peer = worker.peer_of(self.find(origin, to))
            if worker.pipelined and not _is_reply(frame):
                worker.enqueue(frame, peer)
                continue
            if self.observers:
                self.observe(origin, to, frame)
            waiting.extend((next_to, out, to) for next_to, out in worker.core.receive(frame, peer))

    def run(self) -> None:
        """Let all queued workers work, one message each in turn, until no inbox holds any."""
        while self.step():
            pass

    def step(self) -> bool:
        """Let every queued worker handle one message of its inbox; False if there was none."""
        moved = False
        for worker in list(self.workers.values()):
            if worker.inbox and not worker.busy:
                frame, peer = worker.inbox.popleft()
                worker.busy = True
                try:
                    if self.observers:
                        self.observe(peer.name, worker.id, frame)
                    with neutral_mode():
                        letters = worker.core.receive(frame, peer)
                finally:
                    worker.busy = False
                self.route(letters, worker.id)
                moved = True
        return moved


class VirtualWorker:
    """A worker in this process: an object store that runs torch operations for others.

    ``hook`` gives the network the worker joins (without one it starts its own). ``data`` are
    tensors it holds from the start.  ``pipelined`` makes it a queued worker.  ``user`` is on whose
    behalf this worker asks others for private values.  ``allow_plans`` says whether others may
    store plans here and run them.  Raises :class:`~syft.exceptions.WorkerIdTaken`.

    >>> alice = VirtualWorker(None, id="alice", data=[torch.ones(2), torch.zeros(3)])
    >>> alice
    <VirtualWorker id:alice #objects:2>
    """

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
    ) -> None:
        self.id = id
        self.network: VirtualNetwork = (
            VirtualNetwork() if hook is None else hook.local_worker.network
        )
        if id in self.network.workers:
            raise WorkerIdTaken(id)
        self.core: WorkerCore = WorkerCore(id, self.connection_to, limits, allow_plans)
        self.pipelined = pipelined
        self.is_client_worker = is_client_worker
        self.user = user
        self.inbox: deque[tuple[Frame, Peer]] = deque()
        self.busy = False
        self.closed = False
        self._peers: dict[tuple[str, str | None], Peer] = {}
        self._connections: dict[str, Connection] = {}
        self.network.workers[id] = self
        self.hold(*data)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} id:{self.id} #objects:{self.objects_count()}>"

    # ---------------------------------------------------------------------------- other workers

    def connection_to(self, worker: str | VirtualWorker) -> Connection:
        """This worker's line to another one (or to itself).

        >>> import torch, syft as sy
        >>> hook = sy.TorchHook(torch)
        >>> bob = sy.VirtualWorker(hook, id="bob")
        >>> hook.local_worker.connection_to("bob").location
        <VirtualWorker id:bob #objects:0>
        """
        name = worker if isinstance(worker, str) else worker.id
        connection = self._connections.get(name)
        if connection is None or connection.location.closed:
            if isinstance(worker, VirtualWorker) and worker.closed:
                raise WorkerClosed(worker.id)
            location = self.network.find(name, self.id)
            connection = self._connections[name] = Connection(self, location)
        return connection

    def forget_numbers_of(self, name: str) -> None:
        """Take it that the worker of that name has forgotten what was run there.

        >>> import torch, syft as sy
        >>> hook = sy.TorchHook(torch)
        >>> hook.local_worker.forget_numbers_of("bob")  # whether or not there is one
        """
        if name in self._connections:
            self._connections[name].calls.clear()

    def connections(self) -> list[Connection]:
        """This worker's lines to others that are open now.

        >>> import torch, syft as sy
        >>> hook = sy.TorchHook(torch)
        >>> bob = sy.VirtualWorker(hook, id="bob")
        >>> x = torch.tensor([1.0, 2.0]).send(bob)
        >>> [connection.location.id for connection in hook.local_worker.connections()]
        ['bob']
        """
        return list(self._connections.values())

    def peer_of(self, sender: VirtualWorker) -> Peer:
        """Who ``sender`` is to this worker, and for which user.

        What a worker asks others while it serves somebody, it asks for them: nobody may borrow the
        rights of a worker in between.

        >>> import torch, syft as sy
        >>> hook = sy.TorchHook(torch)
        >>> bob = sy.VirtualWorker(hook, id="bob")
        >>> bob.peer_of(hook.local_worker).name
        'me'
        """
        serving = sender.core.serving
        key = (sender.id, sender.user if serving is None else serving.user)
        peer = self._peers.get(key)
        if peer is None:
            peer = self._peers[key] = Peer(*key)
        return peer

    def enqueue(self, frame: Frame, peer: Peer) -> None:
        """Put a frame in the inbox of a queued worker. What it carries is copied now."""
        self.inbox.append((frame.owned(), peer))

    def withdraw(self, frame: Frame) -> None:
        """Take a frame back from the inbox: who sent it no longer waits, and it must not run."""
        kept = [letter for letter in self.inbox if letter[0].header is not frame.header]
        self.inbox = deque(kept)

    def add_worker(self, worker: VirtualWorker) -> VirtualWorker:
        """Make a worker of another network known here, under its id; returns this worker.

        >>> import torch, syft as sy
        >>> hook = sy.TorchHook(torch)
        >>> bob = sy.VirtualWorker(hook, id="bob")
        >>> dan = sy.VirtualWorker(None, id="dan")  # starts a network of its own
        >>> bob.add_worker(dan).get_worker("dan")
        <VirtualWorker id:dan #objects:0>
        """
        present = self.network.workers.setdefault(worker.id, worker)
        if present is not worker:
            raise WorkerIdTaken(worker.id)
        return self

    def add_workers(self, workers: Iterable[VirtualWorker]) -> VirtualWorker:
        """Make several workers known here.

        >>> import torch, syft as sy
        >>> hook = sy.TorchHook(torch)
        >>> bob = sy.VirtualWorker(hook, id="bob")
        >>> bob.add_workers([sy.VirtualWorker(None, id="dan")]).get_worker("dan")
        <VirtualWorker id:dan #objects:0>
        """
        for worker in workers:
            self.add_worker(worker)
        return self

    def get_worker(self, worker: str | VirtualWorker) -> VirtualWorker:
        """The worker of that id; raises :class:`~syft.exceptions.UnknownWorker`.

        >>> import torch, syft as sy
        >>> hook = sy.TorchHook(torch)
        >>> bob = sy.VirtualWorker(hook, id="bob")
        >>> hook.local_worker.get_worker("bob") is bob
        True
        """
        return worker if isinstance(worker, VirtualWorker) else self.network.find(worker, self.id)

    def close(self) -> None:
        """Leave the network and drop everything held. Later requests raise WorkerClosed.

        >>> import torch, syft as sy
        >>> hook = sy.TorchHook(torch)
        >>> bob = sy.VirtualWorker(hook, id="bob")
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
            self.network.run()  # what was sent before it left still counts, ids to drop above all
        self.inbox.clear()
        self._clear(f"worker {self.id} was closed")
        for connection in self.connections():
            if not connection.location.closed:
                connection.flush()
        self.closed = True
        self.pipelined = True  # so that no connection takes the direct way to it any more
        self.network.workers.pop(self.id, None)
        for worker in self.network.workers.values():
            worker.core.tables.pop(self.id, None)
        self._connections.clear()
        self._peers.clear()

    def _clear(self, reason: str) -> None:
        self.core.clear(reason)
        for worker in self.network.workers.values():  # they know no number here any more
            worker.forget_numbers_of(self.id)
        self.network.route(self.core.outgoing(), self.id)

    # ------------------------------------------------------------------------------ what it holds

    def hold(self, *tensors: torch.Tensor) -> list[int]:
        """Put tensors of the data owner into the store (no copy is made); returns their ids.

        >>> alice = VirtualWorker(None, id="alice")
        >>> len(alice.hold(torch.ones(2)))
        1
        """
        ids = []
        for tensor in tensors:
            if not isinstance(tensor, torch.Tensor):
                raise NotSendable(f"a value of type {type(tensor).__name__}", "hold tensors")
            id = new_id()
            self.core.hold(id, tensor)
            self.core.store.origins[id] = None
            ids.append(id)
        return ids

    @property
    def _objects(self) -> dict[int, torch.Tensor]:
        """Everything in the store, by id, as the data owner sees it."""
        self.collect()
        return dict(self.core.store.objects)

    @property
    def _tensors(self) -> dict[int, torch.Tensor]:
        """The same as ``_objects``: only tensors are held."""
        return self._objects

    def collect(self) -> None:
        """Bring in the ids of all dropped pointers, and let queued workers finish.

        What is dropped at one worker may be the last thing that held an object at another.

        >>> import torch, syft as sy
        >>> hook = sy.TorchHook(torch)
        >>> bob = sy.VirtualWorker(hook, id="bob")
        >>> x = torch.tensor([1.0, 2.0]).send(bob)
        >>> del x
        >>> bob.collect()
        >>> bob
        <VirtualWorker id:bob #objects:0>
        """
        while garbage := self._connections_with_garbage():
            for connection in garbage:
                connection.flush()
            self.network.run()
        self.network.run()

    def _connections_with_garbage(self) -> list[Connection]:
        workers = {id(worker): worker for worker in (self, *self.network.workers.values())}
        return [
            connection
            for worker in workers.values()
            for connection in worker.connections()
            if connection.garbage and not connection.location.closed
        ]

    def objects_count(self) -> int:
        """How many objects the worker holds.

        >>> VirtualWorker(None, id="alice").objects_count()
        0
        """
        return len(self._objects)

    def list_objects(self) -> list[int]:
        """The ids of the objects the worker holds.

        >>> import torch, syft as sy
        >>> hook = sy.TorchHook(torch)
        >>> bob = sy.VirtualWorker(hook, id="bob")
        >>> x = torch.tensor([1.0, 2.0]).send(bob)
        >>> bob.list_objects() == [x.id_at_location]
        True
        """
        return list(self._objects)

    def clear_objects(self, return_self: bool = True) -> VirtualWorker | None:
        """Drop every object; pointers to them say so when they are used.

        >>> import torch, syft as sy
        >>> hook = sy.TorchHook(torch)
        >>> bob = sy.VirtualWorker(hook, id="bob")
        >>> x = torch.tensor([1.0, 2.0]).send(bob)
        >>> bob.clear_objects()
        <VirtualWorker id:bob #objects:0>
        """
        self.collect()
        self._clear(f"worker {self.id} was cleared with clear_objects()")
        return self if return_self else None

    # ------------------------------------------------------------------------ asked from outside

    def _asker(self) -> VirtualWorker:
        """The worker on whose behalf the user's program speaks to this one."""
        if self.closed:
            raise WorkerClosed(self.id)
        return self.network.local

    def search(self, query: str | Iterable[str]) -> list[Any]:
        """Pointers to the objects that carry every word of ``query`` as a tag (or as their id).

        The pointers belong to the network's first worker (``sy.local_worker``) and, unlike others,
        do not delete what they point to when they are dropped.

        >>> import torch, syft as sy
        >>> hook = sy.TorchHook(torch)
        >>> bob = sy.VirtualWorker(hook, id="bob")
        >>> ids = bob.hold(torch.ones(2).tag("#digits", "#train"), torch.zeros(2).tag("#digits"))
        >>> len(bob.search("#digits")), [found.get() for found in bob.search(["#digits", "#train"])]
        (2, [tensor([1., 1.])])
        """
        asker = self._asker()
        return asker.request_search(query, location=self)

    def request_search(
        self, query: str | Iterable[str], location: str | VirtualWorker
    ) -> list[Any]:
        """Search another worker; as :meth:`search`, with this worker as the pointers' owner.

        >>> import torch, syft as sy
        >>> hook = sy.TorchHook(torch)
        >>> alice, bob = (sy.VirtualWorker(hook, id=name) for name in ("alice", "bob"))
        >>> ids = bob.hold(torch.ones(2).tag("#digits"))
        >>> [found.owner.id for found in alice.request_search("#digits", location=bob)]
        ['alice']
        """
        words = (query,) if isinstance(query, str) else tuple(str(word) for word in query)
        connection = self.connection_to(location)
        return [
            connection.found(id, tuple(card))
            for id, *card in connection.ask(messages.Search, words)
        ]

    def promise(self) -> torch.Tensor:
        """A pointer to an object that is still to come: operations on it wait until it is there.

        Keep the promise with ``x.send(worker, id=promise.child.id_at_location)``.

        >>> import torch, syft as sy
        >>> hook = sy.TorchHook(torch)
        >>> bob = sy.VirtualWorker(hook, id="bob")
        >>> x = bob.promise()
        >>> y = x + 1  # waits at bob
        >>> kept = torch.ones(2).send(bob, id=x.child.id_at_location)
        >>> y.get()
        tensor([2., 2.])
        """
        asker = self._asker()
        connection = asker.connection_to(self)
        pointer: torch.Tensor = connection.promise(new_id())
        return pointer

    def group(self) -> MessageGroup:
        """Hold back what is asked of this worker inside a ``with`` block, and send it in one
        message.

        A repeated group travels as a number and what differs from the last time.  Values and
        shapes may be asked for inside: then what is held goes first.  After an exception nothing
        is sent.  Groups of several workers may be open at once; one inside another of the same
        worker joins it.

        >>> import torch, syft as sy
        >>> hook = sy.TorchHook(torch)
        >>> bob = sy.VirtualWorker(hook, id="bob")
        >>> x = torch.tensor([1.0, 2.0]).send(bob)
        >>> with bob.group():
        ...     y = (x * 2 + 1).relu()
        >>> y.get()
        tensor([3., 5.])
        """
        return self._asker().connection_to(self).message_group()

    @property
    def stats(self) -> Stats:
        """How many messages and bytes reached this worker and left it, and how many of them were
        known already.

        >>> import torch, syft as sy
        >>> hook = sy.TorchHook(torch)
        >>> bob = sy.VirtualWorker(hook, id="bob")
        >>> x = torch.tensor([1.0, 2.0]).send(bob)
        >>> bob.stats.messages_in, bob.stats.messages_out
        (1, 1)
        """
        return self.core.stats

    @property
    def torch(self) -> RemoteNamespace:
        """Torch's functions, run at this worker: ``bob.torch.zeros(2, 3)`` gives a pointer.

        >>> import torch, syft as sy
        >>> hook = sy.TorchHook(torch)
        >>> bob = sy.VirtualWorker(hook, id="bob")
        >>> bob.torch.zeros(2).get()
        tensor([0., 0.])
        """
        asker = self._asker()
        return RemoteNamespace(asker.connection_to(self), "torch")


def _is_reply(frame: Frame) -> bool:
    try:
        return isinstance(messages.decode(frame.header), messages.Reply)
    except WireError:
        return False  # whom it is for will say what is wrong with it
