"""The codec of programs and slots: as few bytes as numbers can be, and checked on receipt.

An action is ``(op, operands, results, keywords, mode)``; trailing fields with their usual value are
left out.  The slots of results follow one another, so results travel as a pattern without numbers:
1 for one value that gets the next slot, nil for one that nothing reads, an array for several.
Operands are encoded as everywhere on the wire, with slots as one more kind of value.  References to
the receiver's objects are refused, because a program must not hold what its sender did not send.

A program of torch's operations that unpacks has passed :func:`syft.program.lint.check`, so it can
be lowered.  One of another vocabulary has the form of a program; whether it makes sense is checked
before it runs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import torch

from syft.codes import TypeCode
from syft.exceptions import LimitExceeded, MalformedMessage
from syft.ops.nested import SCALAR_TYPES, leaves
from syft.program.lint import check
from syft.program.program import Action, Mode, Program, Slot, slot_at
from syft.serde.expect import expect_fields, expect_int, malformed, prepend
from syft.serde.frame import encode_header
from syft.serde.packer import Packer, Unpacker
from syft.serde.registry import Operand, pack, pack_items, register, unpack, unpack_at
from syft.serde.torch_types import DEVICE_CODES, DEVICE_TYPES, DTYPE_CODES, DTYPES, lookup

_SLOT, _PROGRAM = int(TypeCode.SLOT), int(TypeCode.PROGRAM)
_TENSORS = frozenset(range(TypeCode.TENSOR, TypeCode.JAGGED + 1))
_BARE_TYPES = SCALAR_TYPES | {bytes}
"""Types that MessagePack holds as they are, without a code before them."""
# A level of programs counts as this many levels of nesting, because it takes as much of the stack.
_LEVELS = 5
_GRAD, _INFERENCE = 1, 2
_AnyProgram = TypeVar("_AnyProgram", bound=Program)

# ------------------------------------------------------------------------------------------ slots


def _pack_slot(slot: Slot, packer: Packer) -> Operand:
    return _SLOT, slot.index


def _unpack_slot(operand: Sequence[Any], unpacker: Unpacker) -> Slot:
    expect_fields(operand, 1)
    return slot_at(expect_int(operand[1], ".slot"))


# ---------------------------------------------------------------------------------------- packing


def pack_program(program: Program, packer: Packer) -> Operand:
    """Turn a program into an operand, without the lines it was recorded at.

    >>> from syft.ops.table import BY_NAME
    >>> double = Action(BY_NAME["torch.Tensor.add"], (Slot(0), Slot(0)), {}, Slot(1))
    >>> pack_program(Program(1, (double,), Slot(1)), Packer())
    (41, 1, 0, (), ((0, ((40, 0), (40, 0))),), (40, 1))
    """
    packer.depth += _LEVELS
    constants = pack_items(program.constants, packer)
    form = _form_of(program, packer)
    packer.depth -= _LEVELS
    return _PROGRAM, program.inputs, program.state, constants, *form


def _form_of(program: Program, packer: Packer) -> tuple[Operand, Operand]:
    """The actions and the outputs as they travel: what programs share that differ in their
    constants alone."""
    actions = tuple(_pack_action(action, packer) for action in program.actions)
    return actions, pack(program.outputs, packer)


def kept_form(program: Program) -> tuple[Operand, Operand]:
    """The same, made once: for programs that are sent again and again.

    >>> kept_form(Program(1, (), Slot(0)))
    ((), (40, 0))
    """
    form: tuple[Operand, Operand] | None = program.facts.get("form")
    if form is None:
        form = program.facts["form"] = _form_of(program, Packer())
    return form


def digest_of(program: Program, about: Sequence[Any]) -> bytes:
    """SHA-256 of a program, its constants included, and of plain values that belong to it: for
    those who have to see that all of them got the same one.

    >>> one, other = (digest_of(Program(0, (), ()), [counter]) for counter in (1, 2))
    >>> len(one), one == other
    (32, False)
    """
    form: bytes | None = program.facts.get("digest")
    if form is None:
        text = encode_header((program.inputs, program.state, *kept_form(program)))
        inside = tuple(map(_digest_of_tensor, _tensors_inside(program)))
        whole = text + repr(inside).encode() if inside else text
        form = program.facts["digest"] = hashlib.sha256(whole).digest()
    found = hashlib.sha256(form)
    found.update(repr((tuple(map(_digest_of_tensor, program.constants)), tuple(about))).encode())
    return found.digest()


def _tensors_inside(program: Program) -> Iterator[torch.Tensor]:
    """The tensors among the operands of the actions, and in the programs among these: of them the
    form has dtypes and shapes alone."""
    for action in program.actions:
        for leaf in leaves((action.args, action.kwargs)):
            if isinstance(leaf, torch.Tensor):
                yield leaf
            elif isinstance(leaf, Program):
                yield from leaf.constants
                yield from _tensors_inside(leaf)


def _digest_of_tensor(tensor: torch.Tensor) -> tuple[Any, ...]:
    if tensor.layout is not torch.strided:
        packer = Packer()
        operand = repr(pack(tensor, packer))
        return operand, *(_digest_of_tensor(buffer) for buffer in packer.buffers)
    plain = tensor.detach().cpu().resolve_conj().resolve_neg()
    words = plain.contiguous().view(-1).view(torch.uint8).numpy()
    return str(tensor.dtype), tuple(tensor.shape), hashlib.sha256(words.data).hexdigest()


def _pack_action(action: Action, packer: Packer) -> tuple[Any, ...]:
    args = pack_items(action.args, packer)
    out, mode = action.out, action.mode
    if not action.kwargs and mode is None:
        if type(out) is Slot:
            return action.op, args
        return action.op, args, _pack_pattern(out)
    kwargs = pack_items(_flattened(action.kwargs), packer) if action.kwargs else None
    head = action.op, args, _pack_pattern(out), kwargs
    return head if mode is None else (*head, _pack_mode(mode))


def _pack_pattern(out: Any) -> Any:
    """A pattern of results without the numbers of its slots."""
    if type(out) is tuple:
        return tuple(map(_pack_pattern, out))
    return None if out is None else 1


def _flattened(kwargs: dict[str, Any]) -> Iterator[Any]:
    for name, value in kwargs.items():
        yield name
        yield value


def _pack_mode(mode: Mode) -> Operand:
    bits = (_GRAD if mode.grad else 0) | (_INFERENCE if mode.inference else 0)
    if not mode.autocast:
        return bits
    casts = [
        (DEVICE_CODES[device], None if dtype is None else DTYPE_CODES[dtype])
        for device, dtype in mode.autocast
    ]
    return bits, *casts


# -------------------------------------------------------------------------------------- unpacking


def unpack_program(operand: Sequence[Any], unpacker: Unpacker) -> Program:
    """Build the program of an operand, and check that it can run here.

    >>> unpack_program([41, 1, 0, [], [[0, [[40, 0], [40, 7]]]], [40, 1]], Unpacker([]))
    Traceback (most recent call last):
    ...
    syft.exceptions.MalformedMessage: Malformed message at $.actions[0].args[1]: expected a slot \
that has its value already, got Slot(7).
    """
    program = unpack_form(Program, operand, unpacker, unpacker.limits.max_constant_bytes)
    check(program)
    return program


def unpack_form(
    kind: type[_AnyProgram], operand: Sequence[Any], unpacker: Unpacker, most_bytes: int
) -> _AnyProgram:
    """Build the program of an operand, of any vocabulary, with so many bytes of constants at most.

    Nothing is known of its actions but their form.

    >>> unpack_form(Program, [41, 1, 0, [], [], [40, 0]], Unpacker([]), 0)
    Program(inputs=1, actions=(), outputs=Slot(0), state=0, constants=())
    """
    expect_fields(operand, 5)
    limits = unpacker.limits
    unpacker.depth += _LEVELS
    if unpacker.depth > unpacker.max_depth:
        raise LimitExceeded("$", "max_depth", unpacker.max_depth, unpacker.depth)
    inputs = expect_int(operand[1], ".inputs")
    state = expect_int(operand[2], ".state")
    if inputs + state > limits.max_actions:
        raise LimitExceeded("$.inputs", "max_actions", limits.max_actions, inputs + state)
    constants = unpack_constants(operand[3], unpacker, most_bytes)
    records = _array(operand[4], ".actions")
    if len(records) > limits.max_actions:
        raise LimitExceeded("$.actions", "max_actions", limits.max_actions, len(records))
    actions = _unpack_actions(records, inputs + state + len(constants), unpacker)
    outputs = unpack_at(operand[5], unpacker, ".outputs")
    unpacker.depth -= _LEVELS
    return kind(inputs, actions, outputs, state, constants)


def _array(value: Any, where: str) -> Sequence[Any]:
    if type(value) is not list and type(value) is not tuple:
        raise malformed("an array", value, where)
    return value


def unpack_constants(operands: Any, unpacker: Unpacker, allowed: int) -> tuple[torch.Tensor, ...]:
    """The constants, each a tensor sent with the program; their size in bytes is limited.

    >>> unpack_constants([], Unpacker([]), 0)
    ()
    """
    constants = []
    before = unpacker.taken
    for index, operand in enumerate(_array(operands, ".constants")):
        where = f".constants[{index}]"
        headed = type(operand) in (list, tuple) and operand and type(operand[0]) is int
        if not headed or operand[0] not in _TENSORS:
            raise malformed("a tensor", operand, where)
        constants.append(unpack_at(operand, unpacker, where))
        size = unpacker.taken - before
        if size > allowed:
            raise LimitExceeded(f"${where}", "max_constant_bytes", allowed, size)
    return tuple(constants)


def _unpack_actions(records: Sequence[Any], slot: int, unpacker: Unpacker) -> tuple[Action, ...]:
    actions: list[Action] = []
    try:
        for record in records:
            action, slot = _unpack_action(record, slot, unpacker)
            actions.append(action)
    except (MalformedMessage, LimitExceeded) as error:
        prepend(error, f".actions[{len(actions)}]")
        raise
    return tuple(actions)


def _unpack_action(record: Any, slot: int, unpacker: Unpacker) -> tuple[Action, int]:
    """One action, and the number of the slot after its results."""
    if (type(record) is not list and type(record) is not tuple) or not 2 <= len(record) <= 5:
        raise malformed("op, operands[, results[, keywords[, mode]]]", record)
    args = _unpack_operands(_array(record[1], ".args"), unpacker, ".args")
    if len(record) == 2:
        return Action(record[0], args, {}, slot_at(slot)), slot + 1
    out, slot = _number_results(record[2], slot, ".out", unpacker)
    kwargs = _unpack_keywords(record[3], unpacker) if len(record) > 3 else {}
    mode = _unpack_mode(record[4]) if len(record) > 4 else None
    return Action(record[0], args, kwargs, out, mode), slot


def count_items(items: int, unpacker: Unpacker) -> None:
    """Add to the number of items in the message, which is limited.

    >>> count_items(3, Unpacker([]))
    """
    unpacker.items = count = unpacker.items + items
    if count > unpacker.max_items:
        raise LimitExceeded("$", "max_items", unpacker.max_items, count)


def _unpack_operands(items: Sequence[Any], unpacker: Unpacker, where: str) -> tuple[Any, ...]:
    """The operands of an action, nearly all of them slots and numbers."""
    count_items(len(items) + 1, unpacker)
    values: list[Any] = []
    for item in items:
        if type(item) in _BARE_TYPES:
            values.append(item)
        else:
            try:
                values.append(unpack(item, unpacker))
            except (MalformedMessage, LimitExceeded) as error:
                prepend(error, f"{where}[{len(values)}]")
                raise
    return tuple(values)


def _number_results(
    pattern: Any, slot: int, where: str, unpacker: Unpacker, levels: int = 4
) -> tuple[Any, int]:
    """A pattern of results with its slots, and the number of the slot after them."""
    if pattern is None:
        return None, slot
    if type(pattern) is int and pattern == 1:
        return slot_at(slot), slot + 1
    if type(pattern) not in (list, tuple) or not levels:
        raise malformed("1, nil or an array of these", pattern, where)
    count_items(len(pattern), unpacker)
    parts = []
    for index, part in enumerate(pattern):
        numbered, slot = _number_results(part, slot, f"{where}[{index}]", unpacker, levels - 1)
        parts.append(numbered)
    return tuple(parts), slot


def _unpack_keywords(flat: Any, unpacker: Unpacker) -> dict[str, Any]:
    if flat is None:
        return {}
    items = _array(flat, ".kwargs")
    names = items[::2]
    if len(items) % 2 or not all(type(name) is str for name in names):
        raise MalformedMessage("$.kwargs", "a name and a value in turn", "others")
    values = _unpack_operands(items[1::2], unpacker, ".kwargs")
    kwargs = dict(zip(names, values, strict=True))
    if len(kwargs) != len(names):
        raise MalformedMessage("$.kwargs", "distinct names", "a name twice")
    return kwargs


def _unpack_mode(operand: Any) -> Mode:
    casts: Sequence[Any] = ()
    bits = operand
    if type(operand) in (list, tuple) and operand:
        bits, *casts = operand
    expect_int(bits, ".mode", high=_GRAD | _INFERENCE)
    if len(casts) > len(DEVICE_TYPES):
        raise MalformedMessage("$.mode", "each device once", f"{len(casts)} devices")
    autocast = []
    for cast in casts:
        if type(cast) not in (list, tuple) or len(cast) != 2:
            raise malformed("a device and a dtype", cast, ".mode")
        device = lookup(DEVICE_TYPES, cast[0], "device", ".mode")
        dtype = None if cast[1] is None else lookup(DTYPES, cast[1], "dtype", ".mode")
        autocast.append((device, dtype))
    return Mode(bool(bits & _GRAD), bool(bits & _INFERENCE), tuple(autocast))


register(TypeCode.SLOT, Slot, _pack_slot, _unpack_slot)
register(TypeCode.PROGRAM, Program, pack_program, unpack_program)
