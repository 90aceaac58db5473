"""Tracks the gradients of tensors from outside: whether one exists when the function reads it.

The first call of a training step finds no ``.grad``, later calls do.  At the first, ``zero_grad``
does nothing; recorded like that, the second replay would accumulate gradients.  So a leaf from
outside whose gradient is read before the function made it gets a gradient of zeros while it is
recorded.  The program begins with an action that makes sure there is one, unless nothing uses what
was read.

Inside a branch or a loop gradients may be read and written to in place.  Operations that make or
remove a gradient are refused there, because its existence would depend on the path that is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from syft.exceptions import CannotRecord
from syft.program.held_actions import HeldAction
from syft.program.program import Slot
from syft.program.recording.builder import ProgramBuilder
from syft.ops.table import BY_NAME, NAMES
from syft.program.recording.environment.snapshot import version_of
from syft.program.recording.environment.source_line import user_line

_ENSURE = BY_NAME["syft.ops.control.ensure_grad"]
_SET = frozenset(BY_NAME[f"torch.Tensor.grad.__{verb}__"] for verb in ("set", "delete"))


class UnusedInBackward(Exception):
    """Tensors that were given a gradient of zeros, although ``backward`` makes none for them.

    The function is traced again without these gradients.
    """

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        super().__init__(tensors)
        self.tensors = tensors


class GradientTracker:
    """Tracks the gradients of tensors from outside; the tensors in ``unused`` get none of zeros.

    Tensors are known by their ids, so the caller keeps those in ``unused`` alive.

    >>> GradientTracker().ensured
    {}
    """

    def __init__(self, unused: tuple[torch.Tensor, ...] = ()) -> None:
        self.ensured: dict[int, tuple[HeldAction, list[Slot]]] = {}
        """Actions that give a leaf a gradient, with the slots that were read before it had one."""
        self._decided: set[int] = {id(tensor) for tensor in unused}
        """The tensors for which the function itself decides whether there is a gradient."""
        self._zeros: dict[int, torch.Tensor] = {}
        """The gradients of zeros that backward has not confirmed yet."""
        self._backward_ran = False
        self.goes_on = False
        """Whether the backward pass goes on, so that gradients may still be missing."""
        self._last_read: dict[tuple[int, int], torch.Tensor] = {}
        """The gradient of a tensor when it was last read, by scope and tensor."""

    def read(
        self, builder: ProgramBuilder, action: HeldAction, tensor: torch.Tensor
    ) -> torch.Tensor | None:
        """The gradient of a tensor; recorded if there is one, and again only after a change."""
        grad = tensor.grad
        key = (builder.scope, id(tensor))
        if grad is not None and self._last_read.get(key) is grad:
            return grad
        from_outside = builder.snapshot_of(tensor) is not None and id(tensor) not in self._decided
        if from_outside:
            grad = self._read_from_outside(builder, tensor, grad)
        if grad is not None:
            self._last_read[key] = grad
            action.out = builder.bind(grad)
            builder.actions.append(action)
            if from_outside:
                ensure = HeldAction(
                    _ENSURE, action.args, {}, None, None, action.line, action.optimizer
                )
                self.ensured.setdefault(id(tensor), (ensure, []))[1].append(action.out)
        return grad

    def _read_from_outside(
        self, builder: ProgramBuilder, tensor: torch.Tensor, grad: torch.Tensor | None
    ) -> torch.Tensor | None:
        """A gradient that no action has made so far: made of zeros if backward may make one."""
        if grad is None and (self._backward_ran or not _can_have_grad(tensor)):
            return None
        if builder.in_branch and id(tensor) not in self.ensured:
            instead = "read it before sy.cond or sy.while_loop too"
            raise CannotRecord("a gradient that only a branch reads", str(user_line()), instead)
        if grad is None:
            grad = tensor.grad = torch.zeros_like(tensor)
            self._zeros[id(tensor)] = grad
        return grad

    def after_inplace(
        self, builder: ProgramBuilder, action: HeldAction, args: tuple[Any, ...]
    ) -> None:
        """Called after an in-place action, which may have set a gradient."""
        if action.op in _SET:
            _refuse_in_branch(builder, action, "let the branch write to the gradient in place")
            self._decided.add(id(args[0]))
            self._zeros.pop(id(args[0]), None)

    def backward(self, builder: ProgramBuilder, action: HeldAction, run: Callable[[], Any]) -> Any:
        """Run backward, and find out which gradients it made."""
        instead = "let the branch return the loss, or use torch.autograd.grad there"
        _refuse_in_branch(builder, action, instead)
        self._last_read.clear()
        leaves = [s.tensor for s in builder.snapshots if _can_have_grad(s.tensor)]
        before = [_grad_state(tensor) for tensor in leaves]
        result = run()
        self._backward_ran = True
        unused = []
        for tensor, state in zip(leaves, before, strict=True):
            if _grad_state(tensor) != state:
                self._decided.add(id(tensor))
                self._zeros.pop(id(tensor), None)
            elif id(tensor) in self._zeros:
                unused.append(tensor)
        if unused and not self.goes_on:
            raise UnusedInBackward(unused)
        return result


def _refuse_in_branch(builder: ProgramBuilder, action: HeldAction, instead: str) -> None:
    if builder.in_branch:
        what = f"{NAMES[action.op]} inside a branch or a loop"
        raise CannotRecord(what, str(user_line()), instead)


def _can_have_grad(tensor: torch.Tensor) -> bool:
    return tensor.requires_grad and tensor.is_leaf


def _grad_state(tensor: torch.Tensor) -> tuple[int, int]:
    grad = tensor.grad
    return (0, 0) if grad is None else (id(grad), version_of(grad))
