"""What one caller may use of a worker: memory, places in its tables, and work an operation makes.

:class:`~syft.serde.limits.Limits` bounds one message.  A caller may send many small ones, each of
which leaves something behind, and a few bytes can ask for an operation that never ends.  So the
worker also counts by caller, which is by connection: whoever exceeds a limit gets
:class:`~syft.exceptions.LimitExceeded`, and nothing of the refused request is stored.  All others
go on.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PeerLimits:
    """The limits of one caller at a worker; the owner's own program has none.

    What a caller has counts from when it is stored until it is dropped, kept, run or ended.  The
    memory of autograd graphs and gradients is not counted.

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
    """Bytes of memory of these objects, shared memory once, and of what an operation will make."""
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
    executions: int = 256
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


DEFAULT_PEER_LIMITS = PeerLimits()
"""The limits where none are given."""


class Account:
    """What one caller has at a worker.

    >>> Account().objects
    0
    """

    __slots__ = ("objects", "bytes", "promises", "parked", "tags", "executions", "letters")

    def __init__(self) -> None:
        self.objects = self.bytes = self.promises = self.parked = self.tags = self.executions = 0
        self.letters = 0
