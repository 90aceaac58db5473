"""Operands as Python source: the expressions that evaluate to them.

Text that arrived with a program is written only as the ``repr`` of a string, so its sender cannot
put code into the source.
"""

from __future__ import annotations

import enum
import keyword
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from syft.codes import TORCH_ENUMS, TORCH_OPTIONS
from syft.program.program import Slot
from syft.serde.torch_types import NUMBERED_KINDS

Name = Callable[[Slot], str]


def literal(value: Any, name: Name) -> str:
    """The source of an operand; ``name`` gives the variable of a slot.

    >>> literal([Slot(0), {"dim": -1}, slice(2, None)], lambda slot: f"_{slot.index}")
    "[_0, {'dim': -1}, slice(2, None, None)]"
    """
    write = _WRITE.get(type(value))
    if write is not None:
        return write(value, name)
    for kind, write_any in _WRITE_LIKE:
        if isinstance(value, kind):
            return write_any(value, name)
    return repr(value)


def index_literal(value: Any, name: Name) -> str:
    """The source of an index, as it is written between the brackets of ``x[...]``.

    >>> index_literal((slice(None), slice(1, None, 2), None), str)
    ':, 1::2, None'
    """
    if type(value) is slice:
        return _index_slice(value, name)
    if type(value) is tuple and value:
        items = [
            _index_slice(item, name) if type(item) is slice else literal(item, name)
            for item in value
        ]
        return ", ".join(items) + ("," if len(items) == 1 else "")
    return literal(value, name)


def term(value: Any, name: Name) -> str:
    """The source of an operand next to an operator, in parentheses where they are needed.

    >>> term(-1, str), term(2.5, str)
    ('(-1)', '2.5')
    """
    text = literal(value, name)
    return f"({text})" if text[0] == "-" or isinstance(value, complex) else text


def keyword_literals(kwargs: dict[str, Any], name: Name) -> list[str]:
    """The source of keyword arguments, including those whose names are reserved words of Python.

    >>> keyword_literals({"dim": 0, "from": 1}, str)
    ['dim=0', "**{'from': 1}"]
    """
    words = {key: value for key, value in kwargs.items() if _is_word(key)}
    texts = [f"{key}={literal(value, name)}" for key, value in words.items()]
    others = {key: value for key, value in kwargs.items() if key not in words}
    if others:
        texts.append(f"**{literal(others, name)}")
    return texts


def _is_word(text: str) -> bool:
    return text.isascii() and text.isidentifier() and not keyword.iskeyword(text)


def _index_slice(value: slice, name: Name) -> str:
    start, stop, step = (
        "" if part is None else literal(part, name)
        for part in (value.start, value.stop, value.step)
    )
    return f"{start}:{stop}" + (f":{step}" if step else "")


def _float(value: float, name: Name) -> str:
    finite = value == value and abs(value) != float("inf")
    return repr(float(value)) if finite else f"float({str(float(value))!r})"


def _complex(value: complex, name: Name) -> str:
    return f"complex({_float(value.real, name)}, {_float(value.imag, name)})"


def _tuple(value: tuple[Any, ...], name: Name) -> str:
    items = ", ".join(literal(item, name) for item in value)
    return f"({items},)" if len(value) == 1 else f"({items})"


def _list(value: list[Any], name: Name) -> str:
    return f"[{', '.join(literal(item, name) for item in value)}]"


def _dict(value: dict[Any, Any], name: Name) -> str:
    items = (f"{literal(key, name)}: {literal(item, name)}" for key, item in value.items())
    return f"{{{', '.join(items)}}}"


def _slice(value: slice, name: Name) -> str:
    parts = (value.start, value.stop, value.step)
    return f"slice({', '.join(literal(part, name) for part in parts)})"


def _torch_writer(full: str) -> Callable[[Any, Name], str]:
    """A function that writes values of the class of torch that has this name."""
    module = full.rpartition(".")[0]
    if full in TORCH_OPTIONS:
        return lambda value, name: f"{module}.{value!r}"
    return lambda value, name: f"{full}.{value.name}"


_WRITE: dict[type, Callable[[Any, Name], str]] = {
    Slot: lambda value, name: name(value),
    float: _float,
    complex: _complex,
    list: _list,
    dict: _dict,
    slice: _slice,
    type(Ellipsis): lambda value, name: "...",
    type: lambda value, name: str(value.__name__),
    torch.Size: lambda value, name: repr(value),
    torch.device: lambda value, name: f"torch.device({str(value)!r})",
    torch.Generator: lambda value, name: f"torch.Generator({str(value.device)!r})",
}
_WRITE.update(
    (kind, _torch_writer(full))
    for full in (*TORCH_ENUMS, *TORCH_OPTIONS)
    for kind in NUMBERED_KINDS
    if kind.__name__.lstrip("_") == full.rpartition(".")[2]
)
_WRITE_LIKE: tuple[tuple[type, Callable[[Any, Name], str]], ...] = (
    (tuple, _tuple),
    (np.generic, lambda value, name: literal(value.item(), name)),
    (enum.IntEnum, lambda value, name: repr(int(value))),
    (float, _float),
)
