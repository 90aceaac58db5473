"""The parked moves that are to bring objects to the other end of a connection.

Such an object is made by a request over another connection, that to the worker where it was.
Whoever waits for the object takes in what has become of that request, and what fails for want of
the object is told the failure of the move.
"""

from __future__ import annotations

from typing import Any, Protocol

from syft.exceptions import ObjectNotFound, PromiseGivenUp
from syft.serde.errors import pack_error
from syft.serde.packer import Packer
from syft.workers.client.pending import Pending
from syft.workers.client.transport import Location, Transport
from syft.workers.core.store import FAILED
from syft.workers.wire.messages import Failure

_MOST_FAILED = 64
"""Moves that failed and are remembered, to say why there is nothing."""


class MovingReplies(Protocol):
    """The replies of the connection over which a move was asked for."""

    location: Location
    moves: ParkedMoves
    transport: Transport

    def read(self) -> None:
        """Take in the replies that have come."""

    def take(self, pending: Pending) -> Any:
        """The value of a request that is settled; raises what it raised."""

    def wait_for(self, pending: Pending) -> None:
        """Wait for a reply, as long as something under way may bring it."""


class ParkedMoves:
    """The moves by the ids of what they bring; those that failed stay.

    >>> ParkedMoves().advance()
    False
    """

    __slots__ = ("by_id",)

    def __init__(self) -> None:
        self.by_id: dict[int, tuple[MovingReplies, Pending]] = {}

    def hear(self, asking: tuple[ParkedMoves, ...] = ()) -> None:
        """Take in what has become of these moves.

        Those may follow from other moves; ``asking`` are those that ask because of that.
        """
        for source, move in list(self.by_id.values()):
            if not move.settled:
                if source.moves.by_id and source.moves not in asking:
                    source.moves.hear((*asking, self))
                if source.transport.closed and not move.settled:
                    lost = source.transport.gone(source.location.id)
                    move.reply = Failure(-1, pack_error(lost, Packer()))
                source.read()

    def advance(self) -> bool:
        """Let something happen that may end a move; whether anything did."""
        moves = [source for source, move in self.by_id.values() if not move.settled]
        return any(source.transport.advance() for source in dict.fromkeys(moves))

    def failure_behind(self, error: Exception) -> Exception | None:
        """The failure of the move that was to bring what is missing, if that is what an error says;
        otherwise None."""
        if isinstance(error, ObjectNotFound):
            known = self.by_id.get(error.id) if error.reason == FAILED else None
        else:
            known = self.by_id.get(error.id) if isinstance(error, PromiseGivenUp) else None
        if known is None:
            return None
        source, move = known
        self.hear()
        source.wait_for(move)  # its worker may say so later than this one
        try:
            source.take(move)
        except Exception as failure:
            return failure
        return None

    def settled(self, id: int, move: Pending) -> None:
        """Forget a move that brought its object, and of those that failed the oldest."""
        if not move.failed:
            self.by_id.pop(id, None)
            return
        failed = [other for other, (_, known) in self.by_id.items() if known.failed]
        for other in failed[:-_MOST_FAILED]:
            del self.by_id[other]
