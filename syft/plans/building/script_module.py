"""A TorchScript module as an ordinary one, with parameters of the same names that can be trained.

What a plan is recorded from has to run in Python.  The code of the script, which stays here, is
walked through; nothing of it travels but the operations that a recording saw.

Running a TorchScript graph with Python's functions of torch, so that a recording sees each.

A ``ScriptModule`` and a scripted function run in C++, where no recording looks.  Their graph is
data; what a plan is made of is this walk through it, in the user's own process.  It is slow and
happens a few times, while the plan is built.

Which Python function does what an operation of TorchScript does.

A recording sees functions of torch that Python calls.  TorchScript calls operations of aten, whose
names and arguments are nearly those of these functions; where they are not, it says so here.
"""

from __future__ import annotations

import functools
import inspect
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from itertools import chain as joined
from typing import Any, Final

import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence

from syft.exceptions import CannotRecord, SyftError
from syft.ops.nested import replace
from syft.torch_private import clean_graph, nn_functions, parse_schema, simplified_graph
from syft.workers.hardening.recurrent import layer

ScriptFunction: Any = torch.jit.ScriptFunction

_NO_FORWARD: Final = "it has none; script a module that calls it"
_DENSE: Final = "pad it: torch.nn.utils.rnn.pad_packed_sequence"


class _Script:
    """A TorchScript module and its graph. Copies of a module share it: nothing in it changes."""

    def __init__(self, module: torch.jit.ScriptModule) -> None:
        self.module = module
        self.parts = dict(module.named_modules())
        forward = _dense_forward(module)
        self.graph = ScriptGraph(forward.inlined_graph)
        self.signature = _signature_of(forward.schema)
        named = module.named_parameters, module.named_buffers
        self.names = {id(tensor): name for each in named for name, tensor in each()}
        """The name of each parameter and buffer of the script, by the number of the object."""

    def __deepcopy__(self, memo: dict[int, Any]) -> _Script:
        return self


def _dense_forward(module: Any) -> Any:
    """The forward of a script; of several, as ``nn.LSTM`` and its like have them, that which takes
    tensors and no packed sequences."""
    for name in ("forward", "forward__0", "forward__1"):
        forward = getattr(module, name, None)
        if forward is not None and "PackedSequence" not in str(forward.schema):
            return forward
    raise CannotRecord(f"a TorchScript {module.original_name}", "its forward", _NO_FORWARD)


def _signature_of(schema: Any) -> inspect.Signature:
    """The parameters of a function of TorchScript as those of one of Python."""
    kind, empty = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.empty
    return inspect.Signature(
        [
            inspect.Parameter(
                each.name, kind, default=each.default_value if each.has_default_value() else empty
            )
            for each in schema.arguments
        ]
    )


class _Part(nn.Module):
    """A module of a script, with the same parameters and buffers."""

    def __init__(self, script: _Script, path: str, parameters: dict[int, nn.Parameter]) -> None:
        super().__init__()
        self._script, self._path = script, path
        original: Any = script.parts[path]
        self.training = original.training
        for name, parameter in original.named_parameters(recurse=False, remove_duplicate=False):
            self.register_parameter(name, parameters[id(parameter)])
        for name, buffer in original.named_buffers(recurse=False, remove_duplicate=False):
            self.register_buffer(name, buffer)
        for name, _ in original.named_children():
            inner = f"{path}.{name}" if path else name
            self.add_module(name, _Part(script, inner, parameters))


class UnpackedScript(_Part):
    """A module of Python that does what a TorchScript module does, over the same memory.

    What is trained in one is trained in the other, and the names in its ``state_dict`` are those of
    the script.  A copy of it has parameters of its own.  A script that was traced stays in the
    mode, training or not, in which that was done; one that was scripted follows ``train()``.  A
    script of ``nn.LSTM`` and its like takes tensors, and no packed sequences.

    Raises :class:`~syft.exceptions.CannotRecord`, here or when it is called, for what a plan cannot
    keep.

    >>> script = torch.jit.trace(nn.Linear(2, 1), torch.ones(1, 2))
    >>> unpacked, x = UnpackedScript(script), torch.ones(3, 2)
    >>> torch.equal(unpacked(x), script(x)), list(unpacked.state_dict())
    (True, ['weight', 'bias'])
    """

    def __init__(self, module: torch.jit.ScriptModule) -> None:
        parameters = {id(each): _as_parameter(each) for each in module.parameters()}
        super().__init__(_Script(module), "", parameters)

    @property
    def script(self) -> torch.jit.ScriptModule:
        """The module that it was made of."""
        return self._script.module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the code of the script in Python."""
        if any(isinstance(each, PackedSequence) for each in (*args, *kwargs.values())):
            raise CannotRecord("a packed sequence", "the arguments of a TorchScript module", _DENSE)
        bound = self._script.signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        return self._script.graph.run(bound.args, functools.partial(_attribute, self))


def _as_parameter(tensor: torch.Tensor) -> nn.Parameter:
    """A parameter of a script; one that was loaded from a file is a tensor of another class."""
    if isinstance(tensor, nn.Parameter):
        return tensor
    return nn.Parameter(tensor.detach(), requires_grad=tensor.requires_grad)


def _attribute(unpacked: UnpackedScript, part: Any, name: str) -> Any:
    """What a module in a graph has: a parameter, buffer or part of the unpacked module, or what the
    script keeps besides, with the module's tensors in the place of the script's own."""
    if name == "training" or name in part._parameters or name in part._buffers:
        return getattr(part, name)
    if name in part._modules:
        return part._modules[name]
    script = unpacked._script
    tensors = dict(joined(unpacked.named_parameters(), unpacked.named_buffers()))

    def own(leaf: Any) -> Any:
        known = script.names.get(id(leaf))
        return leaf if known is None else tensors[known]

    return replace(getattr(script.parts[part._path], name), own)


def translated(script: Any) -> Any:
    """A script as Python: what :func:`~syft.plans.function_plan.as_python` makes of TorchScript.

    >>> translated(torch.jit.trace(lambda x: x + 1, torch.ones(2)))(torch.ones(2))
    tensor([2., 2.])
    """
    is_module = isinstance(script, torch.jit.ScriptModule)
    return UnpackedScript(script) if is_module else _function_of(script)


def _function_of(script: Any) -> Any:
    """A function of Python with the parameters of a scripted one."""
    graph = ScriptGraph(script.inlined_graph)
    signature = _signature_of(script.schema)

    def function(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return graph.run(bound.args)

    function.__name__ = script.name
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function


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


DTYPES: Final = (
    (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
    + (torch.float16, torch.float32, torch.float64)
    + (torch.complex32, torch.complex64, torch.complex128, torch.bool)
    + (torch.qint8, torch.quint8, torch.qint32, torch.bfloat16)
)
"""TorchScript writes dtypes as numbers: places in this list."""
_FORMATS: Final = (torch.contiguous_format, torch.preserve_format) + (
    torch.channels_last,
    torch.channels_last_3d,
)
_NUMBERED: Final = {"dtype": DTYPES, "memory_format": _FORMATS, "layout": (torch.strided,)}
"""Arguments that are numbers in TorchScript, by their names, and what each number means."""

_HOMES: Final[tuple[Any, ...]] = (torch, torch.Tensor, nn_functions)
"""Where a function with the name and the arguments of an operation is looked for."""


def _contained(container: Any, key: Any) -> Any:
    return container[key]


def _number(value: Any) -> Any:
    """The number of a tensor, or a number as it is: it may be followed through a recording."""
    return value.item() if isinstance(value, torch.Tensor) else value


def _part(values: Any, start: Any, end: Any, step: int) -> Any:
    return values[start:end:step]


def _appended(values: list[Any], value: Any) -> list[Any]:
    values.append(value)
    return values


def _sum(left: Any, right: Any, factor: Any = 1) -> Any:
    return left + (right if factor == 1 else right * factor)


def _difference(left: Any, right: Any, factor: Any = 1) -> Any:
    return left - (right if factor == 1 else right * factor)


def _quotient(left: Any, right: Any, rounding: str | None = None) -> Any:
    return left / right if rounding is None else left // right  # sizes are not negative


_ON_VALUES: Final[dict[str, Callable[..., Any]]] = {
    "add": _sum,
    "sub": _difference,
    "mul": operator.mul,
    "div": _quotient,
    "floordiv": operator.floordiv,
    "floor_divide": operator.floordiv,
    "remainder": operator.mod,
    "neg": operator.neg,
    "pow": operator.pow,
    "sqrt": math.sqrt,
    "floor": math.floor,
    "ceil": math.ceil,
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "__and__": operator.and_,
    "__or__": operator.or_,
    "__contains__": operator.contains,
    "format": str.format,
    "slice": _part,
}
"""Operations on numbers, texts and lists."""
_ON_ANYTHING: Final[dict[str, Callable[..., Any]]] = {
    "__getitem__": _contained,
    "__is__": operator.is_,
    "__isnot__": operator.is_not,
    "__not__": operator.not_,
    "len": len,
    "append": _appended,
    "list": list,
    "Int": _number,
    "Float": _number,
    "Bool": _number,
    "IntImplicit": _number,
    "FloatImplicit": _number,
    "ScalarImplicit": _number,
}
"""Operations on containers, of tensors too, and those that make a number of a tensor."""


def _slice(tensor: torch.Tensor, dim: int, start: Any, end: Any, step: int) -> torch.Tensor:
    if end == 2**63 - 1:
        end = None
    return tensor[(slice(None),) * (dim % tensor.dim()) + (slice(start, end, step),)]


def _index(tensor: torch.Tensor, indices: Sequence[Any]) -> torch.Tensor:
    return tensor[tuple(slice(None) if index is None else index for index in indices)]


def _broadcast(tensors: list[torch.Tensor]) -> Any:
    return torch.broadcast_tensors(*tensors)  # type: ignore[no-untyped-call]


def _convolution(*args: Any) -> torch.Tensor:
    return torch.convolution(*args[:9])  # the others choose a library


def _convolution_mode(
    tensor: torch.Tensor, weight: torch.Tensor, bias: Any, *args: Any
) -> torch.Tensor:
    convolve: Any = (torch.conv1d, torch.conv2d, torch.conv3d)[weight.dim() - 3]
    return convolve(tensor, weight, bias, *args)  # type: ignore[no-any-return]


_BY_HAND: Final[dict[str, Callable[..., Any]]] = {
    # The checks of nn.LSTM and its like are not walked through, and these functions make none: with
    # other sizes, which a recording tries, they write past the memory of their operands.
    "lstm": layer(torch.lstm, 4),
    "gru": layer(torch.gru, 3),
    "rnn_tanh": layer(torch.rnn_tanh, 1),
    "rnn_relu": layer(torch.rnn_relu, 1),
    "slice": _slice,
    "index": _index,
    "broadcast_tensors": _broadcast,
    "_convolution": _convolution,
    "_convolution_mode": _convolution_mode,
    "warn": lambda *message: None,
}


def called(name: str, schema: str, args: Sequence[Any]) -> Any:
    """What the operation of a name makes of the arguments, by functions that a recording sees.

    Raises ``LookupError`` for an operation that Python has no such function of.

    >>> schema = "aten::sum(Tensor self, *, ScalarType? dtype=None) -> Tensor"
    >>> called("sum", schema, [torch.ones(3), 7])
    tensor(3., dtype=torch.float64)
    """
    on_values = _ON_ANYTHING.get(name)
    if on_values is None and not any(map(_holds_tensor, args)):
        on_values = _ON_VALUES.get(name)
    if on_values is None:
        on_values = _BY_HAND.get(name)
    if on_values is not None:
        return on_values(*args)
    positional, keywords = _arguments(schema, args)
    return _function(name)(*positional, **keywords)


def _holds_tensor(value: Any) -> bool:
    values = value if isinstance(value, list | tuple) else (value,)
    return any(isinstance(each, torch.Tensor) for each in values)


def _function(name: str) -> Callable[..., Any]:
    for home in _HOMES:
        function = getattr(home, name, None)
        if callable(function):
            return function  # type: ignore[no-any-return]
    raise LookupError(name)


def _arguments(schema: str, args: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
    """The arguments as Python functions take them, without those that have their defaults."""
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    needed = 0
    for parameter, arg in zip(parse_schema(schema).arguments, args, strict=True):
        meaning = _NUMBERED.get(parameter.name)
        value = meaning[arg] if meaning is not None and type(arg) is int else arg
        usual = parameter.has_default_value() and _is_default(parameter, arg)
        if parameter.kwarg_only:
            if not usual:
                keywords[parameter.name] = value
            continue
        positional.append(value)
        if not usual:
            needed = len(positional)
    return positional[:needed], keywords


def _is_default(parameter: Any, arg: Any) -> bool:
    if parameter.name == "reduction":  # losses in C take another one if they are told nothing
        return False
    default = parameter.default_value
    return arg is default or (type(arg) is type(default) and arg == default)
