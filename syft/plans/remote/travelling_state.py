"""What of a plan's state travels: the values, and the gradients that its program goes on from.

After a training step the parameters still have the gradients of the last batch.  They are as large
as the parameters, and single examples can be read off them.  Nearly every step clears them before
it uses any, so nothing is lost if they stay where they are; a step that does not (it adds up
gradients over several calls) takes them along.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from syft.ops.table import BY_NAME
from syft.program.program import Action, Program, Slot, slots_in

_SETS = frozenset(BY_NAME[f"torch.Tensor.grad.__{verb}__"] for verb in ("set", "delete"))
_READS = frozenset(BY_NAME[f"torch.Tensor.{name}.__get__"] for name in ("grad", "_grad"))
_ADDS = frozenset(
    BY_NAME[name]
    for name in (
        "torch.Tensor.backward",
        "torch.autograd.backward",
        "syft.ops.control.cond",
        "syft.ops.control.while_loop",
    )
)
"""What may add to gradients, or read them, without naming the tensors."""


def travelling(program: Program, state: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The state of a plan as it travels: without the gradients that nothing would read.

    >>> weight = nn.Parameter(torch.ones(2))
    >>> weight.grad = torch.ones(2)
    >>> [sent.grad for sent in travelling(Program(0, (), None, state=1), [weight])]
    [None]
    """
    kept = _continued(program)
    return [
        tensor if tensor.grad is None or program.inputs + index in kept else _bare(tensor)
        for index, tensor in enumerate(state)
    ]


def _continued(program: Program) -> set[int]:
    """The state slots whose gradients the program uses before it has replaced them."""
    read = {slot for action in program.actions for slot in slots_in((action.args, action.kwargs))}
    read.update(slots_in(program.outputs))
    unsettled = set(range(program.inputs, program.inputs + program.state))
    continued: set[int] = set()
    for action in program.actions:
        if action.op in _ADDS:
            return continued | unsettled
        slot = _subject(action)
        if action.op in _SETS:
            unsettled.discard(slot)
        elif action.op in _READS and slot in unsettled and action.out in read:
            continued.add(slot)
    return continued


def _subject(action: Action) -> int:
    """The slot an action with a tensor of its own is about; -1 if there is none."""
    first = action.args[0] if action.args else None
    return first.index if type(first) is Slot else -1


def _bare(tensor: torch.Tensor) -> torch.Tensor:
    """The same values and the same memory, without a gradient."""
    values = tensor.detach()
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(values, tensor.requires_grad)
    return values.requires_grad_(tensor.requires_grad)
