"""The lines of a session to its workers: one message to the provider and one to each party.

Nothing is waited for when a program is sent.  What fails is told when a value is asked for; the
error of whoever failed first is the cause, and not what the others say of it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import torch

from syft.codes import CollectiveCode
from syft.crypto.programs.share_dealing import deals_of
from syft.crypto.programs.share_program import ShareCode, ShareProgram
from syft.exceptions import ObjectNotReady, ProviderLost, SessionEnded, WorkerClosed
from syft.ids import new_execution, new_id
from syft.tensors.pointer import PointerTensor, make_pointer
from syft.tensors.shared.instruction_list import ProgramInput
from syft.tensors.shared.party_lines import PartyLines
from syft.tensors.shared.sent_programs import (
    SentProgram,
    SentPrograms,
    collect,
    drop_overwritten,
    first_cause,
    overwrites,
)
from syft.tensors.shared.stock import Deals
from syft.workers.client.answers import tensor_in
from syft.workers.client.connection import Connection, Pending
from syft.workers.client.transport import Location, Owner
from syft.workers.core.sent_labels import guard_fields
from syft.workers.wire.messages import Describe, Fetch
from syft.workers.wire.references import Reference

_MOST_TRIES: Final = 20
"""How often shares are asked for again that are not ready."""


class WorkerLines(PartyLines):
    """Lines from a worker to the parties of a session and their provider, which it opens.

    The provider may be the worker itself, and one of the parties: it deals in its own part then.
    """

    def __init__(self, owner: Owner, parties: Sequence[Location], provider: Location) -> None:
        self.owner = owner.id
        self.parties = tuple(party.id for party in parties)
        self.provider = provider.id
        self._opened: tuple[Connection, ...] = ()
        self._readings = 0
        """How often shares were asked for, each time under a number of its own."""
        self._sent = SentPrograms()
        self._lines: list[Connection] = [owner.connection_to(party) for party in parties]
        dealer = tuple(rank for rank, name in enumerate(self.parties) if name == provider.id)
        self._dealing: list[Connection] = [] if dealer else [owner.connection_to(provider)]
        """The line to a provider that is no party."""
        self._everybody = self.parties if dealer else (*self.parties, self.provider)
        self._session = new_id()
        self._check_open()
        self._opened = tuple(self._all_lines)
        execution, code = new_execution(), int(CollectiveCode.OPEN_SESSION)
        for rank, line in reversed([*enumerate(self._all_lines)]):
            pending = line.start_part(
                code, execution, self._everybody, rank, dealer, (self._session,)
            )
            collect(line, pending, self._sent.errors)

    def __del__(self) -> None:
        for sent in self._sent.under_way:
            for id in sent.kept:
                self.discard(id)
        for line in self._opened:
            line.garbage.append(self._session)

    @property
    def _all_lines(self) -> list[Connection]:
        """Those to the parties, and to a provider that is none."""
        return self._lines + self._dealing

    def _check_open(self) -> None:
        for line in self._all_lines:
            line.requests.check_open()

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
        for line in self._lines:
            line.requests.check_open()
        kept = (new_id(),) if overwrites(program, inputs) else ()
        sent = SentProgram(program, inputs, ids, len(self._lines), kept)
        execution, session = new_execution(), Reference(self._session)
        head: tuple[Any, ...] = (session, counter, program)
        names = self.parties
        if material is not None:
            head = (session, Reference(material), program)
        elif self._have_dealt(sent, execution, counter):
            names = self._everybody
        self._sent.under_way.append(sent)
        self._send_parts(sent, execution, names, head)

    def _have_dealt(self, sent: SentProgram, execution: int, counter: int) -> bool:
        """Send a provider that is no party what it has to deal; returns whether that is anything.

        Raises :class:`~syft.exceptions.ProviderLost`; no party has been told of the program then.
        """
        deals = deals_of(sent.program) if self._dealing else ()
        if not deals:
            return False
        code, rank = int(CollectiveCode.DEAL), len(self._lines)
        args = (Reference(self._session), counter, deals)
        (line,) = self._dealing
        with self._needing_provider():
            pending = line.start_part(code, execution, self._everybody, rank, args, ())
        sent.left, sent.dealt = sent.left + 1, True
        self._sent.watch(sent, line, pending, True)
        return True

    @contextlib.contextmanager
    def _needing_provider(self) -> Iterator[None]:
        """A context in which the provider is asked for something: if it is gone, that is said.

        Not of one that is a party: what the others hold is no use without it.
        """
        try:
            yield
        except WorkerClosed as error:
            if not self._dealing or error.name != self.provider:
                raise
            raise ProviderLost(self.parties, self.provider) from error

    def _send_parts(
        self, sent: SentProgram, execution: int, names: tuple[str, ...], head: tuple[Any, ...]
    ) -> None:
        """Send each party its part of a program."""
        revealed, code = dict(_revealed(sent.program)), int(CollectiveCode.SHARES)
        for rank, line in enumerate(self._lines):
            args = (*head, *(self._operand(one, rank) for one in sent.inputs))
            outs = tuple(
                id
                for slot, id in zip(sent.program.results, sent.ids, strict=True)
                if revealed.get(slot, rank) == rank
            )
            pending = line.start_part(code, execution, names, rank, args, (*outs, *sent.kept))
            self._sent.watch(sent, line, pending, False)

    def settle(self) -> None:
        """Wait until every program under way has ended, well or not.

        A provider that is gone has ended its part.  Raises
        :class:`~syft.exceptions.ObjectNotReady` if another one cannot, because somebody is gone.
        """
        for sent in list(self._sent.under_way):
            for line, pending in sent.parts:
                with self._doing_without(line):
                    self._settle(line, pending)

    @contextlib.contextmanager
    def _doing_without(self, line: Connection) -> Iterator[None]:
        """A context in which a provider may be gone that is no party: what the parties hold is
        there without it."""
        try:
            yield
        except WorkerClosed as error:
            if line not in self._dealing or error.name != self.provider:
                raise
            self.provider_lost = True

    def _settle(self, line: Connection, pending: Pending) -> None:
        for _ in range(_MOST_TRIES):
            try:
                return line.replies.wait_settled(pending)
            except ObjectNotReady:
                line.requests.check_open()  # or nothing will ever come
                self._ask_all()
        line.replies.wait_settled(pending)

    def _ask_all(self) -> None:
        """Ask everybody whether they are there; the provider need not be."""
        for line in self._all_lines:
            with self._doing_without(line):
                line.ask(Describe, self._session)

    def roll_back(self) -> list[SentProgram]:
        """Have the parties undo the programs that are not known to have ended well, and go on."""
        undone = list(self._sent.under_way)
        if any(sent.dealt for sent in undone):
            self._check_provider()
        execution, code = new_execution(), int(CollectiveCode.ROLL_BACK)
        errors: list[Exception] = []
        under_way: list[tuple[Connection, Pending]] = []
        for rank, line in enumerate(self._lines):
            kept = [id for sent in reversed(undone) if line in sent.done for id in sent.kept]
            args = (Reference(self._session), *map(Reference, kept))
            pending = line.start_part(code, execution, self.parties, rank, args, ())
            collect(line, pending, errors)
            under_way.append((line, pending))
        for line, pending in under_way:
            self._settle(line, pending)
        if errors:
            raise first_cause(errors)
        drop_overwritten(undone)
        self._sent.under_way.clear()
        return undone

    def _operand(self, value: ProgramInput, rank: int) -> Any:
        """An input as a party gets it: the name of an object, or a share that is new."""
        if isinstance(value, int):
            return Reference(value)
        label = None if value.guard is None else guard_fields(value.guard, self.owner)
        if rank == len(value.seeds):
            return (value.last,) if label is None else (value.last, label)
        operand = value.seeds[rank], tuple(value.last.shape), label, value.last.device
        return operand if not value.last.is_cpu else operand[: 2 if label is None else 3]

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
            args = (None, owner, tensor, self.provider)
            starts.append((pointer.connection, owner, args, ()))
        errors: list[Exception] = []
        for line, rank, args, outs in starts:
            pending = line.start_part(code, execution, everybody, rank, args, outs)
            collect(line, pending, errors)
            if rank == owner:
                holding = line, pending
        line, pending = holding
        line.replies.wait_settled(pending)
        if errors:
            raise first_cause(errors)

    def _check_provider(self) -> None:
        """Raise :class:`~syft.exceptions.SessionEnded` if the session is over at the provider."""
        for line in self._dealing:
            with self._doing_without(line):
                summary = line.ask(Describe, self._session)[3]
                if summary[3] is not None:
                    raise SessionEnded(self.parties, str(summary[3]))

    def deal_ahead(self, counter: int, deals: Deals, id: int) -> Callable[[], None]:
        """Have the provider deal for a program to come, and the parties keep it."""
        with self._needing_provider():
            self._check_open()
        execution, code = new_execution(), int(CollectiveCode.DEAL_AHEAD)
        args = (Reference(self._session), counter, deals)
        errors: list[Exception] = []
        under_way: list[tuple[Connection, Pending]] = []
        for rank, line in enumerate(self._all_lines):
            outs = (id,) if rank < len(self._lines) else ()
            pending = line.start_part(code, execution, self._everybody, rank, args, outs)
            collect(line, pending, errors)
            under_way.append((line, pending))

        def wait() -> None:
            with self._needing_provider():
                for line, pending in under_way:
                    line.replies.wait_settled(pending)
                if errors:
                    raise first_cause(errors)

        return wait

    def waiting_bytes(self) -> int:
        """What the summary of the session says at the last party."""
        summary = self._lines[-1].ask(Describe, self._session)[3]
        return int(summary[4])

    def fetch(self, ids: Sequence[int], user: str | None) -> list[list[torch.Tensor]]:
        """Ask every party for its shares, all before one is waited for.

        A party may wait for another one that is gone, and not know it yet: it says that nothing
        under way can bring its share.  So all are asked whether they are there, and then once more.

        Raises the first error; the others are not raised elsewhere.
        """
        for _ in range(_MOST_TRIES):
            try:
                return self._fetched(ids, user)
            except ObjectNotReady:
                self._ask_all()
        return self._fetched(ids, user)

    def _fetched(self, ids: Sequence[int], user: str | None) -> list[list[torch.Tensor]]:
        answers: list[Callable[[], Any]] = []
        errors: list[Exception] = []
        found: list[torch.Tensor] = []
        try:
            for id in ids:
                self._readings += 1
                for line in self._lines:
                    named: dict[str, Any] = {"user": user, "reading": self._readings}
                    answers.append(line.ask_later(Fetch, id, keep=True, **named))
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
        for line in self._all_lines:
            line.replies.read()
        return first_cause(self._sent.errors) if self._sent.errors else None


def _revealed(program: ShareProgram) -> Iterator[tuple[int, int]]:
    """The slots that a program reveals, with the rank of the party that gets each."""
    for one in program.actions:
        if one.op == ShareCode.REVEAL:
            yield one.out.index, one.args[1]
