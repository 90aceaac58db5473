"""Having the provider deal for programs that come later."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from syft.exceptions import UnsupportedOperation
from syft.ids import new_id
from syft.status_line import counted
from syft.tensors.shared.party_lines import PartyLines
from syft.tensors.shared.stock import Deals, Material, Stock, masks_in, with_counters

MOST_UNDER_WAY: Final = 4
"""The programs that are dealt for at a time, so that letters do not pile up at the last party."""

Run = Sequence[tuple[int, Deals, int]]
"""The programs of a run: the counter of each in the rehearsal, what it needs, and its bytes."""


class Dealing:
    """Fills the stock of a session; ``next_counter`` numbers programs.

    >>> Dealing(None, Stock(), int).deal([])
    """

    def __init__(self, lines: PartyLines, stock: Stock, next_counter: Callable[[], int]) -> None:
        self._lines, self._stock, self._next_counter = lines, stock, next_counter
        self._under_way: deque[tuple[Callable[[], None], Deals, Material]] = deque()

    def deal(self, runs: Sequence[Run]) -> None:
        """Have what the programs need dealt, and wait until it is there.

        What was dealt before something fails stays in stock.
        """
        try:
            for run in counted(runs, "dealing ahead", len(runs)):
                self._deal_run(run)
            self._wait(0)
        finally:
            for _, _, material in self._under_way:
                self._lines.discard(material.id)

    def _deal_run(self, run: Run) -> None:
        counters: dict[int, int] = {}
        dealt = [one for one in run if one[1]]
        for place, (counter, deals, nbytes) in enumerate(dealt, 1):
            deals = _checked(with_counters(deals, counters))
            number, id = self._next_counter(), new_id()
            counters[counter] = number
            wait = self._lines.deal_ahead(number, deals, id)
            material = Material(number, id, nbytes, ends=place == len(dealt))
            self._under_way.append((wait, deals, material))
            self._wait(MOST_UNDER_WAY)

    def _wait(self, most: int) -> None:
        """Wait for the oldest of what is being dealt, until it is not more than ``most``."""
        while len(self._under_way) > most:
            wait, deals, material = self._under_way[0]
            wait()
            self._under_way.popleft()
            self._stock.add(deals, material)


def _checked(deals: Deals) -> Deals:
    """Deals that name no mask of a program that will not be."""
    if any(counter < 0 for counter, _ in masks_in(deals)):
        raise UnsupportedOperation(
            "products with what an earlier run has computed and opened",
            "dealing ahead",
            "have each run begin with its arguments and with what stays as it is",
        )
    return deals
