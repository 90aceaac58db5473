"""One lock for all that a process knows of its workers, which whoever waits gives away.

A connection's numbers and tables, the stores of the workers of this process and the lines to others
are used by one thread at a time.  A thread that waits for a worker of another process leaves the
monitor, however deep in calls it is, so others go on meanwhile: to other workers, and to the same
one.  Whom a worker serves is a matter of the thread that serves: it is set aside meanwhile.

The networks of a process share one monitor, since a worker may be in several, and a request of one
worker to another, made while it serves, must not wait for a thread that goes the other way.  (A
lock for each worker would need an order.)
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class Serving(Protocol):
    """A worker of this process, as far as it is at work for somebody."""

    serving: Any
    acting_guard: Any


class HasLock(Protocol):
    """An object that one thread uses at a time."""

    @property
    def lock(self) -> Any:
        """A lock that a thread may take again."""


H = TypeVar("H", bound=HasLock)


def exclusive(method: Callable[Concatenate[H, P], R]) -> Callable[Concatenate[H, P], R]:
    """The same method, under the lock of its object.

    >>> import threading
    >>> class Counter:
    ...     lock = threading.RLock()
    ...     @exclusive
    ...     def count(self):
    ...         return self.lock._is_owned()
    >>> Counter().count()
    True
    """

    @functools.wraps(method)
    def call(self: H, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self.lock:
            return method(self, *args, **kwargs)

    return call


class Monitor:
    """A lock that a thread may enter several times, and leave as a whole while it waits.

    >>> monitor = Monitor()
    >>> with monitor, monitor:
    ...     held = monitor.leave()
    ...     monitor.enter_again(held)
    """

    def __init__(self) -> None:
        self.lock: Any = threading.RLock()
        self._changed = threading.Condition(self.lock)
        self._cores: tuple[weakref.ref[Serving], ...] = ()  # replaced whole: others may read it
        self.waiting = 0
        """How many threads wait; to notify none takes as long as to look at ten lines."""

    def guard(self, core: Serving) -> None:
        """Set aside whom this worker serves while a thread leaves the monitor.

        >>> Monitor().guard(bob.core)
        """
        with self.lock:
            known = [one for one in self._cores if one() is not None]
            self._cores = (*known, weakref.ref(core))

    def __enter__(self) -> Monitor:
        self.lock.acquire()
        return self

    def __exit__(self, *exception: Any) -> None:
        self.lock.release()

    def leave(self) -> Any:
        """Leave the monitor; returns what :meth:`enter_again` needs.

        >>> with Monitor() as monitor:
        ...     monitor.enter_again(monitor.leave())
        """
        return self._set_aside(), self.lock._release_save()  # as ``threading.Condition`` does

    def enter_again(self, held: Any) -> None:
        """Come back to where :meth:`leave` was called."""
        aside, depth = held
        self.lock._acquire_restore(depth)
        _go_on(aside)

    def _set_aside(self) -> list[tuple[Serving, Any, Any]]:
        """Have no worker serve anybody; returns what was so."""
        aside = []
        for reference in self._cores:
            core = reference()
            if core is not None and core.serving is not None:
                aside.append((core, core.serving, core.acting_guard))
                core.serving = core.acting_guard = None
        return aside

    def wait(self, seconds: float) -> None:
        """Leave the monitor until another thread calls :meth:`notify`, or for some seconds.

        >>> with Monitor() as monitor:
        ...     monitor.wait(0.001)
        """
        self.waiting += 1
        aside = self._set_aside()
        try:
            self._changed.wait(seconds)
        finally:
            self.waiting -= 1
            _go_on(aside)

    def notify(self) -> None:
        """Wake the threads that wait: another one has come back with something.

        >>> with Monitor() as monitor:
        ...     monitor.notify()
        """
        if self.waiting:
            self._changed.notify_all()


def _go_on(aside: list[tuple[Serving, Any, Any]]) -> None:
    """Have workers serve again whom they served."""
    for core, serving, guard in aside:
        core.serving, core.acting_guard = serving, guard
