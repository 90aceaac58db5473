"""An execution of a protocol at one worker: its role runs as its inputs come, in any order.

The program of the role is cut into parts (:mod:`syft.workers.handlers.role_parts`).  A part runs
when its inputs are there, and what it makes for another role leaves at once, from worker to worker.
A value is as private there as it was here.  What is private may leave for a worker if its guard
admits the user or names the worker, or if the owner of this worker has approved the role for it.

What fails is lost with all that depends on it, here and at the other roles, which are told the
error as it was raised.  Everything else goes on.  An execution that changes the state of its role
waits until those before it have ended.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final, cast

import torch

from syft.codes import CollectiveCode
from syft.exceptions import (
    MalformedMessage,
    PlansNotAllowed,
    ProgramError,
    SyftError,
    UnsupportedOperation,
)
from syft.ops.nested import NUMBER_OR_NONE_TYPES
from syft.workers.core.access import READS, Access
from syft.workers.core.sent_labels import note_bound, terms_of, users_of
from syft.workers.core.state_machine import WorkerCore
from syft.workers.core.task import Task
from syft.workers.execution.kept_memory import has_graph
from syft.workers.execution.leaving import check_public_shape
from syft.workers.handlers.guarded_run import Outputs
from syft.workers.handlers.party_programs import (
    Declared,
    Failed,
    HostedParty,
    Letter,
    LetterName,
    QUIETLY,
    PartyProgram,
    Round,
    guarding,
)
from syft.workers.handlers.programs import run_program
from syft.workers.handlers.role_parts import Part
from syft.workers.handlers.role_permits import RolePermit
from syft.workers.handlers.stored_role import Output, StoredRole
from syft.workers.labels.cell import elsewhere, unsealed
from syft.workers.labels.guards import Guard, meet_guards
from syft.workers.labels.memory_labels import full_guard_of, protect
from syft.workers.wire.messages import Abort, Exchange, Start
from syft.workers.wire.references import ids_in, referred

FROM_USERS: Final = 1 << 19
"""A letter with what a user gives has the place of that input as its number, from here on."""

_SEND: Final = "send"
_ROLE: Final = -1
"""Stands for the role among the values of slots: its state and constants may be moved after it was
dropped."""


def _stored(core: WorkerCore, message: Start) -> StoredRole | None:
    """The role that a start names, if it is here."""
    id = referred(message.args[0]) if message.args else None
    found = unsealed(core.store.read(id)) if id is not None and id in core.store else None
    return found if isinstance(found, StoredRole) else None


def _sends(core: WorkerCore, message: Start) -> Sequence[str]:
    """The workers to which a role sends; all parties where the role is not here."""
    stored = _stored(core, message)
    others = range(len(message.parties)) if stored is None else sorted(stored.role.letters_to)
    return [message.parties[rank] for rank in others if rank < len(message.parties)]


def _access_of_start(core: WorkerCore, message: Start) -> Access:
    stored = _stored(core, message)
    return READS if stored is None else _access(message, stored)


def _access(message: Start, stored: StoredRole, state: Iterable[int] | None = None) -> Access:
    """What a role does to the objects that its start names, the role itself among them, or to those
    that stand for its ``state``."""
    role, effects = stored.role, stored.effects
    if effects.only_reads:
        return effects.access(())  # whatever it is given
    inputs: list[int | None] = [None] * role.program.inputs
    for place, arg in zip(role.user_inputs, message.args[1:]):
        inputs[place] = referred(arg)
    return effects.access(inputs, ids_in(message.args[:1]) if state is None else state)


def _where(core: WorkerCore, message: Start) -> str:
    stored = _stored(core, message)
    return "In a role" if stored is None else f"In role {stored.role.name!r}"


@guarding(CollectiveCode.ROLE, Declared(_sends, _access_of_start, _where))
def run_role(party: HostedParty, stored: Any, *inputs: Any) -> PartyProgram:
    """A worker's part of an execution of a protocol.

    ``inputs`` are those of users: an object, a value that came along, or for one that will come the
    rank of who brings it, in a tuple.
    """
    run = _RoleRun(party, unsealed(stored), inputs)
    try:
        if run.stored.parted.in_order:
            run.occupy()
            yield run.stored.turns
        yield from run.rounds()
    finally:
        run.let_go()
    return run.failed or (() if run.role.answers else QUIETLY)


class _RoleRun:
    """One execution of a role: the values of its slots, and what became of its parts."""

    def __init__(self, party: HostedParty, stored: Any, inputs: Sequence[Any]) -> None:
        self.party, self.call, self.core = party, party.call, party.call.core
        if not isinstance(stored, StoredRole):
            raise MalformedMessage("$.args[0]", "a role", type(stored).__name__)
        if not (self.core.allow_plans and self.call.peer.plans):
            raise PlansNotAllowed(self.core.name)
        self.stored, self.role = stored, stored.role
        self.failed: Failed | None = None
        """What failed first."""
        self._parts = dict(enumerate(stored.parted.parts))
        """The parts that have not ended, by place."""
        self._values = party.waiting
        self._values[_ROLE] = stored
        self._taints: dict[int, Guard] = {}
        """For slots, the guard of numbers on which they depend, which have no label themselves."""
        self._lost: dict[int, Failed] = {}
        """Why inputs will not come, by place."""
        self._ended: dict[int, Failed | None] = {}
        """The parts that have run, or failed, by place."""
        self._came: set[int] = set()
        """The inputs that have come, by place."""
        self._places: dict[LetterName, int] = dict(stored.letters)
        """The letters that have not come, and the places of what is in them."""
        self._charged: dict[int, int] = {}
        self._place: Task | None = None
        """Its place among the operations that use the same objects, while it waits."""
        self._check_parties()
        self._begin(inputs)
        self._permit = RolePermit(self.call, stored)
        self._outputs = self._all_outputs()

    def _check_parties(self) -> None:
        ranks = self.role.partners
        last = max(ranks, default=0)
        if self.party.rank in ranks or last >= self.party.size:
            expected = f"the {last + 1} roles of the protocol, each another worker"
            raise MalformedMessage("$.parties", expected, str(self.party.size))

    def _begin(self, inputs: Sequence[Any]) -> None:
        """Note which inputs are here, and which letters are due."""
        places = self.role.user_inputs
        if len(inputs) != len(places):
            raise MalformedMessage("$.args", f"{len(places)} inputs of users", str(len(inputs)))
        for place, given in zip(places, inputs, strict=True):
            if type(given) is tuple:
                self._places[self._bringer(given), FROM_USERS + place] = place
            elif elsewhere(given) is not None or not _is_value(unsealed(given)):
                raise MalformedMessage(
                    f"$.args[{place}]", "a tensor here or a number", type(given).__name__
                )
            else:
                self._values[place] = unsealed(given)
                self._came.add(place)
        self.party.due.update(dict.fromkeys(self._places, False))

    def _bringer(self, given: tuple[Any, ...]) -> int:
        """The rank of the party that brings an input."""
        by = given[0] if len(given) == 1 else None
        if type(by) is not int or not 0 <= by < self.party.size:
            raise MalformedMessage("$.args", "the rank of who brings an input", "something else")
        return by

    def _all_outputs(self) -> list[Output]:
        kept, outs = len(self.role.kept_outputs), self.call.message.outs
        if kept != len(outs):
            raise MalformedMessage("$.outs", f"{kept} ids", str(len(outs)))
        return list(self.stored.outputs)

    # ---------------------------------------------------------------------------------- running

    def rounds(self) -> PartyProgram:
        """Run what can run, and wait for letters, until all is made or lost."""
        if self._came or not self.stored.waits:
            self._advance()
        while self._outputs or self._parts:
            self.occupy()
            received = yield Round({}, frozenset(self._places), any=True)
            for name in sorted(received):
                self._take(self._places.pop(name), received[name])
            self._advance()

    def occupy(self) -> None:
        """Have what comes later wait for this execution, if it writes to objects that this uses, or
        uses what this writes to: as if this had run when it was started."""
        ids = set(map(referred, self.call.message.args[1:])) - {None}
        if ids and self._place is None:
            request = self.call.peer.session, self.call.message.seq
            access = _access(self.call.message, self.stored, ())
            self._place = self.core.dataflow.occupy(cast(set[int], ids), access, request)

    def _take(self, place: int, letter: Letter) -> None:
        """Note an input that has come, or why it will not."""
        if letter.error is not None:
            self._lost[place] = letter.error
            return
        try:
            self._values[place] = self._received(place, letter)
            self._came.add(place)
        except Exception as error:
            self._lost[place] = self._failure(error)

    def _received(self, place: int, letter: Letter) -> Any:
        """The value of a letter, in memory of its own and as private as it says."""
        if len(letter.values) != 1 or not _is_value(letter.values[0]):
            raise MalformedMessage("$.values", "one tensor or number", "something else")
        (value,) = letter.values
        if letter.guard is not None:
            self.core.guard()
        if not isinstance(value, torch.Tensor):
            if letter.guard is not None:
                raise MalformedMessage("$.values", "a public number, or a tensor", "a private one")
            return value
        if not letter.owned:
            value = _bare_copy(value)
        protect(value, letter.guard)
        note_bound(value, letter.most)
        self._charge(place, value)
        return value

    def _advance(self) -> None:
        """Run the parts whose inputs are there; then keep and send what is ready."""
        self._permit.mark(self._values)
        for place, part in list(self._parts.items()):
            lost = self._why_lost(part) if self._lost or self.failed else None
            if lost is not None:
                self.failed = self.failed or lost
            elif part.needs <= self._came and part.after <= self._ended.keys():
                lost = self._run(part)
            else:
                continue
            self._ended[place] = lost
            del self._parts[place]
        self._outputs = [output for output in self._outputs if not self._hand_out(output)]
        if self._outputs or self._parts:  # otherwise all goes, at once
            self._free()

    def _why_lost(self, part: Part) -> Failed | None:
        causes = (self._ended[other] for other in sorted(part.after) if other in self._ended)
        lost = (self._lost[place] for place in sorted(part.needs) if place in self._lost)
        return next((one for one in (*causes, *lost) if one is not None), None)

    def _run(self, part: Part) -> Failed | None:
        """Run a part; returns what failed, if it did."""
        core, call = self.core, self.call
        taint: Guard | None = None
        for slot in part.takes if self._taints else ():
            taint = meet_guards(taint, self._taints.get(slot))
        try:
            values = [self._value(slot) for slot in part.takes]
            self._permit.check(part, values)
            results = run_program(core, part.program, values, call.peer, taint)
            self._note_graphs(results)
            if type(results) is Outputs and results.taint is not None:
                self._taints.update(dict.fromkeys(part.makes, results.taint))
            for slot, value in zip(part.makes, results, strict=True):
                self._values[slot] = value
                self._charge(slot, value)
        except Exception as error:
            return self._failure(error)
        finally:
            if self.stored.alters:
                call.altered(self.stored.alters)
        return None

    def _value(self, slot: int) -> Any:
        """What a slot has now."""
        if slot in self._values:
            return self._values[slot]
        program = self.stored.program
        if program.inputs <= slot < program.inputs + program.state:
            return self.stored.state[slot - program.inputs]
        if slot >= program.inputs + program.state and slot < program.given:
            return program.constants[slot - program.inputs - program.state]
        return self._values[slot]

    def _note_graphs(self, results: Sequence[Any]) -> None:
        """Note what a part has made on the way, which the graphs of its results may keep."""
        graphs = self.core.store.charges.graphs
        made, graphs.on_the_way = graphs.on_the_way, 0
        if made and not graphs.freed and any(map(has_graph, results)):
            self.call.graphs.bytes += made

    def _failure(self, error: Exception) -> Failed:
        """An error of this role, as everybody is told it."""
        failed = Failed.of(self.core, error.with_traceback(None), f"In role {self.role.name!r}")
        self.failed = self.failed or failed
        return failed

    # ---------------------------------------------------------------------------- what it gives

    def _hand_out(self, output: Output) -> bool:
        """Store or send an output, if it is there or lost; whether it is done."""
        lost = self._why_output_lost(output) if self._lost or self.failed else None
        if lost is None:
            given = output.slot < self.role.program.inputs
            if (
                given and output.slot not in self._values
            ) or not output.after <= self._ended.keys():
                return False
            try:
                if output.to is None:
                    self._keep(output)
                else:
                    self._send(output, output.to)
                return True
            except Exception as error:
                lost = self._failure(error)
        self._lose(output, lost)
        return True

    def _why_output_lost(self, output: Output) -> Failed | None:
        lost = self._lost.get(output.slot)
        for place in sorted(output.after):
            lost = lost or self._ended.get(place)
        return lost

    def _keep(self, output: Output) -> None:
        core, out = self.core, self.call.message.outs[output.number]
        value = self._value(output.slot)
        if not isinstance(value, torch.Tensor):
            what = f"output {output.place} of role {self.role.name!r} is a number"
            raise ProgramError(f"{what}: make a tensor of it, which can be kept")
        self.party.kept.add(out)
        if out in core.store.promised:  # or it was dropped before it was there
            self._discharge(output.slot)
            core.hold(out, value)
            self.call.note_made((out,))

    def _send(self, output: Output, to: int) -> None:
        value, core = self._value(output.slot), self.core
        guard = self._taints.get(output.slot)
        if isinstance(value, torch.Tensor):
            guard = meet_guards(guard, full_guard_of(value))
            if not output.alone:
                value = _bare_copy(value)
            elif not value.is_leaf:
                value = value.detach()
        elif not _is_value(value):
            raise ProgramError(f"output {output.place} is a {type(value).__name__}: send tensors")
        elif guard is not None:
            instead = "send a tensor, which keeps its label"
            raise UnsupportedOperation("a number taken from what is private", _SEND, instead)
        check_public_shape(guard, _SEND)
        approved = core.approved.get(self.stored.digest, ()) if core.approved and guard else ()
        about = users_of(guard), False, terms_of(guard, core.name, True)
        letter = partial(self._letter, output.number, about)
        letters = [(self.party.names[to], (value,), letter)]
        self.call.post(guard, _SEND, letters, guard is not None, approved)

    def _letter(self, number: int, about: tuple[Any, ...], values: tuple[Any, ...]) -> Exchange:
        return Exchange(self.party.execution, number, self.party.rank, values, *about)

    def _lose(self, output: Output, lost: Failed) -> None:
        """Let those know who wait for an output that will not come."""
        self.failed = self.failed or lost
        if output.to is not None:
            about = lost.text, (output.number,), lost.error
            lines = Abort(self.party.execution, self.party.rank, *about)
            with contextlib.suppress(SyftError):  # whoever cannot be reached
                self.core.post(self.party.names[output.to], lines)
            return
        out = self.call.message.outs[output.number]
        self.party.kept.add(out)
        if out not in self.core.store:
            self.core.store.mark_gone(out, f"role {self.role.name!r} failed: {lost.text}")
            self.core.dataflow.settle((out,))

    # --------------------------------------------------------------------------------- memory

    def _charge(self, slot: int, value: Any) -> None:
        """Charge who started the execution for memory that waits to be used, as far as its size is
        public.

        Nothing waits once all letters are there and one part at most is left: that part runs next,
        and what it makes leaves.
        """
        if not self._places and len(self._parts) <= 1:
            return
        charges = self.core.store.charges
        if charges.guarded:
            charges.check_bounds({slot: value})
        size = charges.bytes_of(value)
        charges.enter(self.call.peer.account, letters=size)
        self._charged[slot] = size

    def _discharge(self, slot: int) -> None:
        size = self._charged.pop(slot, 0)
        if size:
            self.core.store.charges.leave(self.call.peer.account, letters=size)

    def _free(self) -> None:
        """Let go of the values that nothing needs any more."""
        needed = {_ROLE, *(output.slot for output in self._outputs)}
        for part in self._parts.values():
            needed.update(part.takes)
        for slot in self._values.keys() - needed:
            del self._values[slot]
            self._discharge(slot)

    def let_go(self) -> None:
        """Let go of all values."""
        self._values.clear()
        charged = sum(self._charged.values())
        self._charged.clear()
        if charged:
            self.core.store.charges.leave(self.call.peer.account, letters=charged)
        if self._place is not None:
            self.core.dataflow.vacate(self._place)


def _is_value(value: Any) -> bool:
    return isinstance(value, torch.Tensor) or type(value) in NUMBER_OR_NONE_TYPES


def _bare_copy(value: torch.Tensor) -> torch.Tensor:
    """A copy in new memory, without graph; a leaf that requires a gradient still does."""
    copy = value.detach().clone()
    return copy.requires_grad_() if value.is_leaf and value.requires_grad else copy
