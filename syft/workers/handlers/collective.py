"""Operations that several workers carry out together, each started by one command.

The worker drives a party program (:mod:`syft.workers.handlers.party_programs`).  Between rounds the
program is parked, and its results are promised.  Letters may arrive before the program has started
or before it waits for them, and they may belong to several executions; who sends too much ahead
makes its execution fail.  A party that fails notifies the other parties, and their results fail
too, with its cause.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import reduce
from typing import Any, NamedTuple, cast

import torch

from syft.codes import CollectiveCode
from syft.exceptions import (
    ExecutionCancelled,
    InputRefused,
    LimitExceeded,
    MalformedMessage,
    ObjectIdTaken,
    RemoteFailure,
    SyftError,
    WorkerError,
)
from syft.serde.errors import unpack_error
from syft.serde.frame import encode_header
from syft.serde.packer import Unpacker
from syft.serde.registry import unpack_at
from syft.workers.core.access import READS, Access
from syft.workers.core.owners import Permit
from syft.workers.core.peer import Peer
from syft.workers.core.pipeline import HERE, Call, Declaration, handles
from syft.workers.core.sent_labels import received_guard
from syft.workers.core.shares import SharingSession
from syft.workers.core.state_machine import WorkerCore
from syft.workers.execution.leaving import check_public_shape
from syft.workers.handlers.executions import (
    ACTION,
    PartExecution,
    charge,
    collect,
    end,
    fail,
    has_ended,
    has_started,
    keep,
    note_failure,
    refuse,
    resume,
    session_of,
)
from syft.workers.handlers.party_programs import (
    BEARING,
    DECLARED,
    GUARDING,
    NUMBERS,
    LONGEST_CAUSE,
    PROGRAMS,
    Failed,
    HostedParty,
    Letter,
    Party,
    PartyProgram,
    bears_losses,
)
from syft.workers.handlers.telling_failures import Ended, failed_of, others_told, stop, tell_others
from syft.workers.labels.cell import elements_guard_of, kind_of
from syft.workers.labels.guards import Guard, meet_guards
from syft.workers.wire.messages import Abort, Done, Exchange, Parked, Start
from syft.workers.wire.references import ids_in, referred

MAX_ROUNDS = 2**20
"""The most letters from one party to another in an execution."""


@handles(
    Start,
    Declaration(
        reads="args",
        makes="outs",
        plain="program, execution, rank",
        leaves="the other parties",
        to=lambda call: [*map(call.core.place_of, others_told(call.core, call.message))] or [HERE],
        answers=(Done, Parked),
        reading=lambda call: _entered(call, call.message, call.peer),
        named=lambda call: call.read.ids,
        outs=lambda call: (),
        access=lambda call: _order(call),
        refused=lambda call, error: _refused(call, error),
    ),
)
def start(call: Call, message: Start) -> Parked | None:
    """Start this worker's part, when its inputs are present."""
    core, permit = call.core, call.read.permit
    session: PartExecution | None = call.read.session
    if session is not core.sessions.get(message.execution) or session is None:
        return None  # it has failed, maybe while it waited for its inputs
    try:
        if permit is not None:
            call.check_memory(permit, ACTION)
        _begin(call, session, message)
    except Exception as error:  # the other parties must not wait for this one
        fail(core, message.execution, session, error)
        return None
    resume(core, message.execution, session, False)
    waits = message.execution in core.sessions and message.program not in DECLARED
    return Parked(message.seq) if waits else None


class _Entered(NamedTuple):
    """What is known of a start once it has been checked: this worker's part, which is None if
    another party has failed, what it may do, the ids of its inputs, and what it does to them."""

    session: PartExecution | None
    permit: Permit | None = None
    ids: Collection[int] = ()
    access: Access = READS


def _entered(call: Call, message: Start, peer: Peer) -> _Entered:
    """Promise the results of this worker's part."""
    core, ids = call.core, _inputs_of(call.message)
    _check_start(call, message, peer, ids)
    session = session_of(core, message.execution, peer)
    if session.payer is not peer:
        charge(core, session, peer)
    if message.outs:
        core.store.charges.enter(peer.account, promises=len(message.outs))
    session.begin(call)
    session.forget_others()
    session.sharing += _sharing_of(core, message, peer)
    for out in message.outs:
        core.store.promise(out)
    core.note_made(message.outs)
    failed = _failed_before(core, session)
    if failed is not None:
        cause = failed.found or RemoteFailure("collective", failed.text)
        fail(core, message.execution, session, cause, tell=failed.found is not None)
        return _Entered(None)
    declared = DECLARED.get(message.program)
    access = READS if declared is None else declared.access(core, message)
    permit = core.owners.permit(peer, ids, access, ACTION) if core.contested else None
    return _Entered(session, permit, ids, access)


def _order(call: Call) -> Access:
    """What a start does that may wait.  What is done with the session of a program on shares is
    done in order."""
    message: Start = call.message
    if call.read.session is None or message.program in DECLARED or message.program in PROGRAMS:
        return cast(Access, call.read.access)
    return Access(writes=ids_in(message.args[:1]))


def _refused(call: Call, error: Exception) -> None:
    """Tell the other parties that this worker's part is refused, unless it was begun before by
    another start; what this one has noted is forgotten."""
    core, message, peer = call.core, call.message, call.peer
    session: PartExecution | None = core.sessions.get(message.execution)
    if session is not None and session.call is call:
        fail(core, message.execution, session, error, answer=False)
        return
    if has_started(core, message.execution, peer):
        return
    failed = failed_of(core, None, message, error)
    end(core, message.execution, peer)
    for sharing in _sharing_of(core, message, peer):
        stop(sharing, message, error, failed.text)
    tell_others(core, message, failed)


def _inputs_of(message: Start) -> set[int]:
    """The ids of the objects that this part uses.

    In what a program gets that sees to guards itself, only an argument as a whole is a reference.
    """
    if message.program in PROGRAMS:
        return ids_in(message.args)
    return {id for id in map(referred, message.args) if id is not None}


def _failed_before(core: WorkerCore, session: PartExecution) -> Failed | None:
    """Why an execution cannot begin: a party has failed, or its letters could not be kept.

    Where only what needs that party fails, this is noted.
    """
    if not core.aborted:
        return None
    call = cast(Call, session.call)
    places = enumerate(session.parties)
    message = call.message
    early = {
        rank: error
        for rank, place in places
        if (error := core.aborted.pop((message.execution, place), None)) is not None
    }
    if bears_losses(message.program):
        session.lost.update(early)
        return None
    return next(iter(early.values()), None)


def _sharing_of(core: WorkerCore, message: Start, peer: Peer) -> list[SharingSession]:
    """The session of shared tensors that stops with this execution, if it is the caller's."""
    if message.program not in _STOP_SESSIONS:
        return []
    store = core.store
    found = [store.read(id) for id in ids_in(message.args[:1]) if id in store]
    return [one for one in found if isinstance(one, SharingSession) and one.is_owner(peer)]


_STOP_SESSIONS = frozenset(
    map(int, (CollectiveCode.SHARES, CollectiveCode.DEAL, CollectiveCode.ROLL_BACK))
)
"""The programs after whose failure the parties may not agree on what they hold."""


def _check_start(call: Call, message: Start, peer: Peer, ids: Collection[int]) -> None:
    """Raise for an invalid start, before anything is stored for it.

    Whoever may not use the inputs is told so first, and not which workers are known here.
    """
    core = call.core
    if message.program not in PROGRAMS and message.program not in GUARDING:
        raise MalformedMessage("$.program", "a known collective", str(message.program))
    _check_fresh(core, message, peer)
    if message.program in PROGRAMS:  # as far as the inputs are here already
        _check_leaves(call, core.store.guard_of(ids, {}))
    for name in others_told(core, message):
        try:
            core.connect(name)  # raises UnknownWorker
        except WorkerError:
            if message.program not in BEARING:
                raise
    _check_outs(core, message)


def _check_outs(core: WorkerCore, message: Start) -> None:
    """Raise unless results can be stored under the ids that are to be theirs."""
    for out in message.outs:
        core.store.check_free(out)
        if out in core.store.promised:
            raise ObjectIdTaken(out, core.name)


def _check_fresh(core: WorkerCore, message: Start, peer: Peer) -> None:
    """Raise if this worker's part was started before, or has no place here."""
    parties = message.parties
    outs = message.outs
    in_place = 0 <= message.rank < len(parties) and parties[message.rank] == core.name
    if outs and (len(set(outs)) != len(outs) or min(outs) <= 0):
        raise MalformedMessage("$.outs", "ids of results, each once", "others")
    again = has_started(core, message.execution, peer)
    if again or not in_place or len(set(parties)) != len(parties):
        raise MalformedMessage(
            "$", "a fresh execution in which this worker has its rank", "another"
        )


def _check_leaves(call: Call, guard: Guard | None) -> None:
    """Raise :class:`~syft.exceptions.PermissionDenied` if what is computed from the inputs, which
    is as private as all of them, may not go to every other party."""
    ids = _inputs_of(call.message)
    call.check_leaves(guard, ACTION, *(ids if len(ids) == 1 else ()))
    check_public_shape(guard, ACTION)


# ----------------------------------------------------------------------------------- the arguments


def _begin(call: Call, session: PartExecution, message: Start) -> None:
    """Make the program of an execution, if its inputs may go to all parties."""
    call.check_repeated()
    if message.program in GUARDING:
        args = _own_arguments(call)
        party = HostedParty(
            message.rank,
            len(message.parties),
            call=call,
            names=message.parties,
            execution=message.execution,
            sharing=session.sharing,
        )
        session.party = party
        session.program = GUARDING[message.program](party, *args)
        return
    unpacker = call.unpacker()
    given = [unpack_at(arg, unpacker, f".args[{at}]") for at, arg in enumerate(message.args)]
    given, numbers = _with_numbers(message, given)
    for index, value in enumerate(given):
        if not issubclass(kind_of(value), torch.Tensor):
            raise MalformedMessage(f"$.args[{index}]", "a tensor", kind_of(value).__name__)
    guard = reduce(meet_guards, map(elements_guard_of, given), None)
    _check_leaves(call, guard)
    inputs = [call.to_send(value, ACTION, gradients=False) for value in given]
    if guard is not None and not guard.admits(call.user):
        inputs, guard = _inputs_that_run(message, inputs, numbers, guard)
    session.guard, session.program = guard, _program(message, inputs, numbers)


def _with_numbers(message: Start, given: list[Any]) -> tuple[list[Any], list[int]]:
    """The tensors of a program, and the numbers that it takes after them."""
    first = len(given) - NUMBERS.get(message.program, 0)
    numbers = given[max(first, 0) :]
    if first < 0 or any(type(number) is not int for number in numbers):
        raise MalformedMessage("$.args", "tensors, then whole numbers", "others")
    return given[:first], numbers


def _own_arguments(call: Call) -> list[Any]:
    """The arguments of a program that sees to guards itself: objects, or values that travel.

    Nothing that travels refers to an object: so no stored tensor passes for a value of the caller.
    """
    unpacker = call.unpacker(ACTION)
    view = unpacker.worker
    values = []
    for index, arg in enumerate(call.message.args):
        unpacker.worker = None if referred(arg) is None else view
        values.append(unpack_at(arg, unpacker, f".args[{index}]"))
    unpacker.finish()
    return values


def _inputs_that_run(
    message: Start, inputs: list[torch.Tensor], numbers: Sequence[int], guard: Guard
) -> tuple[list[torch.Tensor], Guard]:
    """The inputs; or zeros, with the error sealed in the guard, if the program fails on them.

    Whoever may not read the inputs does not learn that it fails.  If it fails on zeros too, that
    follows from shapes and dtypes.
    """
    probe = _program(message, inputs, numbers)
    try:
        next(probe, None)
    except Exception as error:
        return [torch.zeros_like(value) for value in inputs], guard.sealed(error)
    finally:
        probe.close()
    return inputs, guard


def _program(
    message: Start, inputs: Sequence[torch.Tensor], numbers: Sequence[int]
) -> PartyProgram:
    party = Party(message.rank, len(message.parties))
    return PROGRAMS[message.program](party, *inputs, *numbers)


# ------------------------------------------------------------------------- what other parties send


@handles(
    Exchange,
    Declaration(plain="execution, number, rank, values", waits=False, stays=True),
)
def exchange(call: Call, message: Exchange) -> Done | None:
    """Keep what another party sent, and resume the program if nothing else is missing."""
    core, peer = call.core, call.peer
    if has_ended(core, message.execution, peer):
        if message.seq:  # a value of a user: who sends it is told
            raise InputRefused(core.name, "an input", "it has ended")
        return None
    if (message.execution, peer.place) in core.aborted:
        return None
    try:
        values = _values(call)
    except SyftError as error:
        refuse(core, message.execution, error, peer)
        raise
    if not _is_due(call, message):
        return None
    check_number(message.number)
    about = message.users, message.shape_hidden, message.terms
    guard = received_guard(*about, core.limits, peer.identity)
    name = (message.rank, message.number)
    most = None if message.terms is None else message.terms.most
    letter = Letter(values, guard, call.frame.exclusive, most)
    session = keep(core, message.execution, name, letter, peer)
    if session is not None:
        collect(core, message.execution, session)
    return Done(message.seq) if message.seq else None


def _is_due(call: Call, message: Exchange) -> bool:
    """Whether a letter is to be kept; raises if it is not and its sender is to be told."""
    session: PartExecution | None = call.core.sessions.get(message.execution)
    try:
        if session is not None:
            session.check_letter(call.peer, message.number, message.rank)
    except InputRefused:
        if message.seq:
            raise
        return False
    except LimitExceeded as error:  # without this letter the execution would never end
        refuse(call.core, message.execution, error, call.peer)
        raise
    return True


def _values(call: Call) -> tuple[Any, ...]:
    """What is in a letter.  Letters are immutable, so nobody copies them."""
    unpacker = Unpacker(call.frame.buffers, call.core.limits)
    values = tuple(
        unpack_at(value, unpacker, f".values[{index}]")
        for index, value in enumerate(call.message.values)
    )
    unpacker.finish()
    return values


CANCELS = -2
"""The rank in an abort of whoever has started the execution, and cancels it."""


@handles(
    Abort,
    Declaration(plain="execution, rank, numbers, error", answers=(), waits=False, stays=True),
)
def abort(call: Call, message: Abort) -> None:
    """Fail this worker's part, or what needs another party of it, because that party failed: now,
    or when the part is started."""
    core, peer = call.core, call.peer
    _interrupt_ended(core, message, peer)
    if has_ended(core, message.execution, peer):
        return
    session: PartExecution | None = core.sessions.get(message.execution)
    failed = _failed_in(call, message)
    if session is None or session.call is None:
        _note_early(core, message, peer, failed)
    elif message.rank == CANCELS and peer.session is session.call.peer.session:
        cancelled = ExecutionCancelled(core.name, message.reason)
        fail(core, message.execution, session, cancelled, tell=False)
    elif _says_that_another_is_lost(session, message, peer):
        session.will_not_come(
            core, message.execution, None, session.call.message.parties[message.rank], failed
        )
    elif peer.place in session.parties:
        about = peer, peer.place[1], failed, message.numbers
        try:
            session.will_not_come(core, message.execution, *about)
        except LimitExceeded as error:
            refuse(core, message.execution, error, peer)


def _says_that_another_is_lost(session: PartExecution, message: Abort, peer: Peer) -> bool:
    """Whether who has started an execution says that another party is gone: this worker may have no
    connection to that one, over which it would hear it."""
    starter, ranks = cast(Call, session.call).peer.session, range(len(session.parties))
    named = message.rank in ranks and message.numbers is None
    return named and peer.session is starter and session.parties[message.rank] != peer.place


def _interrupt_ended(core: WorkerCore, message: Abort, peer: Peer) -> None:
    """Interrupt what an execution has used that has ended here, and failed at a party."""
    ended: Ended | None = core.ended.get(message.execution)
    for sharing in ended.sharing if ended is not None and peer.place in ended.parties else ():
        sharing.interrupt(message.execution, message.reason)


def _note_early(core: WorkerCore, message: Abort, peer: Peer, failed: Failed) -> None:
    """Note what has failed of an execution that has not started here: letters that will not come
    are kept, and charged for, as those that do."""
    if message.numbers is None:
        note_failure(core, message.execution, peer, failed)
        return
    letter = Letter((), error=failed)
    for number in message.numbers:
        session: PartExecution | None = core.sessions.get(message.execution)
        if (message.execution, peer.place) in core.aborted:
            return
        check_number(number)
        try:
            if session is not None:
                session.mailbox.check(peer, number)
        except LimitExceeded as error:
            refuse(core, message.execution, error, peer)
            raise
        keep(core, message.execution, (message.rank, number), letter, peer)


def check_number(number: int) -> None:
    """Raise :class:`~syft.exceptions.LimitExceeded` for a number that no letter has."""
    if not 0 <= number < MAX_ROUNDS:
        raise LimitExceeded("$.number", "max_rounds", MAX_ROUNDS, number)


def _failed_in(call: Call, message: Abort) -> Failed:
    """What an abort tells; raises for an error that is none."""
    reason = message.reason[:LONGEST_CAUSE]
    if message.error is None:
        return Failed.of(call.core, RemoteFailure("collective", reason), cause=reason)
    unpack_error(message.error, Unpacker([], call.core.limits))
    return Failed(message.error, reason, size=len(encode_header(message.error)))


def decline(core: WorkerCore, message: Start, peer: Peer) -> None:
    """Tell the other parties that this worker's part will not begin: its start was withdrawn."""
    if not has_started(core, message.execution, peer):
        end(core, message.execution, peer)
        error = RemoteFailure("collective", f"party {core.name} failed: its start was withdrawn")
        tell_others(core, message, Failed.of(core, error, cause=error.text))
