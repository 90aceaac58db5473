"""Requests that a worker is sent while it serves another one: a bound on how deep and how many.

A worker that holds a pointer asks another worker, and that one may ask back.  A pointer to itself,
or a chain of pointers that leads back, asks without end: two messages kept a worker busy until the
stack of the interpreter was full.  Pointers to several such pointers ask more at each level.  So
both are bounded: the requests on the stack, and those below the first one that is on it.
"""

from __future__ import annotations

from typing import Final

from syft.exceptions import LimitExceeded

MAX_NESTED: Final = 16
"""The most requests of other workers that a worker handles inside one another."""
MAX_INSIDE: Final = 1 << 14
"""The most requests that it handles inside one of them."""


class Nesting:
    """The requests of one worker that are handled inside others.

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
