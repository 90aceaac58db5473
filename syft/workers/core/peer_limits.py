"""What one caller may use of a worker: memory, places in its tables, and work an operation makes.

:class:`~syft.serde.limits.Limits` bounds one message.  A caller may send many small ones, each of
which leaves something behind, and a few bytes can ask for an operation that never ends.  So the
worker also counts by caller, which is by connection, and where users have tokens by user
(:mod:`~syft.workers.sockets.admission`): whoever exceeds a limit gets
:class:`~syft.exceptions.LimitExceeded`, and nothing of the refused request is stored.  All others
go on.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

from syft.exceptions import LimitExceeded, UnusableSetting
from syft.workers.core.unseen_ids import UnseenIds

MAX_NESTED: Final = 16
"""The most requests of other workers that a worker handles inside one another."""
MAX_INSIDE: Final = 1 << 14
"""The most requests that it handles inside one of them."""


class Nesting:
    """The requests of one worker that are handled inside others.

    A worker that holds a pointer asks another worker, and that one may ask back.  A pointer to
    itself, or a chain of pointers that leads back, asks without end: two messages kept a worker
    busy until the stack of the interpreter was full.  Pointers to several such pointers ask more at
    each level.  So both are bounded: how many are on the stack, and how many below the first one.

    >>> nesting = Nesting("bob")
    >>> for _ in range(MAX_NESTED): nesting.enter()
    >>> nesting.enter()
    Traceback (most recent call last):
    ...
    syft.exceptions.LimitExceeded: Over a limit of worker 'bob' (a chain of pointers leads back to \
it): MAX_NESTED is 16, got 17. Drop what is not needed any more, ask for less at once, or ask the \
worker's owner for more.
    """

    __slots__ = ("_worker", "_depth", "_inside")

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._depth = 0
        self._inside = 0

    def enter(self) -> None:
        """Note a request that came while another one is handled; :meth:`leave` follows in any case.

        Raises :class:`~syft.exceptions.LimitExceeded` for one too many.
        """
        self._inside = self._inside + 1 if self._depth else 0
        self._depth += 1
        where = f"worker {self._worker!r} (a chain of pointers leads back to it)"
        if self._depth > MAX_NESTED:
            raise LimitExceeded(where, "MAX_NESTED", MAX_NESTED, self._depth)
        if self._inside > MAX_INSIDE:
            raise LimitExceeded(where, "MAX_INSIDE", MAX_INSIDE, self._inside)

    def leave(self) -> None:
        """Note that it has been handled."""
        self._depth -= 1


@dataclass(frozen=True, slots=True)
class PeerLimits:
    """The limits of one caller at a worker; the owner's own program has none.

    What a caller has counts from when it is stored until it is dropped, kept, run or ended; what a
    graph keeps until nothing leads to it.  A leaf counts with its gradient once a graph begins
    there.  Raises :class:`~syft.exceptions.UnusableSetting` for a limit that is not over 0.

    >>> bob = sy.VirtualWorker(hook, id="bob", peer_limits=PeerLimits(bytes=1000))
    >>> x = torch.ones(200).send(bob)
    >>> y = torch.ones(200).send(bob)
    Traceback (most recent call last):
    ...
    syft.exceptions.LimitExceeded: Over a limit of worker 'bob': peer_limits.bytes is 1000, got \
1600. Drop what is not needed any more, ask for less at once, or ask the worker's owner for more...
    """

    objects: int = 1 << 20
    """Objects in the store."""
    bytes: int = 1 << 34
    """Bytes of memory of these objects, their graphs and gradients, shared memory once, and of what
    an operation will make."""
    promises: int = 1 << 16
    """Promised ids: those that the caller promised, and the results of its parked operations."""
    parked: int = 1 << 14
    """Operations that wait for their inputs."""
    tags: int = 1 << 16
    """Tags that the caller put on objects, its own and those of others."""
    tags_per_object: int = 256
    """Tags of one object, whoever put them there."""
    text: int = 1 << 16
    """Characters of one tag, and of a description."""
    executions: int = 2048
    """Collective operations that are under way."""
    letters: int = 1 << 30
    """Bytes that the caller, as a party or provider of a collective operation, has sent ahead:
    what they are for has not begun here, or does not wait for them yet."""
    numbers: int = 1024
    """Numbers of a connection for what it runs repeatedly; the client uses up to 1024."""
    results: int = 1 << 16
    """Results of one operation."""
    elements: int = 1 << 32
    """Elements that one operation reads and makes, repeated ones of an expanded tensor included."""

    def __post_init__(self) -> None:
        for field in fields(self):
            number = getattr(self, field.name)
            if not number > 0:
                setting = f"peer_limits.{field.name}"
                raise UnusableSetting(setting, "a number over 0", repr(number))


DEFAULT_PEER_LIMITS = PeerLimits()
"""The limits where none are given."""


class Account:
    """What one caller has at a worker.

    >>> Account().objects
    0
    """

    __slots__ = (
        *("objects", "bytes", "promises", "parked", "tags", "executions", "letters", "unseen"),
        "__weakref__",
    )

    def __init__(self) -> None:
        self.objects = self.bytes = self.promises = self.parked = self.tags = self.executions = 0
        self.letters = 0
        self.unseen: UnseenIds | None = None
        """The ids of others' objects that the caller has named."""
