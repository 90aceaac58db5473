"""The letters of one execution that its program has not read, each charged to whoever sent it.

A letter is charged when it is put here and no longer when it is taken, and it is never replaced: so
what a worker holds for an execution is what its senders are charged for, whatever they send.  A
letter that says why another one will not come is one like any other, with the bytes of its error.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch

from syft.exceptions import LimitExceeded, MalformedMessage
from syft.ops.nested import leaves
from syft.workers.core.charges import Charges
from syft.workers.core.peer import Peer, Place
from syft.workers.handlers.party_programs import Letter

MAX_PARTY_MESSAGES: Final = 4096
"""The most letters of one party of an execution that a worker keeps until its program waits for
them."""

_LEAST_COST: Final = 256
"""Bytes that a letter counts for besides its tensors."""


@dataclass(frozen=True, slots=True)
class KeptLetter:
    """A letter that has arrived, who sent it, and what it counts for until it is read.

    ``rank`` is the place that the sender says it has.
    """

    sender: Peer
    rank: int
    letter: Letter
    cost: int


def _cost_of(letter: Letter) -> int:
    """The bytes for which a letter counts."""
    return (
        _LEAST_COST
        + (0 if letter.error is None else letter.error.size)
        + sum(
            value.untyped_storage().nbytes()
            for value in leaves(letter.values)
            if isinstance(value, torch.Tensor) and value.layout is torch.strided
        )
    )


class Mailbox:
    """The letters by their senders and their numbers: whoever is no party takes nobody's place."""

    __slots__ = ("_charges", "_kept", "_counts")

    def __init__(self, charges: Charges) -> None:
        self._charges = charges
        self._kept: dict[tuple[Place, int], KeptLetter] = {}
        self._counts: defaultdict[Place, int] = defaultdict(int)

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, name: tuple[Place, int]) -> bool:
        return name in self._kept

    def check(self, peer: Peer, number: int) -> None:
        """Raise :class:`~syft.exceptions.MalformedMessage` for a letter that is there already, and
        :class:`~syft.exceptions.LimitExceeded` for one too many of its sender."""
        if self._counts[peer.place] >= MAX_PARTY_MESSAGES:
            most = MAX_PARTY_MESSAGES
            raise LimitExceeded("$.number", "MAX_PARTY_MESSAGES", most, most + 1)
        if (peer.place, number) in self._kept:
            raise MalformedMessage("$", "one letter of each number from each party", "another one")

    def put(self, peer: Peer, number: int, rank: int, letter: Letter) -> None:
        """Keep a letter that is not there yet.

        Raises :class:`~syft.exceptions.LimitExceeded` if its sender has too much here.
        """
        name = peer.place, number
        if name in self._kept:
            return
        cost = _cost_of(letter)
        self._charges.enter(peer.account, letters=cost)
        self._kept[name] = KeptLetter(peer, rank, letter, cost)
        self._counts[peer.place] += 1

    def take(self, name: tuple[Place, int]) -> KeptLetter:
        """Take a letter out."""
        kept = self._kept.pop(name)
        self._counts[name[0]] -= 1
        self._charges.leave(kept.sender.account, letters=kept.cost)
        return kept

    def drop(
        self, which: Callable[[Place, KeptLetter], bool] = lambda place, kept: True
    ) -> list[KeptLetter]:
        """Take those letters out of which ``which`` says so, by the place of their sender."""
        if not self._kept:  # nearly always
            return []
        found = [name for name, kept in self._kept.items() if which(name[0], kept)]
        return [self.take(name) for name in found]

    def any_sender(self) -> Peer | None:
        """Somebody of whom a letter is here."""
        return next((kept.sender for kept in self._kept.values()), None)

    def bytes_of(self, place: Place) -> int:
        """For how many bytes the letters of a sender count."""
        return sum(kept.cost for kept in self._kept.values() if kept.sender.place == place)
