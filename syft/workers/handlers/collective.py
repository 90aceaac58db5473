"""Operations that several workers carry out together, each started by one command.

The worker drives a party program (:mod:`syft.workers.handlers.party_programs`).  Between rounds the
program is parked, and its results are promised.  Messages of a round may arrive before the program
has started or before it waits for them, and they may belong to several executions.  A party that
fails notifies the other parties, and their results fail too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import torch

from syft.exceptions import (
    LimitExceeded,
    MalformedMessage,
    ObjectIdTaken,
    PermissionDenied,
    RemoteFailure,
    ResultMismatch,
    SyftError,
)
from syft.serde.frame import Frame
from syft.serde.packer import Packer, Unpacker
from syft.serde.registry import pack, unpack_at
from syft.workers.core.access import READS
from syft.workers.core.owners import Permit
from syft.workers.core.peer import Peer
from syft.workers.core.state_machine import HeldInputs, WorkerCore
from syft.workers.core.sent_labels import received_guard, terms_of, users_of
from syft.workers.execution.leaving import check_leaving
from syft.workers.execution.permissions import Guard, combined, full_guard_of, protect
from syft.workers.handlers.commands import counted, unpacker_for
from syft.workers.handlers.party_programs import PROGRAMS, Party, PartyProgram, Received
from syft.workers.wire.messages import Abort, Done, Exchange, Parked, Start
from syft.workers.wire.references import ids_in

MAX_SESSIONS = 4096
"""The most executions a worker takes part in at once, including those not started here yet."""

MAX_ROUNDS = 2**20
"""The most rounds of an execution."""

MAX_PARTY_MESSAGES = 1024
"""The most messages of one execution that a worker keeps until its program waits for them."""

_ACTION = "a collective operation"


@dataclass(slots=True)
class Execution:
    """One execution at one worker: its generator once started, and the messages received for it."""

    payer: Peer
    """Who sent its first message, and is charged for it."""
    mailbox: dict[tuple[int, int], PartyMessage] = field(default_factory=dict)
    aborted_by: dict[str, str] = field(default_factory=dict)
    start: Start | None = None
    starter: Peer | None = None
    program: PartyProgram | None = None
    round: int = 0
    expect: frozenset[int] = frozenset()
    guard: Guard | None = None
    """The guard of what this party has computed: that of its inputs and of what it received."""

    def abandon(self, core: WorkerCore, execution: int, why: str = "was cleared") -> None:
        """End the execution with a failure: the worker was cleared, or the start cancelled."""
        outer, core.serving = core.serving, self.payer  # the others have the names it gave them
        try:
            _fail(core, execution, self, RemoteFailure("collective", f"{core.name} {why}"))
        finally:
            core.serving = outer

    def waits_for_inputs(self, peer: Peer, request: int) -> bool:
        """Whether ``request`` of ``peer`` started this, and not all its inputs are there."""
        return (
            self.start is not None
            and self.starter is not None
            and self.program is None
            and self.starter.session is peer.session
            and self.start.seq == request
        )


@dataclass(frozen=True, slots=True)
class PartyMessage:
    """A tensor that one party sent another in one round, and the guard of its results."""

    sender: str
    value: torch.Tensor
    guard: Guard | None


@WorkerCore.handles(Start)
def start(core: WorkerCore, message: Start, frame: Frame, peer: Peer) -> Any:
    """Promise the results, and start this worker's part when its inputs are present."""
    core.forget(message.drop, peer)
    try:
        _check_start(core, message, peer)
        session = _session(core, message.execution, peer)
        core.store.charges.enter(peer.session.account, promises=len(message.outs))
    except SyftError:
        if not _has_started(core, message.execution):
            _end(core, message.execution)
            _tell_others(core, message)
        raise
    session.start, session.starter = message, peer
    for out in message.outs:
        core.store.promise(out)
    core.note_made(message.outs)
    ids = ids_in(message.args)
    permit = core.permit(peer, ids, READS, _ACTION)

    def act(held: HeldInputs) -> Parked | None:
        try:
            _begin(core, session, message, peer, _inputs(core, message, frame, held, permit))
        except Exception as error:  # the other parties must not wait for this one
            _fail(core, message.execution, session, error)
            return None
        _resume(core, message.execution, session, None)
        return Parked(message.seq) if message.execution in core.sessions else None

    for name, reason in session.aborted_by.items():
        if name in message.parties:
            _fail(core, message.execution, session, RemoteFailure("collective", reason), False)
            return None
    return core.when_ready(message.seq, peer, act, ids)


def _check_start(core: WorkerCore, message: Start, peer: Peer) -> None:
    """Raise for an invalid start, before anything is stored for it.

    Whoever may not use the inputs is told so first, and not which workers are known here.
    """
    if message.program not in PROGRAMS:
        raise MalformedMessage("$.program", "a known collective", str(message.program))
    parties = message.parties
    in_place = 0 <= message.rank < len(parties) and parties[message.rank] == core.name
    again = _has_started(core, message.execution)
    if again or not in_place or len(set(parties)) != len(parties):
        raise MalformedMessage(
            "$", "a fresh execution in which this worker has its rank", "another"
        )
    _check_inputs_here(core, message, peer)
    for name in parties:
        core.connect(name)  # raises UnknownWorker
    for out in message.outs:
        core.store.check_free(out)
        if out in core.store.promised:
            raise ObjectIdTaken(out, core.name)


def _check_inputs_here(core: WorkerCore, message: Start, peer: Peer) -> None:
    """Raise :class:`~syft.exceptions.PermissionDenied` for an input that may not go to the others,
    as far as the inputs are here already."""
    objects = core.store.objects
    here = [(objects.get(id), arg) for arg in message.args for id in ids_in(arg)]
    known = [(value, arg) for value, arg in here if isinstance(value, torch.Tensor)]
    inputs = [value for value, _ in known]
    _check_leaving(core, message, known, combined(inputs), peer)


def _has_started(core: WorkerCore, execution: int) -> bool:
    session = core.sessions.get(execution)
    return execution in core.ended or (session is not None and session.start is not None)


def _inputs(
    core: WorkerCore, message: Start, frame: Frame, held: HeldInputs, permit: Permit | None
) -> list[torch.Tensor]:
    if permit is not None:
        permit.check_memory(partial(core.resolve, held=held))
    unpacker = unpacker_for(core, frame, held)
    inputs = [unpack_at(arg, unpacker, f".args[{index}]") for index, arg in enumerate(message.args)]
    for index, value in enumerate(inputs):
        if not isinstance(value, torch.Tensor):
            raise MalformedMessage(f"$.args[{index}]", "a tensor", type(value).__name__)
    return inputs


def _begin(
    core: WorkerCore, session: Execution, message: Start, peer: Peer, inputs: list[torch.Tensor]
) -> None:
    """Make the program of an execution, if its inputs may go to all parties."""
    guard = combined(inputs)
    _check_leaving(core, message, zip(inputs, message.args, strict=True), guard, peer)
    if guard is not None and not guard.admits(peer.user):
        inputs, guard = _inputs_that_run(message, inputs, guard)
    session.guard, session.program = guard, _program(message, inputs)


def _check_leaving(
    core: WorkerCore,
    message: Start,
    inputs: Iterable[tuple[torch.Tensor, Any]],
    guard: Guard | None,
    peer: Peer,
) -> None:
    """Raise :class:`~syft.exceptions.PermissionDenied` if an input, or what is computed from all of
    them, may not go to every other party."""
    others = [name for name in message.parties if name != core.name]
    asked = [*((full_guard_of(value), arg) for value, arg in inputs), (guard, ())]
    for mine, operand in asked:
        for name in others:
            id = next(iter(ids_in(operand)), None)
            place = name if mine is None else core.place_of(name)
            check_leaving(mine, place, peer.user, _ACTION, core.name, id)


def _inputs_that_run(
    message: Start, inputs: list[torch.Tensor], guard: Guard
) -> tuple[list[torch.Tensor], Guard]:
    """The inputs; or zeros, with the error sealed in the guard, if the program fails on them.

    Whoever may not read the inputs does not learn that it fails.  If it fails on zeros too, that
    follows from shapes and dtypes.
    """
    trial = _program(message, inputs)
    try:
        next(trial, None)
    except Exception as error:
        return [torch.zeros_like(value) for value in inputs], guard.sealed(error)
    finally:
        trial.close()
    return inputs, guard


def _program(message: Start, inputs: Sequence[torch.Tensor]) -> PartyProgram:
    return PROGRAMS[message.program](Party(message.rank, len(message.parties)), *inputs)


def _session(core: WorkerCore, execution: int, peer: Peer) -> Execution:
    """The session of an execution; a new one counts for ``peer`` until it ends."""
    session: Execution | None = core.sessions.get(execution)
    if session is None:
        core.store.charges.enter(peer.session.account, executions=1)
        if len(core.sessions) >= MAX_SESSIONS:
            _make_room(core)
        session = core.sessions[execution] = Execution(peer)
    return session


def _make_room(core: WorkerCore) -> None:
    """Remove an execution not started here: the oldest one of the peer that opened the most.

    Any peer can open executions that never start.  They must not block the executions of others.
    """
    waiting = {key: session for key, session in core.sessions.items() if session.start is None}
    if not waiting:
        raise LimitExceeded("$.execution", "max_sessions", MAX_SESSIONS, len(core.sessions) + 1)
    ((busiest, _),) = Counter(one.payer.name for one in waiting.values()).most_common(1)
    _remove(core, next(key for key, one in waiting.items() if one.payer.name == busiest))


def _remove(core: WorkerCore, execution: int) -> None:
    session = core.sessions.pop(execution, None)
    if session is not None:
        core.store.charges.leave(session.payer.session.account, executions=1)
        if session.start is not None and session.starter is not None:
            account = session.starter.session.account
            core.store.charges.leave(account, promises=len(session.start.outs))


def _end(core: WorkerCore, execution: int) -> None:
    _remove(core, execution)
    core.ended[execution] = None
    if len(core.ended) > MAX_SESSIONS:
        core.ended.popitem(last=False)


@WorkerCore.handles(Exchange)
def exchange(core: WorkerCore, message: Exchange, frame: Frame, peer: Peer) -> None:
    """Store what another party sent, and resume the program if nothing else is missing."""
    unpacker = Unpacker(frame.buffers, core.limits, owns_buffers=frame.exclusive)
    value = unpack_at(message.value, unpacker, ".value")
    if not isinstance(value, torch.Tensor):
        raise MalformedMessage("$.value", "a tensor", type(value).__name__)
    if message.execution in core.ended:
        return
    place = (message.round, message.rank)
    session = core.sessions.get(message.execution)
    if session is not None and (
        place in session.mailbox or len(session.mailbox) >= MAX_PARTY_MESSAGES
    ):
        raise MalformedMessage("$", "one tensor from each party in a round", "another one")
    if not 0 <= message.round < MAX_ROUNDS:
        raise LimitExceeded("$.round", "max_rounds", MAX_ROUNDS, message.round)
    about = message.users, message.shape_hidden, message.terms
    guard = received_guard(*about, core.limits, peer.identity)
    session = _session(core, message.execution, peer)
    session.mailbox[place] = PartyMessage(peer.name, value, guard)
    if session.program is not None:
        _collect(core, message.execution, session)


def _collect(core: WorkerCore, execution: int, session: Execution) -> None:
    """Resume the program with the tensors of this round, if all have arrived."""
    if session.start is None or any(
        (session.round, rank) not in session.mailbox for rank in session.expect
    ):
        return
    received: Received = {}
    for rank in sorted(session.expect):
        letter = session.mailbox.pop((session.round, rank))
        if letter.sender != session.start.parties[rank]:
            wrong = MalformedMessage("$.rank", f"party {rank} of this execution", letter.sender)
            _fail(core, execution, session, wrong)
            return
        received[rank] = letter.value
        if letter.guard is not None:
            session.guard = letter.guard.meet(session.guard or letter.guard)
    session.round += 1
    _resume(core, execution, session, received)


def _resume(
    core: WorkerCore, execution: int, session: Execution, received: Received | None
) -> None:
    """Run the program to its next round or to its end.

    At a round, the tensors it yields are sent.  At the end, the tensors it returns are stored.
    """
    program, message = cast(PartyProgram, session.program), cast(Start, session.start)
    try:
        step = next(program) if received is None else program.send(received)
    except StopIteration as end:
        _finish(core, execution, session, message, end.value)
        return
    except Exception as error:  # the failure is reported to the parties; the worker goes on
        _fail(core, execution, session, error)
        return
    session.expect = step.expect
    try:
        _send(core, execution, session, message, step.send)
    except Exception as error:  # a party without permission, or what another party could not do
        _fail(core, execution, session, error)
        return
    _collect(core, execution, session)


def _send(
    core: WorkerCore,
    execution: int,
    session: Execution,
    message: Start,
    tensors: Mapping[int, torch.Tensor],
) -> None:
    """Send the tensors of a round, by rank, if all of them may go there.

    They are as private as what came in the rounds before, which another party may have started for
    other parties.
    """
    guard, user = session.guard, cast(Peer, session.starter).user
    for rank in tensors:
        party = core.place_of(message.parties[rank])
        check_leaving(guard, party, user, _ACTION, core.name)
    hidden, terms = guard is not None and guard.shape_hidden, terms_of(guard, core.name, True)
    for rank, value in tensors.items():
        packer = Packer()
        operand = pack(value.contiguous(), packer)
        place = execution, session.round, message.rank
        sent = Exchange(*place, operand, users_of(guard), hidden, terms)
        copies = [buffer.clone() for buffer in packer.buffers]
        core.post(message.parties[rank], sent, copies, private=guard is not None)
        packer.sent()


def _finish(
    core: WorkerCore, execution: int, session: Execution, message: Start, result: Any
) -> None:
    results = result if isinstance(result, tuple) else (result,)
    if len(results) != len(message.outs):
        expected = counted(len(message.outs), in_container=False)
        got = counted(len(results), in_container=False)
        name = PROGRAMS[message.program].__name__
        wrong = ResultMismatch(f"the collective {name}", core.name, expected, got)
        _fail(core, execution, session, wrong)
        return
    _end(core, execution)
    for out, value in zip(message.outs, results, strict=True):
        protect(value, session.guard)
        core.hold(out, value)
    core.answer(cast(Peer, session.starter), Done(message.seq))


def _fail(
    core: WorkerCore, execution: int, session: Execution, error: Exception, tell: bool = True
) -> None:
    """End an execution with a failure, and mark its results as gone.

    The peer that started this part gets the error.  ``tell`` notifies the other parties.
    """
    message = session.start
    _end(core, execution)
    if message is None:
        return
    told = isinstance(error, RemoteFailure | PermissionDenied)
    hidden = session.guard is not None and not told
    core.answer(cast(Peer, session.starter), core.failure(message.seq, error, hidden=hidden))
    if tell:
        _tell_others(core, message)
    for out in message.outs:
        core.store.mark_gone(
            out, f"the collective operation that should have made it failed at {core.name}"
        )
    core.dataflow.settle(message.outs)


def decline(core: WorkerCore, message: Start) -> None:
    """Tell the other parties that this worker's part will not begin: its start was withdrawn."""
    if not _has_started(core, message.execution):
        _end(core, message.execution)
        _tell_others(core, message)


def _tell_others(core: WorkerCore, message: Start) -> None:
    for rank, name in enumerate(message.parties):
        if rank != message.rank:
            core.post(name, Abort(message.execution, message.rank, f"party {core.name} failed"))


@WorkerCore.handles(Abort)
def abort(core: WorkerCore, message: Abort, frame: Frame, peer: Peer) -> None:
    """Fail this worker's part because another party failed: now, or when the part is started."""
    if message.execution in core.ended:
        return
    session = _session(core, message.execution, peer)
    if session.start is None:
        session.aborted_by[peer.name] = message.reason
    elif peer.name in session.start.parties:
        failed = RemoteFailure("collective", message.reason)
        _fail(core, message.execution, session, failed, tell=False)
