"""What a backward pass reaches, and which of it an earlier pass over private values has used up.

A pass frees what the nodes of a graph saved, so that a second one through them fails.  A pass over
private values may end half-way for a reason that is private, and then some nodes are freed and some
are not.  So after such a pass every node that it may have come to counts as *spent*, whether it was
freed or not, and a later pass over public values through a spent node fails before it begins.

A pass that has to wait is ordered against the operations that touch the same tensors, and against
no others.  It adds to the gradients of the leaves.  It reads what its nodes saved, so that nobody
may write to that before.  A few nodes of torch do not show what they saved; a graph with one of
them is *opaque*.

A result whose gradient a pass keeps may be in a store, in the registers of a program or in the
state of a plan.  So it is recorded when ``retain_grad`` is called, by a weak reference.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from syft.ops.nested import every_tensor
from syft.torch_private import graph_start, zeros_received
from syft.workers.labels.walk import recorded_of, tensors_of

_SPENT: Final = "syft: spent"
_OPAQUE: Final = frozenset(("CopySlices", "CppFunction"))
"""The Python classes of nodes that do not show what they saved."""
_STATISTICS: Final = frozenset(("_saved_running_mean", "_saved_running_var"))
"""What batch norm saves in training too, but reads in evaluation only."""
_RETAINING: Any = WeakTensorKeyDictionary()  # typed as a mapping, and used as a set

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
    """The nodes behind some objects, the leaves at their ends, and the edges at which it begins.

    ``elsewhere`` says that a part of the graph is at another worker or that a hook on a leaf sends
    its gradient there.

    >>> w = torch.ones(2, requires_grad=True)
    >>> graph = reached_graph([(w * 2).sum()])
    >>> len(graph.nodes), [leaf is w for leaf in graph.leaves]
    (3, [True])
    """

    nodes: dict[Any, None]
    leaves: list[torch.Tensor]
    starts: tuple[Edge, ...] = ()
    elsewhere: bool = False
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

    def saved(self) -> list[torch.Tensor]:
        """The tensors that the nodes saved; none of those whose buffers were freed.

        >>> w = torch.ones(2, requires_grad=True); len(reached_graph([(w * w).sum()]).saved())
        2
        """
        return [tensor for node in self.nodes for tensor in _saved_by(node)]

    def is_opaque(self) -> bool:
        """Whether one of the nodes does not show what it saved."""
        return any(
            type(node).__name__ in _OPAQUE or isinstance(node, torch.autograd.function.FunctionCtx)
            for node in self.nodes
        )


def reached_graph(values: Iterable[Any]) -> ReachedGraph:
    """What a pass from some objects reaches."""
    recorded = [recorded_of(tensor) for value in values for tensor in tensors_of(value)]
    known = [tensor for tensor in recorded if tensor is not None]
    starts = [(tensor.grad_fn, tensor.output_nr) for tensor in known if tensor.grad_fn is not None]
    found = {id(leaf): leaf for leaf in filter(_is_end, known)}
    nodes = _nodes_from(starts, found)
    elsewhere = len(known) < len(recorded) or any(leaf._backward_hooks for leaf in found.values())
    return ReachedGraph(nodes, list(found.values()), tuple(starts), elsewhere)


def _is_end(tensor: torch.Tensor) -> bool:
    return tensor.grad_fn is None and tensor.requires_grad


def _nodes_from(starts: Iterable[Edge], found: dict[int, torch.Tensor]) -> dict[Any, None]:
    """The nodes that are reached; the leaves at their ends go to ``found``."""
    nodes: dict[Any, None] = {}
    todo: list[Any] = [node for node, _ in starts]
    while todo:
        node = todo.pop()
        if node is None or node in nodes:
            continue
        nodes[node] = None
        parents = node.next_functions
        for parent, _ in parents:
            todo.append(parent)
        leaf = None if parents else getattr(node, "variable", None)
        if leaf is not None:  # an AccumulateGrad node
            found[id(leaf)] = leaf
    return nodes


def retain_grad(tensor: torch.Tensor) -> None:
    """Call ``torch.Tensor.retain_grad``, and record the tensor.

    >>> x = torch.ones(2, requires_grad=True) * 2
    >>> retain_grad(x); [tensor is x for tensor in retaining()]
    [True]
    """
    torch.Tensor.retain_grad(tensor)
    recorded = recorded_of(tensor)
    if recorded is not None:
        _RETAINING[recorded] = None


def retaining() -> list[torch.Tensor]:
    """The recorded tensors of this process that are still alive.

    >>> x = torch.ones(2, requires_grad=True) * 2
    >>> retain_grad(x); del x; retaining()
    []
    """
    return list(_RETAINING.keys())


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
        found += every_tensor(value)
    return found


@cache
def _saved_names(kind: Any) -> frozenset[str]:
    return frozenset(name for name in dir(kind) if name.startswith("_saved_"))
