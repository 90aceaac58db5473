"""The worker at the other end, as a caller knows it: a transport, and no class of worker.

A :class:`Connection` makes requests and reads replies; a :class:`Transport` carries their frames.
Workers in this process, in another process and behind a socket differ in their transport only.
Whatever the caller learns of the other end comes in a reply.

Who calls what, and when:

- A connection calls :meth:`Transport.deliver` for each request.  The request has been handed over
  when the call returns; data that it refers to has been copied or sent.  A transport whose worker
  answers within the call may have ``exchange`` too, which returns the reply.
- Other replies collect in ``replies``, in the order in which the worker sent them.  The connection
  takes them from there when it makes its next request, or waits.
- It calls :meth:`Transport.advance` while it waits for a reply.  That lets workers of this process
  work, or reads from the network, first of all what the worker at the other end needs.  The caller
  says whether its request is ``parked``; any other is certain to be answered.  False means that
  nothing is under way which could bring a reply, so the connection stops waiting.
- A request that got the reply ``Parked`` is answered later.  A connection that stops waiting for
  one calls :meth:`Transport.withdraw`, and sends ``Cancel`` if that came too late.
- The ids of dropped pointers go along with the next request.  A shell that serves or waits calls
  ``Connection.flush`` when a line has nothing else to carry, so that an idle caller keeps no object
  of another worker alive.  :meth:`Transport.is_idle` says that this can be done at once.  A program
  without a loop never comes to it: there :meth:`Transport.flush_soon` starts a timer
  (:mod:`syft.workers.shells.drop_timer`), which calls ``Garbage.flush_idle``.
- It calls :meth:`Transport.speak_for` before the first request that is made for another user.  The
  serving shell vouches for the user, or refuses.
- It calls :meth:`Transport.prove` before a request that names a user by itself (``get(user=…)``):
  the worker believes that name only if the shell vouches for it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NoReturn, Protocol

from syft.exceptions import UnsupportedOperation, WorkerClosed
from syft.serde.frame import Frame
from syft.workers.client.monitor import Monitor
from syft.workers.core.state_machine import WorkerCore

BATCH = 64
"""How many messages a queued worker may handle at once where nobody counts them: on the way to the
last one of several."""


class Location(Protocol):
    """The worker at the other end, as users name it."""

    @property
    def id(self) -> str:
        """Its name in this process."""

    @property
    def closed(self) -> bool:
        """Whether it has left."""

    def caller_for(self, owner: Owner) -> Owner:
        """By whom it is asked, if a program of ``owner`` asks it."""


class Owner(Protocol):
    """The worker that a connection belongs to: the one that calls."""

    id: str
    user: str | None
    core: WorkerCore

    def get_worker(self, worker: Any) -> Any:
        """The worker of that name or, unchanged, the worker itself."""

    def connection_to(self, worker: Any) -> Any:
        """The owner's connection to a worker, given by itself or by its name."""

    def connections(self) -> list[Any]:
        """The owner's connections that are open."""


class Transport(ABC):
    """Carries the requests of one connection to its worker, and the replies back. Abstract.

    ``queued`` says that a request has not run when :meth:`deliver` returns, so that nobody should
    wait for each one.  ``closed`` says that the worker is gone or the line is cut.  A thread is
    inside ``monitor`` while it makes requests and takes replies, and leaves it while it waits for
    another process.

    Three things are a transport: whether it is ``closed``, :meth:`deliver` and :meth:`advance`.
    What else there is has a default, for those that can do more.

    >>> sorted(Transport.__abstractmethods__)
    ['advance', 'closed', 'deliver']
    """

    queued: bool = False

    overtakes: bool = False
    """Whether another worker's request may reach the worker before what was delivered here."""

    collects: bool = True
    """Whether something may have come that :meth:`collect` takes in."""

    exchange: Callable[[Frame], Frame] | None = None
    """Delivers a request to a worker that answers within the call, and returns the reply."""

    def __init__(self, monitor: Monitor) -> None:
        self.monitor = monitor
        self.replies: deque[Frame] = deque()
        """Replies that came and were not read yet."""

    @property
    @abstractmethod
    def closed(self) -> bool:
        """Whether no request can be delivered any more."""

    def speak_for(self, user: str | None) -> None:
        """Make the requests that follow for ``user``, if the other end knows of users."""
        return

    def prove(self, user: str) -> None:
        """Have the other end believe that requests may be made for ``user``.

        Nothing has to be proved within one program.
        """
        return

    @abstractmethod
    def deliver(self, frame: Frame) -> None:
        """Deliver a request without waiting for its reply.

        Raises :class:`~syft.exceptions.WorkerClosed`.
        """

    def check_there(self) -> None:
        """Raise :class:`~syft.exceptions.WorkerClosed` if nothing can come any more, because the
        connection is lost and cannot be made again: asked by whoever waits without blocking."""
        return

    @abstractmethod
    def advance(self, parked: bool = True, block: bool = True, most: int = 1) -> bool:
        """Let something happen that may bring a reply; False if there is nothing.

        ``parked`` says that the request in question waits for promised objects.  Without ``block``
        it returns at once when nothing is there to be done now.  A worker of this process may
        handle ``most`` of the messages it has: all of them come before the one that is waited for.
        """

    def limited(self) -> AbstractContextManager[None]:
        """A context in which a wait of this thread ends after the seconds that it may last."""
        return nullcontext()

    def collect(self) -> None:
        """Take in what the worker has sent, if anything is there; nobody works meanwhile.

        There is nothing to do where replies are there as soon as they are sent.
        """
        return

    def withdraw(self, frame: Frame) -> bool:
        """Take back a request that the worker has not read; False if it is too late for that."""
        return False

    def withdraw_all(self) -> int:
        """Have the worker leave out what it has not begun, and answer that with ``NotBegun``;
        returns how many requests that were."""
        return 0

    def gone(self, worker: str) -> WorkerClosed:
        """Why no request can be delivered any more to the worker of that name.

        >>> bob.transport_for(hook.local_worker).gone("bob")
        WorkerClosed('bob')
        """
        return WorkerClosed(worker)

    def is_idle(self) -> bool:
        """Whether a request could be handled now without delaying or overtaking another one.

        Only a queued worker in this process answers yes.
        """
        return False

    def flush_soon(self) -> None:
        """Have ``Garbage.flush_idle`` called soon: a pointer died while the worker was not idle.

        It is called at any line of any thread, and must not wait.  A shell whose loop sends what is
        left needs nothing.
        """
        return

    def close(self) -> None:
        """Tell the other end that this connection makes no more requests, if it is to know."""
        return


def refuse_tracing() -> NoReturn:
    """Raise for a request that is made while ``torch.jit.trace`` records: it would keep what the
    worker computes, or what comes back from it, as constants.

    Raises :class:`~syft.exceptions.UnsupportedOperation`.

    >>> refuse_tracing()
    Traceback (most recent call last):
    ...
    syft.exceptions.UnsupportedOperation: what is at a worker has no rule for torch.jit.trace: ...
    """
    instead = "make a plan of it, sy.func2plan()(model), or get() it first"
    raise UnsupportedOperation("torch.jit.trace", "what is at a worker", instead)
