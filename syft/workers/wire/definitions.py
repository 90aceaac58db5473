"""Definitions: the meanings that a number of a connection can have, in their wire format.

A number is defined once and then sent instead of its definition.  A group of messages is one kind
of definition (:class:`Group`); a call of a plan stored at the worker is another.
:mod:`syft.workers.handlers.programs` runs them at a worker.
"""

from __future__ import annotations

import enum
import functools
from abc import ABC
from collections.abc import Callable, Iterable
from typing import Any, Final

from syft.codes import TypeCode
from syft.exceptions import LimitExceeded, MalformedMessage
from syft.program.codec import pack_program
from syft.program.program import Action, Program, Slot
from syft.serde.expect import expect_fields, expect_type, malformed
from syft.serde.limits import DEFAULT_LIMITS, Limits
from syft.serde.packer import Packer, Unpacker
from syft.serde.registry import Operand, register, unpack_at


class InputKind(enum.IntEnum):
    """The kind of an input of a definition, which determines how it is sent.

    >>> InputKind.REFERENCE
    <InputKind.REFERENCE: 0>
    """

    REFERENCE = 0
    """An object of the worker that runs the definition, sent as its id."""
    NUMBER = 1
    """A Python int or float, sent as it is."""
    VALUE = 2
    """Any other value that can be sent, packed as an operand."""


class Definition(ABC):
    """The meaning of a number of a connection. Abstract.

    ``kinds`` are the kinds of its inputs.  ``actions`` counts towards the limit on all definitions
    that both ends of the connection keep.

    >>> Definition.__subclasses__()[0].__name__
    'Group'
    """

    kinds: tuple[InputKind, ...]
    actions: int = 1


class Group(Definition):
    """A group of messages as one program; its outputs are flat, with None for those not kept.

    >>> from syft.ops.table import BY_NAME
    >>> double = Action(BY_NAME["torch.add"], (Slot(0), Slot(0)), {}, Slot(1))
    >>> Group((InputKind.REFERENCE,), Program(1, (double,), (Slot(1),))).actions
    6
    """

    def __init__(self, kinds: tuple[InputKind, ...], program: Program) -> None:
        self.kinds = kinds
        self.program = program
        self.actions = size_of(program) + len(kinds)


def size_of(program: Program) -> int:
    """The size of a program for the limit on definitions.

    Each action, operand, result and mode counts one, and each character of a text one.

    >>> from syft.ops.table import BY_NAME
    >>> size_of(Program(1, (Action(BY_NAME["torch.add"], ("text", [1, 2]), {}, None),), (None,)))
    11
    """
    return _size(program.outputs) + sum(map(_size_of_action, program.actions))


def _size_of_action(action: Action) -> int:
    size = _size(action.args) + _size(action.kwargs) - 1
    if type(action.out) is tuple:
        size += _size(action.out)
    return size if action.mode is None else size + 1 + 2 * len(action.mode.autocast)


def _size(operand: Any) -> int:
    return _size_rule(type(operand))(operand)


def _find_size_rule(kind: type) -> Callable[[Any], int]:
    return next(_SIZES[base] for base in kind.__mro__ if base in _SIZES)


_size_rule: Callable[[type], Callable[[Any], int]]
"""How to count an operand, by its class: as the nearest base class in the table is counted."""
_size_rule = functools.lru_cache(maxsize=1024)(_find_size_rule)


def _size_of_items(operand: Iterable[Any]) -> int:
    return 1 + sum(map(_size, operand))


def _size_of_dict(operand: dict[Any, Any]) -> int:
    return _size_of_items(operand.items())


def _size_of_slice(operand: slice) -> int:
    return 1 + _size((operand.start, operand.stop, operand.step))


def _size_of_program(operand: Program) -> int:
    return 1 + size_of(operand)


def _size_of_text(operand: str | bytes | bytearray) -> int:
    return 1 + len(operand)


def _size_of_int(operand: int) -> int:
    return 1 + operand.bit_length() // 64


def _size_of_other(operand: Any) -> int:
    return 1


_SIZES: Final[dict[type, Callable[[Any], int]]] = {
    tuple: _size_of_items,
    list: _size_of_items,
    dict: _size_of_dict,
    slice: _size_of_slice,
    Program: _size_of_program,
    str: _size_of_text,
    bytes: _size_of_text,
    bytearray: _size_of_text,
    int: _size_of_int,
    object: _size_of_other,
}


# ------------------------------------------------------------------------------------------ codec


def _pack(group: Group, packer: Packer) -> Operand:
    kinds = bytes(group.kinds)
    return int(TypeCode.GROUP), kinds, pack_program(group.program, packer)


def _unpack(operand: Any, unpacker: Unpacker) -> Group:
    expect_fields(operand, 2)
    kinds = unpack_kinds(operand[1], unpacker.limits)
    program = unpack_at(operand[2], unpacker, ".program")
    if type(program) is not Program:
        raise malformed("a program", operand[2], ".program")
    if program.constants:
        got = f"{len(program.constants)} constants"
        raise MalformedMessage("$.program.constants", "none: what goes along is an input", got)
    if program.state or program.inputs != len(kinds):
        got = f"{program.inputs} inputs and {program.state} state tensors"
        raise MalformedMessage("$.program", f"{len(kinds)} inputs and no state", got)
    if type(program.outputs) is not tuple:
        raise malformed("a flat tuple of slots", program.outputs, ".program.outputs")
    for index, output in enumerate(program.outputs):
        if output is not None and type(output) is not Slot:
            raise malformed("a slot or nil", output, f".program.outputs[{index}]")
    return Group(kinds, program)


def unpack_kinds(operand: Any, limits: Limits = DEFAULT_LIMITS) -> tuple[InputKind, ...]:
    """The kinds of inputs from their wire format, one byte for each.

    >>> unpack_kinds(bytes([0, 1]))
    (<InputKind.REFERENCE: 0>, <InputKind.NUMBER: 1>)
    >>> unpack_kinds(bytes([7]))
    Traceback (most recent call last):
    ...
    syft.exceptions.MalformedMessage: Malformed message at $.kinds: expected kinds of inputs, from \
0 to 2, got 7.
    """
    data = expect_type(operand, bytes, "bytes", ".kinds")
    if len(data) > limits.max_actions:
        raise LimitExceeded("$.kinds", "max_actions", limits.max_actions, len(data))
    if data and max(data) > max(InputKind):
        expected = f"kinds of inputs, from 0 to {int(max(InputKind))}"
        raise MalformedMessage("$.kinds", expected, str(max(data)))
    return tuple(map(InputKind, data))


register(TypeCode.GROUP, Group, _pack, _unpack)
