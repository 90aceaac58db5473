"""The handler of ``Run``: a definition's number, with the inputs that changed since its last run.

The number is looked up, and its inputs are recorded, when the message arrives.  So the tables of
both ends process the same messages in the same order.  A run that has to wait for promised inputs
is parked after that.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import float32, get_default_dtype, is_grad_enabled

from syft.exceptions import MalformedMessage, ProgramError, ResultMismatch
from syft.ops.nested import NUMBER_OR_NONE_TYPES, replace
from syft.program.lowered import LOST, Partial
from syft.serde.expect import describe
from syft.serde.frame import Frame
from syft.serde.packer import Packer, Unpacker
from syft.serde.registry import pack, unpack_at
from syft.workers.core.peer import EVERYTHING, Peer
from syft.workers.core.pipeline import Call, Declaration, handles, shortcut
from syft.workers.core.state_machine import Answer, WorkerCore
from syft.workers.execution.kept_memory import has_graph, is_leaf
from syft.workers.handlers.command_graphs import note_gradients, records
from syft.workers.handlers.commands import run_in_modes
from syft.workers.handlers.guarded_run import Concealed, Outputs
from syft.workers.handlers.programs import Prepared, prepare
from syft.workers.labels.guards import Guard
from syft.workers.labels.memory_labels import copy_of
from syft.workers.wire.definitions import Definition, InputKind
from syft.workers.wire.messages import (
    COUNT_SHIFT,
    GRAD_MODE,
    Done,
    Failure,
    Reply,
    Run,
    Value,
)
from syft.workers.wire.numbering import BARE, NumberedCall, Table, check_number, weight_of
from syft.workers.wire.references import Reference, expanded

_ONE_EXPECTED = 1 << COUNT_SHIFT
_REFERENCE = int(InputKind.REFERENCE)
_MAX_ID = 2**63


class Ready(NamedTuple):
    """What a run is, once its number was looked up: the definition, the inputs as given, and the
    ids among them, with None for values."""

    entry: NumberedCall
    given: list[Any]
    ids: list[int | None]

    @classmethod
    def of(cls, entry: NumberedCall, given: list[Any]) -> Ready:
        """The run of a definition on these inputs."""
        return cls(entry, given, _ids_given(entry, given))


def _table(core: WorkerCore, peer: Peer) -> Table:
    """What the numbers of a connection stand for."""
    table = peer.session.numbers
    if table is None or table.user != peer.user:  # one user must not reuse the inputs of another
        table = peer.session.numbers = Table(peer.user)
        core.peers[peer] = None
    return table


def _found(call: Call) -> Ready:
    """Look up the number of a run, or enter its definition, and note its inputs."""
    core, run, peer = call.core, call.message, call.peer
    table = _table(core, peer)
    entry = table.use(run.number) if run.define is None else None
    core.stats.cache_hits += entry is not None
    try:
        if entry is not None and entry.bare and not call.frame.buffers:
            found = Ready.of(entry, _bare_given(call, entry))
        else:
            unpacker = call.unpacker(objects=False)
            if entry is None:
                entry = _entered(core, table, run, unpacker)
            found = Ready.of(entry, _given(call, table, entry, unpacker))
    except Exception:
        table.remove(run.number)  # the sender removes it too when it reads the failure
        raise
    _check_count(core, run, entry.what.results)
    if not (entry.bare or peer.knows == EVERYTHING):
        core.watch(peer)  # the results may be values that it sent
    return found


@handles(
    Run,
    Declaration(
        reads="inputs, define",
        returns="out",
        plain="number, flags, autocast",
        answers=(Done, Value),
        action="a program",
        reading=_found,
        named=lambda call: _ids_used(call.read),
        outs=lambda call: call.read.entry.what.outs(call.message.out),
        access=lambda call: call.read.entry.what.access(call.read.ids),
        alters=lambda call: call.read.entry.what.alters,
    ),
)
def _general(call: Call, run: Run) -> Reply:
    """Run the definition of a number; the reply is ``Done`` if all results are tensors or None."""
    core, peer, first = call.core, call.peer, run.out
    entry = call.read.entry
    prepared: Prepared = entry.what
    outs = prepared.outs(first)
    if not 0 <= first <= _MAX_ID - prepared.results:
        expected = f"{prepared.results} ids from 0 to 2**63 - 1"
        raise MalformedMessage("$.out", expected, str(first))
    core.store.check_all_free(outs)
    try:
        results = run_in_modes(call, prepared.perform, (core, _resolved(call), peer))
        _note_way(call, results)
        _note_gradients(call, results)
        reply = _stored(core, run, results, peer)
        call.note_made(outs)
        told = partial(_told, results, peer)
        return call.tell(reply.value, told) if type(reply) is Value else reply
    except Concealed as concealed:
        core.fail_results(outs)
        return core.failure(run.seq, concealed.error, hidden=True)
    except Exception as error:
        core.fail_results(outs, error)
        raise


@shortcut(Run)
def handle(core: WorkerCore, run: Run, frame: Frame, peer: Peer) -> Reply | Answer | None:
    """Run a common definition at once, and leave any other to the steps."""
    if run.drop:
        core.forget(expanded(run.drop), peer)
    entry = None
    waits = core.store.promised or core.dataflow.tasks or peer.account.unseen
    if run.define is None and not (frame.buffers or run.autocast or waits):
        table = peer.session.numbers
        if table is not None and table.user == peer.user:  # as in `_table`
            entry = table.use(run.number)
    if entry is not None and entry.bare:
        values = _fast_path_inputs(core, run, entry)
        if values is not None and not (core.contested and _may_change(core, entry, peer)):
            core.stats.cache_hits += 1
            return _run_at_once(core, run, frame, peer, entry, values)
    return _general(core, run, frame, peer)


def _run_at_once(
    core: WorkerCore, run: Run, frame: Frame, peer: Peer, entry: NumberedCall, values: list[Any]
) -> Reply:
    """Run a common definition on the values of its inputs; most have no graphs to account for."""
    prepared: Prepared = entry.what
    contested, call = core.contested, None
    recorded = records(values, run.flags)
    if prepared.alters or recorded:
        call = Call(core, run, frame, peer, read=Ready.of(entry, entry.last))
        results = _run_on_graphs(call, values, recorded)
    else:
        results = prepared.perform(core, values, peer)
    if contested:
        prepared.only_reads = True  # it has run: it is what it will be
    reply = _stored(core, run, results, peer)
    if any(map(has_graph, results)):
        call = call or Call(core, run, frame, peer, read=Ready.of(entry, entry.last))
        _note_way(call, results)
        call.note_made((run.out,))
        return reply
    core.store.charges.graphs.on_the_way = 0
    if core.contested:
        core.note_made((run.out,))
    return reply


def _run_on_graphs(call: Call, values: list[Any], recorded: bool) -> Sequence[Any]:
    """Run a common definition that may change facts, or that is ``recorded`` by autograd."""
    entry = call.read.entry
    changes = recorded and entry.what.access(call.read.ids).changes
    if changes:
        call.graphs.begin(call.named())
    try:
        results: Sequence[Any] = entry.what.perform(call.core, values, call.peer)
        _note_gradients(call, results)
    finally:
        if entry.what.alters:
            call.altered(entry.what.alters)
        if changes:
            call.graphs.wrote()
    return results


def _note_way(call: Call, results: Sequence[Any]) -> None:
    """Note what a run has made on the way, which the graphs of its results may keep: nothing where
    a backward pass from the only one has freed that."""
    graphs = call.core.store.charges.graphs
    made, graphs.on_the_way = graphs.on_the_way, 0
    if made and not graphs.freed and any(map(has_graph, results)):
        call.graphs.bytes = made


def _note_gradients(call: Call, results: Sequence[Any]) -> None:
    """Charge for the gradients that a run may have left at its inputs, and for those that it has
    given to them."""
    (entry, _, ids), store = call.read, call.core.store
    if not entry.what.alters:
        return
    ends = store.charges.graphs.ends
    for id in [id for id in ids if id not in ends and is_leaf(store.objects.get(id))]:
        store.charges.graphs.gave(id, (), adds=True)
    for leaf, gradient in entry.what.gradients.items():
        if leaf < len(ids) and (its := ids[leaf]) is not None:
            given = None if gradient is None else _ids_at(ids, gradient)
            note_gradients(store, its, given, type(results) is Partial)


def _ids_at(ids: list[int | None], place: int) -> list[int]:
    """The id at a place, if there is one."""
    return [id for id in ids[place : place + 1] if id is not None] if place >= 0 else []


def _changes(entry: NumberedCall) -> bool:
    """Whether a run on the inputs of the last one may change something, or takes it."""
    access = entry.what.access(_ids_given(entry, entry.last))
    return bool(access.changes or access.takes)


def _may_change(core: WorkerCore, entry: NumberedCall, peer: Peer) -> bool:
    """Whether a run on the inputs of the last one may change, or has to mark, what is another's."""
    if not entry.what.only_reads and _changes(entry):
        return True
    return not core.owners.are_clear(peer, _ids_used(Ready.of(entry, entry.last)))


def _ids_given(entry: NumberedCall, given: list[Any]) -> list[int | None]:
    """The ids among the inputs, and None for values."""
    return [id if kind == _REFERENCE else None for id, kind in zip(given, entry.kinds, strict=True)]


def _ids_used(run: Ready) -> list[int]:
    """The ids of all objects that a run uses."""
    return [*run.entry.what.objects, *[id for id in run.ids if id is not None]]


def _check_count(core: WorkerCore, run: Run, results: int) -> None:
    """Raise :class:`~syft.exceptions.ResultMismatch` if the caller drew ids for more or fewer
    results, because the plan, or what a definition means, is another one than it knows."""
    expected = run.flags >> COUNT_SHIFT
    if results != expected:
        told, got = (f"{n} result{'' if n == 1 else 's'}" for n in (expected, results))
        raise ResultMismatch(f"the call of number {run.number}", core.name, told, got)


def _fast_path_inputs(core: WorkerCore, run: Run, entry: NumberedCall) -> list[Any] | None:
    """The values of the inputs of a common run, or None for any other run.

    A run is common if all its ids are objects in the store, it has one result, and its modes are
    the current ones.  The general path handles all others and raises the precise errors.
    """
    mode = GRAD_MODE if is_grad_enabled() else 0
    usual = run.flags == _ONE_EXPECTED | mode and get_default_dtype() is float32
    store, out = core.store, run.out
    if not usual or entry.what.results != 1 or store.charges.guarded:
        return None
    if len(run.inputs) != len(entry.kinds):
        return None
    objects = store.objects
    if out in objects or out in store.given_up or not 0 <= out < _MAX_ID:
        return None
    given: list[Any] = []
    values: list[Any] = []
    for operand, before, kind in zip(run.inputs, entry.last, entry.kinds):
        if operand is None:
            operand = before
        if kind == _REFERENCE:
            value = objects.get(operand) if type(operand) is int else None
            if not isinstance(value, torch.Tensor):
                return None
            values.append(value)
        elif type(operand) is int or type(operand) is float:
            values.append(operand)
        else:
            return None
        given.append(operand)
    entry.last = given
    return values


# ---------------------------------------------------------------------------------------- reading


def _entered(core: WorkerCore, table: Table, run: Run, unpacker: Unpacker) -> NumberedCall:
    """Register the definition of a number from the message."""
    check_number(run.number, core.store.charges.limits.numbers)
    if run.define is None:
        what = f"worker {core.name!r} does not know what number {run.number} stands for"
        raise ProgramError(f"{what}; it may have been cleared: send the definition again")
    table.remove(run.number)
    definition = unpack_at(run.define, unpacker, ".define")
    if not isinstance(definition, Definition):
        expected = "what a number can stand for"
        raise MalformedMessage("$.define", expected, type(definition).__name__)
    prepared = prepare(core, definition)
    entry = NumberedCall(run.number, prepared, definition.kinds, definition.actions)
    table.enter(entry)
    return entry


def _given(call: Call, table: Table, entry: NumberedCall, unpacker: Unpacker) -> list[Any]:
    """The inputs: ids, numbers and values; nil means the input of the last run."""
    if entry.bare:
        given = _bare_given(call, entry)
    else:
        inputs = call.message.inputs
        _check_length(inputs, entry)
        given = [
            _one_given(table, entry, index, operand, unpacker)
            for index, operand in enumerate(inputs)
        ]
    unpacker.finish()
    return given


def _check_length(inputs: Sequence[Any], entry: NumberedCall) -> None:
    if len(inputs) != len(entry.kinds):
        raise MalformedMessage("$.inputs", f"{len(entry.kinds)} inputs", str(len(inputs)))


def _bare_given(call: Call, entry: NumberedCall) -> list[Any]:
    """The inputs of a definition that takes ids and numbers alone."""
    inputs, last, kinds = call.message.inputs, entry.last, entry.kinds
    _check_length(inputs, entry)
    entry.last = given = [
        before if operand is None else operand for operand, before in zip(inputs, last, strict=True)
    ]
    for index, (operand, kind) in enumerate(zip(given, kinds, strict=True)):
        if type(operand) is not int:
            _check_bare(operand, kind, index)
    return given


def _one_given(
    table: Table, entry: NumberedCall, index: int, operand: Any, unpacker: Unpacker
) -> Any:
    """One input of a definition that takes values."""
    bare = entry.kinds[index] <= BARE
    if operand is None:
        operand = entry.last[index]
        if operand is None:
            _check_bare(operand, _REFERENCE, index)
        return operand if bare else replace(operand, _copy)
    if bare:
        _check_bare(operand, entry.kinds[index], index)
        entry.last[index] = operand
        return operand
    value = unpack_at(operand, unpacker, f".inputs[{index}]")
    if table.keep(entry, index, value, weight_of(value)):
        return replace(value, _copy)  # the program may write to it, so it gets a copy
    return value


def _check_bare(operand: Any, kind: int, index: int) -> None:
    path = f"$.inputs[{index}]"
    if operand is None:
        raise MalformedMessage(path, "an input", "nil, and nothing before it")
    if kind == _REFERENCE and type(operand) is not int:
        raise MalformedMessage(path, "the id of an object", describe(operand))
    if type(operand) is not float and type(operand) is not int:
        raise MalformedMessage(path, "a number", describe(operand))


def _copy(leaf: Any) -> Any:
    return copy_of(leaf) if isinstance(leaf, torch.Tensor) else leaf


# ---------------------------------------------------------------------------------------- running


def _resolved(call: Call) -> list[Any]:
    """The values of all inputs, with tensors in the place of ids."""
    objects, held = call.core.store.objects, call.held or {}
    entry, given, _ = call.read
    values = []
    for index, (value, kind) in enumerate(zip(given, entry.kinds, strict=True)):
        if kind == _REFERENCE:
            found = held.get(value, objects.get(value))
            if found is None:
                call.stored(value)  # raises, with the reason
            if not isinstance(found, torch.Tensor):  # a plan cannot be an input
                name = type(found).__name__
                raise MalformedMessage(f"$.inputs[{index}]", "the id of a tensor", f"a {name}")
            value = found
        values.append(value)
    return values


def _stored(core: WorkerCore, run: Run, results: Sequence[Any], peer: Peer) -> Reply:
    """Store the tensors among the results; numbers go into the reply.

    Raises :class:`~syft.exceptions.ResultMismatch` if they are not as many as the caller expects,
    and :class:`~syft.exceptions.ProgramError` for any other result: a container of tensors would
    bypass their guards.
    """
    store = core.store
    if len(results) != run.flags >> COUNT_SHIFT:
        _check_count(core, run, len(results))  # raises
    if isinstance(results, Partial) and results.failure is not None:
        failure, results.failure = results.failure, None  # its frames keep these results
        return _stored_in_part(core, run, results, failure)
    if len(results) == 1 and isinstance(results[0], torch.Tensor) and not store.promised:
        store.charges.charge_one(run.out, results[0])
        store.objects[run.out] = results[0]
        if results[0].__dict__:  # perhaps with tags
            store.tags.note(run.out)
        return Done(run.seq)
    _check_results(results)
    _store_several(core, run, results)
    return _reply(core, run, results, peer)


def _stored_in_part(core: WorkerCore, run: Run, results: Partial, failure: Exception) -> Failure:
    """Store what was made although an action failed; the rest is lost, and the reply says why."""
    core.fail_results([out for out, one in enumerate(results, run.out) if one is LOST], failure)
    _store_several(core, run, results)
    return core.failure(run.seq, failure, action=results.action)


def _store_several(core: WorkerCore, run: Run, results: Sequence[Any]) -> None:
    """Store the tensors among the results; what is a number was not promised to be one."""
    store = core.store
    made = {
        out: value for out, value in enumerate(results, run.out) if isinstance(value, torch.Tensor)
    }
    store.put_all(made)
    if store.promised:
        numbers = [out for out, value in enumerate(results, run.out) if value is not None]
        core.fail_results([out for out in numbers if out not in made])


def _reply(core: WorkerCore, run: Run, results: Sequence[Any], peer: Peer) -> Reply:
    if all(value is None or isinstance(value, torch.Tensor) for value in results):
        return Done(run.seq)
    core.watch(peer)  # the numbers may tell of gradients
    shown = tuple(
        Reference(run.out + index) if isinstance(value, torch.Tensor) else value
        for index, value in enumerate(results)
    )
    return Value(run.seq, pack(shown, Packer()))


def _told(results: Sequence[Any], peer: Peer, guard: Guard) -> bool:
    """Whether the caller may know the numbers among results, of which something is private."""
    taint = results.taint if type(results) is Outputs else guard
    return taint is None or taint.admits(peer.user)


def _check_results(results: Sequence[Any]) -> None:
    for index, value in enumerate(results):
        if type(value) not in NUMBER_OR_NONE_TYPES and not isinstance(value, torch.Tensor):
            what = f"result {index} is a {type(value).__name__}"  # its length may be private
            raise ProgramError(f"{what}: return tensors and numbers, each as a result of its own")
