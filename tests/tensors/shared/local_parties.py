"""Parties in this process that compute on real shares, in lock-step, with a provider that deals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from syft.crypto.mask_stream import MaskStream
from syft.tensors.shared.instruction_list import FreshShares
from syft.tensors.shared.session_client import SessionClient
from syft.tensors.shared.shares_ring import SharesRing
from tests.crypto.program_runs import run_all
from tests.crypto.ring_programs import as_written
from tests.tensors.shared.clear_parties import ClearParties


class LocalParties(ClearParties):
    """Lines to parties of this process: every object is a list with what each party has."""

    def __init__(self, parties: int = 2) -> None:
        super().__init__()
        self.parties = ("alice", "bob", "dan", "eve", "fay")[:parties]
        self.rounds: list[int] = []
        self.sent: list[list[int]] = []

    def run(
        self, counter: int, program: Any, inputs: Any, ids: Any, material: int | None = None
    ) -> None:
        self.programs.append(program)
        self.counters.append(counter)
        self.counts.update(one.op.name for one in program.actions)
        given = [self._input(one) for one in inputs]
        run = run_all(program, given, len(self.parties), counter)
        self.rounds.append(run.rounds)
        self.sent.append(run.sent)
        for slot, id in zip(program.results, ids, strict=True):
            self.objects[id] = [result[as_written(program, slot)] for result in run.results]

    def _input(self, value: Any) -> Any:
        if not isinstance(value, FreshShares):
            return self.objects[value]
        drawn = [MaskStream(seed).draw(value.last.shape, value.last.device) for seed in value.seeds]
        return [*drawn, value.last]

    def fetch(self, ids: Sequence[int], user: str | None) -> list[list[torch.Tensor]]:
        return [self.objects[id] for id in ids]


def local_session(parties: int = 2) -> SessionClient:
    """A session whose parties compute on real shares."""
    return SessionClient(LocalParties(parties), SharesRing)
