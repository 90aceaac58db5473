"""One thread at a time records in a session, so that threads may share tensors, and a session.

What an instruction names must be in the list that it is added to: between the two no other thread
may send the list.  Each session has a lock of its own, so a program of one thread pays a fraction
of a microsecond.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class HasLock(Protocol):
    """What records in a session, or is one."""

    @property
    def lock(self) -> Any:
        """The lock of the session, which a thread may take again."""


H = TypeVar("H", bound=HasLock)


def exclusive(method: Callable[Concatenate[H, P], R]) -> Callable[Concatenate[H, P], R]:
    """The same method, under the lock of its session.

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
