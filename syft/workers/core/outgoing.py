"""The part of a connection that a worker uses for its own requests to other workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class Outgoing(Protocol):
    """A worker's own connection to another worker: what it uses of the client's connections."""

    @property
    def garbage(self) -> Any:
        """Takes ids of objects at the other worker whose last pointer here is gone (``append``)."""

    @property
    def put(self) -> Callable[..., int]:
        """Stores a copy of a value at the other worker, and returns its id."""

    @property
    def ask(self) -> Callable[..., Any]:
        """Makes a request, and returns the value of its reply."""

    @property
    def operations(self) -> Any:
        """Runs operations at the other worker (``command``)."""
