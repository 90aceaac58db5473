"""What a caller knows of the worker at the other end: a transport, and no class of worker.

A :class:`Connection` makes requests and reads replies; a :class:`Transport` carries their frames.
Workers in this process, in another process and behind a socket differ in their transport only.
Whatever the caller learns of the other end comes in a reply.

Who calls what, and when:

- A connection calls :meth:`Transport.exchange` for a request to a worker that is not ``queued``.
  It returns the next reply; the connection reads ``replies`` on if that was to an earlier request.
- It calls :meth:`Transport.deliver` for a request to a queued worker, and for one whose reply it
  does not wait for.  The request has been handed over when the call returns; data that it refers
  to has been copied or sent.
- Replies that nobody waits for collect in ``replies``, in the order in which the worker sent them.
  The connection takes them from there when it makes its next request, or waits.
- It calls :meth:`Transport.advance` while it waits for a reply.  That lets workers of this process
  work, or reads from the network, first of all what the worker at the other end needs.  False means
  that nothing is under way which could bring a reply, so the connection stops waiting.
- A request that got the reply ``Parked`` is answered later.  A connection that stops waiting for
  one calls :meth:`Transport.withdraw`, and sends ``Cancel`` if that came too late.
- It calls :meth:`Transport.speak_for` before the first request that is made for another user.  The
  serving shell vouches for the user, or refuses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from typing import Any, Protocol

from syft.serde.frame import Frame
from syft.workers.core.state_machine import WorkerCore


class Location(Protocol):
    """The worker at the other end, as users name it."""

    id: str
    closed: bool


class Owner(Protocol):
    """The worker that a connection belongs to: the one that calls."""

    id: str
    user: str | None
    core: WorkerCore

    def get_worker(self, worker: Any) -> Any:
        """The worker of that name or, unchanged, the worker itself."""

    def connection_to(self, worker: Any) -> Any:
        """The owner's connection to a worker, given by itself or by its name."""


class Transport(ABC):
    """Carries the requests of one connection to its worker, and the replies back. Abstract.

    ``queued`` says that a request has not run when :meth:`deliver` returns, so that nobody should
    wait for each one.  ``closed`` says that the worker is gone or the line is cut.

    >>> sorted(Transport.__abstractmethods__)
    ['advance', 'close', 'closed', 'deliver', 'exchange', 'speak_for', 'withdraw']
    """

    queued: bool = False

    def __init__(self) -> None:
        self.replies: deque[Frame] = deque()
        """Replies that came and were not read yet."""

    @property
    @abstractmethod
    def closed(self) -> bool:
        """Whether no request can be delivered any more."""

    @abstractmethod
    def speak_for(self, user: str | None) -> None:
        """Make the requests that follow for ``user``."""

    @abstractmethod
    def exchange(self, frame: Frame) -> Frame:
        """Deliver a request, and return the next reply that comes.

        Raises :class:`~syft.exceptions.WorkerClosed`.
        """

    @abstractmethod
    def deliver(self, frame: Frame) -> None:
        """Deliver a request without waiting for its reply.

        Raises :class:`~syft.exceptions.WorkerClosed`.
        """

    @abstractmethod
    def advance(self, block: bool = True) -> bool:
        """Let something happen that may bring a reply; False if there is nothing.

        Without ``block`` it returns at once when nothing is there to be done now.
        """

    @abstractmethod
    def withdraw(self, frame: Frame) -> bool:
        """Take back a request that the worker has not read; False if it is too late for that."""

    @abstractmethod
    def close(self) -> None:
        """Tell the other end that this connection makes no more requests."""
