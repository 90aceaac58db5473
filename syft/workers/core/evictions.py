"""Who goes from a table that is full: the oldest entry of whoever has the most in it.

So a flood displaces itself, and nobody else.  To look who that is takes a look at all entries, and
a table that is full is full for each entry to come: whoever floods a worker would have it look
without end.  So it looks once for many.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from typing import Final, Generic, TypeVar

_AT_ONCE: Final = 64
"""How many entries that are to go are looked for at once."""

_Key = TypeVar("_Key", bound=Hashable)


class Evictions(Generic[_Key]):
    """The entries of one table that are to go next.

    >>> table = {1: "eve", 2: "ann", 3: "eve", 4: "eve", 5: "ann"}
    >>> evictions = Evictions()
    >>> [table.pop(evictions.next(lambda: table, table.__contains__)) for _ in range(4)]
    ['eve', 'ann', 'eve', 'eve']
    """

    def __init__(self) -> None:
        self._next: deque[_Key] = deque()

    def next(
        self, senders: Callable[[], Mapping[_Key, Hashable]], may_go: Callable[[_Key], bool]
    ) -> _Key | None:
        """The key of the entry that goes; None if none may.

        ``senders`` says whose each entry is that may go, the oldest first.  It is asked for now and
        then; ``may_go`` says whether that still holds of one.
        """
        for asked in range(2):
            while self._next:
                key = self._next.popleft()
                if may_go(key):
                    return key
            if not asked:
                self._next.extend(oldest_of_the_busiest(senders(), _AT_ONCE))
        return None


def oldest_of_the_busiest(senders: Mapping[_Key, Hashable], count: int) -> list[_Key]:
    """The keys that go, in this order, if each time the oldest goes of whoever has the most.

    >>> oldest_of_the_busiest({1: "eve", 2: "ann", 3: "eve", 4: "eve", 5: "ann"}, 2)
    [1, 2]
    """
    keys: dict[Hashable, deque[tuple[int, _Key]]] = {}
    for place, (key, sender) in enumerate(senders.items()):
        keys.setdefault(sender, deque()).append((place, key))
    # Of several with as many, it is the one whose oldest entry is the oldest.
    busiest = [(-len(own), own[0][0], own) for own in keys.values()]
    heapq.heapify(busiest)
    found: list[_Key] = []
    while busiest and len(found) < count:
        own = busiest[0][2]
        found.append(own.popleft()[1])
        if own:
            heapq.heapreplace(busiest, (-len(own), own[0][0], own))
        else:
            heapq.heappop(busiest)
    return found
