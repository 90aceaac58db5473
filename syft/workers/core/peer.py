"""Who sends requests to a worker, and what the worker remembers of the connection they come over.

A worker tells its callers apart by their connection, never by the name they give themselves: two
programs that both call themselves ``me`` may ask the same worker.
"""

from __future__ import annotations

from syft.workers.wire.numbering import Table


class Session:
    """What a worker remembers of one connection to it.

    >>> Session().failures
    0
    """

    __slots__ = ("failures", "numbers")

    def __init__(self) -> None:
        self.failures = 0
        """How many failures were sent over the connection."""
        self.numbers: Table | None = None
        """What the numbers stand for that the caller has used."""


class Peer:
    """Somebody who sends requests over one connection: their name, and the user they act for.

    The shell vouches for both.  Peers of one connection that act for different users share its
    ``session``.

    >>> ann = Peer("me", "ann")
    >>> ann.dropped
    'me dropped its last pointer to it'
    """

    __slots__ = ("name", "user", "session", "dropped", "fetched", "__weakref__")

    def __init__(self, name: str, user: str | None = None, session: Session | None = None) -> None:
        self.name = name
        self.user = user
        self.session = Session() if session is None else session
        self.dropped = f"{name} dropped its last pointer to it"
        """What stands on the tombstone of an object to which nobody there points any more."""
        self.fetched = f"{name} fetched it with get()"
        """What stands on the tombstone of an object that was handed over to them."""
