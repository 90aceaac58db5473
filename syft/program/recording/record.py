"""Recording: run a function, and keep what it did as a program.

A mode of torch sees every torch call the function makes (:mod:`syft.program.recording.tracer`).
What it does not see would be lost in silence, so the function is run again and the programs are
compared (:mod:`syft.program.recording.verify`); what is known to escape is refused by name.

Parameters and buffers that the function holds are as before afterwards, with their gradients, and
so is the random generator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from syft.program.recording.verify import confirm
from syft.program.program import Program
from syft.program.recording.trace import take


@dataclass(frozen=True, slots=True)
class Recording:
    """A recorded function.

    ``captured`` are tensors it met that were not named as state and belong to it all the same: they
    require a gradient, are parameters, or were written to.  They follow the named ones in the
    program's state.  ``result`` is what the function returned.  ``fixed`` names the properties of
    tensors that the function asked for, such as ``dtype``: a program keeps the answers, so it fits
    only inputs that agree in them with those it was recorded with.
    """

    program: Program
    captured: tuple[torch.Tensor, ...]
    result: Any
    fixed: frozenset[str] = frozenset()


def record(
    function: Callable[..., Any],
    inputs: Sequence[Any],
    state: Sequence[torch.Tensor] = (),
    check: bool = True,
) -> Recording:
    """Run ``function(*inputs)`` and keep what it did as a program.

    ``inputs`` are tensors and numbers; the function gets clones.  ``state`` are tensors it holds,
    which become the first state slots of the program, in this order.  With ``check`` the function
    runs again, once or (if it looks at sizes) a few times, with other sizes, to find what a program
    cannot keep.

    Raises :class:`~syft.exceptions.CannotRecord` for what a program cannot keep, and warns with
    :class:`~syft.exceptions.FrozenPath` where Python decided by a value.

    >>> recording = record(lambda x: torch.ones(x.shape[0]) + x, [torch.zeros(3)])
    >>> [action.name for action in recording.program.actions]
    ['torch.Tensor.shape.__get__', 'torch.ones', 'torch.Tensor.add']
    >>> from syft.program.lowered import Lowered
    >>> Lowered(recording.program).run([torch.zeros(2)])
    tensor([1., 1.])
    """
    first = take(function, inputs, state)
    if check:
        confirm(function, inputs, state, first)
    return Recording(first.program, first.captured, first.result, first.fixed)
