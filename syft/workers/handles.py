"""Handles: a command that may still be on its way, as something to wait for."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from syft.chain.link import Link
from syft.chain.wrapper import Wrapper, wrap
from syft.exceptions import ObjectNotReady

if TYPE_CHECKING:
    from syft.workers.connection import Connection, Pending


class Handle:
    """The command that makes what a pointer points to: ``wait()``, ``done()``, ``result()``,
    ``await``.

    On an immediate worker a command is done when the call returns, unless it waits for a promised
    input.
    """

    __slots__ = ("_connection", "_pending", "_link")

    def __init__(self, connection: Connection, pending: Pending | None, link: Link) -> None:
        self._connection = connection
        self._pending = pending
        self._link = link

    def done(self) -> bool:
        """Whether the command has run (or failed); never waits."""
        return self._pending is None or self._pending.settled

    def wait(self) -> None:
        """Let queued workers work until the command has run; raise what it raised.

        Raises :class:`~syft.exceptions.ObjectNotReady` when nothing under way can bring its inputs.
        """
        if self._pending is None:
            return
        network = self._connection.owner.network
        while not self._pending.settled and network.step():
            pass
        self._settle(self._pending)

    def result(self) -> Wrapper:
        """The pointer to what the command made, once it has; raises what the command raised."""
        self.wait()
        return wrap(self._link)

    def __await__(self) -> Generator[Any, None, Wrapper]:
        if self._pending is not None:
            network = self._connection.owner.network
            while not self._pending.settled and network.step():
                yield  # lets other coroutines run; any event loop takes a bare yield as that
            self._settle(self._pending)
        return wrap(self._link)

    def _settle(self, pending: Pending) -> None:
        if not pending.settled:
            raise ObjectNotReady(self._connection.location.id)
        self._connection.take(pending)
