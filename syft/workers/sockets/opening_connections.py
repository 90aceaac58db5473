"""Connections that are not lines yet: their callers have not said who they are.

What makes them (:mod:`syft.workers.sockets.guests`) and what polls them
(:mod:`syft.workers.sockets.serving`) meet here.
"""

from __future__ import annotations

from typing import Protocol

from syft.workers.sockets.streams import Stream


class Opening(Protocol):
    """A connection whose caller has not said who it is."""

    stream: Stream
    since: float

    def advance(self) -> bool:
        """Read what is there; whether it is a connection of a line now, or closed."""

    def close(self, reason: str) -> None:
        """Give the connection up."""
