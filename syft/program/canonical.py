"""When two programs are the same: a form that forgets how a program came about, and its hash.

A program that is sent a second time should be known by what it does.  So slots are renumbered in
the order of the actions, floats are taken out of the program and sent beside it (a learning rate
that falls would otherwise make a new program each step), and what does not change a result, such
as the lines it was recorded at, does not count.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable
from typing import Any

import torch

from syft.program.program import Action, Program, Slot
from syft.ops.nested import replace
from syft.serde.frame import encode_header
from syft.serde.packer import Packer
from syft.serde.registry import pack

_A_FLOAT = NotImplemented  # a value that no operand of an action has, and that can be packed


def fingerprint(program: Program) -> bytes:
    """Hash what a program does, floats among its operands and constants' places in memory aside.

    Constants count by dtype, shape and elements.  Programs with the same fingerprint become equal
    once :func:`program_with_floats` took their floats out.

    >>> from syft.ops.table import BY_NAME
    >>> def scaled(factor):
    ...     mul = Action(BY_NAME["torch.Tensor.mul"], (Slot(0), factor), {}, Slot(1))
    ...     return Program(1, (mul,), Slot(1))
    >>> fingerprint(scaled(0.1)) == fingerprint(scaled(0.2)) != fingerprint(scaled(2))
    True
    """
    dense = compacted(program)
    constants = tuple(_plain(constant) for constant in program.constants)
    actions = tuple(_operands_replaced(action, _without_float) for action in dense.actions)
    packer = Packer()
    operand = pack(dataclasses.replace(dense, actions=actions, constants=constants), packer)
    digest = hashlib.sha256(encode_header(operand))
    for buffer in packer.buffers:
        digest.update(buffer.cpu().numpy().data)
    return digest.digest()


def program_with_floats(program: Program) -> tuple[Program, list[float]]:
    """Return the program with a further input for each float among its operands, and the floats.

    The new inputs come after the program's own.  Floats inside branches and loops stay there.

    >>> from syft.ops.table import BY_NAME
    >>> mul = Action(BY_NAME["torch.Tensor.mul"], (Slot(0), 0.5), {}, Slot(1))
    >>> program, floats = program_with_floats(Program(1, (mul,), Slot(1)))
    >>> program.inputs, program.actions[0].args, floats
    (2, (Slot(0), Slot(1)), [0.5])
    """
    floats: list[float] = []

    def found(leaf: Any) -> Any:
        if type(leaf) is not float:
            return leaf
        floats.append(leaf)
        return Slot(-len(floats))  # until it is known how many there are

    actions = tuple(_operands_replaced(action, found) for action in program.actions)
    if not floats:
        return program, []
    inputs, more = program.inputs, len(floats)

    def moved(slot: Slot) -> Slot:
        if slot.index < 0:
            return Slot(inputs - slot.index - 1)
        return slot if slot.index < inputs else Slot(slot.index + more)

    changed = _renumbered(dataclasses.replace(program, actions=actions), moved)
    return dataclasses.replace(changed, inputs=inputs + more), floats


def compacted(program: Program) -> Program:
    """Return the program with the slots of results numbered one after the other.

    For whoever took actions out of a program: :func:`~syft.program.lint.lint` allows no gaps.

    >>> from syft.ops.table import BY_NAME
    >>> neg = Action(BY_NAME["torch.Tensor.neg"], (Slot(0),), {}, Slot(7))
    >>> compacted(Program(1, (neg,), Slot(7))).outputs
    Slot(1)
    """
    places = {index: Slot(index) for index in range(program.given)}

    def placed(slot: Slot) -> Slot:
        if slot.index not in places:
            places[slot.index] = Slot(len(places))
        return places[slot.index]

    return _renumbered(program, placed)


def _renumbered(program: Program, number: Callable[[Slot], Slot]) -> Program:
    """The program with other slots; ``number`` meets the slots in the order of the actions."""

    def change(leaf: Any) -> Any:
        return number(leaf) if type(leaf) is Slot else leaf

    actions = []
    for action in program.actions:
        changed = _operands_replaced(action, change)
        actions.append(dataclasses.replace(changed, out=replace(action.out, change)))
    outputs = replace(program.outputs, change)
    return dataclasses.replace(program, actions=tuple(actions), outputs=outputs)


def _operands_replaced(action: Action, change: Callable[[Any], Any]) -> Action:
    args = tuple(replace(arg, change) for arg in action.args)
    return Action(action.op, args, replace(action.kwargs, change), action.out, action.mode)


def _without_float(leaf: Any) -> Any:
    if isinstance(leaf, torch.Generator):
        return str(leaf.device), leaf.initial_seed()  # packing one would draw from it
    return _A_FLOAT if type(leaf) is float else leaf


def _plain(constant: torch.Tensor) -> torch.Tensor:
    """A constant without what does not count: strides, attributes, grad."""
    plain = constant.detach()
    return plain.contiguous() if plain.layout is torch.strided else plain
