"""What a worker asks of other workers: the part of a connection that the serving end uses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from syft.workers.core.holders import Holder
from syft.workers.core.permissions import Guard
from syft.workers.wire.messages import Message


class Outgoing(Protocol):
    """A worker's own connection to another worker."""

    garbage: list[int]
    """Ids of objects there to which the last pointer here is gone."""

    def put(self, value: torch.Tensor | Holder, id: int | None, guard: Guard | None = None) -> int:
        """Store a copy of ``value`` there, and return its id."""

    def ask(self, kind: type[Message], *fields: Any, **named: Any) -> Any:
        """Make a request and return the value of its reply."""

    def command(
        self,
        op: int,
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None,
        out: int,
        buffers: list[torch.Tensor],
        answered: bool,
    ) -> Any:
        """Run operation ``op`` there."""

    def tell(self, message: Message, buffers: Sequence[torch.Tensor] = ()) -> None:
        """Send a message that has no reply."""
