"""The part of a connection that a worker uses for its own requests to other workers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import torch

from syft.ops.returns import Returns
from syft.workers.labels.guards import Guard
from syft.workers.labels.holders import Holder
from syft.workers.wire.messages import Message


class Outgoing(Protocol):
    """A worker's own connection to another worker."""

    garbage: list[int]
    """Ids of objects at the other worker whose last pointer at this worker is gone."""

    def put(
        self,
        value: torch.Tensor | Holder,
        id: int | None,
        guard: Guard | None = None,
        writers: Iterable[str] = (),
        source: int | None = None,
    ) -> int:
        """Store a copy of ``value`` at the other worker, which ``writers`` may change too, and
        return its id; its gradients come back to object ``source``, if that is given."""

    def ask(self, kind: type[Message], *fields: Any, **named: Any) -> Any:
        """Make a request and return the value of its reply."""

    def command(
        self,
        op: int,
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None,
        out: int,
        buffers: list[torch.Tensor],
        expected: Returns | None,
    ) -> Any:
        """Run operation ``op`` at the other worker."""

    def tell(self, message: Message, buffers: Sequence[torch.Tensor] = ()) -> None:
        """Send a message that has no reply."""
