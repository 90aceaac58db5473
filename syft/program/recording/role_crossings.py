"""What crosses from one role to another while a function of several roles is recorded.

A role's tensors are plain tensors to the recording.  Sending one on is a copy with a mark, a leaf
where it arrives.  So a backward pass ends there; what the pass found is sent back by a copy with a
mark of its own, and the pass goes on from the tensor that was sent.

The function does not get the leaf but a copy of it.  So what arrived is a result of other values,
as it is in plain torch: it may be sent on, be the root of a pass, keep its gradient and be written
to, and all of that is a graph that ends at the leaf.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol

import torch

from syft.exceptions import ProtocolError
from syft.ops.nested import leaves
from syft.ops.table import BY_NAME, Function
from syft.program.program import RoleMark
from syft.program.recording.environment.source_line import user_line
from syft.program.recording.tracer import Tracer


class RoleRecorder(Protocol):
    """Records the roles of a function that runs, to which it sends tensors as if to workers."""

    def send(self, tensor: torch.Tensor, places: Sequence[Any]) -> torch.Tensor:
        """The copy at a role: of what ``send`` and ``move`` are called with."""

    def get(self, tensor: torch.Tensor) -> torch.Tensor:
        """The copy at the role of whoever runs the function."""


ROLES: ContextVar[RoleRecorder | None] = ContextVar("roles", default=None)
"""What records the roles of the function that runs, if it has roles."""


def refuse_in_protocols(what: str, instead: str) -> None:
    """Raise for something that would mean nothing in a function of several roles, which is running.

    Raises :class:`~syft.exceptions.ProtocolError`.

    >>> refuse_in_protocols("x.send_(...)", "y = x.send(...)")
    """
    if ROLES.get() is not None:
        raise ProtocolError(f"{what} in the function of a protocol ({user_line()})", instead)


def refuse_options(method: str, **given: Any) -> None:
    """Raise for options that nobody would look at in a function of several roles.

    Raises :class:`~syft.exceptions.ProtocolError`.

    >>> refuse_options("send", user=None, allow=())
    >>> refuse_options("send", user="ann", allow=())
    Traceback (most recent call last):
    ...
    syft.exceptions.ProtocolError: send(user=...) in the function of a protocol (...): leave it out.
    """
    for name, value in given.items():
        if value is not None and value is not False and value != ():
            what = f"{method}({name}=...) in the function of a protocol ({user_line()})"
            raise ProtocolError(what, "leave it out")


class Crossing(NamedTuple):
    """A tensor with a graph that went to another role: what it was, and the leaf there.

    ``behind`` is the node that had made it when it was sent, at ``line``.
    """

    number: int
    sent: torch.Tensor
    behind: Any
    line: str
    arrived: torch.Tensor

    @property
    def was_written_to(self) -> bool:
        """Whether what was sent has another graph now than it had then."""
        return not self.sent.requires_grad or self.sent.grad_fn is not self.behind


class _Pass(NamedTuple):
    """One backward pass at one role: where it begins, with which gradients, and its graph."""

    roots: list[torch.Tensor]
    crossings: list[Crossing]
    nodes: set[Any]


class Crossings:
    """The crossings of one run of a function.

    >>> tracer = Tracer()
    >>> with tracer:
    ...     x = Crossings(tracer).cross(torch.ones(2), 1)
    >>> [item.mark for item in tracer.builder.actions]
    [None, RoleMark(role=1, crosses=True, back=None)]
    """

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._count = 0
        self._followed: list[Crossing] = []
        self._outside = tracer.instead
        self._instead: dict[int, Function] = {
            **tracer.instead,
            BY_NAME["torch.Tensor.backward"]: self.backward_of_tensor,
            BY_NAME["torch.autograd.backward"]: self.backward,
            BY_NAME["torch.autograd.grad"]: self.grad,
        }
        tracer.instead = self._instead

    @contextlib.contextmanager
    def marked(self, mark: RoleMark) -> Iterator[None]:
        """A context in which the actions get a mark."""
        before, self._tracer.mark = self._tracer.mark, mark
        try:
            yield
        finally:
            self._tracer.mark = before

    def cross(self, tensor: torch.Tensor, role: int) -> torch.Tensor:
        """The copy of a tensor at another role; a backward pass over it goes on where it came
        from, unless gradients are off.

        Raises :class:`~syft.exceptions.CannotRecord` inside a branch.
        """
        arrived = self._copy(tensor, RoleMark(role, crosses=True))
        if not (tensor.requires_grad and torch.is_grad_enabled()):
            return arrived
        arrived.requires_grad_()
        sent = tensor, tensor.grad_fn, str(user_line())
        self._followed.append(Crossing(self._count - 1, *sent, arrived))
        return arrived.clone()

    def _copy(self, tensor: torch.Tensor, mark: RoleMark) -> torch.Tensor:
        if self._tracer.builder.in_branch:
            instead = "send before sy.cond or sy.while_loop, or what it returns"
            self._tracer.refuse("sending to another role inside a branch or a loop", instead)
        self._count += 1
        with torch.no_grad(), self.marked(mark):
            return tensor.clone()

    # -------------------------------------------------------------------------- backward passes

    @contextlib.contextmanager
    def _as_it_is(self) -> Iterator[None]:
        """A context in which backward passes are recorded as they are anywhere else."""
        self._tracer.instead = self._outside
        try:
            yield
        finally:
            self._tracer.instead = self._instead
            self._tracer.gradients.goes_on = False

    def grad(self, outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """``torch.autograd.grad``; refused for what lies behind a graph at another role."""
        if self._is_behind(_graph_behind(_tensors(outputs)), _tensors(inputs)):
            instead = "call backward(), and read .grad"
            self._tracer.refuse("torch.autograd.grad over several roles", instead)
        with self._as_it_is():
            return torch.autograd.grad(outputs, inputs, *args, **kwargs)

    def _is_behind(self, nodes: set[Any], inputs: Sequence[torch.Tensor]) -> bool:
        """Whether a graph leads to one of some tensors over another role: then what it does within
        the role is not all of the gradient."""
        wanted, behind, leaves_there = self._reached(nodes), set[Any](), set[int]()
        for crossing in reversed(self._followed):
            if crossing.number in wanted:
                behind |= _graph_behind([crossing.sent])
                leaves_there.add(id(crossing.sent))
                wanted |= self._reached(behind)
        leaves_there |= _ends_of(behind)
        return any(id(each) in leaves_there or each.grad_fn in behind for each in inputs)

    def backward_of_tensor(
        self, tensor: torch.Tensor, gradient: Any = None, *args: Any, **kwargs: Any
    ) -> None:
        """``tensor.backward()``, which goes on at other roles."""
        self.backward(tensor, gradient, *args, **kwargs)

    def backward(
        self,
        tensors: Any,
        grad_tensors: Any = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        grad_variables: Any = None,
        inputs: Any = None,
    ) -> None:
        """``torch.autograd.backward``, which goes on at other roles."""
        roots = _tensors(tensors)
        nodes = _graph_behind(roots)
        gradients = grad_variables if grad_tensors is None else grad_tensors
        passes = self._passes(nodes) if inputs is None else []
        if (passes and create_graph) or self._is_behind(nodes, _tensors(inputs)):
            instead = "leave out create_graph and inputs, or end the graph with detach()"
            self._tracer.refuse("such a backward pass over several roles", instead)
        with self._as_it_is():
            if passes:
                self._run([_Pass(roots, [], nodes), *passes], gradients, retain_graph)
            else:
                rest = {} if inputs is None else {"inputs": inputs}
                torch.autograd.backward(tensors, gradients, retain_graph, create_graph, **rest)

    def _reached(self, nodes: set[Any]) -> set[int]:
        """The numbers of the crossings to which a graph leads back."""
        ends = _ends_of(nodes)
        return {each.number for each in self._followed if id(each.arrived) in ends}

    def _passes(self, nodes: set[Any]) -> list[_Pass]:
        """The passes that follow, in an order in which each has all its gradients.

        A crossing depends on none that was made after it.  Those next to each other of which none
        leads to another may run as one; what shares a part of a graph is at one role, and does.
        """
        wanted = self._reached(nodes)
        group: list[_Pass] = []
        done: list[_Pass] = []
        for crossing in reversed(self._followed):
            if crossing.number not in wanted:
                continue
            self._check_unwritten(crossing)
            behind = _graph_behind([crossing.sent])
            wanted |= self._reached(behind)
            if any(id(crossing.arrived) in _ends_of(each.nodes) for each in group):
                done += group
                group = []
            group = _with(group, _Pass([crossing.sent], [crossing], behind))
        return [*done, *group]

    def _check_unwritten(self, crossing: Crossing) -> None:
        """Refuse a pass that would go on from what the tensor is now, not from what was sent."""
        if crossing.was_written_to:
            what = f"a backward pass behind what was sent at {crossing.line} and then written to"
            self._tracer.refuse(what, "send its clone()")

    def _run(self, passes: list[_Pass], gradients: Any, retain: bool | None) -> None:
        for index, one in enumerate(passes):
            later = set().union(*[each.nodes for each in passes[index + 1 :]])
            self._tracer.gradients.goes_on = index + 1 < len(passes)
            roots = one.roots
            if one.crossings:
                found = list(map(self._sent_back, one.crossings))
                roots = [root for root, grad in zip(roots, found, strict=True) if grad is not None]
                gradients = list(filter(_is_tensor, found))
            if roots:
                torch.autograd.backward(
                    roots, gradients, retain_graph=not later.isdisjoint(one.nodes) or retain
                )

    def _sent_back(self, crossing: Crossing) -> torch.Tensor | None:
        """The gradient of what arrived, at the role where it came from."""
        found = crossing.arrived.grad
        if found is None:
            return None
        back = self._copy(found, RoleMark(None, crosses=True, back=crossing.number))
        crossing.arrived.grad = None
        return back


def _with(group: list[_Pass], new: _Pass) -> list[_Pass]:
    """A group of passes with one more; those that share a part of a graph become one."""
    joined = [new, *[each for each in group if not each.nodes.isdisjoint(new.nodes)]]
    roots = [root for part in joined for root in part.roots]
    crossings = [each for part in joined for each in part.crossings]
    one = _Pass(roots, crossings, set().union(*[part.nodes for part in joined]))
    return [*[each for each in group if each.nodes.isdisjoint(new.nodes)], one]


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _tensors(values: Any) -> list[torch.Tensor]:
    return list(filter(_is_tensor, leaves(values)))


def _graph_behind(tensors: Iterable[torch.Tensor]) -> set[Any]:
    """The nodes of the graph behind tensors."""
    waiting = [tensor.grad_fn for tensor in tensors if tensor.grad_fn is not None]
    seen: set[Any] = set()
    while waiting:
        node = waiting.pop()
        if node not in seen:
            seen.add(node)
            waiting += [after for after, _ in node.next_functions if after is not None]
    return seen


def _ends_of(nodes: set[Any]) -> set[int]:
    """The identities of the leaves where a graph ends."""
    return {id(node.variable) for node in nodes if hasattr(node, "variable")}
