"""Leaves that were moved to new memory, and the gradients that still come to the old ones.

The graphs that were recorded with a leaf end at that leaf, also after its object has got a new
tensor (:mod:`syft.workers.execution.moved_memory`).  So before a backward pass each old leaf that
it reaches is lent the gradient of its successor, to which the pass then adds, and afterwards the
successor gets it back.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Sequence

import torch

_KEY = "_successor"
_BEFORE = "_before"


def set_successor(old: torch.Tensor, new: torch.Tensor) -> None:
    """Note that the object of a tensor has another one now."""
    old.__dict__[_KEY] = new
    new.__dict__[_BEFORE] = weakref.ref(old)


def and_before(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """A tensor, and those which its object had before, as far as graphs still have them.

    >>> x, y, z = torch.ones(1), torch.ones(1), torch.ones(1)
    >>> set_successor(x, y); set_successor(y, z); del y
    >>> [each is x for each in and_before(z)]
    [False, False, True]
    """
    found: torch.Tensor | None = tensor
    while found is not None:
        yield found
        before = found.__dict__.get(_BEFORE)
        found = None if before is None else before()


def successor_of(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor that its object has now.

    >>> x, y, z = torch.ones(1), torch.ones(1), torch.ones(1)
    >>> set_successor(x, y); set_successor(y, z)
    >>> successor_of(x) is z, successor_of(z) is z
    (True, True)
    """
    while _KEY in tensor.__dict__:
        tensor = tensor.__dict__[_KEY]
    return tensor


def receiver_of(leaf: torch.Tensor) -> torch.Tensor:
    """The tensor that keeps the gradients which come to a leaf of a graph.

    >>> x, y = torch.ones(1), torch.ones(1, requires_grad=True)
    >>> set_successor(x, y); receiver_of(x) is y
    True
    """
    new = successor_of(leaf)
    return new if new.is_leaf else leaf


Lent = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]
"""An old leaf, the one that keeps its gradients, and the gradient that was there."""


def lend_gradients(leaves: Iterable[torch.Tensor]) -> list[Lent]:
    """Give old leaves the gradients of those that keep theirs, before a pass adds to them.

    >>> x, y = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    >>> set_successor(x, y); loss = x.sum(); y.grad = torch.ones(2)
    >>> lent = lend_gradients([x]); loss.backward(); take_back_gradients(lent); y.grad
    tensor([2., 2.])
    """
    lent = []
    for leaf in leaves:
        new = receiver_of(leaf)
        if new is not leaf:
            leaf.requires_grad_(new.requires_grad)
            leaf.grad = new.grad
            lent.append((leaf, new, new.grad))
    return lent


def take_back_gradients(lent: Iterable[Lent]) -> None:
    """Add what a pass has left in old leaves to the gradients of those that keep theirs."""
    for leaf, new, before in lent:
        found, leaf.grad = leaf.grad, None
        if found is None or found is before:  # nothing came, or it was added in place
            continue
        now = new.grad
        if now is None or now is before:
            new.grad = found
        else:
            new.grad = now + found if before is None else now + found - before


def in_graph(tensor: torch.Tensor, leaves: Sequence[torch.Tensor]) -> torch.Tensor:
    """The leaf of a graph that stands for a tensor: itself, or one whose successor it is.

    >>> x, y = torch.ones(2), torch.ones(2)
    >>> set_successor(x, y); in_graph(y, [x]) is x, in_graph(y, [x, y]) is y
    (True, True)
    """
    if any(leaf is tensor for leaf in leaves):
        return tensor
    return next((leaf for leaf in leaves if successor_of(leaf) is tensor), tensor)
