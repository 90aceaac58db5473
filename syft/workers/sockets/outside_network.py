"""The network of a worker that serves: whom a name means depends on who is served.

Two callers may call different workers by the same name.  So a name in a request is looked up among
those whom its caller has introduced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from syft.exceptions import UnknownWorker
from syft.workers.client.monitor import Monitor
from syft.workers.shells.network import Network

Lookup = Callable[[str], Any]


class OutsideNetwork(Network):
    """The workers that a serving worker reaches; ``lookup`` finds those of the present caller.

    >>> network = OutsideNetwork()
    >>> network.lookup = {"alice": "a worker"}.get
    >>> network.find("alice", "bob")
    'a worker'
    """

    lookup: Lookup

    def __init__(self) -> None:
        super().__init__()
        self.monitor = Monitor()  # its own: it is held by the thread that serves

    def find(self, name: Any, asked: str) -> Any:
        """The worker of that name; :class:`~syft.exceptions.UnknownWorker` if there is none."""
        if isinstance(name, str) and name not in self.workers:
            found = self.lookup(name)
            if found is not None:
                return found
            raise UnknownWorker(name, asked, ())
        return super().find(name, asked)
