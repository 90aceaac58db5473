"""What a backward pass may touch: the leaves of a graph, and the tensors that the graph saved.

A pass that has to wait is ordered against the operations that touch the same tensors, and against
no others.  It adds to the gradients of the leaves.  It reads what its nodes saved, so that nobody
may write to that before.  A few nodes of torch do not show what they saved; a graph with one of
them is *opaque*.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import torch

from syft.chain.wrapper import Wrapper
from syft.ops.nested import leaves
from syft.workers.execution.holders import Holder
from syft.workers.execution.reached_graph import reached_graph
from syft.workers.execution.retained import recorded_of

_OPAQUE: Final = frozenset(("CopySlices", "CppFunction"))
"""The Python classes of nodes that do not show what they saved."""
_STATISTICS: Final = frozenset(("_saved_running_mean", "_saved_running_var"))
"""What batch norm saves in training too, but reads in evaluation only."""


@dataclass(slots=True)
class Reach:
    """What a backward pass from some tensors may touch.

    ``elsewhere`` says that a part of the graph is at another worker or that a hook on a leaf sends
    its gradient there.
    """

    leaves: list[torch.Tensor] = field(default_factory=list)
    saved: list[torch.Tensor] = field(default_factory=list)
    opaque: bool = False
    elsewhere: bool = False


def reach_of(values: Iterable[Any]) -> Reach:
    """The leaves and saved tensors of the graphs behind ``values``.

    >>> w = torch.ones(2, requires_grad=True)
    >>> reach = reach_of([(w * w).sum()])
    >>> [leaf is w for leaf in reach.leaves], len(reach.saved), reach.opaque
    ([True], 2, False)
    """
    reach = Reach()
    graph = reached_graph(_recorded(values, reach))
    for leaf in graph.leaves:
        _add_leaf(reach, leaf)
    for node in graph.nodes:
        reach.opaque |= _is_opaque(node)
        reach.saved += _saved_by(node)
    return reach


def _recorded(values: Iterable[Any], reach: Reach) -> list[torch.Tensor]:
    """The tensors that autograd of this process records; leaves among them go to ``reach``."""
    found = []
    for value in values:
        for tensor in value.tensors() if isinstance(value, Holder) else (value,):
            recorded = recorded_of(tensor)
            if recorded is None:
                reach.elsewhere |= type(tensor) is Wrapper
                continue
            found.append(recorded)
    return found


def _add_leaf(reach: Reach, leaf: torch.Tensor) -> None:
    reach.leaves.append(leaf)
    reach.elsewhere |= bool(leaf._backward_hooks)


def _is_opaque(node: Any) -> bool:
    return type(node).__name__ in _OPAQUE or isinstance(node, torch.autograd.function.FunctionCtx)


def _saved_by(node: Any) -> list[torch.Tensor]:
    """The tensors that a node saved; none after its buffers were freed."""
    kind: Any = type(node)
    names = _saved_names(kind)
    if _STATISTICS & names and getattr(node, "_saved_training", False):
        names = names - _STATISTICS
    found = []
    for name in names:
        try:
            value = getattr(node, name)
        except RuntimeError:  # freed, or overwritten since: the pass will fail, and say so
            continue
        found += [leaf for leaf in leaves(value) if isinstance(leaf, torch.Tensor)]
    return found


@cache
def _saved_names(kind: Any) -> frozenset[str]:
    return frozenset(name for name in dir(kind) if name.startswith("_saved_"))
