"""A program as a torch.fx graph: an action becomes a node, a slot becomes what the node returns.

The two forms differ.  A program puts the parts of a result into slots of their own; a graph takes
them out with ``getitem``.  An action in place has no result slot; in the graph the following nodes
read the node of that action, so that no tool removes it as dead code.  The modes of actions become
calls (:mod:`syft.plans.export.graph`), and branches become graphs of their own
(:mod:`syft.plans.export.branch_nodes`).

Torch modes in a torch.fx graph: calls that switch a mode on, and calls that switch it back.

A graph is a flat list of calls, so a region of ``no_grad`` is written as torch's own tracers do it:
enter, the calls, exit.  An exit restores the mode found at the entry, because a program may run
under any mode.

A call that fails does not reach the exits, so a module with such regions is of a class that
restores the modes (:class:`ModeKeepingModule`).  Inference mode, a faster kind of ``no_grad``, is
written as ``no_grad``: torch has no way to leave it that does not depend on when an error is freed.

How an op of the op table is written as a node of a torch.fx graph.

A torch.fx node calls either a method by its name or a function.  Most ops are one of the two.
Accessors of attributes, Python's operators and arithmetic on numbers are written as a person would
write them, because tools for torch.fx graphs know these forms and print them well.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import keyword
import math
import operator
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch.fx import Graph, GraphModule, Node

from syft.exceptions import UnsupportedOperation
from syft.ops import numbers
from syft.ops.calls import mutated_argument
from syft.ops.table import (
    BY_NAME,
    COND,
    FLAGS,
    FUNCTIONS,
    NAMES,
    PROGRAM_FUNCTIONS,
    WHILE_LOOP,
    Function,
    OpFlag,
    function_of,
)
from syft.plans.export.branch_nodes import Branching, condition, every_action, loop
from syft.program.program import Action, Mode, Program, Slot, slots_in
from syft.torch_private import enter_autocast, exit_autocast, set_grad_enabled

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


class ModeCalls:
    """The mode that a graph under construction is in at its end.

    >>> graph = Graph()
    >>> modes = ModeCalls(graph)
    >>> modes.switch(Mode(grad=False))
    >>> modes.switch(None)
    >>> [node.name for node in graph.nodes]
    ['is_grad_enabled', '_set_grad_enabled', '_set_grad_enabled_1']
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._mode: Mode | None = None
        self._exits: list[tuple[Callable[..., object], Node]] = []

    def switch(self, mode: Mode | None) -> None:
        """Add the calls that switch to another mode; None is the surrounding one."""
        if mode == self._mode:
            return
        for leave, state in reversed(self._exits):
            self._graph.call_function(leave, (state,))
        self._exits.clear()
        self._mode = mode
        if mode is not None:
            self._enter(mode)

    def _enter(self, mode: Mode) -> None:
        call = self._graph.call_function
        self._exits.append((set_grad_enabled, call(torch.is_grad_enabled)))
        call(set_grad_enabled, (mode.grad and not mode.inference,))
        for device, dtype in mode.autocast:
            # None for the cache: as it is.
            entered = call(enter_autocast, (device, dtype, dtype is not None, None))
            self._exits.append((exit_autocast, entered))


class ModeKeepingModule(GraphModule):
    """A graph module that leaves torch's modes as they were, also when an operation in it fails."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the graph."""
        with modes_kept():
            return super().__call__(*args, **kwargs)


@contextlib.contextmanager
def modes_kept() -> Iterator[None]:
    """A context that restores grad mode and autocast if its body raises.

    >>> with contextlib.suppress(KeyError), modes_kept():
    ...     _ = set_grad_enabled(False), enter_autocast("cpu", torch.bfloat16, True, None)
    ...     raise KeyError
    >>> torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")
    (True, False)
    """
    grad, nesting = torch.is_grad_enabled(), _autocast_nesting()
    accelerator = torch.accelerator.current_accelerator()
    devices = ["cpu"] if accelerator is None else ["cpu", accelerator.type]
    casts = [(d, torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in devices]
    try:
        yield
    except BaseException:
        set_grad_enabled(grad)
        for device, enabled, dtype in casts:
            torch.set_autocast_enabled(device, enabled)
            torch.set_autocast_dtype(device, dtype)
        for _ in range(_autocast_nesting() - nesting):
            if not torch.autocast_decrement_nesting():  # the outermost clears what it had cast
                torch.clear_autocast_cache()
        raise


def has_modes(program: Program) -> bool:
    """Whether any action, in a branch too, was recorded under a mode of its own.

    >>> has_modes(Program(inputs=0, actions=(), outputs=None))
    False
    """
    return any(action.mode is not None for _, action in every_action(program))


def _autocast_nesting() -> int:
    torch.autocast_increment_nesting()
    return torch.autocast_decrement_nesting()


class NodeCall(NamedTuple):
    """A call as torch.fx writes it: the kind of node, what it calls, and with which operands."""

    kind: str
    target: Function | str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


_TENSOR: Final = "torch.Tensor."
_NUMBERS: Final = "syft.ops.numbers."

_ACCESSORS: Final[dict[str, Function]] = {
    "__get__": getattr,
    "__set__": setattr,
    "__delete__": delattr,
}
_OPERATORS: Final[dict[str, Function]] = {
    f"__{name.strip('_')}__": getattr(operator, name)
    for name in (
        "add sub mul truediv floordiv mod pow matmul lshift rshift and_ or_ xor eq ne lt le gt ge "
        "iadd isub imul ifloordiv imod ipow ilshift irshift iand ior ixor "
        "invert getitem setitem contains"
    ).split()
}
_REFLECTED: Final[dict[str, Function]] = {
    f"__r{name.strip('_')}__": getattr(operator, name)
    for name in "add sub mul floordiv mod pow matmul lshift rshift and_ or_ xor".split()
} | {"__rdiv__": operator.truediv}
_NUMBER_FUNCTIONS: Final[dict[str, Function]] = {
    "floor": math.floor,
    "ceil": math.ceil,
    "trunc": math.trunc,
    "round": builtins.round,
}
# torch.fx writes a function of torch by its name, and torch has other functions of these names.
_IN_C: Final = "torch._C._VariableFunctions."
_STAND_INS: Final[dict[str, Function]] = {
    name: getattr(torch.ops.aten, name.removeprefix(_IN_C))
    for name, function in zip(NAMES, FUNCTIONS, strict=True)
    if name.startswith(_IN_C) and function is not None
    if getattr(torch, name.removeprefix(_IN_C), None) is not function
}


def node_call(op: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> NodeCall:
    """The call of an op as torch.fx writes it; the operands may be of any kind.

    Raises :class:`~syft.exceptions.UnknownOperation` for an op that this torch does not have.

    >>> from syft.ops.table import BY_NAME
    >>> node_call(BY_NAME["torch.Tensor.sum"], ("x", 0), {})
    NodeCall(kind='call_method', target='sum', args=('x', 0), kwargs={})
    >>> node_call(BY_NAME["torch.Tensor.shape.__get__"], ("x",), {})
    NodeCall(kind='call_function', target=<built-in function getattr>, args=('x', 'shape'), \
kwargs={})
    """
    name = NAMES[op]
    if name.startswith(_NUMBERS):
        return NodeCall("call_function", _number_function(name), args, kwargs)
    function = PROGRAM_FUNCTIONS.get(op) or function_of(op)
    if name.startswith(_TENSOR):
        return _tensor_call(name.removeprefix(_TENSOR), function, args, kwargs)
    return NodeCall("call_function", _STAND_INS.get(name, function), args, kwargs)


def _tensor_call(
    name: str, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> NodeCall:
    """The call of a method, an operator or an accessor of torch.Tensor."""
    attribute, _, accessor = name.rpartition(".")
    if attribute:
        itself, *value = args
        return NodeCall("call_function", _ACCESSORS[accessor], (itself, attribute, *value), kwargs)
    if name in _OPERATORS:
        return NodeCall("call_function", _OPERATORS[name], args, kwargs)
    if name in _REFLECTED:
        return NodeCall("call_function", _REFLECTED[name], args[::-1], kwargs)
    if not args:
        return NodeCall("call_function", function, args, kwargs)
    return NodeCall("call_method", name, args, kwargs)


def expect(relation: str, a: Any, b: Any, holds: bool) -> None:
    """As the op of that name; sizes are tensors while ``torch.jit`` traces, which asserts.

    >>> expect("gt", torch.tensor(3), 2, True)
    """
    if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
        answer = torch.as_tensor(numbers.RELATIONS[relation][1](a, b))
        _scripted_assertion()(answer, holds)
    else:
        numbers.expect(relation, a, b, holds)


def _assert(answer: torch.Tensor, holds: bool) -> torch.Tensor:
    if bool(answer) != holds:
        raise RuntimeError("the plan was recorded with sizes by which its function decides")
    return answer  # a trace keeps no function without a result


@functools.cache
def _scripted_assertion() -> Any:
    """The assertion in TorchScript: a trace keeps no other."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"`torch\.jit\.\w+` is", DeprecationWarning)
        return torch.jit.script(_assert)


def _number_function(name: str) -> Function:
    """The function of Python for an op on numbers."""
    leaf = name.removeprefix(_NUMBERS)
    if leaf == "expect":
        return expect
    found: Function = _NUMBER_FUNCTIONS.get(leaf) or getattr(operator, leaf)
    return found
