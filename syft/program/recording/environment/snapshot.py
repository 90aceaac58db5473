"""Snapshots of the tensors from outside that a recorded function uses.

A recording runs the user's function, which may write to the user's tensors: parameters, buffers, an
optimizer's state.  Each is copied at its first use and restored afterwards: its values, its memory
(``x.data = y`` replaces it), ``requires_grad``, ``.grad``, and torch's version counter, so that an
autograd graph from before the recording still runs backward.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch

from syft.program.recording.environment.source_line import SourceLine
from syft.torch_private import set_version

LABELS: list[Callable[[torch.Tensor, torch.Tensor], None]] = []
"""What puts the labels on the memory of a tensor on that of its copy: filled in on import."""


class Snapshot:
    """A tensor from outside, as it was at its first use.

    >>> x = torch.ones(2)
    >>> before = Snapshot(x, SourceLine("train.py", 1))
    >>> _ = x.add_(1)
    >>> before.restore()
    >>> x
    tensor([1., 1.])
    """

    __slots__ = (
        "tensor",
        "line",
        "slot",
        "is_written",
        "is_made",
        "copy",
        "_alias",
        "_version",
        "_requires_grad",
        "grad",
        "_grad_copy",
        "_grad_version",
    )

    def __init__(self, tensor: torch.Tensor, line: SourceLine) -> None:
        self.tensor = tensor
        self.line = line
        self.slot: Any = None
        self.is_written = False
        self.is_made = False  # by the function, where torch shows nothing of it
        self._requires_grad = tensor.requires_grad
        self._alias = tensor.detach()
        self.copy = self._alias.clone()
        self._version = version_of(tensor)
        self.grad = grad = tensor.grad if tensor.is_leaf else None
        self._grad_copy = None if grad is None else grad.detach().clone()
        self._grad_version = 0 if grad is None else version_of(grad)

    def as_constant(self) -> torch.Tensor:
        """The copy, with the attributes of the tensor and the labels of its memory, for a
        program."""
        self.copy.__dict__.update(self.tensor.__dict__)
        for label in LABELS:
            label(self.tensor, self.copy)
        return self.copy

    @property
    def changed_unseen(self) -> bool:
        """Whether something that the tracer did not see wrote to it."""
        return not self.is_written and version_of(self.tensor) != self._version

    def restore(self) -> None:
        """Restore the tensor."""
        tensor = self.tensor
        with torch.no_grad():
            if tensor.is_leaf and tensor.requires_grad is not self._requires_grad:
                tensor.requires_grad_(self._requires_grad)
            if _memory_layout(tensor) != _memory_layout(self._alias):
                tensor.data = self._alias
            if self.is_written or version_of(tensor) != self._version:
                _overwrite(self._alias, self.copy)
                _set_version(tensor, self._version)
            if tensor.is_leaf:
                self._restore_grad()

    def _restore_grad(self) -> None:
        if self.tensor.grad is not self.grad:
            self.tensor.grad = self.grad
        if self.grad is not None and self._grad_copy is not None:
            _overwrite(self.grad.detach(), self._grad_copy)
            _set_version(self.grad, self._grad_version)


def version_of(tensor: torch.Tensor) -> int:
    """Torch's count of writes to a tensor; 0 for a tensor of inference mode, which has none.

    >>> version_of(torch.ones(2).add_(1))
    1
    """
    return 0 if tensor.is_inference() else int(tensor._version)


def storage_of(tensor: torch.Tensor) -> int:
    """What tensors that share memory have in common: its address, or else the tensor's identity.

    >>> x = torch.ones(2, 2)
    >>> storage_of(x) == storage_of(x[0])
    True
    """
    if tensor.layout is not torch.strided:
        return id(tensor)
    return tensor.untyped_storage().data_ptr() or id(tensor)


def _memory_layout(tensor: torch.Tensor) -> tuple[Any, ...]:
    """What ``x.data = y`` replaces."""
    if tensor.layout is not torch.strided:
        return (tensor.shape,)
    return tensor.data_ptr(), tensor.shape, tensor.stride()


def _overwrite(target: torch.Tensor, values: torch.Tensor) -> None:
    inference = target.is_inference()
    with torch.inference_mode() if inference else contextlib.nullcontext():
        target.copy_(values)


def _set_version(tensor: torch.Tensor, version: int) -> None:
    if not tensor.is_inference():
        set_version((tensor,), (version,))
