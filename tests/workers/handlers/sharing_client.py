"""What a client of shared tensors sends, by hand: for tests of the workers' side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

import syft as sy
from syft.codes import CollectiveCode
from syft.ids import new_execution, new_id
from syft.serde.packer import Packer
from syft.serde.registry import pack
from syft.workers.wire.messages import Fetch, Start
from syft.workers.wire.references import Reference


class Client:
    """A caller that opens a session at some workers, and runs programs there."""

    def __init__(self, caller: Any, parties: Sequence[Any], provider: Any) -> None:
        self.caller, self.parties, self.provider = caller, list(parties), provider
        self.session = new_id()
        self.counter = 0

    @property
    def everybody(self) -> list[Any]:
        return [*self.parties, self.provider]

    def start(
        self,
        code: CollectiveCode,
        places: Sequence[Any],
        args: Sequence[Sequence[Any] | None],
        outs: Sequence[Sequence[int]],
        execution: int | None = None,
        names: Sequence[str] | None = None,
    ) -> list[tuple[Any, Any]]:
        """Send a Start to each place whose arguments are not None; what is pending there."""
        execution = execution or new_execution()
        names = tuple(names or (place.id for place in places))
        pending = []
        for rank, place in enumerate(places):
            given = args[rank]
            if given is None:
                continue
            connection = self.caller.connection_to(place)
            packer = Packer(worker=None)
            operands = tuple(pack(arg, packer) for arg in given)
            message = Start(
                connection.next_seq(),
                int(code),
                execution,
                names,
                rank,
                operands,
                tuple(outs[rank]),
            )
            sent = connection.start(message, packer.buffers, made=tuple(outs[rank]))
            pending.append((connection, sent))
        return pending

    def open(self) -> None:
        """Open the session, and wait until it is."""
        wait(self.start_opening())

    def start_opening(self) -> list[tuple[Any, Any]]:
        """Open the session."""
        everybody = self.everybody
        none: list[tuple[Any, ...]] = [()] * len(everybody)
        outs = [(self.session,)] * len(everybody)
        return self.start(CollectiveCode.OPEN_SESSION, everybody, none, outs)

    def split(self, pointer: torch.Tensor, owner: Any) -> int:
        """Have ``owner`` split what a pointer points to; the id of the shares."""
        out = new_id()
        wait(self.start_split(pointer, owner, out))
        return out

    def start_split(self, pointer: Any, owner: Any, out: int) -> list[tuple[Any, Any]]:
        """The same without waiting."""
        is_party = owner in self.parties
        places = self.parties if is_party else [*self.parties, owner]
        rank = places.index(owner)
        reference = Reference(pointer.child.id_at_location)
        here = Reference(self.session)
        args: list[Any] = [(here, rank) for _ in places]
        args[rank] = (here if is_party else None, rank, reference)
        outs: list[Any] = [(out,) for _ in places]
        if not is_party:
            outs[rank] = ()
        return self.start(CollectiveCode.SPLIT, places, args, outs)

    def fetch(self, id: int, place: Any, user: str | None = None, keep: bool = True) -> Any:
        """The share at one place."""
        return self.caller.connection_to(place).ask(Fetch, id, 0, keep, user)

    def value(self, id: int, user: str | None = None) -> torch.Tensor:
        """What the shares of an id sum to."""
        return sum(self.fetch(id, place, user) for place in self.parties)  # type: ignore[no-any-return]


def wait(pending: list[tuple[Any, Any]]) -> None:
    """Wait for all; raises the first error."""
    errors = []
    for connection, one in pending:
        try:
            connection.wait(one)
        except sy.exceptions.SyftError as error:
            errors.append(error)
    if errors:
        raise errors[0]
