"""An iterator that knows how many items it gives: what ``parameters()`` of a plan returns.

Torch's is a generator.  Programs for earlier versions ask for its length, and those for torch call
``next`` on it, so that a list would not do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Counted(Iterator[Item], Generic[Item]):
    """Gives its items once, in order; its length is the number of all of them.

    >>> items = Counted("ab")
    >>> next(items), len(items), list(items)
    ('a', 2, ['b'])
    """

    def __init__(self, items: Iterable[Item]) -> None:
        self._items = list(items)
        self._rest = iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __next__(self) -> Item:
        return next(self._rest)
