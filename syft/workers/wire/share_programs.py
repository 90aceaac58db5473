"""How share programs travel: their instructions as arrays of numbers, slots and public tensors.

What arrives has the form of a program; whether it makes sense is checked before it runs
(``syft.crypto.running.lint``).  Everything in it is public and travels with it: a reference would
let somebody pass a stored tensor off as a public one, so none is resolved in here.

A model sends the same program for each input.  So programs are known by their encoded form, and
what is known is neither taken apart nor checked again; but for its tensors, whose elements are no
part of that form.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import torch

from syft.codes import TypeCode
from syft.crypto.programs.share_program import Instruction, ShareCode, ShareProgram, ShareSlot
from syft.exceptions import MalformedMessage
from syft.serde.expect import expect_fields, malformed
from syft.serde.frame import encode_header
from syft.serde.packer import Packer, Unpacker
from syft.serde.registry import pack_items, register, unpack_at, unpack_items

_CODES: Final = frozenset(map(int, ShareCode))
_MOST_KNOWN: Final = 64
_LONGEST: Final = 1 << 16
"""Bytes of an encoded program that is kept."""
_KNOWN: Final[OrderedDict[bytes, _KnownProgram]] = OrderedDict()
"""The programs that have come last, by their encoded form."""
_PLAIN: Final = (type(None), bool, int, float, str, torch.dtype, ShareSlot)


def pack_share_program(program: ShareProgram, packer: Packer) -> tuple[Any, ...]:
    """The operand of a program.

    >>> pack_share_program(ShareProgram(1, (), (0,)), Packer())
    (70, 1, (), (0,))
    """
    steps = tuple(
        (int(step.code), pack_items(step.args, packer), step.outs) for step in program.instructions
    )
    return int(TypeCode.SHARE_PROGRAM), program.inputs, steps, program.results


def unpack_share_program(operand: Sequence[Any], unpacker: Unpacker) -> ShareProgram:
    """The program of an operand; raises :class:`~syft.exceptions.MalformedMessage`."""
    expect_fields(operand, 3)
    _, inputs, steps, results = operand
    if type(inputs) is not int or not isinstance(steps, list | tuple):
        raise malformed("a number of inputs and instructions", operand)
    _count(unpacker, len(steps))
    name = encode_header(tuple(operand))
    worker, unpacker.worker = unpacker.worker, None
    try:
        known = _KNOWN.get(name)
        if known is not None:
            return known.with_tensors(steps, unpacker)
        instructions = tuple(
            _instruction(step, unpacker, f"[2][{index}]") for index, step in enumerate(steps)
        )
    finally:
        unpacker.worker = worker
    program = ShareProgram(inputs, instructions, _numbers(results, "[3]"))
    if len(name) <= _LONGEST:
        _KNOWN[name] = _KnownProgram(program)
        if len(_KNOWN) > _MOST_KNOWN:
            _KNOWN.popitem(last=False)
    return program


class _KnownProgram:
    """A program that has come before, without the elements of its tensors."""

    def __init__(self, program: ShareProgram) -> None:
        self._holes = [
            (index, place)
            for index, step in enumerate(program.instructions)
            for place, value in enumerate(step.args)
            if _holds_tensor(value)
        ]
        instructions = [*program.instructions]
        for index, place in self._holes:
            instructions[index] = _with_argument(instructions[index], place, None)
        self._program = replace(program, instructions=tuple(instructions))

    def with_tensors(self, steps: Sequence[Any], unpacker: Unpacker) -> ShareProgram:
        """The program with the tensors that have come now."""
        if not self._holes:
            return self._program
        instructions = [*self._program.instructions]
        for index, place in self._holes:
            value = _argument(steps[index][1][place], unpacker, f"[2][{index}]", place)
            instructions[index] = _with_argument(instructions[index], place, value)
        return replace(self._program, instructions=tuple(instructions))


def _with_argument(step: Instruction, place: int, value: Any) -> Instruction:
    args = (*step.args[:place], value, *step.args[place + 1 :])
    return Instruction(step.code, args, step.outs)


def _holds_tensor(value: Any) -> bool:
    if type(value) is tuple:
        return any(map(_holds_tensor, value))
    return type(value) is torch.Tensor


def _count(unpacker: Unpacker, items: int) -> None:
    """Count the instructions as items of a container."""
    unpack_items((None,) * items, unpacker)


def _instruction(step: Any, unpacker: Unpacker, where: str) -> Instruction:
    if not isinstance(step, list | tuple) or len(step) != 3:
        raise malformed("a code, arguments and slots", step, where)
    code, args, outs = step
    if type(code) is not int or code not in _CODES:
        raise MalformedMessage(f"${where}[0]", "a ShareCode", repr(code)[:40])
    if not isinstance(args, list | tuple):
        raise malformed("arguments", args, f"{where}[1]")
    values = tuple(_argument(arg, unpacker, where, place) for place, arg in enumerate(args))
    return Instruction(ShareCode(code), values, _numbers(outs, f"{where}[2]"))


def _argument(arg: Any, unpacker: Unpacker, where: str, place: int) -> Any:
    return _checked(unpack_at(arg, unpacker, f"{where}[1][{place}]"), where)


def _checked(value: Any, where: str) -> Any:
    """An argument, if it is a slot, a number, a plain tensor, or a tuple of these."""
    if isinstance(value, _PLAIN):
        return value
    if type(value) is torch.Tensor and value.layout is torch.strided and not value.requires_grad:
        return value
    if type(value) is not tuple:
        raise malformed("slots, numbers, plain tensors and tuples", value, where)
    return tuple(_checked(item, where) for item in value)


def _numbers(value: Any, where: str) -> tuple[int, ...]:
    if not isinstance(value, list | tuple) or not all(type(item) is int for item in value):
        raise malformed("numbers of slots", value, where)
    return tuple(value)


def _pack_slot(slot: ShareSlot, packer: Packer) -> tuple[int, int]:
    return int(TypeCode.SHARE_SLOT), slot.number


def _unpack_slot(operand: Sequence[Any], unpacker: Unpacker) -> ShareSlot:
    expect_fields(operand, 1)
    if type(operand[1]) is not int or operand[1] < 0:
        raise malformed("the number of a slot", operand[1], ".number")
    return ShareSlot(operand[1])


register(TypeCode.SHARE_PROGRAM, ShareProgram, pack_share_program, unpack_share_program)
register(TypeCode.SHARE_SLOT, ShareSlot, _pack_slot, _unpack_slot)
