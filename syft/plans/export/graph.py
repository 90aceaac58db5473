"""A program as a torch.fx graph: an action becomes a node, a slot becomes what the node returns.

The two forms differ.  A program puts the parts of a result into slots of their own; a graph takes
them out with ``getitem``.  An action in place has no result slot; in the graph the following nodes
read the node of that action, so that no tool removes it as dead code.  The modes of actions become
calls (:mod:`syft.plans.export.mode_nodes`), and branches become graphs of their own
(:mod:`syft.plans.export.branch_nodes`).
"""

from __future__ import annotations

import keyword
import operator
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import torch
from torch.fx import Graph, GraphModule, Node

from syft.exceptions import UnsupportedOperation
from syft.plans.export.branch_nodes import Branching, condition, loop
from syft.plans.export.call_nodes import node_call
from syft.plans.export.mode_nodes import ModeCalls, ModeKeepingModule, has_modes
from syft.ops.table import BY_NAME, COND, FLAGS, WHILE_LOOP, OpFlag
from syft.program.program import Action, Program, Slot, slots_in
from syft.ops.calls import mutated_argument

_GIVES_NUMBERS: Final = int(OpFlag.METADATA | OpFlag.PROGRAM_ONLY)
_NOTHING: Final = int(OpFlag.NOTHING)
_ITEM: Final = BY_NAME["torch.Tensor.item"]


class GraphBuilder:
    """Writes one program, or one branch of it, into a graph; ``values`` are those of its slots.

    >>> add = Action(BY_NAME["torch.add"], (Slot(0), Slot(0)), {}, Slot(1))
    >>> builder = GraphBuilder(Program(inputs=1, actions=(add,), outputs=Slot(1)))
    >>> builder.values[0] = builder.graph.placeholder("x")
    >>> builder.write()
    >>> builder.module(builder.values[1], "Double")(torch.ones(2))
    tensor([2., 2.])
    """

    def __init__(self, program: Program) -> None:
        self.graph = Graph()
        self.values: dict[int, Any] = {}
        self.numbers: set[int] = set()
        """The slots that are known to hold Python numbers."""
        self.root: dict[str, Any] = {}
        """The attributes that the graph reads: state, constants and graphs of branches."""
        self._program = program
        self._modes = ModeCalls(self.graph)
        self._wanted = {slot.index for slot in slots_in(program.outputs)}
        for action in program.actions:
            self._wanted.update(slot.index for slot in slots_in((action.args, action.kwargs)))

    def attribute(self, name: str, value: Any) -> Node:
        """Keep a value in the module, and read it in the graph."""
        while any(f"{known}.".startswith(f"{name}.") for known in self.root):
            name += "_"
        self.root[name] = value
        return self.graph.create_node("get_attr", name)

    def unpack(self, structure: Any, node: Node) -> None:
        """Give the slots inside a nested argument their parts of it."""
        if type(structure) is Slot:
            self.values[structure.index] = node
            return
        parts = structure.items() if isinstance(structure, dict) else enumerate(structure)
        for place, part in parts:
            if any(slots_in(part)):
                self.unpack(part, self.graph.call_function(operator.getitem, (node, place)))

    def write(self) -> None:
        """Add the nodes of all actions."""
        for index, action in enumerate(self._program.actions):
            self._modes.switch(action.mode)
            self._write(index, action)
        self._modes.switch(None)

    def module(self, result: Any, name: str) -> GraphModule:
        """Return ``result``, made of nodes, from the graph, and make a module of it."""
        self.graph.output(result)
        self.graph.lint()
        kind = ModeKeepingModule if has_modes(self._program) else GraphModule
        return kind(self.root, self.graph, class_name=name)

    def copies(self, results: tuple[Any, ...]) -> tuple[Any, ...]:
        """As :meth:`operand`, with a new tensor for each: torch wants a branch to return copies."""
        return tuple(map(self._copy, results))

    def _copy(self, result: Any) -> Any:
        value = self.operand(result)
        if isinstance(value, Node) and result.index not in self.numbers:
            return self.graph.call_method("clone", (value,))
        return value

    def truth(self, pattern: Any) -> Any:
        """A node for whether a number, or the only element of a tensor, is not zero."""
        value = self.operand(pattern)
        if not isinstance(value, Node):
            return bool(value)
        if type(pattern) is Slot and pattern.index not in self.numbers:
            value = self.graph.call_method("reshape", (value, ()))
        return self.graph.call_function(operator.ne, (value, 0))

    def operand(self, pattern: Any) -> Any:
        """A nested operand with the values of its slots.

        A named tuple is made by a call of its class, since torch.fx keeps only plain tuples.
        """
        for kind, write in _OPERANDS.items():
            if isinstance(pattern, kind):
                return write(self, pattern)
        return pattern

    def _slot(self, slot: Slot) -> Any:
        return self.values[slot.index]

    def _tuple(self, pattern: tuple[Any, ...]) -> Any:
        kind, parts = type(pattern), tuple(map(self.operand, pattern))
        if kind is tuple or kind is torch.Size:
            return parts
        args = (parts,) if kind.__module__ == "torch.return_types" else parts
        return self.graph.call_function(kind, args)

    def _list(self, pattern: list[Any]) -> list[Any]:
        return list(map(self.operand, pattern))

    def _dict(self, pattern: dict[Any, Any]) -> dict[Any, Any]:
        return {key: self.operand(value) for key, value in pattern.items()}

    def _slice(self, pattern: slice) -> slice:
        return slice(*map(self.operand, (pattern.start, pattern.stop, pattern.step)))

    def _numpy_scalar(self, value: np.generic) -> Any:
        return value.item()

    def _object(self, value: Any) -> Node:
        """A value that torch.fx cannot write into source code: an attribute of the module."""
        return self.attribute(f"operand_{len(self.root)}", value)

    def _write(self, index: int, action: Action) -> None:
        """Add the node of one action, and note what its slots hold."""
        if action.op in _CONTROL:
            node = _CONTROL[action.op](self, index, action)
        else:
            node = self._call(index, action)
        lines = self._program.lines
        if index < len(lines):  # where torch's tools look for the source
            file, _, line = lines[index].rpartition(":")
            node.meta["stack_trace"] = f'File "{file}", line {line}, in plan\n    {action.name}'

    def _call(self, index: int, action: Action) -> Node:
        _check_keywords(index, action)
        call = node_call(action.op, action.args, action.kwargs)
        args, kwargs = self.operand(call.args), self.operand(call.kwargs)
        node = self.graph.create_node(call.kind, call.target, args, kwargs)
        flags = FLAGS[action.op]
        if action.out is not None:
            self._store(action.out, node)
            if flags & _GIVES_NUMBERS or action.op == _ITEM:
                self.numbers.update(slot.index for slot in slots_in(action.out))
        elif not flags & _NOTHING:
            target = mutated_argument(flags, action.args, action.kwargs)
            if type(target) is Slot:
                self.values[target.index] = node
        return node

    def _condition(self, index: int, action: Action) -> Node:
        branching = condition(index, action, self.numbers)
        then = self._branch(branching, 0, GraphBuilder.copies)
        otherwise = self._branch(branching, 1, GraphBuilder.copies)
        operands = tuple(map(self.operand, branching.operands))
        args = (self.truth(action.args[0]), then, otherwise, operands)
        node = self.graph.call_function(branching.function, args)
        self._store(branching.results, node)
        return node

    def _loop(self, index: int, action: Action) -> Node:
        branching = loop(index, action)
        test = self._branch(branching, 0, GraphBuilder.truth)
        body = self._branch(branching, 1, GraphBuilder.copies)
        operands = tuple(map(self.operand, branching.operands))
        node = self.graph.call_function(branching.function, (test, body, operands, ()))
        self._store(branching.results, node)
        self.values.update(
            (slot.index, value) for slot, value in branching.constant_results.items()
        )
        for result, operand in zip(branching.results, branching.operands, strict=True):
            if self._is_number(operand):
                self.numbers.update(slot.index for slot in slots_in(result))
        return node

    def _branch(
        self, branching: Branching, which: int, result: Callable[[GraphBuilder, Any], Any]
    ) -> Node:
        """The graph of a branch, as an attribute of this one."""
        program = branching.programs[which]
        inner = GraphBuilder(program)
        inner.values.update(branching.constants)
        for place, operand in zip(branching.passed, branching.operands, strict=True):
            inner.values[place] = inner.graph.placeholder(f"value_{place}")
            if self._is_number(operand):
                inner.numbers.add(place)
        inner.write()
        name = branching.names[which]
        return self.attribute(name, inner.module(result(inner, program.outputs), name))

    def _is_number(self, operand: Slot | int) -> bool:
        return operand.index in self.numbers if isinstance(operand, Slot) else True

    def _store(self, pattern: Any, node: Node) -> None:
        """Give the slots of a pattern of results their nodes, unless nothing reads them."""
        if type(pattern) is Slot:
            self.values[pattern.index] = node
        elif any(slot.index in self._wanted for slot in slots_in(pattern)):
            for position, part in enumerate(pattern):
                if any(slot.index in self._wanted for slot in slots_in(part)):
                    self._store(part, self.graph.call_function(operator.getitem, (node, position)))


def _check_keywords(index: int, action: Action) -> None:
    """Refuse keywords that are not names: torch.fx writes them into source code as they are."""
    for name in action.kwargs:
        if not name.isidentifier() or keyword.iskeyword(name):
            what = f"action {index}, {action.name} with {name!r} for a keyword"
            raise UnsupportedOperation(what, "Export", "give the operand by its position")


_CONTROL: Final = {COND: GraphBuilder._condition, WHILE_LOOP: GraphBuilder._loop}

_OPERANDS: Final[dict[type, Callable[[GraphBuilder, Any], Any]]] = {
    Slot: GraphBuilder._slot,
    tuple: GraphBuilder._tuple,
    list: GraphBuilder._list,
    dict: GraphBuilder._dict,
    slice: GraphBuilder._slice,
    np.generic: GraphBuilder._numpy_scalar,
    type: GraphBuilder._object,
    torch.Generator: GraphBuilder._object,
}
"""How each class of operand becomes part of a node; torch.fx writes other values as they are."""
