"""What a session asks of its lines to the parties and the provider.

A session does not know what carries its programs: workers do (``worker_lines``), a rehearsal keeps
them, and tests compute with them.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any

import torch

from syft.crypto.programs.share_program import ShareProgram
from syft.tensors.shared.instruction_list import ProgramInput
from syft.tensors.shared.sent_programs import SentProgram
from syft.tensors.shared.stock import Deals


class PartyLines(abc.ABC):
    """Carries the programs of a session to its parties and its provider. Abstract.

    ``parties`` are the names of the parties in order, ``provider`` that of the provider.
    """

    owner: str
    """The name of the worker that the client calls from."""
    parties: tuple[str, ...]
    provider: str
    provider_lost = False
    """Whether a provider that is no party was found to be gone when something had failed."""

    @abc.abstractmethod
    def run(
        self,
        counter: int,
        program: ShareProgram,
        inputs: Sequence[ProgramInput],
        ids: Sequence[int],
        material: int | None = None,
    ) -> None:
        """Have a program run, and its results stored under these ids at every party; with what was
        dealt ahead for it, if that is named."""

    @abc.abstractmethod
    def deal_ahead(self, counter: int, deals: Deals, id: int) -> Callable[[], None]:
        """Have what a later program needs dealt and stored under this id at every party.

        Returns what waits until it is there, and raises what has failed."""

    @abc.abstractmethod
    def waiting_bytes(self) -> int:
        """The bytes of dealt material that wait at the last party."""

    @abc.abstractmethod
    def fetch(self, ids: Sequence[int], user: str | None) -> list[list[torch.Tensor]]:
        """The shares of stored objects, on behalf of ``user``: for each id those of all parties."""

    @abc.abstractmethod
    def pointer(self, party: str, id: int) -> torch.Tensor:
        """A pointer to what a program has revealed to one party under this id."""

    @abc.abstractmethod
    def split(self, pointer: Any, depth: int, id: int) -> None:
        """Have the holder of a remote tensor split its integers, ``depth`` steps down its chain,
        and the shares stored under this id."""

    @abc.abstractmethod
    def failure(self) -> Exception | None:
        """Why something that was sent has failed; None if nothing has, as far as is known."""

    @abc.abstractmethod
    def settle(self) -> None:
        """Wait until every program that was sent has ended, well or not."""

    @abc.abstractmethod
    def roll_back(self) -> Sequence[SentProgram]:
        """Have the parties undo the programs that have failed, and all after them; returns these.

        Raises why that cannot be."""

    @abc.abstractmethod
    def discard(self, id: int) -> None:
        """Have a stored object dropped everywhere, with the next request; it must not raise."""
