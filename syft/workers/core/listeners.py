"""Who is to be told when a promise is kept, or will not be kept any more.

A request that asks this (``Await``) waits for no turn and is no parked operation, so it is listed
here and not among those.  It is listed under the connection that made it and its number there: the
caller may take it back, and cannot have any number of them listed with a few bytes each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from syft.exceptions import LimitExceeded

Listener = Callable[[], None]

MOST_LISTENERS: Final = 8
"""How often one connection may ask about the same promise while it is open."""


class Listeners:
    """What to call when a promise ends, by its id and by the request that asked.

    >>> listeners = Listeners()
    >>> listeners.add(5, "a connection", 1, lambda: print("told"))
    >>> listeners.add(5, "a connection", 2, lambda: print("told again"))
    >>> listeners.remove("a connection", 2); len(listeners)
    1
    >>> listeners.call(5); len(listeners)
    told
    0
    """

    __slots__ = ("_ids", "_by_id")

    def __init__(self) -> None:
        self._ids: dict[tuple[object, int], int] = {}
        self._by_id: dict[int, dict[object, dict[int, Listener]]] = {}

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, id: int, session: object, request: int, listener: Listener) -> None:
        """Have ``listener`` called once, when the promise of ``id`` ends.

        Raises :class:`~syft.exceptions.LimitExceeded` if the session has ``MOST_LISTENERS`` for it.
        """
        self.remove(session, request)  # a number that is used again stands for the new request
        mine = self._by_id.setdefault(id, {}).setdefault(session, {})
        if len(mine) >= MOST_LISTENERS:
            raise LimitExceeded("$.id", "MOST_LISTENERS", MOST_LISTENERS, len(mine) + 1)
        mine[request] = listener
        self._ids[session, request] = id

    def remove(self, session: object, request: int) -> None:
        """Forget the listener of a request, if there is one."""
        id = self._ids.pop((session, request), None)
        if id is None:
            return
        sessions = self._by_id[id]
        del sessions[session][request]
        if not sessions[session]:
            del sessions[session]
        if not sessions:
            del self._by_id[id]

    def call(self, id: int) -> None:
        """Call the listeners of a promise that has ended, and forget them."""
        for session, requests in self._by_id.pop(id, {}).items():
            for request in requests:
                del self._ids[session, request]
            for listener in requests.values():
                listener()
