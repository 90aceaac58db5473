"""What programs that have failed were to make, and what was sent with them and can be sent again.

The parties undo such a program, and their results are dropped with the tensors over them.  Shares
that the client made are still here as long as their program may fail.
"""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakValueDictionary

from syft.exceptions import SharedOperationFailed
from syft.tensors.shared.cells import Cell
from syft.tensors.shared.instruction_list import FreshShares
from syft.tensors.shared.party_lines import PartyLines
from syft.tensors.shared.sent_programs import SentProgram, first_cause


class LostResults:
    """The results that a session has lost, by their ids, and why.

    >>> lost = LostResults(); lost.check(5, ("alice", "bob")); 5 in lost
    False
    """

    def __init__(self) -> None:
        self._causes: dict[int, str] = {}
        self._fresh: WeakValueDictionary[int, Cell] = WeakValueDictionary()
        """The tensors whose shares were sent from here."""

    def __contains__(self, id: int | None) -> bool:
        return id in self._causes

    def check(self, id: int | None, parties: tuple[str, ...]) -> None:
        """Raise :class:`~syft.exceptions.SharedOperationFailed` for a result that was lost."""
        if id is not None and id in self._causes:
            raise SharedOperationFailed(parties, self._causes[id])

    def note_fresh(self, id: int, value: Cell) -> None:
        """Note the id of a tensor whose shares came with a program."""
        self._fresh[id] = value

    def forget(self, id: int) -> None:
        """Note that the last tensor over a result is gone."""
        if self._causes:
            self._causes.pop(id, None)

    def add(self, programs: Sequence[SentProgram], cause: str) -> list[tuple[Cell, FreshShares]]:
        """Note that all results of some programs are lost; returns what can be sent again."""
        again = []
        for sent in programs:
            self._causes.update(dict.fromkeys(sent.ids, cause))
            for id, shares in sent.fresh:
                cell = self._fresh.pop(id, None)
                if cell is not None and isinstance(shares, FreshShares):
                    again.append((cell, shares))
        return again


def undo(lines: PartyLines, error: Exception) -> tuple[Exception, Sequence[SentProgram]]:
    """Have the parties undo what has failed with an error, once nothing is under way any more.

    Returns what has failed first, as far as that is known then, and what was undone.
    """
    lines.settle()
    later = lines.failure()
    cause = error if later is None else first_cause([error, later])
    return cause, lines.roll_back()
