"""The workers known to this process, and the frames in transit between those that run in it."""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from syft.exceptions import UnknownWorker, UnusableSetting, WorkerClosed
from syft.serde.frame import Frame
from syft.workers.client.connection import Connection
from syft.workers.client.monitor import Monitor, exclusive
from syft.workers.client.transport import BATCH
from syft.workers.core.peer import Peer
from syft.workers.core.state_machine import AddressedFrame, WorkerCore
from syft.workers.execution.operation import neutral_mode

Observer = Callable[[str, str, Frame], None]
"""Called with the names of sender and receiver, and a frame."""


class Member(Protocol):
    """A worker of a network, in this process or another."""

    id: str

    announces: bool
    """Whether it puts itself into ``Network.mail`` when a message is queued for it."""

    def work(self, most: int = 1) -> bool:
        """Handle one message queued for the worker in this process, or up to ``most``; False if
        there is none."""


class Host(Member, Protocol):
    """A worker that runs in this process: it serves requests and sends its own."""

    core: WorkerCore

    def connection_to(self, worker: Any) -> Connection:
        """This worker's connection to another one, by name."""

    def connections(self) -> list[Connection]:
        """This worker's connections that are open now."""

    def reply(self, peer: Peer, frame: Frame) -> None:
        """Hand a reply to the connection of ``peer``."""


class Directory(dict[str, Any]):
    """The workers of a network by name, and which of them have to be asked for work.

    >>> Directory({"bob": bob}).asked_for_work()
    []
    """

    _asked: list[Any] | None = None

    def __setitem__(self, name: str, worker: Any) -> None:
        self._asked = None
        super().__setitem__(name, worker)

    def __delitem__(self, name: str) -> None:
        self._asked = None
        super().__delitem__(name)

    def asked_for_work(self) -> list[Any]:
        """The workers that do not announce it when a message is queued for them."""
        if self._asked is None:
            self._asked = [worker for worker in self.values() if not worker.announces]
        return self._asked


class Network:
    """The workers that know each other in one process, and observers of every message.

    >>> list(bob.network.workers), bob.network.local.id
    (['me', 'bob'], 'me')
    """

    monitor: Monitor = Monitor()
    """What a thread holds while it uses a network and its workers: all networks of a process have
    one, since workers may be in several, but for those of workers that serve others."""

    def __init__(self) -> None:
        self.workers = Directory()
        """Every known worker, by its name in this process."""
        self.hosts: dict[str, Host] = {}
        """The workers that run in this process."""
        self.mail: dict[Any, None] = {}
        """The workers with queued messages, among those that announce them."""
        self.observers: list[Observer] = []
        self.lines: Any = None
        """The lines to workers of other processes, once there was one."""
        self._in_transit: deque[tuple[Host, Peer | str, Frame]] = deque()
        self._carrying = False

    @property
    def lock(self) -> Any:
        """That of the monitor."""
        return self.monitor.lock

    @property
    def local(self) -> Host:
        """The worker that sends the requests of the user's program: the first one that joined."""
        return next(iter(self.hosts.values()))

    def find(self, name: Any, asked: str) -> Any:
        """The worker of that name; :class:`~syft.exceptions.UnknownWorker` if there is none, and
        :class:`~syft.exceptions.UnusableSetting` for what is no name."""
        if not isinstance(name, (str, int)):
            several = ": name them one by one" if isinstance(name, (list, tuple)) else ""
            got = f"a {type(name).__name__}{several}"
            raise UnusableSetting("a worker", "a worker or its name", got)
        if name in self.workers:
            return self.workers[name]  # type: ignore[index]  # an id may be a number
        others = tuple(sorted(str(each) for each in self.workers if each != asked))
        raise UnknownWorker(str(name), asked, others)

    def observe(self, sender: str, receiver: str, frame: Frame) -> None:
        """Show one frame to every observer."""
        for observer in self.observers:
            observer(sender, receiver, frame)

    @exclusive
    def carry(self, letters: Iterable[AddressedFrame], sender: Host) -> None:
        """Deliver the frames of a worker, and those they cause, until none is in transit.

        Frames for queued workers stay in their inboxes.
        """
        letters = list(letters)
        if len(letters) == 1 and self.is_quiet():  # nearly always
            ((to, frame),) = letters
            if isinstance(to, Peer):
                sender.reply(to, frame)
                return
        self._in_transit.extend((sender, to, frame) for to, frame in letters)
        if self._carrying:
            return  # the running call delivers these too: no recursion
        self._carrying = True
        try:
            with neutral_mode():  # what lies in an inbox is copied
                while self._in_transit:
                    self._carry_one()
        finally:
            self._carrying = False

    def is_quiet(self) -> bool:
        """Whether no frame is in transit, so that a reply may be handed over at once.

        >>> bob.network.is_quiet()
        True
        """
        return not (self._in_transit or self._carrying)

    def _carry_one(self) -> None:
        sender, to, frame = self._in_transit.popleft()
        if isinstance(to, Peer):
            sender.reply(to, frame)
            return
        try:
            sender.connection_to(to).requests.forward(frame)
        except (UnknownWorker, WorkerClosed) as error:  # it has left: its frames are lost
            name = to if isinstance(to, str) else to.id
            sender.core.lose(name, getattr(error, "reason", "it has left"))
            letters = sender.core.outgoing()
            self._in_transit.extend((sender, other, letter) for other, letter in letters)

    @exclusive
    def lose(self, name: str, reason: str) -> None:
        """Fail what the workers of this process do together with one that is gone for good.

        >>> bob.network.lose("carl", "its process has ended")
        """
        for host in list(self.hosts.values()):
            host.core.lose(name, reason)
            self.carry(host.core.outgoing(), host)

    @exclusive
    def step(self, most: int = 1) -> bool:
        """Let every worker of this process handle one message; False if there was none.

        A worker that is the only one with messages may handle ``most`` of them.

        Workers without messages cost nothing, however many there are.
        """
        if self._in_transit:  # a handler may wait for one of these frames
            self._carry_one()
            return True
        workers = (*self.mail, *self.workers.asked_for_work())
        most = most if len(workers) == 1 else 1
        worked = [worker.work(most) for worker in workers]
        for worker in [worker for worker in self.mail if not worker.inbox]:
            del self.mail[worker]
        return any(worked)

    def run(self) -> None:
        """Let all workers of this process work until no message is queued."""
        while self.step(BATCH):
            pass

    @exclusive
    def flush(self) -> bool:
        """Send the ids of dropped pointers, and what lazy connections hold, on every connection
        that has some; whether any had.

        Shells of other processes call this when they are idle.
        """
        garbage = []
        for host in list(self.hosts.values()):
            for connection in host.connections():
                holds = connection.garbage.ids or connection.groups.held
                if holds and not connection.transport.closed:
                    garbage.append(connection)
        for connection in garbage:
            connection.flush()
        return bool(garbage)

    @exclusive
    def flush_idle(self) -> None:
        """The same for a timer, whose thread may find the others in the middle of anything.

        >>> x = torch.ones(2).send(bob)
        >>> del x
        >>> bob.network.flush_idle()
        >>> len(bob.core.store)
        0
        """
        for host in list(self.hosts.values()):
            for connection in host.connections():
                with contextlib.suppress(WorkerClosed):
                    connection.groups.send_if_quiet()
                    connection.garbage.flush_idle()


# A forked process has one thread: the others must not be in the middle of anything then.
os.register_at_fork(
    before=Network.monitor.lock.acquire,
    after_in_parent=Network.monitor.lock.release,
    after_in_child=Network.monitor.lock.release,
)
