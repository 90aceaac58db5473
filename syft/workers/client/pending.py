"""A request that is on its way, and what there is to say of one that is done."""

from __future__ import annotations

from collections.abc import Hashable

from syft.serde.frame import Frame
from syft.workers.wire.messages import Reply

STORED = object()
"""What a command returns when its result is one tensor, stored under the id the caller chose."""


class Pending:
    """A request on its way: what came back, or where in the user's program it was made."""

    __slots__ = ("reply", "frame", "where", "key", "parked")

    def __init__(self, where: str | None = None, key: Hashable = None) -> None:
        self.reply: Reply | None = None
        self.frame: Frame | None = None
        self.where = where
        self.parked = False
        """Whether the other end has said that the request waits for promised objects."""
        self.key = key
        """What the request ran by its number, which a failure has the sender forget."""

    @property
    def settled(self) -> bool:
        """Whether the reply has come.

        >>> Pending().settled
        False
        """
        return self.reply is not None
