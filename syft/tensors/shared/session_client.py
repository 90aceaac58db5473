"""A session at its client: it sends what was recorded as programs, and undoes what has failed.

What is recorded (``session_recording``) is sent when a value is asked for, or when the list has
become long: one message to the provider, if anything is to be dealt, and one to each party.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NoReturn

import torch

from syft.crypto.dealing import StreamName
from syft.crypto.programs.share_program import ShareCode, ShareProgram
from syft.exceptions import (
    ProviderLost,
    RemoteFailure,
    SessionEnded,
    SharedOperationFailed,
    SyftError,
    WorkerClosed,
)
from syft.ids import new_id
from syft.tensors.fixed.rings.integer_ring import Ring
from syft.tensors.shared.cells import Cell, MaskedCell, SharedObject, dense, sum_of
from syft.tensors.shared.dealing_ahead import Dealing, Run
from syft.workers.client.monitor import exclusive
from syft.tensors.shared.instruction_list import InstructionList, ProgramInput
from syft.tensors.shared.lost_results import undo
from syft.tensors.shared.party_lines import PartyLines
from syft.tensors.shared.sent_programs import SentProgram, first_cause
from syft.tensors.shared.session_recording import SessionRecording
from syft.tensors.shared.stock import Stock

_UNREAL_COUNTER: Final = -(1 << 62)
"""The programs of a rehearsal are numbered from here on: no real one has such a number."""


class SessionClient(SessionRecording):
    """What some parties share on behalf of this client, with the help of one provider.

    ``make_ring`` makes the ring of its integers.
    """

    def __init__(self, lines: PartyLines, make_ring: Callable[[SessionClient], Ring]) -> None:
        super().__init__(lines)
        self.ring = make_ring(self)
        self.stock = Stock()
        """What was dealt ahead."""
        self.after_sending: list[Callable[[], None]] = []
        """Called when what was recorded is sent."""
        self._dropped: list[int] = []
        self._counter = 0

    def discard(self, id: int) -> None:
        """Drop a stored object at every party: called when the last tensor over it dies.

        What an instruction uses that was not sent yet is dropped afterwards.
        """
        self._lost.forget(id)
        if id in self._unreal:
            self._unreal.discard(id)
        elif id in self._used:
            self._dropped.append(id)
        else:
            self.lines.discard(id)

    def __del__(self) -> None:
        self._used.clear()
        self._dropped += self.stock.empty()
        self._discard_dropped()

    def _discard_dropped(self) -> None:
        """Drop what waited for its last use, unless that is still to come."""
        dropped, self._dropped = self._dropped, []
        for id in dropped:
            self.discard(id)

    # ---------------------------------------------------------------------------------- sending

    @exclusive
    def flush(self, opening: bool = False) -> None:
        """Send what was recorded; what nobody has any more is left out.

        With ``opening`` all masked values are opened that somebody may use.
        """
        self.check_open()
        recorded, self._list = self._list, InstructionList()
        program, results = recorded.program(opening)
        used = self._used.intersection(one for one in recorded.inputs if type(one) is int)
        try:
            if program.actions or results:
                self._send(program, recorded.inputs, results)
        finally:
            self._used -= used
            self._discard_dropped()
        for call in self.after_sending:
            call()

    def _send(
        self,
        program: ShareProgram,
        inputs: Sequence[ProgramInput],
        results: Sequence[SharedObject],
    ) -> None:
        """Send a program, and note the names of what it makes.

        Raises :class:`~syft.exceptions.ProviderLost` if nobody can deal for it: what it was to make
        is lost then, and what it was to bring the parties comes with the next one.
        """
        material = self.stock.take(program)
        counter = self._next_counter() if material is None else material.counter
        ids = [new_id() for _ in results]
        try:
            if material is None:
                self.lines.run(counter, program, inputs, ids)
            else:
                self.lines.run(counter, program, inputs, ids, material.id)
                self.lines.discard(material.id)
        except ProviderLost as error:
            self._note_sent(program, results, ids, counter)
            self._lose([SentProgram(program, inputs, ids)], error.cause)
            raise
        except SyftError as error:
            self._end(self.lines.failure() or error)
        self._note_sent(program, results, ids, counter)

    def _note_sent(
        self,
        program: ShareProgram,
        results: Sequence[SharedObject],
        ids: Sequence[int],
        counter: int,
    ) -> None:
        """Note the ids of what a program makes, and the names of its masks."""
        for slot, value, id in zip(program.results, results, ids, strict=True):
            value.id = id
            if isinstance(value, MaskedCell):
                value.name = StreamName(counter, value.place)
            elif slot < program.inputs and isinstance(value, Cell):
                self._lost.note_fresh(id, value)

    def _lose(self, programs: Sequence[SentProgram], cause: str) -> None:
        """Note that what programs were to make is not there; what was shared with them is sent
        with the next one."""
        for cell, shares in self._lost.add(programs, cause):
            cell.drop()
            self._list.fresh(cell, shares)

    def _next_counter(self) -> int:
        self._counter += 1
        return self._counter

    @exclusive
    def values(self, cells: Sequence[Cell], user: str | None = None) -> list[torch.Tensor]:
        """What cells hold, as plain int64 tensors: every party says its share.

        Raises :class:`~syft.exceptions.SharedOperationFailed` if a program has failed, and what a
        party raises that does not hand its share out.
        """
        self.flush()
        self.check_open()
        for cell in cells:
            self._check_real(cell)
        ids = [cell.id for cell in cells]
        try:
            rows = self.lines.fetch([id for id in ids if id is not None], user)
        except Exception as error:  # also what an unrelated request before this one raised
            self.check_failures()
            if isinstance(error, SharedOperationFailed):
                self._fail(error)
            if isinstance(error, SessionEnded):
                self.ended = error.cause
            raise
        return [
            sum_of(row).to(cell.device).contiguous() for cell, row in zip(cells, rows, strict=True)
        ]

    @exclusive
    def reveal(self, cell: Cell, party: str) -> torch.Tensor:
        """A pointer to the integers of a cell, which one party gets and nobody else."""
        rank = self.parties.index(party)
        self.make_room()
        value = SharedObject(self)
        self.record(ShareCode.REVEAL, (self.slot(cell), rank), (value,))
        self.flush()
        assert value.id is not None  # the flush has named it
        id, value.id = value.id, None  # the pointer is its owner
        return self.lines.pointer(party, id)

    @exclusive
    def split(self, pointer: Any, depth: int, shape: Sequence[int], device: torch.device) -> Cell:
        """The integers of a remote tensor, which its holder splits among the parties."""
        self.check_open()
        cell = self.new_cell(dense(shape), device)
        id = new_id()
        with self._undoing():
            self.lines.split(pointer, depth, id)
        cell.id = id
        return cell

    @exclusive
    def synchronize(self) -> None:
        """Send what was recorded, and raise why something has failed, as far as is known."""
        if self.ended is None:
            self.flush()
            self.check_failures()

    def check_failures(self) -> None:
        """Raise :class:`~syft.exceptions.SharedOperationFailed` if a program that was sent has
        failed, once it is undone; :class:`~syft.exceptions.SessionEnded` if it cannot be."""
        error = self.lines.failure()
        if error is not None:
            self._fail(error)

    @contextlib.contextmanager
    def _undoing(self) -> Iterator[None]:
        """A context in which something is asked of parties that may refuse it, because a program
        that was sent before has failed."""
        try:
            yield
        except ProviderLost:  # nothing was asked
            raise
        except SharedOperationFailed as error:
            self._fail(error)

    def _fail(self, error: Exception) -> NoReturn:
        """Undo what has failed and what was sent after it, and raise why.

        Shares that were sent with it are sent again with the next program.
        """
        with self.lock:
            try:
                error, undone = undo(self.lines, error)
            except Exception as lost:  # whatever a worker raises
                self._end(first_cause([lost, error]))
            self._lose(undone, self._failed_with(error).cause)
        raise self._failed_with(error) from error

    def _failed_with(self, error: Exception) -> SharedOperationFailed:
        """The error for what has failed at a worker."""
        if isinstance(error, SharedOperationFailed):
            return SharedOperationFailed(self.parties, error.cause)
        told = isinstance(error, RemoteFailure) and self.lines.provider_lost
        if told or (isinstance(error, WorkerClosed) and error.name == self.lines.provider):
            return ProviderLost(self.parties, self.lines.provider)
        return SharedOperationFailed(self.parties, _told(error))

    def _end(self, error: Exception) -> NoReturn:
        """Note that the session has ended, and raise why."""
        self.ended = _told(error)
        self._list = InstructionList()
        self._used.clear()
        self._dropped += self.stock.empty()
        self._discard_dropped()
        raise SessionEnded(self.parties, self.ended) from error

    # ----------------------------------------------------------------------------------- rehearsal

    @contextlib.contextmanager
    def rehearsing(self, lines: PartyLines, made: set[int]) -> Iterator[None]:
        """A context in which programs go to other lines, and nothing that is done counts.

        What was recorded before is sent first.  What is left of what was made in it, under the ids
        in ``made``, cannot be used afterwards.
        """
        with self.lock:
            self.flush()
            before = self.lines, self._counter, self.stock
            cells = {cell: (cell.masked, cell.memory.version) for cell in self._masks}
            self.lines, self._counter, self.stock = lines, _UNREAL_COUNTER, Stock()
            try:
                yield
            finally:
                self._list = InstructionList()
                self._used.clear()
                self._discard_dropped()
                self.lines, self._counter, self.stock = before
                for cell in self.masked_cells():
                    cell.masked, cell.memory.version = cells.get(cell, (None, cell.memory.version))
                self._unreal |= made

    @exclusive
    def open(self, cells: Sequence[Cell]) -> None:
        """Open tensors behind their masks, now, for the products to come."""
        values = [self.masked(cell) for cell in cells]
        self.flush(opening=bool(values))

    @exclusive
    def deal_ahead(self, runs: Sequence[Run]) -> None:
        """Have what the programs of some runs need dealt now; returns when it is there."""
        self.check_open()
        with self._undoing():
            Dealing(self.lines, self.stock, self._next_counter).deal(runs)

    @exclusive
    def stock_level(self) -> tuple[int, int]:
        """The runs that are dealt ahead, and the bytes of dealt material at the last party."""
        return self.stock.runs, self.lines.waiting_bytes()

    def __repr__(self) -> str:
        among = ", ".join(self.parties)
        return (
            f"<SessionClient {among}; {self.lines.provider} deals; {self.stock.runs} runs ahead, "
            f"{self.stock.nbytes} bytes>"
        )


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
