"""Recording: run a function, and keep what it did as a program.

A mode of torch sees every torch call the function makes (:mod:`syft.program.recording.tracer`).
What the mode does not see would be missing without an error.  So the function is run again and the
programs are compared (:mod:`syft.program.recording.verify`), and what is known to be invisible is
refused by name.

Afterwards the parameters and buffers that the function uses, their gradients and the random
generators are as they were before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from syft.program.program import Program
from syft.program.recording.trace import trace_function
from syft.program.recording.verify import verify


@dataclass(frozen=True, slots=True)
class Recording:
    """A recorded function.

    ``captured`` are the tensors from outside that belong to its state although they were not named
    as such: they require a gradient, are parameters, or were written to.  They follow the named
    ones in the program's state.  ``result`` is what the function returned.  ``fixed`` names the
    properties of tensors that the function read, such as ``dtype``.  The program contains their
    values, so it fits only inputs with the same ones.  ``constants`` are the other tensors from
    outside, of which the program has copies.
    """

    program: Program
    captured: tuple[torch.Tensor, ...]
    result: Any
    fixed: frozenset[str] = frozenset()
    constants: tuple[torch.Tensor, ...] = ()


def record(
    function: Callable[..., Any],
    inputs: Sequence[Any],
    state: Sequence[torch.Tensor] = (),
    check: bool = True,
    options: int = 0,
) -> Recording:
    """Run ``function(*inputs)`` and keep what it did as a program.

    ``inputs`` are tensors and numbers; the function gets clones.  ``state`` are tensors that the
    function uses, which become the first state slots of the program, in this order.  With ``check``
    the function runs again with other sizes, once or (if it reads sizes) a few times, to find what
    a program cannot keep.  The last ``options`` of the inputs are numbers that keep their sign in
    further runs, and stay zero if they are.

    Raises :class:`~syft.exceptions.CannotRecord` for what a program cannot keep, and warns with
    :class:`~syft.exceptions.FrozenPath` where Python decided by a value.

    >>> recording = record(lambda x: torch.ones(x.shape[0]) + x, [torch.zeros(3)])
    >>> [action.name for action in recording.program.actions]
    ['torch.Tensor.shape.__get__', 'torch.ones', 'torch.Tensor.add']
    >>> from syft.program.lowered import Lowered
    >>> Lowered(recording.program).run([torch.zeros(2)])
    tensor([1., 1.])
    """
    first = trace_function(function, inputs, state)
    if check:
        verify(function, inputs, state, first, options)
    captured = {id(tensor) for tensor in first.captured}
    outside = [snapshot.tensor for snapshot in first.snapshots]
    constants = tuple([tensor for tensor in outside if id(tensor) not in captured])
    return Recording(first.program, first.captured, first.result, first.properties_read, constants)
