"""What commands do to the graphs at a worker, by the flags of their operations.

A common command that makes one tensor is charged here for what the graph of that keeps, and a
backward pass frees what it reaches.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

import torch
from torch import Tensor as _Tensor
from torch.nn import Parameter as _Parameter

from syft.exceptions import LimitExceeded
from syft.ops.nested import SCALAR_TYPES, Function, every_tensor
from syft.ops.table import (
    ALTERS,
    BOUNDED,
    ELEMENTWISE,
    FLAGS,
    GRADIENT,
    INPLACE,
    INPLACE_OPTION,
    JOINS,
    MATRIX_PRODUCT,
    MUTATES_OTHERS,
    SETS_GRADIENT,
    SUMMED,
)
from syft.workers.core.charges import is_large
from syft.workers.core.pipeline import Call
from syft.workers.core.store import ObjectStore
from syft.workers.execution.backward_passes import frees_all
from syft.workers.execution.kept_memory import has_graph, is_recorded
from syft.workers.execution.public_sizes import hides_shape
from syft.workers.handlers.present_operands import named_values
from syft.workers.wire.messages import GRAD_MODE, Command
from syft.workers.wire.references import ids_in

_WRITES: Final = INPLACE | MUTATES_OTHERS | ALTERS | SETS_GRADIENT | JOINS
LITTLE: Final = BOUNDED | ELEMENTWISE | SUMMED | MATRIX_PRODUCT
"""Flags of the operations that make nothing large of small tensors, and keep nothing large."""

Common = tuple[int, Function, tuple[Sequence[Any], Any], Sequence[Any], dict[str, Any]]
"""A common command: its operation and what that calls, its operands and keywords as they came, and
their values."""


def charge_graph(
    store: ObjectStore, command: Command, function: Function, values: list[Any], result: Any
) -> None:
    """Charge the caller for what the graph of a result keeps; raises if that is too much."""
    if not has_graph(result):
        return
    given = command.args, command.kwargs
    named = named_values(store.objects, command.kwargs) if command.kwargs else None
    about = command.op, function, given, values, named or {}
    note_graph(store, about, command.out, result)


def charge_small(
    store: ObjectStore,
    command: Command,
    function: Function,
    values: list[Any],
    result: Any,
    look: int,
) -> None:
    """The same for a small tensor, which need not be recorded unless there are large ones."""
    graphs = store.charges.graphs
    if look or graphs.records or graphs.left <= 0:
        charge_graph(store, command, function, values, result)
    else:
        graphs.left -= 1


def note_graph(
    store: ObjectStore,
    command: Common,
    out: int,
    result: Any,
) -> None:
    """Charge the caller for what the graph of a result keeps that a common command has made.

    Raises if that is too much.
    """
    charges = store.charges
    little = not charges.flags and FLAGS[command[0]] & LITTLE
    if little and not is_large(result, charges.guarded):
        if charges.graphs.counts(ids_in(command[2])):
            charges.graphs.left -= 1
            return
    try:
        look = None if charges.guarded else _look_of(command)
        if look is None or not _is_like_others(store, command, out, result, look):
            _note_uncommon(store, command, out, result, look)
    except LimitExceeded:
        charges.release((out,))
        raise


def _is_like_others(store: ObjectStore, command: Common, out: int, result: Any, look: Any) -> bool:
    """Note the graph of a result if one that looked alike has been noted; whether it was."""
    _, _, (operands, _), values, _ = command
    ids = [one[1] if type(one) is list else 0 for one in operands]
    return store.charges.graphs.made_alike(look, ids, values, out, result)


def _look_of(command: Common) -> Any:
    """All of an operation on tensors and scalars that what its graph keeps follows from; None if
    there is anything else among them, or what it writes."""
    op, _, _, values, keywords = command
    if _is_in_place(op, values) or not all(map(_is_bare, keywords.values())):
        return None
    look: list[Any] = [op, *keywords.items(), *map(type, keywords.values())]
    for value in values:
        if type(value) is _Tensor or type(value) is _Parameter:
            if value.layout is not torch.strided:
                return None
            look += (value.shape, value.stride(), value.dtype, value.requires_grad)
        elif type(value) in SCALAR_TYPES:
            look += (type(value), value)
        else:
            return None
    return tuple(look)


def _is_bare(value: Any) -> bool:
    return value is None or type(value) in SCALAR_TYPES


def _note_uncommon(
    store: ObjectStore,
    command: Common,
    out: int,
    result: Any,
    look: Any,
) -> None:
    """The same for one that looks unlike those before, from which others may follow later."""
    op, function, operands, values, keywords = command
    charges, objects = store.charges, store.objects
    graphs = charges.graphs
    named = {id: objects[id] for id in ids_in(operands)}
    coming = graphs.coming(named, values, keywords, function)
    if coming is None:
        return
    written = bool(FLAGS[op] & INPLACE_OPTION) and any(result is one for one in coming.inputs)
    if written:
        coming.is_unclear()
    elif look is not None:
        graphs.learn(look, coming, values, result)
    graphs.made(coming, {out: result})
    graphs.wrote(coming, written)


def writes(op: int, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Whether an operation may give graphs to its operands, or write to them."""
    if FLAGS[op] & _WRITES:
        return not FLAGS[op] & GRADIENT
    return _may_be_in_place(kwargs) or "out" in kwargs or _is_in_place(op, args)


def _may_be_in_place(keywords: dict[str, Any]) -> bool:
    """Whether a keyword does not say that nothing is written.  It may be a private tensor, whose
    truth nobody is to learn, so it is not asked whether it is true."""
    return keywords.get("inplace", False) is not False


def _is_in_place(op: int, args: Sequence[Any]) -> bool:
    """Whether the place of an argument may say that an operation writes to the first one."""
    return bool(FLAGS[op] & INPLACE_OPTION) and len(args) > 1


def records(values: Iterable[Any], flags: int) -> bool:
    """Whether autograd records what a request with these flags does to these values."""
    return bool(flags & GRAD_MODE) and any(map(is_recorded, every_tensor(values)))


def is_written(named: dict[str, Any], values: Sequence[Any], flags: int) -> bool:
    """Whether an operation with these keywords has an ``out``, or writes to its first operand and
    autograd records it."""
    return "out" in named or (_may_be_in_place(named) and records(values, flags))


def passed(
    call: Call, function: Function, args: Sequence[Any], kwargs: dict[str, Any], private: bool
) -> None:
    """Stop charging for what a backward pass frees, by its arguments."""
    graphs, objects, held = call.core.store.charges.graphs, call.core.store.objects, call.held or {}
    if graphs.records and (found := frees_all(function, args, kwargs)):
        named = ((id, held.get(id, objects.get(id))) for id in ids_in(call.message.args))
        roots = [id for id, value in named if any(value is root for root in found)]
        graphs.passed(roots, private)
    graphs.changes += 1  # gradients are written to, which graphs may have saved


def note_gradient(call: Call, failed: bool) -> None:
    """Charge for the gradient that a command has given to a leaf, or no more for the one before."""
    args = call.message.args
    given = ids_in(args[1:]) if len(args) > 1 and args[1] is not None else None
    for leaf in ids_in(args[:1]):
        note_gradients(call.core.store, leaf, given, failed)


def note_gradients(
    store: ObjectStore, leaf: int, given: Collection[int] | None, failed: bool
) -> None:
    """Charge for the objects that a leaf was given as gradients, or for none.

    Where it is not certain that it has got them, their charges are added to those before.
    """
    charges, adds = store.charges, failed
    if charges.guarded and not failed:
        known = [store.objects[id] for id in (leaf, *(given or ())) if id in store.objects]
        adds = any(map(hides_shape, known))
    charges.graphs.gave(leaf, given, adds)
