"""Values in and out of the nested operands and results of an action, slot by slot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from syft.exceptions import ProgramError
from syft.program.program import Slot
from syft.ops.nested import replace


def items_of(value: Any, count: int) -> Sequence[Any]:
    """The values an operation returned, which must be as many as were recorded.

    >>> items_of((1, 2), 3)
    Traceback (most recent call last):
    ...
    syft.exceptions.ProgramError: it gave 2 results where 3 were recorded
    """
    if not isinstance(value, (tuple, list)):
        raise ProgramError(f"it gave one result where {count} were recorded")
    if len(value) != count:
        raise ProgramError(f"it gave {len(value)} results where {count} were recorded")
    return value


def matched(pattern: Any, value: Any) -> Iterator[tuple[int, Any]]:
    """Yield the slots of a pattern of results with the values that belong there.

    >>> list(matched((Slot(4), None), ("a", "b")))
    [(4, 'a')]
    """
    if type(pattern) is Slot:
        yield pattern.index, value
    elif pattern is not None:
        for part, item in zip(pattern, items_of(value, len(pattern)), strict=True):
            yield from matched(part, item)


def fill(pattern: Any, values: Mapping[int, Any]) -> Any:
    """Rebuild a nested operand with the values of its slots.

    >>> fill([Slot(0), {"a": Slot(1)}], {0: "x", 1: "y"})
    ['x', {'a': 'y'}]
    """
    return replace(pattern, lambda leaf: values[leaf.index] if type(leaf) is Slot else leaf)
