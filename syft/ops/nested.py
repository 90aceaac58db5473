"""Finding and replacing values inside the arguments and results of a torch call.

Arguments nest: ``torch.cat([a, b])``, ``x[mask, 1:]``, a ``dict`` of tensors in a plan.  The
general tool, ``torch.utils._pytree``, costs 15–20 µs a call; nearly every call is flat, so these
walks look at flat arguments first and recurse by hand.  What they enter: ``list``, ``tuple``
(named tuples and ``torch.return_types`` keep their class), ``dict``, ``slice`` and
``PackedSequence``, which is a named tuple.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

Arguments = tuple[Any, ...]
Keywords = dict[str, Any]

_CONTAINERS = (list, tuple, dict)


def rebuild_tuple(like: tuple[Any, ...], items: list[Any]) -> tuple[Any, ...]:
    """Make a tuple of the class of ``like``: plain, named, or one of ``torch.return_types``.

    >>> rebuild_tuple((1, 2), [3, 4])
    (3, 4)
    >>> import torch
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
    if isinstance(value, tuple):
        return rebuild_tuple(value, [replace(item, change) for item in value])
    if isinstance(value, list):
        return [replace(item, change) for item in value]
    if isinstance(value, dict):
        return {key: replace(item, change) for key, item in value.items()}
    if isinstance(value, slice):
        return slice(change(value.start), change(value.stop), change(value.step))
    return change(value)


def leaves(value: Any) -> Iterator[Any]:
    """Yield everything inside ``value`` that is not a container, from left to right.

    >>> list(leaves([1, (2, {"a": 3})]))
    [1, 2, 3]
    """
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from leaves(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from leaves(item)
    elif isinstance(value, slice):
        yield from (value.start, value.stop, value.step)
    else:
        yield value


def is_container(value: Any) -> bool:
    """Whether the walks would look inside ``value``.

    >>> is_container([1]), is_container("text")
    (True, False)
    """
    return isinstance(value, _CONTAINERS)
