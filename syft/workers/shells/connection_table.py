"""The connections of one worker to others: one to each, however the worker is named or came in.

A name leads to a worker of the network.  A caller is reached back by the line its requests come
over: it may be known here by no name, and another worker may have its name.
"""

from __future__ import annotations

from typing import Any, Protocol

from syft.exceptions import WorkerClosed
from syft.serde.frame import Frame
from syft.workers.client.connection import Connection
from syft.workers.client.open_groups import Turn
from syft.workers.client.transport import Owner
from syft.workers.core.peer import Peer
from syft.workers.shells.network import Network
from syft.workers.shells.worker import Worker


class CallerLine(Protocol):
    """The serving end of one connection to a worker of this process."""

    @property
    def caller(self) -> Any:
        """The worker at the other end, for requests back to it."""

    def take(self, frame: Frame) -> None:
        """Carry a reply to the caller."""


class ConnectionTable:
    """The connections of ``owner`` that are open, and the lines of its ``callers``.

    >>> table = ConnectionTable(hook.local_worker, hook.local_worker.network)
    >>> table.to(bob) is table.to(hook.local_worker.get_worker("bob"))
    True
    """

    def __init__(self, owner: Owner, network: Network) -> None:
        self.callers: dict[Peer, CallerLine] = {}
        """The peers that send requests to the owner, each with the line for its replies."""
        self._owner = owner
        self._network = network
        self._turns: dict[str, Turn] = {}
        self.open: dict[Worker, Connection] = {}
        """Those that may be closed by now, too."""

    def to(self, location: Worker) -> Connection:
        """The connection to a worker of the network.

        Raises :class:`~syft.exceptions.WorkerClosed`, :class:`~syft.exceptions.UnknownWorker` for a
        worker that is not in the network, and :class:`~syft.exceptions.WorkerIdTaken` if another
        one has its name there.
        """
        connection = self.open.get(location)
        if connection is not None and not connection.transport.closed:
            return connection
        if location.closed:
            raise WorkerClosed(location.id)
        location.check_known(self._network, self._owner.id)
        return self._connect(location)

    def back_to(self, peer: Peer) -> Connection:
        """The connection to the worker whose requests come from ``peer``.

        Raises :class:`~syft.exceptions.WorkerClosed` if that worker closed the line.
        """
        line = self.callers.get(peer)
        if line is None:
            raise WorkerClosed(peer.name)
        caller: Worker = line.caller
        return self.open.get(caller) or self._connect(caller)

    def _connect(self, location: Worker) -> Connection:
        """A new connection, in the place of one to an earlier worker of that name."""
        for former in [known for known in self.open if known.id == location.id]:
            if former.closed:
                del self.open[former]
        transport = location.transport_for(self._owner)
        owner = location.caller_for(self._owner)
        connection = Connection(owner, location, transport, owner.connection_to)
        mine: Any = self._network.local  # whoever serves holds nothing back
        if location.is_lazy and mine is self._owner:
            connection.groups.hold_always(self._turns.setdefault(location.id, Turn()))
        self.open[location] = connection
        return connection

    def opened(self) -> list[Connection]:
        """Every connection.

        >>> x = torch.ones(2).send(bob)
        >>> [connection.location.id for connection in hook.local_worker.connections()]
        ['bob']
        """
        return list(self.open.values())

    def close(self) -> None:
        """Send what is left to send on each connection, and close it; forget the callers."""
        for connection in self.opened():
            if not connection.transport.closed:
                connection.flush()
                connection.transport.close()
        self.open.clear()
        self.callers.clear()
