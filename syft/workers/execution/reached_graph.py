"""What a backward pass reaches, and which of it an earlier pass over private values has used up.

A pass frees what the nodes of a graph saved, so that a second one through them fails.  A pass over
private values may end half-way for a reason that is private, and then some nodes are freed and some
are not.  So after such a pass every node that it may have come to counts as *spent*, whether it was
freed or not, and a later pass over public values through a spent node fails before it begins.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import torch

from syft.torch_private import graph_start, zeros_received
from syft.workers.execution.retained import retaining

_SPENT: Final = "syft: spent"

AGAIN: Final = (
    "Trying to backward through the graph a second time (or directly access saved tensors after "
    "they have already been freed). Specify retain_graph=True if you need to backward through the "
    "graph a second time or if you need to access saved tensors after calling backward."
)
"""The text of torch's error for a pass through what was freed."""


Edge = tuple[Any, int]
"""A node of a graph, and the number of one of its results."""


@dataclass(slots=True)
class ReachedGraph:
    """The nodes behind some tensors, the leaves at their ends, and the edges at which it begins.

    >>> w = torch.ones(2, requires_grad=True)
    >>> graph = reached_graph([(w * 2).sum()])
    >>> len(graph.nodes), [leaf is w for leaf in graph.leaves]
    (3, [True])
    """

    nodes: dict[Any, None]
    leaves: list[torch.Tensor]
    starts: tuple[Edge, ...] = ()
    _edges: frozenset[Edge] | None = field(default=None, init=False, repr=False)

    def reaches(self, tensor: torch.Tensor) -> bool:
        """Whether a pass comes to a tensor: a leaf, or the result of a node.

        A pass that comes to one result of a node does not come to the others.

        >>> w = torch.ones(2, requires_grad=True) * 2; first, second = w.unbind()
        >>> graph = reached_graph([first]); [graph.reaches(each) for each in (first, second, w)]
        [True, False, True]
        """
        if tensor.grad_fn is None:
            return any(leaf is tensor for leaf in self.leaves)
        if tensor.grad_fn not in self.nodes:
            return False
        if self._edges is None:
            found = (edge for node in self.nodes for edge in node.next_functions)
            self._edges = frozenset((*self.starts, *found))
        return (tensor.grad_fn, tensor.output_nr) in self._edges

    def zeros_for(self, leaf: torch.Tensor) -> list[torch.Tensor]:
        """Zeros like the gradients that a pass brings to a leaf: one for each end of the graph.

        >>> w = torch.ones(2, requires_grad=True); loss = w.sum(); w.data = torch.ones(3)
        >>> reached_graph([loss]).zeros_for(w)
        [tensor([0., 0.])]
        """
        ends = [node for node in self.nodes if getattr(node, "variable", None) is leaf]
        return [*map(zeros_received, ends)] or [torch.zeros_like(leaf.detach())]

    def keeping(self, shown: Iterable[torch.Tensor]) -> list[torch.Tensor]:
        """The results on the way that keep their gradients: those whose ``retain_grad`` was called
        through the worker, and those of ``shown`` on which the owner's program called it."""
        kept = [tensor for tensor in shown if tensor.retains_grad and not tensor.is_leaf]
        found = {id(tensor): tensor for tensor in (*kept, *retaining())}
        return [tensor for tensor in found.values() if self.reaches(tensor)]

    def spend(self, inputs: Iterable[torch.Tensor] | None) -> None:
        """Note that a pass has used up the nodes on the way to ``inputs``; None for all leaves."""
        for node in self.nodes if inputs is None else self._towards(inputs):
            if _saves(node):
                node.metadata[_SPENT] = True

    def _towards(self, inputs: Iterable[torch.Tensor]) -> set[Any]:
        """The nodes from which a pass goes on to one of these tensors."""
        ends = {graph_start(tensor) for tensor in inputs}
        found: set[Any] = set()
        before: dict[Any, list[Any]] = {}
        for node in self.nodes:
            for parent, _ in node.next_functions:
                before.setdefault(parent, []).append(node)
        todo = [node for end in ends for node in before.get(end, ())]
        while todo:
            node = todo.pop()
            if node not in found:
                found.add(node)
                todo += before.get(node, ())
        return found

    def is_spent(self) -> bool:
        """Whether a pass over private values has used up one of the nodes.

        >>> w = torch.ones(2, requires_grad=True); loss = (w * w).sum()
        >>> graph = reached_graph([loss]); graph.is_spent(); graph.spend(None); graph.is_spent()
        False
        True
        """
        return any(_saves(node) and _SPENT in node.metadata for node in self.nodes)


def reached_graph(recorded: Iterable[torch.Tensor]) -> ReachedGraph:
    """What a pass from some tensors reaches."""
    found: dict[int, torch.Tensor] = {}
    nodes: dict[Any, None] = {}
    starts: list[Edge] = []
    for tensor in recorded:
        if tensor.grad_fn is not None:
            starts.append((tensor.grad_fn, tensor.output_nr))
        elif tensor.requires_grad:
            found[id(tensor)] = tensor
    todo: list[Any] = [node for node, _ in starts]
    while todo:
        node = todo.pop()
        if node is None or node in nodes:
            continue
        nodes[node] = None
        parents = node.next_functions
        leaf = None if parents else getattr(node, "variable", None)
        if leaf is not None:  # an AccumulateGrad node
            found[id(leaf)] = leaf
        else:
            todo.extend(parent for parent, _ in parents)
    return ReachedGraph(nodes, list(found.values()), tuple(starts))


def _saves(node: Any) -> bool:
    kind: Any = type(node)
    return saves(kind)


@cache
def saves(kind: Any) -> bool:
    """Whether nodes of a class keep tensors that a pass frees.

    >>> w = torch.ones(2, requires_grad=True)
    >>> saves(type((w * w).grad_fn)), saves(type((w + w).grad_fn))
    (True, False)
    """
    return any(name.startswith("_raw_saved_") for name in dir(kind))
