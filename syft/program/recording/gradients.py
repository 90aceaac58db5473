"""The gradients of tensors from outside: whether one is there when a recorded program reads it.

The first call of a training step finds no ``.grad``, later ones do.  ``zero_grad`` would then be
recorded as nothing at all, and the second replay would add up gradients.  So a leaf from outside
whose gradient is read before the function made it gets one of zeros while it is recorded, and the
program begins by making sure that it is there, unless nothing of what was read is used.

Inside a branch or a loop gradients may be read and written to in place.  Whether one is there
afterwards would hang on the path that is taken, so what makes or removes one there is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from syft.exceptions import CannotRecord
from syft.program.recording.builder import Draft, Noted, Place
from syft.ops.table import BY_NAME, NAMES
from syft.program.recording.snapshot import version_of
from syft.program.recording.source_line import user_line

_ENSURE = BY_NAME["syft.ops.control.ensure_grad"]
_SET = frozenset(BY_NAME[f"torch.Tensor.grad.__{verb}__"] for verb in ("set", "delete"))


class Unconnected(Exception):
    """A tensor whose gradient was taken for granted turned out to get none from ``backward``.

    The function is recorded again, with that gradient missing as it is.
    """

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        super().__init__(tensors)
        self.tensors = tensors


class Gradients:
    """What is known about the gradients of tensors from outside; ``missing`` stay without one.

    >>> Gradients().early
    {}
    """

    def __init__(self, missing: tuple[torch.Tensor, ...] = ()) -> None:
        self.early: dict[int, tuple[Noted, list[Place]]] = {}
        """Actions that give a leaf its gradient, with the places of what reads it too early."""
        self._missing = missing
        self._known: set[int] = {id(tensor) for tensor in missing}
        self._pretended: dict[int, torch.Tensor] = {}
        self._backward_ran = False
        self._last_read: dict[tuple[int, int], torch.Tensor] = {}
        """What a tensor's gradient was when it was last read, by draft and tensor."""

    def read(self, draft: Draft, noted: Noted, tensor: torch.Tensor) -> torch.Tensor | None:
        """The gradient of a tensor; noted down if there is one, once until something changes it."""
        grad = tensor.grad
        key = (draft.home, id(tensor))
        if grad is not None and self._last_read.get(key) is grad:
            return grad
        early = draft.snapshot_of(tensor) is not None and id(tensor) not in self._known
        if early:
            grad = self._read_early(draft, tensor, grad)
        if grad is not None:
            self._last_read[key] = grad
            noted.out = draft.bind(grad)
            draft.noted.append(noted)
            if early:
                args = noted.args
                ensure = Noted(_ENSURE, args, {}, None, None, noted.line, noted.optimizer)
                self.early.setdefault(id(tensor), (ensure, []))[1].append(noted.out)
        return grad

    def _read_early(
        self, draft: Draft, tensor: torch.Tensor, grad: torch.Tensor | None
    ) -> torch.Tensor | None:
        """A gradient that nothing in the program has made so far."""
        if grad is None and (self._backward_ran or not _can_have_one(tensor)):
            return None
        if draft.home and id(tensor) not in self.early:
            instead = "read it before sy.cond or sy.while_loop too"
            raise CannotRecord("a gradient that only a branch reads", str(user_line()), instead)
        if grad is None:
            grad = tensor.grad = torch.zeros_like(tensor)
            self._pretended[id(tensor)] = grad
        return grad

    def set(self, draft: Draft, noted: Noted, args: tuple[Any, ...]) -> None:
        """Be told of an action in place: it may have set a gradient."""
        if noted.op in _SET:
            _refuse_in_branch(draft, noted, "let the branch write to the gradient in place")
            self._known.add(id(args[0]))
            self._pretended.pop(id(args[0]), None)

    def backward(self, draft: Draft, noted: Noted, run: Callable[[], Any]) -> Any:
        """Run backward; learn which gradients it made."""
        instead = "let the branch return the loss, or use torch.autograd.grad there"
        _refuse_in_branch(draft, noted, instead)
        self._last_read.clear()
        leaves = [s.tensor for s in draft.snapshots if _can_have_one(s.tensor)]
        before = [_state(tensor) for tensor in leaves]
        result = run()
        self._backward_ran = True
        unconnected = []
        for tensor, state in zip(leaves, before, strict=True):
            if _state(tensor) != state:
                self._known.add(id(tensor))
                self._pretended.pop(id(tensor), None)
            elif id(tensor) in self._pretended:
                unconnected.append(tensor)
        if unconnected:
            raise Unconnected(unconnected)
        return result


def _refuse_in_branch(draft: Draft, noted: Noted, instead: str) -> None:
    if draft.home:
        what = f"{NAMES[noted.op]} inside a branch or a loop"
        raise CannotRecord(what, str(user_line()), instead)


def _can_have_one(tensor: torch.Tensor) -> bool:
    return tensor.requires_grad and tensor.is_leaf


def _state(tensor: torch.Tensor) -> tuple[int, int]:
    grad = tensor.grad
    return (0, 0) if grad is None else (id(grad), version_of(grad))
