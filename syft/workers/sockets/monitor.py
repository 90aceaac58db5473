"""One lock for all that a process knows of its lines, which whoever waits gives away.

A connection's numbers and tables, and the store of the local worker, are used by one thread at a
time.  A thread that waits for a worker leaves the monitor, however deep in calls it is, so others
go on meanwhile: to other workers, and to the same one.
"""

from __future__ import annotations

import threading
from typing import Any


class Monitor:
    """A lock that a thread may enter several times, and leave as a whole while it waits.

    >>> monitor = Monitor()
    >>> with monitor, monitor:
    ...     held = monitor.leave()
    ...     monitor.enter_again(held)
    """

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Begin anew with a lock that nobody holds: in a forked process.

        >>> Monitor().renew()
        """
        lock: Any = threading.RLock()
        self.lock = lock
        self._changed = threading.Condition(self.lock)
        self.waiting = 0
        """How many threads wait; to notify none takes as long as to look at ten lines."""
        self.leave = lock._release_save
        """Leave the monitor; returns what :attr:`enter_again` needs.  ``threading.Condition`` uses
        the same two methods."""
        self.enter_again = lock._acquire_restore

    def __enter__(self) -> Monitor:
        self.lock.acquire()
        return self

    def __exit__(self, *exception: Any) -> None:
        self.lock.release()

    def wait(self, seconds: float) -> None:
        """Leave the monitor until another thread calls :meth:`notify`, or for some seconds.

        >>> with Monitor() as monitor:
        ...     monitor.wait(0.001)
        """
        self.waiting += 1
        try:
            self._changed.wait(seconds)
        finally:
            self.waiting -= 1

    def notify(self) -> None:
        """Wake the threads that wait: another one has come back with something.

        >>> with Monitor() as monitor:
        ...     monitor.notify()
        """
        if self.waiting:
            self._changed.notify_all()
