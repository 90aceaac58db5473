"""Executions of party programs at one worker: what they wait for, what they send, how they end.

A program runs on behalf of its starter, also when a letter of another party resumes it: names of
parties mean what they mean to that caller, who pays for the results.  A failure ends this part,
tells the other parties what failed as far as that is public, and leaves no result.
"""

from __future__ import annotations

import contextlib
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, cast

from syft.exceptions import (
    LimitExceeded,
    MalformedMessage,
    RemoteFailure,
    ResultMismatch,
    SyftError,
    WorkerError,
    WorkerLost,
)
from syft.workers.core.peer import Peer, Place, RisingNumbers, Session
from syft.workers.core.pipeline import Call
from syft.workers.core.sent_labels import terms_of, users_of
from syft.workers.core.shares import Overwritten, SharingSession, Turns
from syft.workers.core.state_machine import WorkerCore
from syft.workers.execution.leaving import check_public_shape
from syft.workers.handlers.commands import counted
from syft.workers.handlers.mailbox import Mailbox
from syft.workers.handlers.party_programs import (
    BEARING,
    GUARDING,
    PROGRAMS,
    QUIETLY,
    Failed,
    HostedParty,
    Letter,
    LetterName,
    PartyProgram,
    Received,
    Round,
    bears_losses,
)
from syft.workers.handlers.telling_failures import Ended, cause_of, failed_of, stop, tell_others
from syft.workers.labels.guards import Guard
from syft.workers.labels.memory_labels import protect
from syft.workers.wire.messages import Abort, Done, Exchange, Failure, Start

MAX_SESSIONS = 4096
"""The most executions not started here yet of which a worker keeps letters.  Of those that are,
each caller may have as many as its limits say."""

ACTION = "a collective operation"

_LONGEST_ERROR: Final = 1 << 13
"""Bytes of an error that is kept for an execution that may never start here."""


@dataclass(slots=True)
class PartExecution:
    """One execution at one worker: its generator once started, and the letters received for it."""

    payer: Peer
    """Who is charged for it: its starter; before, somebody who has sent a letter."""
    mailbox: Mailbox
    """The letters that were not read yet."""
    call: Call | None = None
    """The request that started it, by which alone its letters are sent."""
    program: PartyProgram | None = None
    parties: tuple[Place, ...] = ()
    """Its parties by their ranks, once it was started."""
    sharing: list[SharingSession] = field(default_factory=list)
    """What is interrupted, or ends, if the execution fails."""
    sent: dict[int, int] = field(default_factory=dict)
    """How many letters have gone to each rank."""
    expect: frozenset[LetterName] | None = None
    """The letters that the program waits for; None if it waits for something else."""
    turns: Turns | None = None
    """Where it has its turn."""
    guard: Guard | None = None
    """The guard of what this party has computed: that of its inputs and of what it received."""
    party: HostedParty | None = None
    """What its program has that sees to guards itself, once it has begun."""
    any: bool = False
    """Whether the program goes on when any of the letters has come for which it waits."""
    lost: dict[int, Failed] = field(default_factory=dict)
    """The parties of which no letter comes any more, by rank, where this ends only what needs
    one."""

    @property
    def outs(self) -> Sequence[int]:
        """The ids of the results that its program has not stored, or lost, itself."""
        outs: Sequence[int] = cast(Call, self.call).message.outs
        kept = self.party.kept if self.party is not None else ()
        return [out for out in outs if out not in kept] if kept else outs

    @property
    def waiting(self) -> dict[int, Any]:
        """What its program has and will use, by names of its own."""
        return {} if self.party is None else self.party.waiting

    def abandon(self, core: WorkerCore, execution: int, why: str = "was cleared") -> None:
        """End the execution with a failure: the worker was cleared, or the start cancelled."""
        with serving(core, self.payer):  # the others have the names it gave them
            fail(core, execution, self, _failed(core.name, why))

    def begin(self, call: Call) -> None:
        """Note that it was started, and who its parties are: those that its starter calls so."""
        self.call = call
        self.parties = tuple((call.peer.place[0], name) for name in call.message.parties)

    def check_letter(self, peer: Peer, number: int, rank: int) -> None:
        """Raise :class:`~syft.exceptions.MalformedMessage` for a letter that is not to be kept, and
        :class:`~syft.exceptions.InputRefused` where a program takes each once, in any order."""
        if self.party is not None and self.party.due:
            rank_here = self.parties.index(peer.place) if peer.place in self.parties else None
            came = (peer.place, number) in self.mailbox
            about = rank_here, number, rank, came, rank_here in self.lost
            self.party.check_due(peer.said, *about)
        if self.call is not None and peer.place not in self.parties:
            raise MalformedMessage("$", "a letter of a party", f"one of {peer.name}")
        self.mailbox.check(peer, number)

    def will_not_come(
        self,
        core: WorkerCore,
        execution: int,
        peer: Peer | None,
        name: str,
        failed: Failed,
        numbers: Sequence[int] | None = None,
    ) -> None:
        """Note that a party has failed, or that some letters of it will not come.

        Raises :class:`~syft.exceptions.LimitExceeded` if ``peer``, who says so, has too much here.
        """
        call = cast(Call, self.call)
        if not bears_losses(call.message.program):
            fail(core, execution, self, RemoteFailure("collective", failed.text), tell=False)
            return
        rank = call.message.parties.index(name)
        if numbers is None:
            self.lost.setdefault(rank, failed)
        for number in numbers or ():
            came = self.party is not None and self.party.due.get((rank, number), True)
            if not came and peer is not None:
                self.mailbox.put(peer, number, rank, Letter((), error=failed))
        collect(core, execution, self)

    def forget_others(self) -> None:
        """Drop the letters of those who turn out to be no parties."""
        self.mailbox.drop(lambda place, kept: place not in self.parties)

    def leave(
        self, core: WorkerCore, execution: int, gone: Container[Session], reason: str
    ) -> None:
        """End the execution if its starter is gone.

        One that has not started here loses the letters of those who are gone.  If one of them turns
        out to be a party, it fails when it is started.
        """
        if self.call is not None:
            if self.payer.session in gone:
                self.abandon(core, execution, reason)
            return
        for kept in self.mailbox.drop(lambda place, kept: kept.sender.session in gone):
            error = _failed(kept.sender.said, reason)
            note_failure(core, execution, kept.sender, Failed.of(core, error))
        other = self.mailbox.any_sender()
        if other is None:
            remove(core, execution)
        elif self.payer.session in gone:
            charge(core, self, other)

    def lose(
        self, core: WorkerCore, execution: int, gone: Container[Session], error: WorkerLost
    ) -> None:
        """End the execution if one of those who are gone takes part in it, or has started it."""
        if self.call is None:
            # Its parties are not known here; that of a payer who is gone has been abandoned.
            return
        call, named = self.call, error.name in self.call.message.parties
        if call.peer.session in gone or (named and not bears_losses(call.message.program)):
            with serving(core, call.peer):
                fail(core, execution, self, error)
        elif named:
            self.will_not_come(core, execution, None, error.name, Failed.of(core, error))

    def waits_for_inputs(self, peer: Peer, request: int) -> bool:
        """Whether ``request`` of ``peer`` started this, and not all its inputs are there."""
        if self.call is None or self.program is not None:
            return False
        return self.call.peer.session is peer.session and self.call.message.seq == request


def _failed(name: str, why: str) -> RemoteFailure:
    return RemoteFailure("collective", f"party {name} failed: it {why}")


def charge(core: WorkerCore, session: PartExecution, peer: Peer) -> None:
    """Let another caller be charged for an execution from now on.

    Raises :class:`~syft.exceptions.LimitExceeded`.
    """
    charges = core.store.charges
    charges.enter(peer.account, executions=1)
    charges.leave(session.payer.account, executions=1)
    session.payer = peer


@contextlib.contextmanager
def serving(core: WorkerCore, peer: Peer | None) -> Iterator[None]:
    """A context in which the worker acts on behalf of a caller."""
    outer, core.serving = core.serving, peer
    try:
        yield
    finally:
        core.serving = outer


# -------------------------------------------------------------------------------------- the table


def has_started(core: WorkerCore, execution: int, peer: Peer) -> bool:
    """Whether this worker's part of an execution has been started by ``peer``, or has ended."""
    session = core.sessions.get(execution)
    under_way = session is not None and session.call is not None
    return under_way or has_ended(core, execution, peer)


def has_ended(core: WorkerCore, execution: int, peer: Peer) -> bool:
    """Whether an execution has ended here which the program of ``peer`` had started: anybody may
    have sent letters for one of its number since."""
    session, numbers = core.sessions.get(execution), core.past.get(peer.place[0] or core)
    under_way = session is not None and session.call is not None
    return not under_way and numbers is not None and numbers.has(execution)


def session_of(core: WorkerCore, execution: int, peer: Peer) -> PartExecution:
    """The state of an execution; a new one counts for ``peer`` until it ends.

    Raises :class:`~syft.exceptions.LimitExceeded`.
    """
    session: PartExecution | None = core.sessions.get(execution)
    if session is None:
        _make_room(core)
        core.store.charges.enter(peer.account, executions=1)
        session = PartExecution(peer, Mailbox(core.store.charges))
        core.sessions[execution] = session
    return session


def _make_room(core: WorkerCore) -> None:
    """Where there are too many executions not started here, remove the oldest one of the peer that
    opened the most.

    Any peer can open executions that never start.  They must not block the executions of others.
    """
    few = len(core.sessions) < MAX_SESSIONS
    if few or sum(one.call is None for one in core.sessions.values()) < MAX_SESSIONS:
        return

    def waits(execution: int) -> bool:
        session: PartExecution | None = core.sessions.get(execution)
        return session is not None and session.call is None

    def payers() -> dict[int, str]:
        return {key: one.payer.name for key, one in core.sessions.items() if one.call is None}

    oldest = cast(int, core.waiting_to_go.next(payers, waits))
    error = LimitExceeded("$.execution", "max_sessions", MAX_SESSIONS, MAX_SESSIONS + 1)
    for kept in core.sessions[oldest].mailbox.drop():
        note_failure(core, oldest, kept.sender, Failed.of(core, error))
    remove(core, oldest)


def note_failure(core: WorkerCore, execution: int, peer: Peer, error: Failed) -> None:
    """Remember that a party has failed of an execution that has not started here, and may never.

    Of too many, the oldest one goes of whoever sent the most.
    """
    early = core.aborted
    early[execution, peer.place] = _shortened(core, error)
    if len(early) > MAX_SESSIONS:
        oldest = core.failures_to_go.next(
            lambda: {key: key[1] for key in early}, early.__contains__
        )
        del early[cast(tuple[int, Place], oldest)]


def _shortened(core: WorkerCore, failed: Failed) -> Failed:
    """A failure that is kept without a charge: of a long error its text alone."""
    if failed.size <= _LONGEST_ERROR:
        return failed
    return Failed.of(core, RemoteFailure("collective", failed.text), cause=failed.text)


def remove(core: WorkerCore, execution: int) -> PartExecution | None:
    """Forget an execution, and stop charging for it."""
    session: PartExecution | None = core.sessions.pop(execution, None)
    if session is not None:
        charges = core.store.charges
        charges.leave(session.payer.account, executions=1)
        if (call := session.call) is not None and call.message.outs:
            charges.leave(call.peer.account, promises=len(call.message.outs))
        session.mailbox.drop()
    return session


def end(core: WorkerCore, execution: int, peer: Peer) -> None:
    """Forget an execution that ``peer`` has started, or wanted to, and take nothing more for it."""
    session = remove(core, execution)
    core.past.setdefault(peer.place[0] or core, RisingNumbers()).admit(execution)
    if session is not None and session.sharing:
        core.ended[execution] = Ended(session.parties, tuple(session.sharing))
        if len(core.ended) > MAX_SESSIONS:
            core.ended.popitem(last=False)


# ---------------------------------------------------------------------------------------- letters


def keep(
    core: WorkerCore, execution: int, name: LetterName, letter: Letter, peer: Peer
) -> PartExecution | None:
    """Keep a letter, which calls itself ``name``, until the program waits for it; None if it cannot
    be kept.

    Then the execution fails here, or is refused when it is started, and the sender is told.
    """
    try:
        session = session_of(core, execution, peer)
        session.mailbox.put(peer, name[1], name[0], letter)
    except LimitExceeded as error:
        refuse(core, execution, error, peer)
        core.post(peer.said, Abort(execution, -1, cause_of(core, None, error)))
        return None
    return session


def refuse(core: WorkerCore, execution: int, error: SyftError, peer: Peer) -> None:
    """Fail an execution because a letter of a party cannot be read or kept: now, or when it is
    started."""
    session: PartExecution | None = core.sessions.get(execution)
    if session is not None and session.call is not None:
        if peer.place not in session.parties:
            return
        if bears_losses(session.call.message.program):
            failed = failed_of(core, None, session.call.message, error)
            session.will_not_come(core, execution, peer, peer.place[1], failed)
        else:
            fail(core, execution, session, error)
        return
    note_failure(core, execution, peer, failed_of(core, None, None, error))
    if session is not None:
        session.mailbox.drop(lambda place, kept: place == peer.place)
        if not session.mailbox:
            remove(core, execution)


def waiting_bytes(core: WorkerCore, sender: Place) -> int:
    """The bytes of letters from a worker that wait to be read."""
    return sum(session.mailbox.bytes_of(sender) for session in core.sessions.values())


def collect(core: WorkerCore, execution: int, session: PartExecution) -> None:
    """Resume the program, if all letters have arrived for which it waits."""
    if session.program is None or session.expect is None:
        return
    if _has_come(session):
        resume(core, execution, session, True)


def _has_come(session: PartExecution) -> bool:
    """Whether the letters are there for which the program waits."""
    expect = session.expect or frozenset()
    if session.any:
        return any(_is_there(session, name) for name in expect)
    return all(_is_there(session, name) for name in expect)


def _is_there(session: PartExecution, name: LetterName) -> bool:
    """Whether a letter has come, or is known not to come."""
    rank, number = name
    return (session.parties[rank], number) in session.mailbox or rank in session.lost


def _collected(core: WorkerCore, session: PartExecution) -> Received:
    """The letters for which the program waits, as far as they are there."""
    received: Received = {}
    for rank, number in sorted(session.expect or ()):
        if not _is_there(session, (rank, number)):
            continue
        if session.any:
            cast(HostedParty, session.party).due[rank, number] = True
        if (session.parties[rank], number) not in session.mailbox:
            received[rank, number] = Letter((), error=session.lost[rank])
            continue
        kept = session.mailbox.take((session.parties[rank], number))
        if kept.rank != rank:
            wrong = MalformedMessage("$.rank", f"{rank}, as {kept.sender.said} has", str(kept.rank))
            if not bears_losses(cast(Call, session.call).message.program):
                raise wrong
            received[rank, number] = Letter((), error=Failed.of(core, wrong))
            continue
        received[rank, number] = kept.letter
        if kept.letter.guard is not None:
            session.guard = kept.letter.guard.meet(session.guard or kept.letter.guard)
    return received


# ---------------------------------------------------------------------------------------- running


def resume(core: WorkerCore, execution: int, session: PartExecution, collected: bool) -> None:
    """Run the program until it waits for letters or for its turn, or has ended.

    What it yields is sent, and what it returns stored.  ``collected``: it goes on with the letters
    for which it waits.
    """
    program, call = cast(PartyProgram, session.program), cast(Call, session.call)
    outer, core.serving = core.serving, call.peer
    try:
        while True:
            try:
                received = _collected(core, session) if collected else None
                session.expect = None
                step = next(program) if received is None else program.send(received)
                if isinstance(step, Turns):
                    step.take(partial(_take_turn, core, execution, session, step))
                    return
                _send(call, session, step)
            except StopIteration as ended:
                _finish(core, execution, session, ended.value)
                return
            except Exception as error:  # it is reported to the parties; the worker goes on
                fail(core, execution, session, error)
                return
            session.expect, session.any = step.expect, step.any
            if not _has_come(session):
                return
            collected = True
    finally:
        core.serving = outer


def _take_turn(core: WorkerCore, execution: int, session: PartExecution, turns: Turns) -> None:
    if core.sessions.get(execution) is not session:  # it has failed meanwhile
        turns.done()
        return
    session.turns = turns
    resume(core, execution, session, False)


def _send(call: Call, session: PartExecution, step: Round) -> None:
    """Send the letters of a round, by rank, if all parties may have them.

    Those of a program on tensors are as private as what came in the rounds before, which another
    party may have started for other parties.
    """
    message: Start = call.message
    guarding = message.program in GUARDING
    guard = step.guard if guarding else session.guard
    if guard is None and not step.send:
        return
    check_public_shape(guard, ACTION)
    about = users_of(guard), False, terms_of(guard, call.core.name, True)

    def letter(rank: int, values: tuple[Any, ...]) -> Exchange:
        session.sent[rank] = (number := session.sent.get(rank, 0)) + 1
        return Exchange(message.execution, number, message.rank, values, *about)

    letters = [
        (message.parties[rank], values, partial(letter, rank)) for rank, values in step.send.items()
    ]
    private = guarding or guard is not None
    if message.program not in BEARING:
        call.post(guard, ACTION, letters, private)
        return
    for one, rank in zip(letters, step.send, strict=True):
        if rank not in session.lost:
            try:
                call.post(guard, ACTION, [one], private)
            except WorkerError as error:
                session.lost[rank] = Failed.of(call.core, error)


# ----------------------------------------------------------------------------------------- ending


def _finish(core: WorkerCore, execution: int, session: PartExecution, result: Any) -> None:
    if isinstance(result, Failed):
        fail(core, execution, session, result, tell=False)
        return
    call = cast(Call, session.call)
    message: Start = call.message
    results: Sequence[Any] = result if isinstance(result, tuple | list) else (result,)
    results, outs = () if result is QUIETLY else results, session.outs
    if len(results) != len(outs):
        _put_back(results)
        expected = counted(len(outs), in_container=False)
        got = counted(len(results), in_container=False)
        name = (PROGRAMS | GUARDING)[message.program].__name__
        wrong = ResultMismatch(f"the collective {name}", core.name, expected, got)
        fail(core, execution, session, wrong)
        return
    try:
        if outs:
            _store(core, session, outs, results)
    except Exception as error:  # the caller has too much: none of the results is kept
        _put_back(results)
        fail(core, execution, session, error)
        return
    end(core, execution, call.peer)
    if result is not QUIETLY:
        core.answer(call.peer, Done(message.seq))
    if session.turns is not None:
        session.turns.done()


def _store(
    core: WorkerCore, session: PartExecution, outs: Sequence[int], results: Sequence[Any]
) -> None:
    """Store all results, or none of them if one cannot be stored."""
    stored: dict[int, Any] = {}
    try:
        for out, value in zip(outs, results, strict=True):
            if out not in core.store.promised:  # dropped before it was there
                continue
            protect(value, session.guard)
            stored[out] = value
            core.hold(out, value)
    except Exception:
        for out, value in stored.items():
            if out in core.store.ids_of(value):
                core.store.take(out, "another result could not be stored")
        raise


def _put_back(results: Sequence[Any]) -> None:
    """Undo what was written in place on the way to results that are not kept."""
    for value in results:
        if isinstance(value, Overwritten):
            value.put_back()


def _stopped(core: WorkerCore, session: PartExecution, error: Exception) -> Failed:
    """A failure as it is told; the sessions of shared tensors that it concerns are stopped."""
    message = None if session.call is None else session.call.message
    failed = failed_of(core, session.guard, message, error)
    for sharing in session.sharing:
        stop(sharing, cast(Start, message), error, failed.text)
    return failed


def _close(program: PartyProgram | None) -> None:
    """Close a program, unless it fails inside: then it cannot be closed."""
    if program is not None and not getattr(program, "gi_running", False):
        program.close()


def fail(
    core: WorkerCore,
    execution: int,
    session: PartExecution,
    error: Exception | Failed,
    tell: bool = True,
    answer: bool = True,
) -> None:
    """End an execution with a failure, and mark its results as gone.

    The peer that started this part gets the error as an ``answer``.  ``tell`` notifies the other
    parties of the cause; one that is lost comes last, since to dial it takes seconds, in which what
    waits for its turn here would wait too.  The sessions of shared tensors that it used are
    interrupted, or end.
    """
    call = session.call
    failed = error if isinstance(error, Failed) else _stopped(core, session, error)
    end(core, execution, session.payer if call is None else call.peer)
    _close(session.program)
    if call is None:
        return
    message: Start = call.message
    outs = session.outs
    if answer:
        core.answer(call.peer, Failure(message.seq, failed.error))
    lost = {error.name} if isinstance(error, WorkerLost) else set()
    if tell:
        tell_others(core, message, failed, set(message.parties) - lost)
    why = f"the collective operation that should have made it failed at {core.name}"
    for out in outs:
        core.store.mark_gone(out, why)
    core.dataflow.settle(outs)
    if session.turns is not None:
        session.turns.done()
    if tell:
        tell_others(core, message, failed, lost)
