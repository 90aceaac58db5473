"""The handler of torch operations: it resolves the operands, runs, and stores the result.

This is the hot path (a few microseconds an operation).  The common case, flat arguments that are
references and plain numbers, with all objects present and none private, has its own code.  All
other commands take the general path below it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor as _Tensor
from torch import float32, get_default_dtype, is_grad_enabled

from syft.codes import TypeCode
from syft.exceptions import LimitExceeded, MalformedMessage, PermissionDenied, ResultMismatch
from syft.ids import new_id
from syft.ops.nested import SCALAR_TYPES, Function, leaves, replace
from syft.ops.returns import MOST
from syft.ops.table import (
    ALTERS,
    BINARY,
    BOUNDED,
    FLAGS,
    FRESH,
    GRADIENT,
    INPLACE,
    INPLACE_OPTION,
    METADATA,
    MUTATES_OTHERS,
    NAMES,
    ONE,
    ONE_UNLESS_INPLACE,
    SETS_GRADIENT,
    TENSOR,
    UNINITIALIZED,
    asked_by,
    function_of,
    may_alter,
    ops_where,
)
from syft.serde.frame import Frame
from syft.serde.packer import Packer
from syft.serde.registry import pack, unpack_at
from syft.workers.core.access import READS, Access
from syft.workers.core.charges import LOOK, SMALL
from syft.workers.core.peer import EVERYTHING, Peer
from syft.workers.core.pipeline import Call, Declaration, handles, run_as_private, shortcut
from syft.workers.core.state_machine import Answer, WorkerCore
from syft.workers.core.store import ObjectStore
from syft.workers.core.tag_index import tags_of
from syft.workers.execution.predicted_failures import is_predicted
from syft.workers.execution.operation import run_in_mode
from syft.workers.execution.private_results import NOTHING, UNCLEAR, common_guard, private_result
from syft.workers.execution.public_facts import in_public_form, is_answer
from syft.workers.handlers.accesses import altered_by, command_access
from syft.workers.handlers.command_graphs import (
    LITTLE,
    charge_graph,
    charge_small,
    is_written,
    note_gradient,
    passed,
    records,
    writes,
)
from syft.workers.handlers.present_operands import named_values, present, public_tensor
from syft.workers.hardening.precautions import RUNNABLE
from syft.workers.hardening.unwritten import Clearing, sizes_within_memory
from syft.workers.labels.cell import unsealed
from syft.workers.labels.guards import Guard
from syft.workers.labels.memory_labels import LABEL
from syft.workers.wire.messages import (
    COUNT_SHIFT,
    DEFAULT_DTYPE,
    GRAD_MODE,
    IN_CONTAINER,
    INFERENCE_MODE,
    Command,
    Done,
    Failure,
    Reply,
    Value,
)
from syft.workers.wire.references import REF, REFS, Reference, ids_in

_ONE = ONE | TENSOR | BINARY | ONE_UNLESS_INPLACE
_MODES = GRAD_MODE | INFERENCE_MODE
_EXPECTED = 1 << COUNT_SHIFT
"""The least flags of a caller that knows how many tensors come back."""
_EXPECTED_IN_GRAD_MODE = _EXPECTED | GRAD_MODE
_SEVERAL = _EXPECTED | IN_CONTAINER
"""The least flags of a caller that expects tensors in a container."""
_CASTING = ("cpu", "cuda", DEFAULT_DTYPE)
_MAX_ID = 2**63 - 1
_IDS, _NOT_EXPECTED = range(1, 2**63), range(_EXPECTED)
_UNCOMMON = UNINITIALIZED | MUTATES_OTHERS | ALTERS | GRADIENT
MAKING_SIZES = {
    op: function
    for op, function in enumerate(RUNNABLE)
    if function and FLAGS[op] & _ONE and not FLAGS[op] & (_UNCOMMON | INPLACE)
}
"""The operations that only make a tensor, by number."""
MAKING = {op: function for op, function in MAKING_SIZES.items() if FLAGS[op] & BOUNDED}
"""Those of them that make nothing large of small tensors."""
INDEXING = ops_where("index", "1:index") & MAKING_SIZES.keys()
"""Those of them that pick a part of their first argument if the second is one number."""
_ASKING = {
    op: function
    for op, function in enumerate(RUNNABLE)
    if function and FLAGS[op] & METADATA and asked_by(op) == {"requires_grad"}
}
"""The questions about one tensor that are answered with true or false, whatever is in it."""
_WRITING = {
    op: function
    for op, function in enumerate(RUNNABLE)
    if function and FLAGS[op] & INPLACE and not FLAGS[op] & (_UNCOMMON | SETS_GRADIENT)
}
"""The operations that only write to the values of their first argument."""
_OPERATIONS = len(RUNNABLE)
_NO_KEYWORDS: dict[str, Any] = {}
_LIST = int(TypeCode.LIST)
_FLOATS = frozenset((float,))
_WRITTEN = frozenset(("out", "inplace"))
"""The keywords of what an operation writes."""
_size = _Tensor.numel
_UNCOMMON_ONE = object()
_BARE = frozenset((bool, float, str, type(None)))
"""The values that are their own operands."""


def _access(call: Call) -> Access:
    """What a command does to its operands, as exactly as somebody asks."""
    if not call.core.dataflow.active and _only_makes(call.message):
        return READS
    return command_access(call.message)


@handles(
    Command,
    Declaration(
        reads="args, kwargs",
        returns="out",
        plain="op, flags, autocast",
        answers=(Done, Value),
        action=lambda call: (
            NAMES[call.message.op] if 0 <= call.message.op < _OPERATIONS else "a command"
        ),
        named=lambda call: ids_in((call.message.args, call.message.kwargs)),
        outs=lambda call: _ids_of_results(call.message),
        access=_access,
        operands=True,
        alters=lambda call: altered_by(call.message.op, call.message.kwargs),
    ),
)
def _general(call: Call, command: Command) -> Reply:
    """Run any operation; the reply is ``Done`` for a single tensor and ``Value`` for anything
    else."""
    core, op, flags, out = call.core, command.op, command.flags, command.out
    function = (RUNNABLE[op] if 0 <= op < _OPERATIONS else None) or function_of(op)  # or raises
    usual = 0 <= flags < _SEVERAL and 0 <= out <= _MAX_ID and out not in core.store.objects
    if not usual or core.store.given_up:
        for id in _ids_of_results(command):
            core.store.check_free(id)
    args, kwargs = _operands(call, command)
    core.store.charges.check(op, function, args, kwargs)
    if FLAGS[op] & UNINITIALIZED:
        function = Clearing(function)
    call.graphs.operands = args, kwargs, function if _is_in_usual_modes(command) else None
    if writes(op, args, kwargs):
        return _run_writing(call, command, function, args, kwargs)
    call.graphs.little = bool(FLAGS[op] & LITTLE)
    return _run(call, command, function, args, kwargs)


def _run_writing(
    call: Call, command: Command, function: Function, args: list[Any], kwargs: dict[str, Any]
) -> Reply:
    """Run a command that may write to its operands, or change them."""
    if records((args, kwargs), command.flags):
        call.graphs.begin(call.named())
    try:
        altering = may_alter(command.op, kwargs)
        with sizes_within_memory((args, kwargs)) if altering else nullcontext():
            reply = _run(call, command, function, args, kwargs)
    finally:
        call.graphs.wrote()
    if FLAGS[command.op] & SETS_GRADIENT:
        note_gradient(call, type(reply) is Failure)
    return reply


@shortcut(Command)
def handle(core: WorkerCore, command: Command, frame: Frame, peer: Peer) -> Reply | Answer | None:
    """Run a common operation at once, and leave any other to the steps."""
    store = core.store
    if store.promised or core.dataflow.tasks or core.contested or core.confined:
        if not _is_common(core, command, peer):
            return _general(core, command, frame, peer)
        if core.contested:
            return Done(command.seq)
    elif command.drop:
        store.drop_all(command.drop, peer.dropped)
    if command.op in _ASKING and (answer := _answer(core, command, frame, peer)) is not None:
        return answer
    run = _make if command.out else _write
    try:
        if run(store, command, store.charges.guarded):
            return Done(command.seq)
    except LimitExceeded:
        pass  # raised again below: a traceback would tell which way a sealed error has it go
    return _general(core, command, frame, peer)


def _is_common(core: WorkerCore, command: Command, peer: Peer) -> bool:
    """Whether a command at a worker of shares, promises or several callers is no matter for the
    general path; it has been run if the worker has several callers."""
    if command.drop:
        core.forget(command.drop, peer)
    if core.confined:
        for share in core.store.confined(ids_in((command.args, command.kwargs))).values():
            raise share.refusal(peer, "an operation")
    if core.dataflow.active or peer.account.unseen is not None:
        return False
    return not core.contested or (not command.kwargs and _run_own(core, command, peer))


def _answer(core: WorkerCore, command: Command, frame: Frame, peer: Peer) -> Value | None:
    """The answer to a question about one public tensor that is there; None for any other, which the
    general path answers or refuses."""
    store, out = core.store, command.out
    if store.given_up or command.kwargs or len(command.args) != 1:
        return None
    if command.flags not in _NOT_EXPECTED or out not in _IDS or out in store.objects:
        return None
    tensor = public_tensor(store.objects, command.args[0])
    if tensor is None:
        return None
    if peer.knows != EVERYTHING:
        core.watch(peer)
    answer = _ASKING[command.op](tensor)
    return Call(core, command, frame, peer).tell(answer, lambda guard: False)


def _run_own(core: WorkerCore, command: Command, peer: Peer) -> bool:
    """Run a common command that changes nothing but what is certainly its caller's, if it is
    one."""
    owners, out = core.owners, command.out
    try:
        if not owners.are_clear(peer, _ids_if_flat(command.args)):
            return False
        # what is written is a reference, or a list of these
        own = _only_makes(command) if out else owners.is_own(peer, command.args[0][1:])
    except (TypeError, IndexError, ValueError):
        return False  # the general path raises a precise error
    run = _make if out else _write
    try:
        made = own and run(core.store, command, core.store.charges.guarded)
    except LimitExceeded:
        return False  # raised again, for all alike; what fails otherwise may have written
    if made and out:
        owners.made(peer, (out,))
    return made


def _ids_if_flat(operands: Iterable[Any]) -> list[int]:
    """The ids of all references among operands that are references, lists of these or of floats,
    and scalars; raises ValueError if there is anything else."""
    ids: list[int] = []
    for operand in operands:
        if type(operand) in SCALAR_TYPES:
            continue
        code = operand[0] if type(operand) is list else None
        if code == REF:
            ids.append(operand[1])
        elif code == REFS:
            ids += operand[1:]
        elif code != _LIST or not _FLOATS.issuperset(map(type, operand[1:])):
            raise ValueError
    return ids


def _only_makes(command: Command) -> bool:
    """Whether it is certain that a command writes to none of its arguments."""
    if command.op not in MAKING or (command.kwargs and not _WRITTEN.isdisjoint(command.kwargs)):
        return False
    return not FLAGS[command.op] & INPLACE_OPTION or len(command.args) == 1


def _make(store: ObjectStore, command: Command, guarded: bool) -> bool:
    """Run a command that makes one tensor, if it is a common one; the general path runs or refuses
    any other.

    A common one is given tensors that are there and plain numbers, in the modes of the worker.
    Here nothing is promised, and ``guarded`` says that something at the worker is private.
    """
    charges = store.charges
    look = charges.flags
    function = MAKING.get(command.op)
    if function is None:
        function = MAKING_SIZES.get(command.op)
        look |= 0 if command.op in INDEXING and _picks(command.args) else LOOK
    flags = _EXPECTED_IN_GRAD_MODE if is_grad_enabled() else _EXPECTED
    if function is None or command.flags != flags or command.autocast:
        return False
    objects, out = store.objects, command.out
    if get_default_dtype() is not float32 or not 0 < out <= _MAX_ID or out in objects:
        return False  # the dtype of the process; a command without one has float32
    values = None if look > LOOK else present(objects, command.args)
    if values is None:
        return False
    if look or guarded or command.kwargs:
        result = _make_looking(store, command, function, values, look, guarded)
        if result is _UNCOMMON_ONE:
            return False
    else:
        result = function(*values)
    if (
        type(result) is not _Tensor
        or _size(result) > SMALL
        or look
        and (not FLAGS[command.op] & FRESH or result._is_view())  # maybe of large memory
        or guarded
        and LABEL in result.__dict__  # of a private size: how large it is may not decide
    ):
        accept(store, command.op, flags, out, result)  # may raise
        charge_graph(store, command, function, values, result)  # may raise
    elif result.requires_grad:
        charge_small(store, command, function, values, result, look)
    objects[out] = result
    if store.tags.watched:
        store.tags.note(out)
    return True


def _picks(args: Sequence[Any]) -> bool:
    """Whether an index is one number: what that picks is no larger than what it is picked from."""
    return len(args) == 2 and type(args[1]) is int


def _make_looking(
    store: ObjectStore,
    command: Command,
    function: Function,
    values: list[Any],
    look: int,
    guarded: bool,
) -> Any:
    """The result of a command with keywords, of one whose sizes are to be looked at, or of one at a
    worker that holds private values; ``_UNCOMMON_ONE`` if the general path has to run it."""
    named = named_values(store.objects, command.kwargs) if command.kwargs else _NO_KEYWORDS
    if named is None or is_written(named, values, command.flags):
        return _UNCOMMON_ONE
    guard = common_guard((*values, *named.values()) if named else values) if guarded else None
    if guard is UNCLEAR:
        return _UNCOMMON_ONE
    if look:
        store.charges.check_known(command.op, function, values, named)
    if guard is None:
        return function(*values, **named)
    result = private_result(function, values, named, guard)
    return _UNCOMMON_ONE if result is NOTHING else result


def accept(store: ObjectStore, op: int, flags: int, out: int, result: Any) -> None:
    """Charge the caller for a result; raises if it is not one tensor, or too large."""
    if not isinstance(result, torch.Tensor):
        _tensors_expected(store.worker, op, flags, result)  # raises
    store.charges.charge_one(out, result)


def _write(store: ObjectStore, command: Command, guarded: bool) -> bool:
    """The same for a command that writes to its first argument, if nothing in it is private and
    it leaves no graph."""
    function = _WRITING.get(command.op)
    flags = GRAD_MODE if is_grad_enabled() else 0
    if function is None or command.flags != flags or command.autocast:
        return False
    if get_default_dtype() is not float32:  # of the process; a command without one has float32
        return False
    values = present(store.objects, command.args)
    if values is None:
        return False
    if flags and records(values, flags):
        return False
    look = store.charges.flags or not FLAGS[command.op] & BOUNDED
    made = _make_looking(store, command, function, values, look, guarded)
    store.charges.graphs.changes += 1
    return made is not _UNCOMMON_ONE


def _run(
    call: Call, command: Command, function: Function, args: list[Any], kwargs: dict[str, Any]
) -> Reply:
    """Run a command in its modes: on private inputs its results and the text of its error are
    private too, and if it fails, all the results that the caller expects are marked as failed."""
    core, user = call.core, call.peer.user
    passes = partial(passed, call, function, args, kwargs) if FLAGS[command.op] & GRADIENT else bool
    if not core.store.charges.guarded:
        result = run_in_modes(call, function, args, kwargs)
        passes(False)
        return _reply(call, command, result, in_public_form)
    guard = call.guard
    private = core, function, args, kwargs, FLAGS[command.op], guard, core.holdings, user
    try:
        result = run_in_modes(call, run_as_private, private)
        passes(guard is not None)
        return _reply(call, command, result, partial(_is_told, result, function, args, kwargs))
    except PermissionDenied:
        raise
    except Exception as error:  # its text may quote private values
        if guard is None:
            raise
        if not is_predicted(error):
            passes(True)
        core.fail_results(_ids_of_results(command))
        hidden = not (guard.admits(user) or is_predicted(error))
        return core.failure(command.seq, error, hidden=hidden)


def _is_in_usual_modes(command: Command) -> bool:
    """Whether a request is made in the modes of the worker."""
    mode = GRAD_MODE if torch.is_grad_enabled() else 0
    usual = command.flags & _MODES == mode and not command.autocast
    return usual and get_default_dtype() is float32


def run_in_modes(
    call: Call,
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any] = _NO_KEYWORDS,
) -> Any:
    """Call a function in the modes in which the request was made."""
    if _is_in_usual_modes(call.message):
        return function(*args, **kwargs)
    return run_in_mode(function, args, kwargs, call.message.flags, _autocast_of(call))


def _is_told(
    result: Any, function: Function, args: list[Any], kwargs: dict[str, Any], guard: Guard
) -> bool:
    """Whether everybody may know what a result says besides references."""
    told = (leaf is None or isinstance(leaf, torch.Tensor) for leaf in leaves(result))
    return all(told) or is_answer(function, args, kwargs, guard)


def _reply(call: Call, command: Command, result: Any, told: Callable[[Guard], bool]) -> Reply:
    core, out = call.core, command.out
    store = core.store
    if not out:  # the result is an argument, to which the caller has a pointer
        return Done(command.seq)
    if isinstance(result, torch.Tensor) and command.flags < _SEVERAL:
        store.charges.charge_one(out, result)
        store.objects[out] = result
        call.note_made((out,))
        if store.tags.watched:
            store.tags.note(out)
        if store.promised:
            store.kept(out)
        return Done(command.seq)
    if command.flags < _EXPECTED:
        if call.peer.knows != EVERYTHING:
            core.watch(call.peer)
        if type(result) in _BARE:
            return call.tell(result, told)
        return call.tell(pack(_stored_parts(call, result, out), Packer()), told)
    found = dict(enumerate(_tensors_expected(core.name, command.op, command.flags, result), out))
    store.put_all(found)
    call.note_made(found)
    return Done(command.seq)


def _stored_parts(call: Call, value: Any, out: int) -> Any:
    """Store every tensor in a result, and return the result with references in their place.

    The first tensor is stored under ``out``, each further one under an id of its own.
    """
    ids = [out]

    def reference(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        id = ids.pop() if ids else new_id()
        found[id] = leaf
        return Reference(id)

    found: dict[int, torch.Tensor] = {}
    shown = replace(value, reference)
    call.core.store.put_all(found)
    call.note_made(found)
    return shown


def _ids_of_results(command: Command) -> range:
    """The ids of the results that the caller expects; one if it does not say how many.

    Raises :class:`~syft.exceptions.MalformedMessage` if there are no such ids, or no such flags.
    """
    if command.flags < 0:
        raise MalformedMessage("$.flags", "a sum of flags", str(command.flags))
    if not command.out:
        return range(0)
    count = max(1, command.flags >> COUNT_SHIFT)
    if count > MOST or not 0 < command.out <= _MAX_ID + 1 - count:
        raise MalformedMessage(
            "$.out", f"{count} ids below 2**63, of at most {MOST}", f"{count} from {command.out}"
        )
    return range(command.out, command.out + count)


def _tensors_expected(worker: str, op: int, flags: int, result: Any) -> list[torch.Tensor]:
    """The tensors in a result, which are as many as the caller expects, besides None, and in a
    container if it expects one."""
    contained = isinstance(result, tuple | list)
    items = result if contained else (result,)
    tensors = [item for item in items if isinstance(item, torch.Tensor)]
    count, in_container = flags >> COUNT_SHIFT, bool(flags & IN_CONTAINER)
    foreign = any(not isinstance(item, torch.Tensor | None) for item in items)
    if foreign or len(tensors) != count or contained is not in_container:
        got = counted(len(tensors), contained) + (" and other values" if foreign else "")
        raise ResultMismatch(NAMES[op], worker, counted(count, in_container), got)
    return tensors


def counted(tensors: int, in_container: bool) -> str:
    """A number of tensors in words, for a :class:`~syft.exceptions.ResultMismatch`.

    >>> counted(1, False), counted(1, True), counted(2, True)
    ('1 tensor', 'a container of 1 tensor', '2 tensors')
    """
    if tensors == 1:
        return "a container of 1 tensor" if in_container else "1 tensor"
    return f"{tensors} tensors"


def _operands(call: Call, command: Command) -> tuple[list[Any], dict[str, Any]]:
    """The arguments as values: by the fast path where it applies, otherwise by the general one.

    The general path unpacks every kind of operand, and its errors contain the path to the operand.
    """
    keywords, store = command.kwargs or {}, call.core.store
    if call.held is None:
        found = present(store.objects, command.args)
        named = named_values(store.objects, keywords) if keywords else keywords
        if found is not None and named is not None:
            return found, named
    args, kwargs = _unpacked(call, command, keywords)
    if store.charges.guarded:
        args, kwargs = replace((args, kwargs), unsealed)
    if call.frame.buffers and any(map(tags_of, (*args, *kwargs.values()))):
        store.tags.watched = True  # the operation may return one of them
    return args, kwargs


def _unpacked(
    call: Call, command: Command, keywords: dict[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """The arguments, with cells among them."""
    unpacker = call.unpacker()
    args = [
        unpack_at(operand, unpacker, f".args[{index}]")
        for index, operand in enumerate(command.args)
    ]
    kwargs = {
        name: unpack_at(operand, unpacker, f".kwargs.{name}") for name, operand in keywords.items()
    }
    return args, kwargs


def _autocast_of(call: Call) -> list[tuple[str, torch.dtype]]:
    """The devices on which the caller had autocast enabled, as ``(device type, dtype)``, and its
    default dtype if that is not float32."""
    if not call.message.autocast:
        return []
    unpacker = call.unpacker(objects=False)
    modes = []
    for index, mode in enumerate(call.message.autocast):
        path = f".autocast[{index}]"
        fits = isinstance(mode, (list, tuple)) and len(mode) == 2 and mode[0] in _CASTING
        dtype = unpack_at(mode[1], unpacker, path) if fits else None
        if not isinstance(dtype, torch.dtype):
            raise MalformedMessage("$" + path, "a device type and a dtype", repr(mode))
        modes.append((mode[0], dtype))
    return modes
