"""How an op of the op table is written as a node of a torch.fx graph.

A torch.fx node calls either a method by its name or a function.  Most ops are one of the two.
Accessors of attributes, Python's operators and arithmetic on numbers are written as a person would
write them, because tools for torch.fx graphs know these forms and print them well.
"""

from __future__ import annotations

import builtins
import functools
import math
import operator
import warnings
from typing import Any, Final, NamedTuple

import torch

from syft.ops import numbers
from syft.ops.table import FUNCTIONS, NAMES, PROGRAM_FUNCTIONS, Function, function_of


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
