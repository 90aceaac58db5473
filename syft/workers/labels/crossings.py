"""Graphs that go on at other workers: which tensors here they enter and leave by.

A graph goes on *from* a leaf here if a hook sends the gradients of the leaf to another worker.  It
goes on *to* a tensor here if another worker sends gradients to it: a source that was moved and left
its graph here, or a leaf that arrived, which graphs elsewhere may know.

Torch limits a pass to some inputs by what it sees of the graph, which ends where the graph leaves
this worker.  So such a pass is refused where what it leaves out may lead to one of its inputs by
way of another worker: the gradient would be a part of what it is, or missing.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, final

import torch
from torch.utils.weak import WeakIdKeyDictionary

from syft.exceptions import UnsupportedOperation
from syft.ops.calls import argument
from syft.ops.nested import every_tensor
from syft.ops.table import NAMES, NUMBERS
from syft.torch_private import is_accumulated
from syft.workers.labels.guards import Guard
from syft.workers.labels.memory_labels import full_guard_of
from syft.workers.labels.reached_graph import reached_graph
from syft.workers.labels.walk import recorded_of

_FOLLOWED: Final[WeakIdKeyDictionary] = WeakIdKeyDictionary()
"""The leaves of this process whose gradients go to other workers."""
_ENTRIES: Final[WeakIdKeyDictionary] = WeakIdKeyDictionary()
"""The tensors of this process to which other workers send gradients, or may."""


def followers(leaf: torch.Tensor) -> frozenset[str]:
    """The workers to which the gradients of a leaf go.

    >>> followers(torch.ones(2))
    frozenset()
    """
    return frozenset(hook.place for hook in hooks_of(leaf))


def note_entry(tensor: torch.Tensor) -> None:
    """Note that another worker may send gradients to a tensor here."""
    _ENTRIES[tensor] = None


def goes_on(value: Any) -> bool:
    """Whether gradients of an object here go on from it: to its graph, or to another worker.

    >>> x = torch.ones(2, requires_grad=True)
    >>> goes_on(x * 2), goes_on(x), goes_on((x * 2).detach())
    (True, False, False)
    """
    tensor = recorded_of(value)
    if tensor is None or not tensor.requires_grad:
        return False
    return not tensor.is_leaf or bool(followers(tensor))


class Follower(ABC):
    """A hook that sends each gradient of a leaf to worker ``place``. Abstract."""

    __slots__ = ("place", "kept", "idle")

    def __init__(self, place: str) -> None:
        self.place = place
        self.kept: list[torch.Tensor] | None = None
        """What came during a pass in which the hook is silent."""
        self.idle = False
        """Whether the present pass is limited to inputs, and so goes on nowhere."""

    def follow(self, leaf: torch.Tensor) -> None:
        """Send each gradient of a leaf from now on."""
        leaf.register_hook(self)  # type: ignore[no-untyped-call]
        _FOLLOWED[leaf] = None

    @final
    def __call__(self, gradient: torch.Tensor) -> None:
        if self.idle or not is_accumulated():
            return  # the graph behind a leaf gets nothing of a gradient that is only returned
        if gradient.requires_grad:
            instead = "it has no graph there; torch.autograd.grad gives one, of what is here"
            raise UnsupportedOperation("create_graph=True", "A leaf that was moved", instead)
        if self.kept is None:
            self.came(gradient, full_guard_of(gradient))
        else:
            self.kept.append(gradient)

    @abstractmethod
    def came(self, gradient: torch.Tensor, guard: Guard | None) -> None:
        """Send a gradient with this guard to the other worker, now or after the present request."""

    @abstractmethod
    def send(self, gradient: torch.Tensor, guard: Guard | None) -> None:
        """Send a gradient with this guard to the other worker."""


def hooks_of(leaf: torch.Tensor) -> list[Follower]:
    """The hooks that send the gradients of a leaf to other workers."""
    hooks = (leaf._backward_hooks or {}).values()
    return [hook for hook in hooks if isinstance(hook, Follower)]


def limits_of(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> list[torch.Tensor]:
    """The inputs to which a backward pass is limited; none where no graph goes on elsewhere.

    Raises :class:`~syft.exceptions.UnsupportedOperation` if the graph may lead to one of the inputs
    by way of another worker.
    """
    inputs = argument(NUMBERS[function], "inputs", args, kwargs) if _FOLLOWED else None
    if inputs is None:
        return []
    wanted = every_tensor(inputs)
    left = list(filter(followers, reached_graph(every_tensor((args, dict(kwargs)))).leaves))
    if any(_may_lead(left, one) for one in wanted):
        places = ", ".join(sorted({repr(to) for leaf in left for to in followers(leaf)}))
        about = f"A graph that goes on at {places}"
        instead = "call backward() without inputs=, for the gradients of all leaves"
        raise UnsupportedOperation(f"{NAMES[NUMBERS[function]]} of some inputs", about, instead)
    return wanted


@contextlib.contextmanager
def idle(leaves: Iterable[torch.Tensor]) -> Iterator[None]:
    """A context for a pass that is limited to these leaves: their hooks send nothing."""
    hooks = [hook for leaf in leaves for hook in hooks_of(leaf)]
    for hook in hooks:
        hook.idle = True
    try:
        yield
    finally:
        for hook in hooks:
            hook.idle = False


def _may_lead(left: Sequence[torch.Tensor], wanted: torch.Tensor) -> bool:
    """Whether a graph may come to a tensor by way of another worker, once it has left by one of
    these leaves."""
    if all(leaf is wanted for leaf in left):  # by which it leaves, and does not come
        return False
    return wanted in _ENTRIES or reached_graph([*_ENTRIES]).reaches(wanted)
