"""Executions of party programs at one worker: what they wait for, what they send, how they end.

A program runs on behalf of its starter, also when a letter of another party resumes it: names of
parties mean what they mean to that caller, who pays for the results.  A failure ends this part,
tells the other parties what failed as far as that is public, and leaves no result.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, cast

import torch

from syft.codes import CollectiveCode
from syft.exceptions import (
    LimitExceeded,
    MalformedMessage,
    MaterialError,
    PermissionDenied,
    RemoteFailure,
    ResultMismatch,
    SyftError,
    WorkerLost,
)
from syft.ops.nested import leaves
from syft.workers.core.peer import Peer, Place, Session
from syft.workers.core.pipeline import Call
from syft.workers.core.sent_labels import terms_of, users_of
from syft.workers.core.shares import Overwritten, SharingSession, Turns
from syft.workers.core.state_machine import WorkerCore
from syft.workers.execution.leaving import check_public_shape
from syft.workers.handlers.commands import counted
from syft.workers.handlers.party_programs import (
    GUARDING,
    PROGRAMS,
    Letter,
    LetterName,
    PartyProgram,
    Received,
    Round,
)
from syft.workers.labels.guards import Guard
from syft.workers.labels.memory_labels import protect
from syft.workers.wire.messages import Abort, Done, Exchange, Start

MAX_SESSIONS = 4096
"""The most executions a worker takes part in at once, including those not started here yet."""

MAX_PARTY_MESSAGES = 4096
"""The most letters of one execution that a worker keeps until its program waits for them."""

ACTION = "a collective operation"

_LEAST_COST = 256
"""Bytes that a letter counts for besides its tensors."""
_LONGEST_CAUSE = 1000


@dataclass(frozen=True, slots=True)
class KeptLetter:
    """A letter that has arrived, who sent it, and what it counts for until it is read.

    ``rank`` is the place that the sender says it has.
    """

    sender: Peer
    rank: int
    letter: Letter
    cost: int


@dataclass(slots=True)
class Execution:
    """One execution at one worker: its generator once started, and the letters received for it."""

    payer: Peer
    """Who is charged for it: its starter; before, somebody who has sent a letter."""
    mailbox: dict[tuple[Place, int], KeptLetter] = field(default_factory=dict)
    """The letters that were not read yet, by their senders and their numbers: whoever is no party
    takes nobody's place."""
    call: Call | None = None
    """The request that started it, by which alone its letters are sent."""
    program: PartyProgram | None = None
    parties: tuple[Place, ...] = ()
    """Its parties by their ranks, once it was started."""
    sharing: list[SharingSession] = field(default_factory=list)
    """What is interrupted, or ends, if the execution fails."""
    sent: Counter[int] = field(default_factory=Counter)
    """How many letters have gone to each rank."""
    expect: frozenset[LetterName] | None = None
    """The letters that the program waits for; None if it waits for something else."""
    turns: Turns | None = None
    """Where it has its turn."""
    guard: Guard | None = None
    """The guard of what this party has computed: that of its inputs and of what it received."""

    def abandon(self, core: WorkerCore, execution: int, why: str = "was cleared") -> None:
        """End the execution with a failure: the worker was cleared, or the start cancelled."""
        with serving(core, self.payer):  # the others have the names it gave them
            fail(core, execution, self, _failed(core.name, why))

    def begin(self, call: Call) -> None:
        """Note that it was started, and who its parties are: those that its starter calls so."""
        self.call = call
        self.parties = tuple((call.peer.place[0], name) for name in call.message.parties)

    def check_letter(self, peer: Peer, number: int) -> None:
        """Raise :class:`~syft.exceptions.MalformedMessage` for a letter that is not to be kept."""
        if self.call is not None and peer.place not in self.parties:
            raise MalformedMessage("$", "a letter of a party", f"one of {peer.name}")
        many = len(self.mailbox) >= MAX_PARTY_MESSAGES and (
            sum(place == peer.place for place, _ in self.mailbox) >= MAX_PARTY_MESSAGES
        )
        if many or (peer.place, number) in self.mailbox:
            raise MalformedMessage("$", "one letter of each number from each party", "another one")

    def forget_others(self, core: WorkerCore) -> None:
        """Drop the letters of those who turn out to be no parties."""
        for name in [name for name in self.mailbox if name[0] not in self.parties]:
            _read(core, self, name)

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
        for name, kept in list(self.mailbox.items()):
            if kept.sender.session in gone:
                _read(core, self, name)
                note_failure(core, execution, kept.sender, _failed(kept.sender.said, reason))
        others = [kept.sender for kept in self.mailbox.values()]
        if not others:
            remove(core, execution)
        elif self.payer.session in gone:
            charge(core, self, others[0])

    def lose(
        self, core: WorkerCore, execution: int, gone: Container[Session], error: WorkerLost
    ) -> None:
        """End the execution if one of those who are gone takes part in it, or has started it."""
        if self.call is None:
            # Its parties are not known here; that of a payer who is gone has been abandoned.
            return
        if self.call.peer.session in gone or error.name in self.call.message.parties:
            with serving(core, self.call.peer):
                fail(core, execution, self, error)

    def waits_for_inputs(self, peer: Peer, request: int) -> bool:
        """Whether ``request`` of ``peer`` started this, and not all its inputs are there."""
        if self.call is None or self.program is not None:
            return False
        return self.call.peer.session is peer.session and self.call.message.seq == request


def _failed(name: str, why: str) -> RemoteFailure:
    return RemoteFailure("collective", f"party {name} failed: it {why}")


def charge(core: WorkerCore, session: Execution, peer: Peer) -> None:
    """Let another caller be charged for an execution from now on.

    Raises :class:`~syft.exceptions.LimitExceeded`.
    """
    charges = core.store.charges
    charges.enter(peer.session.account, executions=1)
    charges.leave(session.payer.session.account, executions=1)
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


def has_started(core: WorkerCore, execution: int) -> bool:
    """Whether this worker's part of an execution has been started, or has ended."""
    session = core.sessions.get(execution)
    return execution in core.ended or (session is not None and session.call is not None)


def session_of(core: WorkerCore, execution: int, peer: Peer) -> Execution:
    """The state of an execution; a new one counts for ``peer`` until it ends.

    Raises :class:`~syft.exceptions.LimitExceeded`.
    """
    session: Execution | None = core.sessions.get(execution)
    if session is None:
        if len(core.sessions) >= MAX_SESSIONS:
            _make_room(core)
        core.store.charges.enter(peer.session.account, executions=1)
        session = core.sessions[execution] = Execution(peer)
    return session


def _make_room(core: WorkerCore) -> None:
    """Remove an execution not started here: the oldest one of the peer that opened the most.

    Any peer can open executions that never start.  They must not block the executions of others.
    """

    def waits(execution: int) -> bool:
        session: Execution | None = core.sessions.get(execution)
        return session is not None and session.call is None

    def payers() -> dict[int, str]:
        return {key: one.payer.name for key, one in core.sessions.items() if one.call is None}

    oldest = core.waiting_to_go.next(payers, waits)
    if oldest is None:
        raise LimitExceeded("$.execution", "max_sessions", MAX_SESSIONS, len(core.sessions) + 1)
    remove(core, oldest)


def note_failure(core: WorkerCore, execution: int, peer: Peer, error: SyftError) -> None:
    """Remember that a party has failed of an execution that has not started here, and may never.

    Of too many, the oldest one goes of whoever sent the most.
    """
    early = core.aborted
    early[execution, peer.place] = error
    if len(early) > MAX_SESSIONS:
        oldest = core.failures_to_go.next(
            lambda: {key: key[1] for key in early}, early.__contains__
        )
        del early[cast(tuple[int, Place], oldest)]


def remove(core: WorkerCore, execution: int) -> Execution | None:
    """Forget an execution, and stop charging for it."""
    session: Execution | None = core.sessions.pop(execution, None)
    if session is not None:
        charges = core.store.charges
        charges.leave(session.payer.session.account, executions=1)
        if (call := session.call) is not None:
            charges.leave(call.peer.session.account, promises=len(call.message.outs))
        for name in list(session.mailbox):
            _read(core, session, name)
    return session


def end(core: WorkerCore, execution: int) -> None:
    """Forget an execution, and ignore what comes late for it."""
    session = remove(core, execution)
    parties = () if session is None else session.parties
    core.ended[execution] = Ended(parties, () if session is None else tuple(session.sharing))
    if len(core.ended) > MAX_SESSIONS:
        core.ended.popitem(last=False)


@dataclass(frozen=True, slots=True)
class Ended:
    """What is remembered of an execution: a party may fail when the others have ended."""

    parties: tuple[Place, ...]
    sharing: tuple[SharingSession, ...]


# ---------------------------------------------------------------------------------------- letters


def keep(
    core: WorkerCore, execution: int, name: LetterName, letter: Letter, peer: Peer
) -> Execution | None:
    """Keep a letter, which calls itself ``name``, until the program waits for it; None if it cannot
    be kept.

    Then the execution fails here, or is refused when it is started, and the sender is told.
    """
    try:
        session = session_of(core, execution, peer)
        cost = _LEAST_COST + sum(
            value.untyped_storage().nbytes()
            for value in leaves(letter.values)
            if isinstance(value, torch.Tensor) and value.layout is torch.strided
        )
        core.store.charges.enter(peer.session.account, letters=cost)
    except LimitExceeded as error:
        refuse(core, execution, error, peer)
        core.post(peer.said, Abort(execution, -1, cause_of(core, None, error)))
        return None
    rank, number = name
    session.mailbox[peer.place, number] = KeptLetter(peer, rank, letter, cost)
    return session


def refuse(core: WorkerCore, execution: int, error: SyftError, peer: Peer) -> None:
    """Fail an execution because a letter of a party cannot be read or kept: now, or when it is
    started."""
    session: Execution | None = core.sessions.get(execution)
    if session is not None and session.call is not None:
        if peer.place in session.parties:
            fail(core, execution, session, error)
        return
    note_failure(core, execution, peer, error)
    if session is not None:
        for name in [name for name in session.mailbox if name[0] == peer.place]:
            _read(core, session, name)
        if not session.mailbox:
            remove(core, execution)


def _read(core: WorkerCore, session: Execution, name: tuple[Place, int]) -> KeptLetter:
    """Take a letter out of the mailbox."""
    kept = session.mailbox.pop(name)
    core.store.charges.leave(kept.sender.session.account, letters=kept.cost)
    return kept


def waiting_bytes(core: WorkerCore, sender: Place) -> int:
    """The bytes of letters from a worker that wait to be read."""
    kept = (one for session in core.sessions.values() for one in session.mailbox.values())
    return sum(one.cost for one in kept if one.sender.place == sender)


def collect(core: WorkerCore, execution: int, session: Execution) -> None:
    """Resume the program, if all letters have arrived for which it waits."""
    if session.program is None or session.expect is None:
        return
    if _has_come(session):
        resume(core, execution, session, True)


def _has_come(session: Execution) -> bool:
    """Whether all letters are there for which the program waits."""
    for rank, number in session.expect or ():
        if (session.parties[rank], number) not in session.mailbox:
            return False
    return True


def _collected(core: WorkerCore, session: Execution) -> Received:
    """The letters for which the program waits, all of which are there."""
    received: Received = {}
    for rank, number in sorted(session.expect or ()):
        kept = _read(core, session, (session.parties[rank], number))
        if kept.rank != rank:
            raise MalformedMessage("$.rank", f"{rank}, as {kept.sender.said} has", str(kept.rank))
        received[rank, number] = kept.letter
        if kept.letter.guard is not None:
            session.guard = kept.letter.guard.meet(session.guard or kept.letter.guard)
    return received


# ---------------------------------------------------------------------------------------- running


def resume(core: WorkerCore, execution: int, session: Execution, collected: bool) -> None:
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
            session.expect = step.expect
            if not _has_come(session):
                return
            collected = True
    finally:
        core.serving = outer


def _take_turn(core: WorkerCore, execution: int, session: Execution, turns: Turns) -> None:
    if core.sessions.get(execution) is not session:  # it has failed meanwhile
        turns.done()
        return
    session.turns = turns
    resume(core, execution, session, False)


def _send(call: Call, session: Execution, step: Round) -> None:
    """Send the letters of a round, by rank, if all parties may have them.

    Those of a program on tensors are as private as what came in the rounds before, which another
    party may have started for other parties.
    """
    message: Start = call.message
    guarding = message.program in GUARDING
    guard = step.guard if guarding else session.guard
    check_public_shape(guard, ACTION)
    about = users_of(guard), False, terms_of(guard, call.core.name, True)

    def letter(rank: int, values: tuple[Any, ...]) -> Exchange:
        number = session.sent[rank]
        session.sent[rank] += 1
        return Exchange(message.execution, number, message.rank, values, *about)

    letters = [
        (message.parties[rank], values, partial(letter, rank)) for rank, values in step.send.items()
    ]
    call.post(guard, ACTION, letters, private=guarding or guard is not None)


# ----------------------------------------------------------------------------------------- ending


def _finish(core: WorkerCore, execution: int, session: Execution, result: Any) -> None:
    call = cast(Call, session.call)
    message: Start = call.message
    results: Sequence[Any] = result if isinstance(result, tuple | list) else (result,)
    if len(results) != len(message.outs):
        _put_back(results)
        expected = counted(len(message.outs), in_container=False)
        got = counted(len(results), in_container=False)
        name = (PROGRAMS | GUARDING)[message.program].__name__
        wrong = ResultMismatch(f"the collective {name}", core.name, expected, got)
        fail(core, execution, session, wrong)
        return
    stored: dict[int, Any] = {}
    try:
        for out, value in zip(message.outs, results, strict=True):
            if out not in core.store.promised:  # dropped before it was there
                continue
            protect(value, session.guard)
            stored[out] = value
            core.hold(out, value)
    except Exception as error:  # the caller has too much: none of the results is kept
        _put_back(results)
        for out, value in stored.items():
            if out in core.store.ids_of(value):
                core.store.take(out, "another result could not be stored")
        fail(core, execution, session, error)
        return
    end(core, execution)
    core.answer(call.peer, Done(message.seq))
    if session.turns is not None:
        session.turns.done()


def _put_back(results: Sequence[Any]) -> None:
    """Undo what was written in place on the way to results that are not kept."""
    for value in results:
        if isinstance(value, Overwritten):
            value.put_back()


def fail(
    core: WorkerCore, execution: int, session: Execution, error: Exception, tell: bool = True
) -> None:
    """End an execution with a failure, and mark its results as gone.

    The peer that started this part gets the error.  ``tell`` notifies the other parties of the
    cause; one that is lost comes last, since to dial it takes seconds, in which what waits for its
    turn here would wait too.  The sessions of shared tensors that it used are interrupted, or end.
    """
    cause = cause_of(core, session, error)
    call = session.call
    for sharing in session.sharing:
        stop(sharing, cast(Call, call).message, error, cause)
    end(core, execution)
    # One that fails inside cannot be closed.
    if session.program is not None and not getattr(session.program, "gi_running", False):
        session.program.close()
    if call is None:
        return
    message: Start = call.message
    failed = core.failure(message.seq, error, hidden=_is_hidden(session, error))
    core.answer(call.peer, failed)
    lost = {error.name} if isinstance(error, WorkerLost) else set()
    if tell:
        tell_others(core, message, cause, set(message.parties) - lost)
    for out in message.outs:
        core.store.mark_gone(
            out, f"the collective operation that should have made it failed at {core.name}"
        )
    core.dataflow.settle(message.outs)
    if session.turns is not None:
        session.turns.done()
    if tell:
        tell_others(core, message, cause, lost)


_FINAL: Final = MaterialError, MalformedMessage, WorkerLost
"""What no worker does that follows the protocol: a session in which it happens is over."""


def stop(sharing: SharingSession, message: Start, error: BaseException, cause: str) -> None:
    """Interrupt a session of shared tensors because an execution on it has failed.

    Its caller may roll that back, and go on.  Where a worker is lost or does not follow the
    protocol, and where it is rolling back that has failed, the session ends.  A provider that holds
    no share may be lost: what the others hold does not depend on it.
    """
    final = isinstance(error, _FINAL) and not sharing.can_do_without(error)
    if final or message.program == CollectiveCode.ROLL_BACK:
        sharing.end(cause)
    else:
        sharing.interrupt(message.execution, cause)


def _is_hidden(session: Execution | None, error: BaseException) -> bool:
    told = isinstance(error, RemoteFailure | PermissionDenied | WorkerLost)
    return session is not None and session.guard is not None and not told


def cause_of(core: WorkerCore, session: Execution | None, error: BaseException) -> str:
    """What the other parties are told of a failure: the class, and the text if it is public."""
    if isinstance(error, RemoteFailure) and error.kind == "collective":
        return error.text
    failed = f"party {core.name} failed: {type(error).__name__}"
    return failed if _is_hidden(session, error) else f"{failed}: {error}"[:_LONGEST_CAUSE]


def tell_others(
    core: WorkerCore, message: Start, cause: str, names: Container[str] | None = None
) -> None:
    """Tell the other parties, or those of them in ``names``, that this worker's part has failed, as
    far as they can be reached and take what it says."""
    for rank, name in enumerate(message.parties):
        if rank != message.rank and (names is None or name in names):
            with contextlib.suppress(SyftError):
                core.post(name, Abort(message.execution, message.rank, cause))
