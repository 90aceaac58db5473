"""A worker in a child process, over a socket pair: a shell that only the tests have.

It shows that nothing but a transport stands between a connection and a worker.
"""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import torch

import syft as sy
from syft.exceptions import WorkerClosed, WorkerIdTaken
from syft.serde.frame import Frame
from syft.torch_private import tracing_state
from syft.workers.client.transport import Owner, Transport, refuse_tracing
from syft.workers.shells.worker import Worker
from tests.shells.hub import Hub, send_frame
from tests.shells.link import Link
from tests.shells.owner import ACTIONS, OwnersSide
from tests.shells.processes import ChildProcesses
from tests.shells.served import ServedWorker


class SocketTransport(Transport):
    """The line from a worker of this process to one behind a link."""

    def __init__(self, hub: Hub, caller: Owner, worker: RemoteWorker) -> None:
        super().__init__(hub.monitor)
        self.hub, self.caller, self.worker = hub, caller, worker
        self.queued, self.user = worker.pipelined, None
        self.names = caller.id, worker.id
        known = [number for one, other, number in hub.transports if (one, other) == self.names]
        self.number = max(known, default=0) + 1
        hub.transports[*self.names, self.number] = self

    @property
    def closed(self) -> bool:
        return self.worker.closed or self.worker.link.closed

    def speak_for(self, user: str | None) -> None:
        self.user = user

    def deliver(self, frame: Frame) -> None:
        if self.closed:
            raise WorkerClosed(self.worker.id)
        if tracing_state() is not None:
            refuse_tracing()
        extra = self.number, self.user
        send_frame(self.hub, self.worker.link, "request", *self.names, extra, frame)

    def take(self, frame: Frame) -> None:
        """Keep a reply until the connection reads it."""
        self.hub.observe(self.worker.id, self.caller.id, frame)
        self.replies.append(frame)

    def advance(self, parked: bool = True, block: bool = True, most: int = 1) -> bool:
        wait = block and not parked and not self.closed
        return self.hub.turn(wait) or (not self.closed and (wait or self.hub.step()))

    def collect(self) -> None:
        self.hub.turn(False)

    def withdraw(self, frame: Frame) -> bool:
        return False

    def flush_soon(self) -> None:
        if self.hub.timer is not None:
            self.hub.timer.start()

    def close(self) -> None:
        self.hub.transports.pop((*self.names, self.number), None)


class RemoteWorker(Worker):
    """A worker behind a link, as this process sees it."""

    def __init__(self, hub: Hub, id: str, link: Link, pipelined: bool = False) -> None:
        self.id, self.network, self.link, self.pipelined = id, hub, link, pipelined
        self.hub = hub

    def transport_for(self, caller: Owner) -> SocketTransport:
        return SocketTransport(self.hub, caller, self)

    def work(self, most: int = 1) -> bool:
        return not self.closed and self.hub.settle()

    def close(self) -> None:
        self.closed = True


class ChildWorker(OwnersSide, RemoteWorker):
    """A worker in a process of its own; ``hook`` comes from :func:`hook_with_hub`."""

    def __init__(self, hook: sy.TorchHook, id: str, pipelined: bool = False) -> None:
        hub: Any = hook.local_worker.network
        if id in hub.workers:
            raise WorkerIdTaken(id)
        self.child = hub.processes.take()
        super().__init__(hub, id, self.child.link, pipelined)
        self.process = self.child.process
        hub.links[id], hub.workers[id] = self.link, self
        self.act("open")

    def close(self) -> None:
        if not self.closed:
            self.hub.run()  # what was asked of it before still counts
            if not self.link.closed:
                self.act("gone")  # it frees what it has pointers to
            self.closed = True
            del self.hub.links[self.id], self.hub.workers[self.id]
            for link in list(self.hub.links.values()):
                with contextlib.suppress(WorkerClosed):
                    self.hub.call(link, "gone", self.id)
            self.hub.processes.give_back(self.child)


def hook_with_hub(processes: ChildProcesses) -> sy.TorchHook:
    """A hook whose local worker can have workers in child processes."""
    hub = Hub(ACTIONS, RemoteWorker, processes=processes)
    member: Any = SimpleNamespace(local_worker=SimpleNamespace(network=hub))
    return sy.TorchHook(torch, local_worker=sy.VirtualWorker(member, id="me"))


def make_worker(hook: sy.TorchHook, id: str, pipelined: bool = False) -> Any:
    """A worker of the shell that the hook is for."""
    kind: Any = sy.VirtualWorker
    if isinstance(hook.local_worker.network, Hub):
        kind = ChildWorker
    elif hasattr(hook.local_worker.network, "served"):
        kind = ServedWorker
    return kind(hook, id=id, pipelined=pipelined)


def goes_on_by_itself(worker: Any) -> bool:
    """Whether a queued worker works while this process does nothing for it."""
    return isinstance(worker, ServedWorker)


def serve(link: Link) -> None:
    """Serve one worker, in a child process, until the link is closed."""
    hub = Hub(ACTIONS, RemoteWorker, link)
    with contextlib.suppress(WorkerClosed):  # what still waits then ends so
        while not link.closed:
            hub.flush()
            hub.turn()
