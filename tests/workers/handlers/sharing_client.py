"""What a client of shared tensors sends, by hand: for tests of the workers' side."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

import torch

from syft.codes import CollectiveCode
from syft.crypto.mask_stream import MaskStream
from syft.crypto.programs.share_dealing import deals_of
from syft.crypto.programs.share_flow import writes_in_place, written_inputs
from syft.crypto.programs.share_program import ShareProgram
from syft.exceptions import RemoteFailure
from syft.ids import new_execution, new_id
from syft.workers.wire.messages import Fetch
from syft.workers.wire.references import Reference
from tests.crypto.ring_programs import program_of

ALIVE: list[Client] = []
"""The clients that a test has made."""


class Client:
    """A caller that opens a session at some workers, and runs programs there."""

    def __init__(self, caller: Any, parties: Sequence[Any], provider: Any) -> None:
        self.caller, self.parties, self.provider = caller, list(parties), provider
        self.dealer = [rank for rank, party in enumerate(parties) if party is provider]
        """The rank of a provider that is a party."""
        self.session = new_id()
        self.counter = self.readings = 0
        self.overwritten: list[int] = []
        """What programs that write in place have overwritten."""
        self.made: list[tuple[Any, int]] = []
        """What was made, and where."""
        ALIVE.append(self)

    @property
    def everybody(self) -> list[Any]:
        return [*self.parties, *([] if self.dealer else [self.provider])]

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
            sent = connection.start_part(
                int(code), execution, names, rank, given, tuple(outs[rank])
            )
            pending.append((connection, sent))
            self.made += [(connection, out) for out in outs[rank]]
        return pending

    def close(self) -> None:
        """Drop all that was made."""
        made, self.made = self.made, []
        for connection, id in made:
            if not connection.transport.closed:
                connection.garbage.append(id)

    def open(self) -> None:
        """Open the session, and wait until it is."""
        wait(self.start_opening())

    def start_opening(self) -> list[tuple[Any, Any]]:
        """Open the session."""
        everybody = self.everybody
        args: list[tuple[Any, ...]] = [tuple(self.dealer)] * len(everybody)
        outs = [(self.session,)] * len(everybody)
        return self.start(CollectiveCode.OPEN_SESSION, everybody, args, outs)

    def split(self, pointer: torch.Tensor, owner: Any) -> int:
        """Have ``owner`` split what a pointer points to; the id of the shares."""
        out = new_id()
        wait(self.start_split(pointer, owner, out))
        return out

    def start_split(
        self, pointer: Any, owner: Any, out: int, provider: str | None = None
    ) -> list[tuple[Any, Any]]:
        """The same without waiting; an owner that is no party is told the name of the provider."""
        is_party = owner in self.parties
        places = self.parties if is_party else [*self.parties, owner]
        rank = places.index(owner)
        reference = Reference(pointer.child.id_at_location)
        here = Reference(self.session)
        args: list[Any] = [(here, rank) for _ in places]
        told = () if is_party else (provider or self.provider.id,)
        args[rank] = (here if is_party else None, rank, reference, *told)
        outs: list[Any] = [(out,) for _ in places]
        if not is_party:
            outs[rank] = ()
        return self.start(CollectiveCode.SPLIT, places, args, outs)

    def run(self, program: ShareProgram, inputs: Sequence[Any]) -> list[int]:
        """Run a program; the ids of its results.  An input is an id, or an entry for each party."""
        outs = [new_id() for _ in program.results]
        wait(self.start_run(program, inputs, [outs] * len(self.parties)))
        return outs

    def start_run(
        self,
        program: ShareProgram,
        inputs: Sequence[Any],
        outs: Sequence[Sequence[int]],
        counter: int | None = None,
        deals: Any = None,
    ) -> list[tuple[Any, Any]]:
        """The same without waiting."""
        if counter is None:
            self.counter += 1
            counter = self.counter
        deals = deals_of(program) if deals is None else deals
        outs = self._with_overwritten(program, inputs, outs)
        here, execution = Reference(self.session), new_execution()
        pending = []
        if deals and not self.dealer:
            dealing: list[Any] = [None] * len(self.parties)
            dealing.append((here, counter, deals))
            nothing: list[Any] = [()] * len(self.everybody)
            code = CollectiveCode.DEAL
            pending += self.start(code, self.everybody, dealing, nothing, execution)
        args: list[Any] = [
            (here, counter, program, *(_input(value, rank) for value in inputs))
            for rank in range(len(self.parties))
        ]
        code = CollectiveCode.SHARES
        places = self.everybody if deals_of(program) else self.parties
        padding = [None] * (len(places) - len(self.parties))
        return pending + self.start(
            code, places, [*args, *padding], [*outs, *([()] * len(padding))], execution
        )

    def _with_overwritten(
        self, program: ShareProgram, inputs: Sequence[Any], outs: Sequence[Sequence[int]]
    ) -> Sequence[Sequence[int]]:
        """The results of each party, and what it has overwritten if it writes to an input."""
        writes = any(map(writes_in_place, program.actions))
        if not writes or not any(type(inputs[place]) is int for place in written_inputs(program)):
            return outs
        self.overwritten.append(new_id())
        return [[*own, self.overwritten[-1]] for own in outs]

    def roll_back(self, kept: Sequence[Sequence[int]]) -> None:
        """Have the parties undo what each has kept under these ids, and go on."""
        wait(self.start_rolling_back(kept))

    def start_rolling_back(self, kept: Sequence[Sequence[int]]) -> list[tuple[Any, Any]]:
        """The same without waiting."""
        args = [(Reference(self.session), *map(Reference, own)) for own in kept]
        return self.start(CollectiveCode.ROLL_BACK, self.parties, args, [()] * len(args))

    def deal_ahead(self, program: ShareProgram, counter: int | None = None) -> int:
        """Have what a program needs dealt now; the id of the material."""
        out = new_id()
        wait(self.start_dealing_ahead(deals_of(program), out, counter))
        return out

    def start_dealing_ahead(
        self, deals: Any, out: int, counter: int | None = None
    ) -> list[tuple[Any, Any]]:
        """The same without waiting."""
        if counter is None:
            self.counter += 1
            counter = self.counter
        args = [(Reference(self.session), counter, deals)] * len(self.everybody)
        outs: list[Any] = [*([(out,)] * len(self.parties)), ()][: len(self.everybody)]
        return self.start(CollectiveCode.DEAL_AHEAD, self.everybody, args, outs)

    def start_with_material(
        self, material: int, program: ShareProgram, inputs: Sequence[Any], outs: Sequence[int]
    ) -> list[tuple[Any, Any]]:
        """Run a program with what was dealt for it before."""
        (outs,) = self._with_overwritten(program, inputs, [outs])
        head = Reference(self.session), Reference(material), program
        args: list[Any] = [
            (*head, *(_input(value, rank) for value in inputs)) for rank in range(len(self.parties))
        ]
        return self.start(CollectiveCode.SHARES, self.parties, args, [outs] * len(self.parties))

    def share(self, *values: Any) -> list[int]:
        """Share tensors with shares that this client draws: seeds, and the rest."""
        program = program_of(len(values), (), tuple(range(len(values))))
        return self.run(program, [pieces(value, len(self.parties)) for value in values])

    def fetch(
        self,
        id: int,
        place: Any,
        user: str | None = None,
        keep: bool = True,
        reading: int | None = None,
    ) -> Any:
        """The share at one place, with one of zero."""
        if reading is None:
            self.readings += 1
            reading = self.readings
        return self.caller.connection_to(place).ask(Fetch, id, 0, keep, user=user, reading=reading)

    def value(self, id: int, user: str | None = None) -> torch.Tensor:
        """What the shares of an id sum to."""
        self.readings += 1
        shares = [self.fetch(id, place, user, True, self.readings) for place in self.parties]
        return torch.stack(shares).sum(0)


def _input(value: Any, rank: int) -> Any:
    return Reference(value) if type(value) is int else value[rank]


def pieces(value: torch.Tensor, parties: int, *guard: Any) -> list[Any]:
    """Fresh shares of a tensor, one for each party."""
    seeds = [secrets.token_bytes(32) for _ in range(parties - 1)]
    rest = value - sum(MaskStream(seed).draw(value.shape) for seed in seeds)
    return [*((seed, tuple(value.shape), *guard) for seed in seeds), (rest, *guard)]


def wait(pending: list[tuple[Any, Any]]) -> None:
    """Wait for all; raises the error of the party that failed, if one did."""
    errors: list[Exception] = []
    for connection, one in pending:
        try:
            connection.replies.wait(one)
        except Exception as error:
            errors.append(error)
    try:
        errors.sort(key=lambda error: type(error) is RemoteFailure)
        if errors:
            raise errors[0]
    finally:
        errors.clear()  # or they and this frame would keep each other
