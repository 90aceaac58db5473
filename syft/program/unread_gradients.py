"""The gradients of a program's state that it would not read, and that need not be sent with it.

After a training step the parameters still have the gradients of the last batch.  These are as large
as the parameters, and single examples can be read off them.  Nearly every step clears them before
it uses any, so nothing is lost.  A step that does not clear them (it adds up gradients over several
calls) takes them along.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from torch import nn

from syft.ops.table import (
    ADDING_GRADIENTS,
    COND,
    FLAGS,
    READS_GRADIENT,
    SETS_GRADIENT,
    WHILE_LOOP,
)
from syft.program.program import Action, Program, Slot, slots_in

_MAY_USE_ANY_GRAD: Final = ADDING_GRADIENTS | {COND, WHILE_LOOP}
"""Operations that may add to gradients, or read them, without naming the tensors."""


def without_unread_gradients(program: Program, state: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The state of a plan, without the gradients that its program would not read.

    >>> weight = nn.Parameter(torch.ones(2))
    >>> weight.grad = torch.ones(2)
    >>> program = Program(0, (), None, state=1)
    >>> [sent.grad for sent in without_unread_gradients(program, [weight])]
    [None]
    """
    kept = _slots_with_read_gradients(program)
    return [
        (
            tensor
            if tensor.grad is None or program.inputs + index in kept
            else _without_gradient(tensor)
        )
        for index, tensor in enumerate(state)
    ]


def _slots_with_read_gradients(program: Program) -> set[int]:
    """The state slots whose gradients the program uses before it has replaced them."""
    read = {slot for action in program.actions for slot in slots_in((action.args, action.kwargs))}
    read.update(slots_in(program.outputs))
    not_replaced = set(range(program.inputs, program.inputs + program.state))
    found: set[int] = set()
    for action in program.actions:
        if action.op in _MAY_USE_ANY_GRAD:
            return found | not_replaced
        slot = _first_operand(action)
        if FLAGS[action.op] & SETS_GRADIENT:
            not_replaced.discard(slot)
        elif FLAGS[action.op] & READS_GRADIENT and slot in not_replaced and action.out in read:
            found.add(slot)
    return found


def _first_operand(action: Action) -> int:
    """The slot of the first operand, which a method or accessor is called on; -1 if it has none."""
    first = action.args[0] if action.args else None
    return first.index if type(first) is Slot else -1


def _without_gradient(tensor: torch.Tensor) -> torch.Tensor:
    """The same values and the same memory, without a gradient."""
    values = tensor.detach()
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(values, tensor.requires_grad)
    return values.requires_grad_(tensor.requires_grad)
