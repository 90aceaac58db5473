"""Which Python function does what an operation of TorchScript does.

A recording sees functions of torch that Python calls.  TorchScript calls operations of aten, whose
names and arguments are nearly those of these functions; where they are not, it says so here.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from syft.torch_private import nn_functions, parse_schema
from syft.workers.hardening.recurrent import layer

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


def _item(container: Any, key: Any) -> Any:
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
    "__getitem__": _item,
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
