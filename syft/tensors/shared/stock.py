"""What was dealt ahead for a session: which program may use it, and how much there is.

A program uses it that needs just what was dealt, instruction by instruction; each once, in the
order in which it was dealt.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from syft.crypto.share_dealing import Deal, deals_of
from syft.crypto.share_program import ShareCode, ShareProgram

Deals = tuple[Deal, ...]


@dataclass(frozen=True, slots=True)
class Material:
    """What waits at the parties for one program: its number, its id there, and its bytes at the
    last party.  ``ends`` says that the program is the last one of a run."""

    counter: int
    id: int
    nbytes: int
    ends: bool = True


class Stock:
    """What was dealt ahead and is not used yet, by what it was dealt for.

    >>> stock = Stock()
    >>> stock.add((), Material(3, 77, 0)); stock.runs
    1
    >>> stock.take(ShareProgram(0, (), ())).counter, stock.runs
    (3, 0)
    """

    def __init__(self) -> None:
        self._waiting: dict[Deals, deque[Material]] = {}

    def add(self, deals: Deals, material: Material) -> None:
        """Note what waits for a program with these deals."""
        self._waiting.setdefault(deals, deque()).append(material)

    def take(self, program: ShareProgram) -> Material | None:
        """What waits for a program, which uses it; None if nothing does."""
        if not self._waiting:
            return None
        deals = deals_of(program)
        waiting = self._waiting.get(deals)
        if waiting is None:
            return None
        material = waiting.popleft()
        if not waiting:
            del self._waiting[deals]
        return material

    def empty(self) -> list[int]:
        """Forget everything; returns the ids at the parties.

        >>> Stock().empty()
        []
        """
        ids = [one.id for one in self._all()]
        self._waiting.clear()
        return ids

    @property
    def runs(self) -> int:
        """How many runs are prepared."""
        return sum(one.ends for one in self._all())

    @property
    def nbytes(self) -> int:
        """The bytes that wait at the last party."""
        return sum(one.nbytes for one in self._all())

    def _all(self) -> Iterator[Material]:
        for waiting in self._waiting.values():
            yield from waiting


def with_counters(deals: Deals, counters: Mapping[int, int]) -> Deals:
    """Deals with the masks of other programs named by other counters, where there are some.

    >>> product = (2, int(ShareCode.PRODUCT), (0, (), (-5, 1), (2,), (0, 0), (2,), (2,)))
    >>> with_counters((product,), {-5: 9})[0][2][2]
    (9, 1)
    """

    def renamed(deal: Deal) -> Deal:
        place, code, public = deal
        if code != ShareCode.PRODUCT:
            return deal
        named = list(public)
        for at in (2, 4):
            counter, mask = named[at]
            named[at] = counters.get(counter, counter), mask
        return place, code, tuple(named)

    return tuple(map(renamed, deals))


def masks_in(deals: Deals) -> set[tuple[int, int]]:
    """The masks of other programs that products name: counter and place.

    >>> masks_in(((2, int(ShareCode.PRODUCT), (0, (), (5, 1), (2,), (0, 0), (2,), (2,))),))
    {(5, 1)}
    """
    return {
        public[at]
        for _, code, public in deals
        if code == ShareCode.PRODUCT
        for at in (2, 4)
        if public[at][0]
    }
