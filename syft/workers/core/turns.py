"""Turns: what must not run at the same time runs one after another, in order.

A program of a session may take many rounds, and its results may be written in place.  What comes
after it must neither read what it is about to write nor overtake it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class Turns:
    """A queue of actions, each of which calls :meth:`done` when it has ended, at once or later.

    >>> turns, log = Turns(), []
    >>> turns.take(lambda: log.append("first")); turns.take(lambda: log.append("second"))
    >>> log, turns.busy; turns.done(); log
    (['first'], True)
    ['first', 'second']
    """

    __slots__ = ("busy", "_waiting", "_moving")

    def __init__(self) -> None:
        self.busy = False
        """Whether somebody's turn has not ended."""
        self._waiting: deque[Callable[[], None]] = deque()
        self._moving = False

    def take(self, act: Callable[[], None]) -> None:
        """Call ``act`` when all before it have ended: now, if none is under way."""
        self._waiting.append(act)
        self._advance()

    def done(self) -> None:
        """End the present turn, and begin the next."""
        self.busy = False
        self._advance()

    def _advance(self) -> None:
        """Begin turns until one does not end at once; an action that calls :meth:`done` ends its
        turn here, and not inside itself, so any number may wait."""
        if self._moving:
            return
        self._moving = True
        try:
            while self._waiting and not self.busy:
                self.busy = True
                self._waiting.popleft()()
        finally:
            self._moving = False
