"""Share programs written by the numbers of their slots, with public tensors where they are used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from syft.crypto.programs.share_program import ShareProgram
from syft.program.program import Action, Slot


def instruction(code: Any, args: Any, outs: Any = (1,)) -> Action:
    """An instruction that fills these slots."""
    if type(outs) is not tuple or len(outs) > 1:
        return Action(code, args, {}, type(outs)(map(Slot, outs)))
    return Action(code, args, {}, Slot(outs[0]) if outs else None)


def program_of(inputs: int, steps: Sequence[Action], results: Sequence[int]) -> ShareProgram:
    """A program whose results follow its inputs; tensors among arguments become its constants."""
    constants: list[torch.Tensor] = []
    for one in steps:
        _collect(one.args, constants)
    found = iter(range(inputs, inputs + len(constants)))

    def placed(value: Any) -> Any:
        if type(value) is Slot:
            return Slot(value.index + len(constants)) if value.index >= inputs else value
        if type(value) is torch.Tensor:
            return Slot(next(found))
        return type(value)(map(placed, value)) if type(value) in (tuple, list) else value

    actions = tuple(Action(one.op, placed(one.args), {}, placed(one.out)) for one in steps)
    outputs = placed(tuple(map(Slot, results)))
    return ShareProgram(inputs, actions, outputs, constants=tuple(constants))


def _collect(value: Any, found: list[torch.Tensor]) -> None:
    if type(value) is torch.Tensor:
        found.append(value)
    elif type(value) in (tuple, list):
        for item in value:
            _collect(item, found)


def as_written(program: ShareProgram, slot: int) -> int:
    """The number of a slot as ``program_of`` was given it."""
    return slot if slot < program.inputs else slot - len(program.constants)
