"""Which plans can be sent: those that would be the same at a worker.

Their state is tensors that are here, whole, apart from one another, and without Python functions of
the user's; and they draw their random numbers from the generator of whoever runs them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch

from syft.chain.wrapper import Wrapper, place_of
from syft.exceptions import LocationMismatch, NotALeaf, NotSendable
from syft.program.program import Program
from syft.ops.nested import leaves

_HOOK = "a hook is a Python function, which cannot travel: remove it"
_GENERATOR = "at a worker it would draw other numbers: let it draw from torch's own generator"
_TOGETHER = "there they would be two: put one of them in the state, and take the view inside"


def check_program(program: Program) -> None:
    """Refuse a program that draws from a generator of the user's.

    Raises :class:`~syft.exceptions.NotSendable`.

    >>> import syft as sy
    >>> check_program(sy.func2plan(args_shape=[(2,)])(torch.rand_like).program)
    """
    for action in program.actions:
        for leaf in leaves((action.args, list(action.kwargs.values()))):
            if isinstance(leaf, torch.Generator):
                what = f"a plan that draws from a torch.Generator ({action.name})"
                raise NotSendable(what, _GENERATOR)
            if isinstance(leaf, Program):
                check_program(leaf)


def check_state(names: Sequence[str], state: Sequence[torch.Tensor], owner: str) -> None:
    """Refuse state that would be another at a worker.

    Raises :class:`~syft.exceptions.LocationMismatch` for tensors that are not here,
    :class:`~syft.exceptions.NotALeaf` for results with a graph, and
    :class:`~syft.exceptions.NotSendable` for tensors that share memory or have hooks.

    >>> x = torch.ones(4)
    >>> check_state(["left", "right"], [x[:2], x[2:]], "me")
    >>> check_state(["all", "right"], [x, x[2:]], "me")
    Traceback (most recent call last):
    ...
    syft.exceptions.NotSendable: Cannot send a plan whose state 'all' and 'right' lie in the same \
memory: there they would be two: put one of them in the state, and take the view inside.
    """
    extents: list[tuple[int, int, int, str]] = []
    for name, tensor in zip(names, state, strict=True):
        if type(tensor) is Wrapper:
            raise LocationMismatch(f"the plan's state {name!r}", (owner, place_of(tensor)))
        if tensor.requires_grad and not tensor.is_leaf:
            raise NotALeaf(type(tensor.grad_fn).__name__)
        if tensor._backward_hooks or tensor._post_accumulate_grad_hooks:
            raise NotSendable(f"a plan whose state {name!r} has a backward hook", _HOOK)
        if tensor.layout is torch.strided and tensor.numel():
            extents.append((*_extent(tensor), name))
    extents.sort()
    for (memory, _, end, one), (same, start, _, other) in itertools.pairwise(extents):
        if memory == same and start < end:
            what = f"a plan whose state {one!r} and {other!r} lie in the same memory"
            raise NotSendable(what, _TOGETHER)


def _extent(tensor: torch.Tensor) -> tuple[int, int, int]:
    """The memory a tensor lies in: which, and from which byte to which."""
    last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    start = int(tensor.storage_offset()) * tensor.itemsize
    return tensor.untyped_storage().data_ptr(), start, start + int(last + 1) * tensor.itemsize
