"""Connections that are not lines yet: their callers have not said who they are.

What makes them is :mod:`syft.workers.sockets.guests`.
"""

from __future__ import annotations

import functools
import socket
import time
from collections.abc import Callable
from typing import Final, Protocol

from syft.exceptions import WireError
from syft.workers.sockets.board import Board
from syft.workers.sockets.readiness import READ
from syft.workers.sockets.sparse_log import STRANGERS
from syft.workers.sockets.streams import Stream

_PATIENCE: Final = 5.0
"""Seconds in which a caller says who it is."""
_AT_ONCE: Final = 64


class Opening(Protocol):
    """A connection whose caller has not said who it is."""

    stream: Stream
    since: float

    def advance(self) -> bool:
        """Read what is there; whether it is a connection of a line now, or closed."""

    def close(self, reason: str) -> None:
        """Give the connection up."""


class Openings:
    """The openings of a worker, whose loop is that of ``board``; ``accept`` makes one of a new
    connection."""

    def __init__(self, board: Board, accept: Callable[[socket.socket], Opening]) -> None:
        self._board = board
        self._accept = accept
        self._known: dict[int, Opening] = {}

    def __len__(self) -> int:
        return len(self._known)

    def listen(self, listener: socket.socket) -> None:
        """Take connections from a listening socket."""
        listener.setblocking(False)
        take = functools.partial(self._take, listener)
        self._board.watched.watch(listener.fileno(), READ, take)

    def _take(self, listener: socket.socket, event: int = READ) -> None:
        for _ in range(_AT_ONCE):
            try:
                sock, _ = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:  # no file is left, say: others may go away
                STRANGERS.warning("cannot take a caller: %s", error)
                time.sleep(0.01)
                return
            try:
                self.let_in(self._accept(sock))
            except Exception as error:  # nothing that a stranger does may end the worker
                self._refused(error)
                sock.close()

    def _refused(self, error: Exception) -> None:
        if isinstance(error, OSError | WireError):
            STRANGERS.info("refused a caller: %s", error)
        else:
            self._board.failed(None, error)

    def let_in(self, opening: Opening) -> None:
        """Let whoever is at the other end of a new connection say who it is."""
        number = opening.stream.fileno()  # encryption has taken the socket over
        self._known[number] = opening
        advance = functools.partial(self._advance, number, opening)
        self._board.watched.watch(number, READ, advance)

    def _advance(self, number: int, opening: Opening, event: int) -> None:
        """Let a caller say who it is."""
        try:
            done = opening.advance()
        except Exception as error:  # as above
            self._refused(error)
            self._give_up(number, str(error))
            return
        if done:
            self._known.pop(number, None)

    def _give_up(self, number: int, reason: str) -> None:
        """Close a connection whose caller has not said who it is."""
        opening = self._known.pop(number, None)
        self._board.watched.forget(number)
        if opening is not None:
            opening.close(reason)

    def look(self, now: float) -> None:
        """Give up callers that have said nothing for long."""
        for number, opening in list(self._known.items()):
            if now - opening.since > _PATIENCE:
                self._board.contain(None, self._give_up, number, "nobody said who is calling")

    def close(self, reason: str) -> None:
        """Give all of them up."""
        for number in list(self._known):
            self._give_up(number, reason)
