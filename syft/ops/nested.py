"""Finding and replacing values inside the arguments and results of a torch call.

Arguments nest: ``torch.cat([a, b])``, ``x[mask, 1:]``, a ``dict`` of tensors in a plan.  The
general tool, ``torch.utils._pytree``, costs 15–20 µs a call.  Nearly every call is flat, so these
walks look at flat arguments first and recurse by hand.  They enter ``list``, ``tuple`` (named
tuples and ``torch.return_types`` keep their class), ``dict``, ``slice`` and ``PackedSequence``,
which is a named tuple.

The sets of types that need no walk, because a value of them is an operand as it is, are here too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import torch

from syft.serde.torch_types import NUMBERED_KINDS

Function = Callable[..., Any]
Arguments = tuple[Any, ...]
Keywords = dict[str, Any]

NUMBER_TYPES: Final = frozenset((int, float, bool))
"""The types of Python numbers that a program computes with."""
NUMBER_OR_NONE_TYPES: Final = NUMBER_TYPES | {type(None)}
"""Numbers and None."""
SCALAR_TYPES: Final = NUMBER_OR_NONE_TYPES | {str}
"""Numbers, None and text: the commonest operands beside tensors."""
SCALAR_TYPES_BUT_INT: Final = SCALAR_TYPES - {int}
"""The scalars that every message can hold; an int must be compared with 64 bits first."""
CONSTANT_TYPES: Final[frozenset[type]] = SCALAR_TYPES | frozenset(
    (complex, bytes, type(Ellipsis), type, range, torch.Generator, *NUMBERED_KINDS)
    + (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.qscheme)
)
"""Scalars and all other types of operands that are neither containers nor tensors."""
EXACT_TENSOR_TYPES: Final = frozenset((torch.Tensor, torch.nn.Parameter))
"""The classes of ordinary tensors; an instance of a subclass may be a wrapper."""


def _slice_parts(value: slice) -> tuple[Any, Any, Any]:
    return value.start, value.stop, value.step


_ITEMS: Final[dict[type, Callable[[Any], Iterable[Any]]]] = {
    tuple: iter,
    list: iter,
    dict: dict.values,
    slice: _slice_parts,
}
"""How to list what is inside a container, by the class of the container."""


def _find_container_class(kind: type) -> type | None:
    """Search the base classes of a class.

    >>> container_class(torch.Size), container_class(slice), container_class(str)
    (<class 'tuple'>, <class 'slice'>, None)
    """
    return next((base for base in kind.__mro__ if base in _ITEMS), None)


container_class: Callable[[type], type | None]
"""The container class that a class is or inherits from; None for a class of leaves."""
container_class = functools.lru_cache(maxsize=1024)(_find_container_class)


def rebuild_tuple(like: tuple[Any, ...], items: list[Any]) -> tuple[Any, ...]:
    """Make a tuple of the class of ``like``: plain, named, or one of ``torch.return_types``.

    >>> rebuild_tuple((1, 2), [3, 4])
    (3, 4)
    >>> rebuild_tuple(torch.ones(1).max(0), [1, 2])
    torch.return_types.max(
    values=1,
    indices=2)
    """
    kind = type(like)
    if kind is tuple:
        return tuple(items)
    if hasattr(kind, "_make"):  # a named tuple: its constructor takes the fields one by one
        made: tuple[Any, ...] = kind._make(items)
        return made
    return kind(items)


def replace(value: Any, change: Callable[[Any], Any]) -> Any:
    """Rebuild ``value`` with ``change`` applied to everything in it that is not a container.

    >>> replace([1, (2, {"a": 3})], lambda v: v * 10)
    [10, (20, {'a': 30})]
    """
    kind = container_class(type(value))
    return change(value) if kind is None else _REBUILD[kind](value, change)


def _replace_in_tuple(value: tuple[Any, ...], change: Callable[[Any], Any]) -> tuple[Any, ...]:
    items = [
        (
            change(item)
            if (kind := container_class(type(item))) is None
            else _REBUILD[kind](item, change)
        )
        for item in value
    ]
    return tuple(items) if type(value) is tuple else rebuild_tuple(value, items)


def _replace_in_list(value: Iterable[Any], change: Callable[[Any], Any]) -> list[Any]:
    return [
        (
            change(item)
            if (kind := container_class(type(item))) is None
            else _REBUILD[kind](item, change)
        )
        for item in value
    ]


_REBUILD: Final[dict[type, Callable[[Any, Callable[[Any], Any]], Any]]] = {
    tuple: _replace_in_tuple,
    list: _replace_in_list,
    dict: lambda value, change: {key: replace(item, change) for key, item in value.items()},
    slice: lambda value, change: slice(*_replace_in_list(_slice_parts(value), change)),
}
"""How to rebuild a container with other leaves, by the class of the container."""


def leaves(value: Any) -> Iterator[Any]:
    """Yield everything inside ``value`` that is not a container, from left to right.

    >>> list(leaves([1, (2, {"a": 3})]))
    [1, 2, 3]
    """
    kind = container_class(type(value))
    if kind is None:
        yield value
        return
    for item in _ITEMS[kind](value):
        if container_class(type(item)) is None:
            yield item
        else:
            yield from leaves(item)


def parts(value: Any) -> Iterable[tuple[Any, Any]] | None:
    """The items of a container, each with its index or key; None for anything else.

    It is for walks that need more than :func:`leaves`, such as the path to an item.

    >>> list(parts([7, 8])), list(parts({"a": 3})), list(parts(slice(5))), parts("text")
    ([(0, 7), (1, 8)], [('a', 3)], [(0, None), (1, 5), (2, None)], None)
    """
    kind = container_class(type(value))
    if kind is None:
        return None
    items: Iterable[tuple[Any, Any]]
    items = value.items() if kind is dict else enumerate(_ITEMS[kind](value))
    return items


def is_container(value: Any) -> bool:
    """Whether ``value`` is a ``list``, a ``tuple`` or a ``dict``; the walks enter slices too.

    >>> is_container([1]), is_container("text")
    (True, False)
    """
    return isinstance(value, (list, tuple, dict))


def every_tensor(*values: Any) -> list[torch.Tensor]:
    """The tensors inside of ``values`` from left to right, as often as they stand there.

    >>> x = torch.ones(2)
    >>> len(every_tensor((x, [x, torch.ones(1)]), {"out": None}))
    3
    """
    found: list[torch.Tensor] = []
    _collect(values, found)
    return found


def _collect(values: Iterable[Any], found: list[torch.Tensor]) -> None:
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif (kind := container_class(type(value))) is not None:
            _collect(_ITEMS[kind](value), found)


def tensors_in(args: Any, kwargs: Any) -> list[torch.Tensor]:
    """The tensors among the arguments, each once, in their order.

    >>> x = torch.ones(2)
    >>> len(tensors_in((x, [x, torch.ones(1)]), {"out": None}))
    2
    """
    return list({id(tensor): tensor for tensor in every_tensor(args, kwargs)}.values())
