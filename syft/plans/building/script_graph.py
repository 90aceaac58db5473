"""Running a TorchScript graph with Python's functions of torch, so that a recording sees each.

A ``ScriptModule`` and a scripted function run in C++, where no recording looks.  Their graph is
data; what a plan is made of is this walk through it, in the user's own process.  It is slow and
happens a few times, while the plan is built.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from syft.exceptions import CannotRecord, SyftError
from syft.plans.building.script_functions import called
from syft.torch_private import clean_graph, simplified_graph

Attributes = Callable[[Any, str], Any]
"""Gives the attribute of a module in a graph."""

_IN_PYTHON: Final = "write this part with functions of torch, or give the module that was scripted"
_SAID: Final = ("prim::RaiseException", "aten::warn")


class ScriptGraph:
    """A graph that can be run.

    Raises :class:`~syft.exceptions.CannotRecord` for what a plan cannot keep, with the line that
    was scripted or traced.

    >>> x = torch.ones(2)
    >>> graph = ScriptGraph(torch.jit.trace(lambda x: x.relu() + 1, x).graph)
    >>> graph.run([torch.tensor([-1.0, 2.0])])
    tensor([1., 3.])
    """

    def __init__(self, graph: Any) -> None:
        self._graph = simplified_graph(graph)
        for check in list(_checks(self._graph)):
            check.destroy()
        clean_graph(self._graph)

    def run(self, inputs: Sequence[Any], attribute: Attributes = getattr) -> Any:
        """Run it on the inputs, of which the first is the module if it is a method; ``attribute``
        looks up what modules have."""
        results = GraphRun(attribute).run_block(self._graph, inputs)
        return results[0] if len(results) == 1 else tuple(results)


class GraphRun:
    """One run of a graph: what its names stand for.

    >>> graph = torch.jit.trace(lambda x: x + 1, torch.ones(1)).graph
    >>> GraphRun(getattr).run_block(graph, [torch.ones(1)])
    [tensor([2.])]
    """

    def __init__(self, attribute: Attributes) -> None:
        self._attribute = attribute
        self._values: dict[int, Any] = {}

    def run_block(self, block: Any, inputs: Sequence[Any]) -> list[Any]:
        """Run the nodes of a block in their order; returns its results."""
        values = self._values
        for name, given in zip(block.inputs(), inputs, strict=True):
            values[name.unique()] = given
        for node in block.nodes():
            results = self._run_node(node)
            for name, result in zip(node.outputs(), results, strict=True):
                values[name.unique()] = result
        return [values[name.unique()] for name in block.outputs()]

    def _run_node(self, node: Any) -> Sequence[Any]:
        kind = node.kind()
        if kind == "prim::If":
            return self._run_if(node)
        if kind == "prim::Loop":
            return self._run_loop(node)
        args = [self._values[name.unique()] for name in node.inputs()]
        if kind == "prim::GetAttr":
            return [self._attribute(args[0], node.s("name"))]
        try:
            make = _STRUCTURE.get(kind)
            if make is not None:
                return make(node, args)
            if not kind.startswith("aten::"):
                raise LookupError(kind)
            return _results(node, called(kind.removeprefix("aten::"), node.schema(), args))
        except SyftError as error:
            error.add_note(f"TorchScript's {kind}, {_line_of(node)}")
            raise
        except (LookupError, TypeError) as error:
            raise CannotRecord(f"TorchScript's {kind}", _line_of(node), _IN_PYTHON) from error

    def _run_if(self, node: Any) -> Sequence[Any]:
        (condition,) = [self._values[name.unique()] for name in node.inputs()]
        chosen, other = node.blocks()
        return self.run_block(chosen if condition else other, ())

    def _run_loop(self, node: Any) -> Sequence[Any]:
        most, goes_on, *carried = [self._values[name.unique()] for name in node.inputs()]
        (body,) = node.blocks()
        turn = 0
        while goes_on and turn < most:
            goes_on, *carried = self.run_block(body, (turn, *carried))
            turn += 1
        return carried


# -------------------------------------------------------------------- what is no operation of torch


def _constant(node: Any, args: Sequence[Any]) -> Sequence[Any]:
    return [node.output().toIValue()]


def _list(node: Any, args: Sequence[Any]) -> Sequence[Any]:
    return [list(args)]


def _tuple(node: Any, args: Sequence[Any]) -> Sequence[Any]:
    return [tuple(args)]


def _dict(node: Any, args: Sequence[Any]) -> Sequence[Any]:
    return [dict(zip(args[::2], args[1::2], strict=True))]


def _unpacked(node: Any, args: Sequence[Any]) -> Sequence[Any]:
    return list(args[0])


def _item(node: Any, args: Sequence[Any]) -> Sequence[Any]:
    return [args[0][args[1]]]


def _same(node: Any, args: Sequence[Any]) -> Sequence[Any]:
    return [args[0]]


def _nothing(node: Any, args: Sequence[Any]) -> Sequence[Any]:
    return [None]


def _property(node: Any, args: Sequence[Any]) -> Sequence[Any]:
    return [getattr(args[0], node.kind().removeprefix("prim::"))]


def _extreme(node: Any, args: Sequence[Any]) -> Sequence[Any]:
    return [(min if node.kind() == "prim::min" else max)(*args)]


_STRUCTURE: Final[dict[str, Callable[[Any, Sequence[Any]], Sequence[Any]]]] = {
    "prim::Constant": _constant,
    "prim::ListConstruct": _list,
    "prim::TupleConstruct": _tuple,
    "prim::DictConstruct": _dict,
    "prim::ListUnpack": _unpacked,
    "prim::TupleUnpack": _unpacked,
    "prim::TupleIndex": _item,
    "prim::NumToTensor": _same,  # a number stays one: only arithmetic is done with it
    "prim::unchecked_cast": _same,
    "prim::Uninitialized": _nothing,
    "prim::dtype": _property,
    "prim::device": _property,
    "prim::is_cuda": _property,
    "prim::min": _extreme,
    "prim::max": _extreme,
}


def _results(node: Any, result: Any) -> Sequence[Any]:
    """The results of an operation, one for each name."""
    count = node.outputsSize()
    if count == 1:
        return [result]
    return tuple(result) if count else ()


def _line_of(node: Any) -> str:
    """Where the code of a node stands: TorchScript's own words, as far as they are one line."""
    lines = [line.strip() for line in node.sourceRange().splitlines() if line.strip()]
    return lines[0] if lines else "in TorchScript"


# -------------------------------------------------------------------------------- checks of scripts


def _checks(block: Any) -> Iterator[Any]:
    """The branches that only raise or warn: torch's operations check what they are given."""
    for node in block.nodes():
        if node.kind() == "prim::If" and not node.outputsSize() and _only_says(node):
            yield node
        else:
            for inner in node.blocks():
                yield from _checks(inner)


def _only_says(node: Any) -> bool:
    kinds = [inner.kind() for block in node.blocks() for inner in _nodes_in(block)]
    return any(kind in _SAID for kind in kinds) and not any(map(_changes, kinds))


def _nodes_in(block: Any) -> Iterator[Any]:
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from _nodes_in(inner)


def _changes(kind: str) -> bool:
    """Whether what a node does may be seen elsewhere."""
    return kind == "prim::SetAttr" or kind == "aten::append" or _is_in_place(kind)


def _is_in_place(kind: str) -> bool:
    return kind.startswith("aten::") and kind.endswith("_") and not kind.endswith("__")
