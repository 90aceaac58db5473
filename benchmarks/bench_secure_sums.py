"""What a secure sum costs that goes on when parties leave, beside one that needs all of them.

All parties compute in this process, one after the other, without messages: what is compared is the
work of all of them together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

import pytest
import torch

from benchmarks.recording import Ratio
from syft.codes import CollectiveCode
from syft.crypto.seed_sharing import fewest
from syft.workers.handlers.party_programs import PROGRAMS, Failed, Letter, Party

PARTIES = 10
_MASKED = 4
"""The round in which a party sends what it adds: who leaves then has made all its masks."""


def summed(
    code: CollectiveCode, inputs: list[torch.Tensor], *numbers: int, leaving: Collection[int] = ()
) -> Any:
    """The result of the first party of a sum."""
    size = len(inputs)
    programs = {
        rank: PROGRAMS[int(code)](Party(rank, size), x, *numbers) for rank, x in enumerate(inputs)
    }
    letters: dict[tuple[int, int, int], Letter] = {}
    counts: Counter[tuple[int, int]] = Counter()
    received: dict[int, Any] = dict.fromkeys(programs)
    expected: dict[int, Any] = {rank: () for rank in programs}
    result: Any = None
    rounds: Counter[int] = Counter()
    gone = Letter((), error=Failed((), "it has left"))
    while programs:
        for rank in list(programs):
            names = [(sender, number) for sender, number in expected[rank]]
            if any((s, rank, n) not in letters and s in programs for s, n in names):
                continue
            if names or rounds[rank]:
                received[rank] = {(s, n): letters.get((s, rank, n), gone) for s, n in names}
            try:
                step: Any = programs[rank].send(received[rank])
            except StopIteration as end:
                result = end.value if rank == 0 else result
                del programs[rank]
                continue
            if rank in leaving and rounds[rank] == _MASKED:
                del programs[rank]
                continue
            for to, values in step.send.items():
                letters[rank, to, counts[rank, to]] = Letter(tuple(values))
                counts[rank, to] += 1
            expected[rank] = step.expect
            rounds[rank] += 1
    return result


@pytest.mark.parametrize("lost", [0, 3])
def bench_a_sum_that_goes_on(ratio: Ratio, one_thread: None, lost: int) -> None:
    """Ten parties and a million numbers; three of them leave when all have made their masks."""
    inputs = [torch.randn(1_000_000) for _ in range(PARTIES)]
    leaving = range(PARTIES - lost, PARTIES)
    code, enough = CollectiveCode.SUM_OF_THOSE_LEFT, fewest(PARTIES)
    total, there = summed(code, inputs, enough, leaving=leaving)
    assert there.tolist() == [1] * (PARTIES - lost) + [0] * lost
    torch.testing.assert_close(total, torch.stack(inputs[: PARTIES - lost]).sum(0))
    ratio(
        f"sum of 10 parties, {lost} lost / the sum that needs all",
        subject=lambda: summed(code, inputs, enough, leaving=leaving),
        floor=lambda: summed(CollectiveCode.SUM, inputs),
        at_most=1.5,
        earlier="-",
        seconds=20,
    )
