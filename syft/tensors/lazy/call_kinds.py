"""What one recorded operation comes to, found once for all calls of its kind.

A *kind* is an overload, its plain arguments, and the metas of its operands.  The one evaluator
(:mod:`syft.ops.evaluate`) says what its results are, what it writes and whether it draws random
numbers; that takes some hundred microseconds, and is kept.  Recording the same operation again
costs one look into a dictionary.

Floats that only multiply, add or bound values are no part of a kind: they differ at each step of an
optimizer.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any, Final

import torch

from syft.chain.wrapper import Wrapper
from syft.ops.engines import stand_on
from syft.ops.evaluate import evaluate
from syft.ops.nested import EXACT_TENSOR_TYPES, replace
from syft.ops.outcome import Given, Made, Outcome, Verdict
from syft.tensors.device_tensor import KIND
from syft.tensors.lazy.lazy_program import number_of_overload
from syft.tensors.lazy.lazy_values import LazyValue, TensorMeta, captured, interned
from syft.torch_private import below_autograd, usual_keys

OPERAND: Final = object()
FLOAT: Final = object()
"""What stands for an operand, and for a float that is an input, among the arguments of a kind."""
_MOST_KINDS: Final = 1 << 14


class NotRecordable(Exception):
    """An argument of a call cannot be noted, so the call runs now; with a text, it is a tensor of
    another kind.  Only this room sees it."""


class LazyOverload:
    """What is known of an overload whatever its arguments are; made once for each."""

    __slots__ = ("overload", "name", "number", "floats_are_inputs", "as_view", "resizes")

    def __init__(self, overload: Any) -> None:
        self.overload, self.name = overload, overload._schema.name
        self.number = number_of_overload(overload)
        types = [str(one.type) for one in overload._schema.arguments]
        has_tensors = any("Tensor" in one for one in types)
        decides = any("float" in one and "List" in one for one in types)
        self.floats_are_inputs = has_tensors and not decides
        """Whether floats decide no shape: those of factories do, and scale factors."""
        changes_shape = torch.Tag.inplace_view in overload.tags
        self.as_view = _outplace_view(overload) if changes_shape else None
        """The view that an operation such as ``t_`` has its tensor become."""
        self.resizes = changes_shape and self.as_view is None


KNOWN_OVERLOADS: Final[dict[Any, LazyOverload]] = {}


def overload_facts(overload: Any) -> LazyOverload:
    """What is known of an overload.

    >>> overload_facts(torch.ops.aten.t_.default).as_view
    <OpOverload(op='aten.t', overload='default')>
    """
    facts = KNOWN_OVERLOADS.get(overload)
    if facts is None:
        facts = KNOWN_OVERLOADS[overload] = LazyOverload(overload)
    return facts


def _outplace_view(overload: Any) -> Any:
    """The view of the name without the last underscore; None if there is none."""
    name = overload._schema.name.partition("::")[2]
    packet = getattr(torch.ops.aten, name.removesuffix("_"), None)
    takes = [(one.name, str(one.type)) for one in overload._schema.arguments]
    for as_view in [] if packet is None else [getattr(packet, one) for one in packet.overloads()]:
        schema = as_view._schema
        alias = schema.returns[0].alias_info if schema.returns else None
        same = [(one.name, str(one.type)) for one in schema.arguments] == takes
        if same and alias is not None and not alias.is_write:
            return as_view
    return None


class CallKind:
    """One kind of call: its results, and what it does to its operands.

    ``outs`` has a meta for each new result, the place of the operand for one that is given back,
    and None; ``container`` is the class of several results.  ``at_once`` says that such a call
    cannot wait: its result or its shapes follow from values, it does nothing but check values, it
    draws random numbers, it makes a tensor at a worker, or torch cannot tell.
    """

    __slots__ = (
        "facts",
        "number",
        "args",
        "kwargs",
        "outs",
        "within",
        "container",
        "writes",
        "at_once",
        "changes_shapes",
        "makes_one",
        "makes",
    )

    def __init__(self, facts: LazyOverload, args: Any, kwargs: Any) -> None:
        self.facts, self.args, self.kwargs = facts, args, kwargs
        self.number = facts.number
        self.outs: tuple[Any, ...] = ()
        self.within: tuple[int, ...] = ()
        """For each result the operand in whose memory it lies, -1 for none."""
        self.container: type | None = None
        self.writes: tuple[int, ...] = ()
        self.at_once = True
        self.changes_shapes = False
        self.makes_one = False
        """Whether it has one result, which is new, and writes nothing: as most calls."""
        self.makes = 0
        """How many of its results are new."""

    def take(self, outcome: Outcome, operands: Sequence[LazyValue]) -> None:
        """Take over what the evaluator has found out."""
        self.changes_shapes = bool(outcome.changed)
        if outcome.verdict is not Verdict.RUNS or outcome.draws or outcome.changed:
            return
        if outcome.result is not None:
            self._take_results(outcome.result, operands)
        self.writes = outcome.writes
        self.at_once = not (self.outs or self.writes)  # it checks values, so that it raises or not
        self.at_once |= any(
            type(out) is TensorMeta and out.device.type == KIND for out in self.outs
        )
        self.makes = sum(type(out) is TensorMeta for out in self.outs)
        self.makes_one = self.makes == 1 and self.container is None and not self.writes

    def _take_results(self, result: Any, operands: Sequence[LazyValue]) -> None:
        several = isinstance(result, (tuple, list))
        self.container = type(result) if several else None
        turns = _TURNS.get(self.facts.name, (False, False))
        found = [_out(one, operands, *turns) for one in (result if several else (result,))]
        self.outs = tuple([out for out, _ in found])
        self.within = tuple([within for _, within in found])


def _out(one: Any, operands: Sequence[LazyValue], conj: bool, neg: bool) -> tuple[Any, int]:
    if type(one) is Given:
        return one.place, -1
    if type(one) is not Made:
        return None, -1
    if not one.shares:
        return interned(one.shape, one.stride, one.offset, one.dtype, one.device), -1
    meta = operands[one.within].meta
    place = one.offset + meta.offset, one.dtype, one.device
    turned = meta.conj ^ conj and one.dtype.is_complex, meta.neg ^ neg
    return interned(one.shape, one.stride, *place, *turned), one.within


_KINDS: Final[dict[Any, CallKind]] = {}


def kind_of_call(
    facts: LazyOverload,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    operands: list[LazyValue],
    floats: list[float],
) -> CallKind:
    """The kind of a call; its operands and its floats are added to the lists.

    Raises :class:`NotRecordable` if an argument has no equality, or is no strided tensor.
    """
    key: list[Any] = [facts, torch.get_default_dtype()]
    _encode(args, facts.floats_are_inputs, operands, floats, key)
    if kwargs:
        for name, value in kwargs.items():
            key.append(name)
            _encode((value,), facts.floats_are_inputs, operands, floats, key)
    found = tuple(key)
    try:
        kind = _KINDS.get(found)
    except TypeError as error:
        raise NotRecordable from error
    if kind is None:
        if len(_KINDS) >= _MOST_KINDS:
            for old in list(islice(_KINDS, _MOST_KINDS // 2)):
                del _KINDS[old]
        kind = _KINDS[found] = _found_out(facts, args, kwargs, operands)
    return kind


_LISTS: Final = frozenset((list, tuple))
_BY_TEXT: Final = frozenset((float, complex))
"""The types of numbers that are compared as text: -0.0 equals 0.0, and nan does not equal nan."""


def _encode(
    args: Sequence[Any],
    floats_are_inputs: bool,
    operands: list[LazyValue],
    floats: list[float],
    key: list[Any],
) -> None:
    """Sort arguments: tensors are operands, floats inputs of their own, and all else is part of the
    key, with its type: 1, True and 1.0 are equal."""
    for arg in args:
        kind = type(arg)
        if kind is Wrapper:
            value = getattr(arg.child, "value", None)
            if type(value) is not LazyValue:
                raise NotRecordable("a tensor of another kind")
            operands.append(value)
            key.append(value.meta)
        elif kind is float and floats_are_inputs:
            floats.append(arg)
            key.append(float)
        elif kind in _LISTS:
            key.append(kind)
            key.append(len(arg))
            _encode(arg, floats_are_inputs, operands, floats, key)
        elif isinstance(arg, torch.Tensor):
            value = plain_operand(arg)
            operands.append(value)
            key.append(value.meta)
        else:
            key.append(kind)
            key.append(repr(arg) if kind in _BY_TEXT else arg)


def plain_operand(tensor: torch.Tensor) -> LazyValue:
    """The value of a plain tensor that stands beside lazy ones: no copy is made.

    Raises :class:`NotRecordable` for one that has no strided memory.
    """
    ordinary = type(tensor) in EXACT_TENSOR_TYPES and tensor.layout is torch.strided
    if not ordinary or tensor.is_quantized or tensor.device.type == "meta":
        raise NotRecordable
    with usual_keys(), torch.no_grad():
        return captured(tensor, tensor.detach())


def _found_out(
    facts: LazyOverload,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    operands: Sequence[LazyValue],
) -> CallKind:
    floats_are_inputs = facts.floats_are_inputs

    def marked(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return OPERAND
        return FLOAT if floats_are_inputs and type(leaf) is float else leaf

    kind = CallKind(facts, replace(args, marked), replace(kwargs, marked))
    if facts.resizes or facts.name in _WRONG_METAS:
        kind.changes_shapes = facts.resizes
        return kind
    own = _STATED.get(facts.overload)
    if own is not None:
        meta = own(operands[0].meta, *args[1:], **kwargs)
        if meta is not None:
            kind.outs, kind.within, kind.at_once = (meta,), (0,), False
            kind.makes, kind.makes_one = 1, True
        return kind
    values = iter(operands)

    def standing(leaf: Any) -> Any:
        return _stand_in(next(values).meta) if isinstance(leaf, torch.Tensor) else leaf

    given = replace(args, standing), replace(kwargs, standing)
    with usual_keys(), torch.no_grad():
        kind.take(evaluate(facts.overload, *given), operands)
    return kind


def _stand_in(meta: TensorMeta) -> torch.Tensor:
    with below_autograd():
        made = torch.empty_strided(meta.shape, meta.stride, dtype=meta.dtype, device="meta")
    stand_on(made, meta.device)
    return made


def _strided(
    meta: TensorMeta, size: Any, stride: Any, storage_offset: int | None = None
) -> TensorMeta | None:
    """The result of ``as_strided``, whose offset is one of the memory and not of the operand."""
    offset = meta.offset if storage_offset is None else storage_offset
    how = meta.dtype, meta.device, meta.conj, meta.neg
    return interned(tuple(size), tuple(stride), offset, *how)


_WRONG_METAS: Final = {
    "aten::mkldnn_rnn_layer",
    "aten::_embedding_bag",
    "aten::_embedding_bag_forward_only",
    "aten::_fft_r2c",
}
"""The operations of which torch 2.13 predicts other sizes or strides than it gives: of the
workspace that one keeps for its backward pass, of counts, and of a transform over more than one
dimension.  They run at their lines."""

_PLAIN: Final = {"aten::_pack_padded_sequence": 1}
"""The operations of which torch's C++ reads a result without asking anybody: the place of that."""


def plain_results(operation: Any, result: Any) -> tuple[Any, ...]:
    """The results of an operation that has run which stay plain tensors.

    >>> rows, sizes = torch._pack_padded_sequence(torch.ones(2, 2), torch.tensor([2, 1]), True)
    >>> plain_results(torch.ops.aten._pack_padded_sequence.default, (rows, sizes))
    (tensor([2, 1]),)
    """
    place = _PLAIN.get(operation._schema.name)
    return () if place is None else (result[place],)


_TURNS: Final = {"aten::_conj": (True, False), "aten::_neg_view": (False, True)}
"""The views that torch conjugates or negates when they are read: which of the two."""

_STATED: Final = {torch.ops.aten.as_strided.default: _strided}
"""The operations whose results are stated here: an operand without its memory cannot tell."""
