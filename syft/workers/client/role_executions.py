"""Executions of protocols, as the caller has them: roles at workers, inputs that come, outputs.

A role is stored at its worker in one message, and goes with its handle.  An execution starts with
one message to each worker; what crosses from role to role goes from worker to worker.  A worker
answers when its role has run, unless all that it makes goes to others.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import torch

from syft.callers import place_of_user
from syft.codes import CollectiveCode
from syft.exceptions import (
    InputRefused,
    LocationMismatch,
    ObjectNotReady,
    PermissionDenied,
    PromiseGivenUp,
    SyftError,
    WorkerClosed,
    WorkerLost,
    WorkerTimeout,
)
from syft.ids import new_execution, new_id
from syft.program.role_program import RoleProgram
from syft.serde.errors import pack_error
from syft.serde.frame import Frame
from syft.serde.packer import Packer
from syft.serde.registry import pack
from syft.workers.client.connection import Connection
from syft.workers.client.pending import Pending
from syft.workers.client.transport import Owner
from syft.workers.core.sent_labels import terms_of, users_of
from syft.workers.handlers.collective import CANCELS
from syft.workers.handlers.role_runs import FROM_USERS
from syft.workers.handlers.stored_role import StoredRole
from syft.workers.labels.guards import Guard
from syft.workers.labels.memory_labels import travelling_guard_of
from syft.workers.wire.messages import Abort, Exchange, encode
from syft.workers.wire.references import Reference

_PAUSE: Final = 5e-4
"""Seconds between two looks at several workers of other processes."""

Place = tuple[int, int]
"""An input: the rank of its role, and its place among the inputs of the role's program."""


class RoleHandle:
    """A role at a worker, which goes when this goes."""

    def __init__(self, connection: Connection, role: RoleProgram, id: int) -> None:
        self.connection, self.role, self.id = connection, role, id

    def __repr__(self) -> str:
        return f"<RoleHandle {self.role.name} -> {self.connection.location.id}>"

    def __del__(self) -> None:
        self.connection.garbage.append(self.id)


def store_role(
    connection: Connection, role: RoleProgram, state: Sequence[torch.Tensor] = ()
) -> RoleHandle:
    """Store a role with a copy of its state at the other worker, in one message.

    Raises :class:`~syft.exceptions.PlansNotAllowed` where the owner allows no plans, and
    :class:`~syft.exceptions.PermissionDenied` for state that may not go there.

    >>> from syft.program.program import Program, Slot
    >>> same = RoleProgram("bob", Program(1, (), (Slot(0),)), (None,), (None,))
    >>> store_role(hook.local_worker.connection_to(bob), same)
    <RoleHandle bob -> bob>
    """
    stored = StoredRole(role, state)
    guard = _checked_guard(connection, stored)
    return RoleHandle(connection, role, connection.put(stored, new_id(), guard=guard))


def _checked_guard(connection: Connection, value: Any) -> Guard | None:
    """The guard of what the program of this process sends; raises if it may not."""
    if not isinstance(value, torch.Tensor | StoredRole):
        return None
    guard, owner = travelling_guard_of(value), connection.owner
    if guard is not None and not guard.admits(owner.user):
        raise PermissionDenied("send", owner.id, owner.user)
    return guard


@dataclass(slots=True, eq=False)
class _WorkerPart:
    """What one worker does of an execution."""

    line: Connection
    role: RoleProgram
    outs: tuple[int, ...] = ()
    pending: Pending | None = None
    seq: int = 0
    failed: bool = False

    @property
    def is_under_way(self) -> bool:
        """Whether it may answer yet, if only that it has failed."""
        return self.pending is not None and not (self.pending.settled or self.failed)

    @property
    def ended(self) -> bool:
        """Whether it has answered, or nobody waits for that."""
        if self.pending is None or self.pending.settled or self.failed:
            return True
        return not self.role.answers


class _Outcome:
    """The parts of an execution, and what they have raised, which is raised nowhere else."""

    def __init__(self, parts: Sequence[_WorkerPart]) -> None:
        self.parts = parts
        self.failures: list[Callable[[], object]] = []
        """What raises each failure: an error that was kept would keep what led to it."""
        self.causes: list[Callable[[], object]] = []
        """What raises the errors that say why a worker is lost, from which failures follow."""
        self.letters = False
        """Whether something was sent after the start that may be answered."""
        self._due = {part for part in parts if part.role.answers}
        """The parts that have not answered yet."""
        self._begun = False
        self._over = False

    @property
    def over(self) -> bool:
        """Whether all have ended, and nothing more is expected of anybody."""
        return self._over and not self.letters

    def begun(self) -> None:
        """Note that no more parts will be started."""
        self._begun = True
        self._due = {part for part in self._due if not part.ended}
        self.done()

    def watch(self, part: _WorkerPart, line: Connection, pending: Pending) -> None:
        """Note what becomes of a request for a part."""
        line.replies.when_settled(pending, partial(self._settled, part, line, pending))

    def _settled(self, part: _WorkerPart, line: Connection, pending: Pending) -> None:
        self._due.discard(part)
        take = partial(line.replies.take, pending)
        try:
            take()
        except Exception:  # whatever the worker's torch raised
            self.failed(part, take)
        self.done()

    def failed(self, part: _WorkerPart, failure: Callable[[], object]) -> None:
        """Note that a part has failed, and what raises its error."""
        self.lost(part)
        self.failures.append(failure)

    def lost(self, part: _WorkerPart) -> None:
        """Note that a part will not answer."""
        part.failed = True
        self._due.discard(part)

    def done(self) -> bool:
        """Whether all have ended; then nothing more is expected of those that answer only if they
        fail."""
        if self._over:
            return True
        if self._due or not self._begun:
            return False
        self._over = True
        for part in self.parts:
            if part.pending is not None and not part.pending.settled:
                part.line.replies.pending.pop(part.seq, None)
                part.line.replies.callbacks.pop(part.pending, None)
        return True


def _raising(error: Exception) -> Callable[[], object]:
    """What raises an error anew."""
    kind, parts = type(error), error.args

    def again() -> None:
        raise kind(*parts)

    return again


def start(
    roles: Sequence[RoleHandle],
    inputs: Mapping[Place, Any] | None = None,
    actors: Mapping[Place, str] | None = None,
) -> RoleExecution:
    """Start an execution: the roles by rank, each at another worker, and the inputs that there are.

    An input is a tensor, a number, or a :class:`~syft.workers.wire.references.Reference` to an
    object at the worker of its role.  Any other comes later, by :meth:`RoleExecution.submit`: from
    the worker that ``actors`` names for it, or from here.
    Raises :class:`~syft.exceptions.LocationMismatch` for two roles at one worker.

    >>> from syft.ops.table import BY_NAME
    >>> from syft.program.program import Action, Program, Slot
    >>> absolute = Action(BY_NAME["torch.abs"], (Slot(0),), {}, Slot(1))
    >>> role = RoleProgram("bob", Program(1, (absolute,), (Slot(1),)), (None,), (None,))
    >>> handle = store_role(hook.local_worker.connection_to(bob), role)
    >>> execution = start([handle], {(0, 0): torch.tensor(-3)})
    >>> execution.outputs(0)[0].get()
    tensor(3)
    """
    execution = RoleExecution(roles, actors or {})
    execution.begin(inputs or {})
    return execution


class RoleExecution:
    """One execution of a protocol; see :func:`start`."""

    def __init__(self, roles: Sequence[RoleHandle], actors: Mapping[Place, str]) -> None:
        self.owner: Owner = roles[0].connection.owner
        self.number = new_execution()
        names = [role.connection.location.id for role in roles]
        if len(set(names)) != len(names):
            raise LocationMismatch("a protocol: each role at another worker", tuple(names))
        self._parts = [
            _WorkerPart(one.connection, one.role, tuple(new_id() for _ in one.role.kept_outputs))
            for one in roles
        ]
        self._outcome = _Outcome(self._parts)
        self._roles = [role.id for role in roles]
        self._pointers: list[list[Any]] = []
        self._actors = dict(actors)
        self.parties = tuple(dict.fromkeys([*names, self.owner.id, *self._actors.values()]))
        """The workers of the roles by rank, then those from which inputs come."""
        self.missing: set[Place] = set()
        """The inputs that were not given yet."""
        self._values: dict[int, list[Any]] = {}

    def __repr__(self) -> str:
        done = self.done()
        state = "failed" if self._outcome.failures else "done" if done else "under way"
        return f"<Execution at {', '.join(self.parties[: len(self._parts)])}; {state}>"

    def begin(self, inputs: Mapping[Place, Any]) -> None:
        """Send each worker its part, with the inputs that there are."""
        later: dict[Place, Any] = {}
        for part in self._parts:
            part.line.requests.check_open()
        unknown = set(inputs) - {
            (rank, place)
            for rank, part in enumerate(self._parts)
            for place in part.role.user_inputs
        }
        for rank, place in sorted(unknown):
            raise self._refused(rank, place, "its role takes no such input")
        try:
            for rank, part in enumerate(self._parts):
                self._start(rank, part, inputs, later)
        except Exception as error:
            self.cancel(f"another part could not be started: {error}")
            raise
        finally:
            self._outcome.begun()
        for (rank, place), value in later.items():
            self.submit(rank, place, value)

    def _start(
        self, rank: int, part: _WorkerPart, inputs: Mapping[Place, Any], later: dict[Place, Any]
    ) -> None:
        args: list[Any] = [Reference(self._roles[rank])]
        for place in part.role.user_inputs:
            value = inputs.get((rank, place), self)
            if value is not self and _checked_guard(part.line, value) is not None:
                later[rank, place], value = value, self
            if value is self:
                self.missing.add((rank, place))
                by = self._actors.get((rank, place), self.owner.id)
                value = (self.parties.index(by),)
            args.append(value)
        code = int(CollectiveCode.ROLE)
        with part.line.lock:
            part.pending = part.line.start_part(
                code, self.number, self.parties, rank, args, part.outs
            )
            part.seq = part.line.requests.seq
        pointers = [part.line.pointer(out) for out in part.outs]
        for pointer in pointers:
            pointer.child.pending, pointer.child.may_be_argument = part.pending, True
        self._pointers.append(pointers)
        self._outcome.watch(part, part.line, part.pending)

    # ------------------------------------------------------------------------------------ inputs

    def submit(self, rank: int, place: int, value: Any, by: Any = None) -> None:
        """Give an input of a role, from here or from another worker of this process.

        Raises :class:`~syft.exceptions.InputRefused` if the worker of the role does not take it
        from there, or has it, or has ended; a queued worker says so when it is waited for.
        """
        sender: Owner = self.owner if by is None else by
        part = self._part(rank, place)
        line: Connection = sender.connection_to(part.line.location)
        try:
            self._submit(part, line, sender, place, value)
        except WorkerClosed as error:
            if line is part.line:  # what waits for something of it fails, and waits no more
                self._lose(part, error)
            raise
        self.missing.discard((rank, place))

    def _submit(
        self, part: _WorkerPart, line: Connection, sender: Owner, place: int, value: Any
    ) -> None:
        guard = _checked_guard(line, value)
        hidden = guard is not None and guard.shape_hidden
        terms = terms_of(guard, sender.id, sender.core.serving is not None, value)
        with line.lock:
            packer = Packer(worker=sender.core)
            operand = pack(value, packer)
            packer.hand_over(line.location.id)
            own = self.parties.index(sender.id) if sender.id in self.parties else -1
            seq = line.requests.next_seq()
            letter = self.number, FROM_USERS + place, own, (operand,)
            pending = line.replies.pending[seq] = Pending(place_of_user())
            message = Exchange(*letter, users_of(guard), hidden, terms, seq)
            frame = Frame(encode(message), packer.buffers, private=guard is not None)
            line.requests.forward(frame)
            packer.sent()
        if line.transport.queued:
            self._outcome.letters = True
            self._outcome.watch(_WorkerPart(line, part.role), line, pending)
        else:
            line.replies.wait(pending)

    def give_up(self, rank: int, place: int, reason: str, by: Any = None) -> None:
        """Say that an input will never come: what needs it fails with that, and nothing else."""
        sender: Owner = self.owner if by is None else by
        part = self._part(rank, place)
        line: Connection = sender.connection_to(part.line.location)
        error = pack_error(PromiseGivenUp(place, line.location.id, reason), Packer())
        own = self.parties.index(sender.id) if sender.id in self.parties else -1
        line.requests.tell(Abort(self.number, own, reason, (FROM_USERS + place,), error))
        self.missing.discard((rank, place))

    def _part(self, rank: int, place: int) -> _WorkerPart:
        if not 0 <= rank < len(self._parts):
            raise self._refused(rank, place, "there is no such role")
        return self._parts[rank]

    def _refused(self, rank: int, place: int, why: str) -> InputRefused:
        known = 0 <= rank < len(self._parts)
        worker = self.parties[rank] if known else "nobody"
        return InputRefused(worker, f"input {place} of role {rank}", why)

    # ----------------------------------------------------------------------------------- outcome

    def outputs(self, rank: int) -> list[Any]:
        """The outputs that a role keeps: pointers to them; if it is here, the values, once they are
        there."""
        part = self._parts[rank]
        if part.line.location.id != self.owner.id:
            return self._pointers[rank]
        if rank not in self._values:
            self.wait()
            self._values[rank] = [pointer.get() for pointer in self._pointers[rank]]
            self._pointers[rank] = []
        return self._values[rank]

    def done(self) -> bool:
        """Whether every role has run, or failed; never waits."""
        if self._outcome.over:
            return True
        for part in self._parts:
            if part.pending is not None and not part.failed:
                part.line.replies.take_in()
        return self._outcome.done()

    def wait(self, timeout: float | None = None) -> None:
        """Wait until every role has run, and raise what has failed, as its worker has raised it.

        Raises :class:`~syft.exceptions.ObjectNotReady` if nothing under way can end it, and
        :class:`~syft.exceptions.WorkerTimeout` after so many seconds.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while not self.done():
            if end is not None and time.monotonic() > end:
                waited = self._waited()
                raise WorkerTimeout(waited.line.location.id, timeout or 0.0, self._why(waited))
            if not self.progress():
                break
        done = self.done()
        if self._outcome.failures:
            (self._outcome.causes or self._outcome.failures)[0]()
        if not done:
            raise ObjectNotReady(self._waited().line.location.id)

    def _waited(self) -> _WorkerPart:
        return next(part for part in self._parts if not part.ended)

    def _why(self, part: _WorkerPart) -> str:
        name = part.role.name
        if not self.missing:
            return f"role {name!r} is under way"
        rank, place = min(self.missing)
        role = self._parts[rank].role.name
        return f"role {name!r} is under way, and input {place} of role {role!r} has not been given"

    def progress(self) -> bool:
        """Let something happen that may end it; whether anything may still do."""
        moved = remote = False
        for part in [part for part in self._parts if part.is_under_way]:
            try:
                moved |= part.line.replies.poll()
                remote |= part.line.transport.overtakes
            except WorkerClosed as error:
                self._lose(part, error)
                return True
        if moved or self.done():
            return True
        if remote:
            time.sleep(_PAUSE)
        return remote and not self._waits_for_me()

    def _waits_for_me(self) -> bool:
        """Whether an input is missing that this program is to give."""
        mine = self.owner.id
        return any(self._actors.get(place, mine) == mine for place in self.missing)

    def _lose(self, part: _WorkerPart, error: WorkerClosed) -> None:
        """Note that the worker of a part is gone, and tell the others, which may have no connection
        to it: only what waits for something of it is lost there.  How this program has reached it,
        which the error says, is nobody else's business."""
        self._outcome.lost(part)
        rank = self._parts.index(part)
        self.missing = {place for place in self.missing if place[0] != rank}  # nobody takes them
        self._outcome.causes.append(_raising(error))
        if part.role.answers:  # of any other, the others may have all that they need
            self._outcome.failed(part, _raising(error))
        told = WorkerLost(error.name, "whoever has started the execution has no connection to it")
        about = rank, str(told), None, pack_error(told, Packer())
        lost = Abort(self.number, *about)
        for other in self._parts:
            if other.is_under_way:
                with contextlib.suppress(SyftError):
                    other.line.requests.tell(lost)

    def cancel(self, reason: str = "it is not wanted any more") -> None:
        """End what is under way everywhere, and free it."""
        self.missing.clear()
        for part in self._parts:
            if part.pending is not None and not part.pending.settled:
                try:
                    part.line.requests.tell(Abort(self.number, CANCELS, reason))
                except SyftError as error:
                    self._outcome.failed(part, _raising(error))

    def __del__(self) -> None:
        if getattr(self, "missing", None) and not self.done():
            self.cancel("it was dropped before all its inputs were there")
