"""Attack 12: commands on rows that a private mask chooses tell how many there are.

Each is tried with none, one and several rows in one world, and another number in the other.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from syft.workers.core.peer_limits import DEFAULT_PEER_LIMITS, PeerLimits
from tests.privacy.two_worlds.attacks import Attack, check, learned
from tests.privacy.two_worlds.leaks import LEAKS
from tests.privacy.two_worlds.observer import Observer
from tests.privacy.two_worlds.private_rows import COUNTS, USES, Chosen, rows

pytestmark = pytest.mark.filterwarnings("ignore")  # torch warns of some of this

FEW = PeerLimits(bytes=6000, elements=300, results=12)
"""Limits that small tensors meet."""


def attack_by(use: Callable[[Chosen], Any], counts: tuple[int, int]) -> Attack:
    """Use rows, of so many in each world."""

    def attack(eve: Observer) -> None:
        use(rows(eve, eve.call, counts, random.Random(3)))

    return attack


@pytest.mark.parametrize("limits", [DEFAULT_PEER_LIMITS, FEW], ids=["default", "few"])
@pytest.mark.parametrize("name", USES)
def test_nothing_tells_how_many_rows_there_are(
    name: str, limits: PeerLimits, request: pytest.FixtureRequest
) -> None:
    """With some of the counts, others in each run, or with all of them."""
    drawn = random.Random(f"{request.config.option.seed} {name} {limits.bytes}")
    every = request.config.option.sample == 1
    for counts in COUNTS if every else drawn.sample(COUNTS, 1):
        check(attack_by(USES[name], counts), limits)


@pytest.mark.parametrize("name", USES)
def test_how_many_rows_there_are_is_told_of_public_data(name: str) -> None:
    assert learned(attack_by(USES[name], (1, 5)), guarded=False)


@pytest.mark.parametrize("name", ["kernel", "linear", "cat", "train on what is hard"])
def test_sizes_that_are_shown_are_found(name: str) -> None:
    with LEAKS["rows"]():
        assert learned(attack_by(USES[name], (1, 5)))
