"""A connection that several threads may use.

Each request is made, and each reply taken, by a thread that is inside the monitor of the process's
lines.  A thread that waits leaves it, so the others go on.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from syft.workers.client.connection import Connection
from syft.workers.client.pending import Pending
from syft.workers.wire.messages import Message


class SharedConnection(Connection):
    """A :class:`~syft.workers.client.connection.Connection` for workers of other processes."""

    __slots__ = ("_monitor", "_limited")

    def __init__(self, owner: Any, location: Any, transport: Any, connect: Any) -> None:
        super().__init__(owner, location, transport, connect)
        self._monitor = transport.board.monitor
        self._limited = transport.worker.limited

    def ask_later(self, kind: type[Message], *fields: Any, **named: Any) -> Callable[[], Any]:
        """Make a request, and return the function that waits for its value."""
        with self._monitor.lock:
            answer = super().ask_later(kind, *fields, **named)

        def inside() -> Any:
            with self._monitor.lock:
                return answer()

        return inside

    def _wait(self, pending: Pending, or_parked: bool = False, most: int = 1) -> None:
        with self._limited():
            super()._wait(pending, or_parked, most)


def _inside_monitor(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(self: SharedConnection, *args: Any, **kwargs: Any) -> Any:
        with self._monitor.lock:
            return method(self, *args, **kwargs)

    return call


for _name in (
    "let_others_refer",
    "ask",
    "order",
    "put",
    "put_all",
    "start",
    "promise",
    "cancel",
    "ask_about",
    "expect",
    "flush",
    "flush_idle",
    "synchronize",
    "command",
    "make",
    "run",
    "fact",
    "are_strided",
    "are_of_dtypes",
    "gradient",
    "knows_no_gradient",
    "clear_gradients",
    "wait",
    "wait_settled",
    "catch_up",
    "poll",
    "when_settled",
    "forward",
    "tell",
):
    setattr(SharedConnection, _name, _inside_monitor(getattr(Connection, _name)))
