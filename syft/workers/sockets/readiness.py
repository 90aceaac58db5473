"""Which of many sockets can be read or written: epoll where the system has it.

An end that expects something soon looks for it again and again, for a moment, before it sleeps: to
wake a thread that sleeps takes the system longer than a small request takes a worker, and each end
of a line sleeps once for each answer.  It gives way to whoever else wants its core.  On one core
there is nothing to gain.

The ``selectors`` of the standard library look each event up, and make a list and a tuple of it, in
some Python functions; that takes longer than the system call.  A worker waits once for each
request, so it asks epoll itself.  Systems without it have ``selectors``, in the same shape.
"""

from __future__ import annotations

import contextlib
import functools
import os
import select
import selectors
import time
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

READ: Final = selectors.EVENT_READ
WRITE: Final = selectors.EVENT_WRITE
_NOBODY: Final = (None, 0)

Found = TypeVar("Found")

MOMENT: Final = 60e-6
"""Seconds that an end looks: as long as an answer to a small request takes."""


def give_way() -> Callable[[], Any] | None:
    """What lets others have the core for now; None where that is not to be had, or there is only
    one core, so that looking keeps the other end from working."""
    cores = getattr(os, "sched_getaffinity", lambda process: ())(0)
    return getattr(os, "sched_yield", None) if len(cores) > 1 else None


def look(glance: Callable[[], Found], gives_way: Callable[[], Any]) -> Found:
    """Call ``glance`` until it finds something, but for a :data:`MOMENT` at most; returns what it
    found last.

    >>> look(lambda: "something", lambda: None)
    'something'
    >>> look(lambda: "", lambda: None)
    ''
    """
    until = time.perf_counter() + MOMENT
    while not (found := glance()) and time.perf_counter() < until:
        gives_way()
    return found


class Readiness(Protocol):
    """Watches sockets, which it knows by number, each for somebody who is told of them."""

    def watch(self, number: int, events: int, owner: Any) -> None:
        """Tell ``owner`` of these events of a socket, and of no others."""

    def forget(self, number: int) -> None:
        """Tell nobody of a socket, which may be closed or unknown."""

    def wait(self, seconds: float, soon: bool = False) -> list[tuple[Any, int]]:
        """What has happened, or happens within so many seconds: owners and events.

        ``soon`` says that something is expected, so it is looked for before this thread sleeps.
        """

    def close(self) -> None:
        """Forget everything."""


class Epoll:
    """Watches sockets with Linux's epoll.

    >>> import socket
    >>> end, other = socket.socketpair()
    >>> watched = Epoll()
    >>> watched.watch(end.fileno(), READ, "end")
    >>> other.send(b"a"), watched.wait(1.0)
    (1, [('end', 1)])
    >>> watched.forget(end.fileno()), watched.wait(0)
    (None, [])
    >>> watched.close(), end.close(), other.close()
    (None, None, None)
    """

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._gives_way = give_way()
        self._owners: dict[int, tuple[Any, int]] = {}

    def watch(self, number: int, events: int, owner: Any) -> None:
        """See :meth:`Readiness.watch`."""
        self._owners[number] = owner, events
        wanted = select.EPOLLIN if events & READ else 0
        wanted |= select.EPOLLOUT if events & WRITE else 0
        try:
            self._epoll.modify(number, wanted)
        except FileNotFoundError:
            self._epoll.register(number, wanted)

    def forget(self, number: int) -> None:
        """See :meth:`Readiness.forget`."""
        if self._owners.pop(number, None) is not None:
            with contextlib.suppress(OSError):  # Linux forgets what is closed
                self._epoll.unregister(number)

    def wait(self, seconds: float, soon: bool = False) -> list[tuple[Any, int]]:
        """See :meth:`Readiness.wait`; an error, or the end, is told as what is looked for."""
        ready: list[tuple[Any, int]] = []
        happened = []
        if soon and self._gives_way is not None:
            happened = look(functools.partial(self._epoll.poll, 0), self._gives_way)
        for number, event in happened or self._epoll.poll(seconds):
            owner, events = self._owners.get(number, _NOBODY)
            if event == select.EPOLLIN and events & READ:  # nearly always
                ready.append((owner, READ))
            elif events:
                told = READ if event & ~select.EPOLLOUT else 0
                told |= WRITE if event & ~select.EPOLLIN else 0
                ready.append((owner, told & events))
        return ready

    def close(self) -> None:
        """See :meth:`Readiness.close`."""
        self._epoll.close()
        self._owners.clear()


class Selectors:
    """Watches sockets with what the standard library finds; the same as :class:`Epoll` otherwise.

    >>> watched = Selectors()
    >>> watched.wait(0), watched.close()
    ([], None)
    """

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def watch(self, number: int, events: int, owner: Any) -> None:
        """See :meth:`Readiness.watch`."""
        self.forget(number)
        self._selector.register(number, events, owner)

    def forget(self, number: int) -> None:
        """See :meth:`Readiness.forget`."""
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(number)

    def wait(self, seconds: float, soon: bool = False) -> list[tuple[Any, int]]:
        """See :meth:`Readiness.wait`; these systems are not looked at first."""
        return [(key.data, event) for key, event in self._selector.select(seconds)]

    def close(self) -> None:
        """See :meth:`Readiness.close`."""
        self._selector.close()


def readiness() -> Readiness:
    """The fastest of these that the system has."""
    return Epoll() if callable(getattr(select, "epoll", None)) else Selectors()
