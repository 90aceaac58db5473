"""The lines of a session to its workers: one message to the provider and one to each party.

Nothing is waited for when a program is sent.  What fails is told when a value is asked for; the
error of whoever failed first is the cause, and not what the others say of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from syft.codes import CollectiveCode
from syft.crypto.share_dealing import deals_of
from syft.crypto.share_program import ShareCode, ShareProgram
from syft.exceptions import RemoteFailure, SessionEnded
from syft.ids import new_execution, new_id
from syft.tensors.pointer import PointerTensor, make_pointer
from syft.tensors.shared.instruction_list import ProgramInput
from syft.tensors.shared.party_lines import PartyLines
from syft.tensors.shared.stock import Deals
from syft.workers.client.answers import tensor_in
from syft.workers.client.connection import Connection, Pending
from syft.workers.client.transport import Location, Owner
from syft.workers.core.sent_labels import guard_fields
from syft.workers.wire.messages import Describe, Fetch
from syft.workers.wire.references import Reference


class WorkerLines(PartyLines):
    """Lines from a worker to the parties of a session and their provider, which it opens.

    The provider may be the worker itself.
    """

    def __init__(self, owner: Owner, parties: Sequence[Location], provider: Location) -> None:
        self.owner = owner.id
        self.parties = tuple(party.id for party in parties)
        self.provider = provider.id
        self._lines: list[Connection] = [owner.connection_to(party) for party in parties]
        self._dealing: Connection = owner.connection_to(provider)
        self._session = new_id()
        self._errors: list[Exception] = []
        self._check_open()
        execution = new_execution()
        for rank, line in reversed([*enumerate((*self._lines, self._dealing))]):
            self._start(line, CollectiveCode.OPEN_SESSION, execution, rank, (), (self._session,))

    def __del__(self) -> None:
        for line in (*self._lines, self._dealing):
            line.garbage.append(self._session)

    def _check_open(self) -> None:
        for line in (*self._lines, self._dealing):
            line.check_open()

    def run(
        self,
        counter: int,
        program: ShareProgram,
        inputs: Sequence[ProgramInput],
        ids: Sequence[int],
        material: int | None = None,
    ) -> None:
        """Send a program: to the provider what it has to deal, then to each party all of it.

        The provider is not asked for what was dealt before.
        """
        execution, session = new_execution(), Reference(self._session)
        deals = deals_of(program) if material is None else ()
        everybody = (*self.parties, self.provider)
        number: int | Reference = counter
        if material is None:
            self._dealing.check_open()
        else:
            everybody, number = self.parties, Reference(material)
        for line in self._lines:
            line.check_open()
        if deals:
            args: tuple[Any, ...] = (session, counter, deals)
            rank = len(self._lines)
            self._start(self._dealing, CollectiveCode.DEAL, execution, rank, args, ())
        revealed = dict(_revealed(program))
        for rank, line in enumerate(self._lines):
            args = (session, number, program, *(self._operand(one, rank) for one in inputs))
            outs = tuple(
                id
                for slot, id in zip(program.results, ids, strict=True)
                if revealed.get(slot, rank) == rank
            )
            self._start(line, CollectiveCode.SHARES, execution, rank, args, outs, everybody)

    def _operand(self, value: ProgramInput, rank: int) -> Any:
        """An input as a party gets it: the name of an object, or a share that is new."""
        if isinstance(value, int):
            return Reference(value)
        label = () if value.guard is None else (guard_fields(value.guard, self.owner),)
        if rank < len(value.seeds):
            return (value.seeds[rank], tuple(value.last.shape), *label)
        return (value.last, *label)

    def split(self, pointer: PointerTensor, depth: int, id: int) -> None:
        """Have the worker that holds a tensor split its integers, which stand ``depth`` steps down
        its chain; the shares are stored under ``id``.  Waits for its consent: it raises what the
        holder does."""
        holder = pointer.location.id
        outside = holder not in self.parties
        everybody = (*self.parties, holder) if outside else self.parties
        owner = everybody.index(holder)
        tensor = Reference(pointer.id_at_location, pointer.depth + depth)
        session = Reference(self._session)
        execution = new_execution()
        code = int(CollectiveCode.SPLIT)
        starts: list[tuple[Connection, int, tuple[Any, ...], tuple[int, ...]]] = [
            (line, rank, (session, owner, tensor) if rank == owner else (session, owner), (id,))
            for rank, line in enumerate(self._lines)
        ]
        if outside:
            starts.append((pointer.connection, owner, (None, owner, tensor), ()))
        errors: list[Exception] = []
        for line, rank, args, outs in starts:
            pending = line.start_part(code, execution, everybody, rank, args, outs)
            _collect(line, pending, errors)
            if rank == owner:
                holding = line, pending
        line, pending = holding
        line.wait_settled(pending)
        if errors:
            raise first_cause(errors)

    def _start(
        self,
        line: Connection,
        code: CollectiveCode,
        execution: int,
        rank: int,
        args: tuple[Any, ...],
        outs: tuple[int, ...],
        names: tuple[str, ...] = (),
    ) -> None:
        everybody = names or (*self.parties, self.provider)
        pending = line.start_part(int(code), execution, everybody, rank, args, outs)
        _collect(line, pending, self._errors)

    def deal_ahead(self, counter: int, deals: Deals, id: int) -> Callable[[], None]:
        """Have the provider deal for a program to come, and the parties keep it."""
        self._check_open()
        execution, code = new_execution(), int(CollectiveCode.DEAL_AHEAD)
        everybody = (*self.parties, self.provider)
        args = (Reference(self._session), counter, deals)
        errors: list[Exception] = []
        under_way: list[tuple[Connection, Pending]] = []
        for rank, line in enumerate((*self._lines, self._dealing)):
            outs = (id,) if rank < len(self._lines) else ()
            pending = line.start_part(code, execution, everybody, rank, args, outs)
            _collect(line, pending, errors)
            under_way.append((line, pending))

        def wait() -> None:
            for line, pending in under_way:
                line.wait_settled(pending)
            if errors:
                raise first_cause(errors)

        return wait

    def waiting_bytes(self) -> int:
        """What the card of the session says at the last party."""
        card = self._lines[-1].ask(Describe, self._session)[3]
        return int(card[4])

    def fetch(self, ids: Sequence[int], user: str | None) -> list[list[torch.Tensor]]:
        """Ask every party for its shares, all before one is waited for.

        Raises the first error; the others are not raised elsewhere.
        """
        answers: list[Callable[[], Any]] = []
        errors: list[Exception] = []
        found: list[torch.Tensor] = []
        try:
            for id in ids:
                for line in self._lines:
                    answers.append(line.ask_later(Fetch, id, keep=True, user=user))
        except Exception as error:  # whatever was raised earlier over the line
            errors.append(error.with_traceback(None))
        for answer in answers:
            try:
                found.append(tensor_in(answer()))
            except Exception as error:
                errors.append(error.with_traceback(None))
        if errors:
            raise first_cause(errors)
        count = len(self._lines)
        return [found[at : at + count] for at in range(0, len(found), count)]

    def pointer(self, party: str, id: int) -> torch.Tensor:
        """A pointer to an object that a program makes at one party."""
        return make_pointer(self._lines[self.parties.index(party)], id)

    def discard(self, id: int) -> None:
        """Leave the id to the next request to each party."""
        for line in self._lines:
            line.garbage.append(id)

    def failure(self) -> Exception | None:
        """Why something that was sent has failed, as far as that is known here."""
        for line in (*self._lines, self._dealing):
            line.read_replies()
        return first_cause(self._errors) if self._errors else None


def _collect(line: Connection, pending: Pending, errors: list[Exception]) -> None:
    """Put what a request raises into a list; it is not raised over the line then."""

    def settled() -> None:
        try:
            line.take(pending)
        except Exception as error:  # whatever the worker's torch raised
            errors.append(error.with_traceback(None))

    line.when_settled(pending, settled)


def first_cause(errors: list[Exception]) -> Exception:
    """Take from the errors of several workers that of the one who failed: others only tell of it.

    >>> first_cause([RemoteFailure("collective", "bob failed"), ValueError("bob is full")])
    ValueError('bob is full')
    """
    cause = min(errors, key=lambda error: isinstance(error, (RemoteFailure, SessionEnded)))
    errors.clear()  # a list in the frame that raises one would keep that frame
    return cause


def _revealed(program: ShareProgram) -> Iterator[tuple[int, int]]:
    """The slots that a program reveals, with the rank of the party that gets each."""
    for one in program.instructions:
        if one.code is ShareCode.REVEAL:
            yield one.outs[0], one.args[1]
