"""Programs drawn at random are right within the errors and domains that are stated."""

from __future__ import annotations

import pytest

from tests.tensors.shared.random_programs import OPERATIONS, run


@pytest.mark.parametrize("parties", [2, 3, 5])
def test_random_programs_are_right_where_it_is_stated(parties: int) -> None:
    for seed in range(parties, parties + 12):
        assert run(seed * 7919, parties).faults() == []


@pytest.mark.soak
@pytest.mark.parametrize("parties", [2, 3, 5])
def test_ten_thousand_random_programs_are_right(parties: int) -> None:
    found, refused, done = [], 0, 0
    for seed in range(3400):
        program = run(seed, parties)
        found += program.faults()
        refused, done = refused + program.refused, done + len(program.names)
    assert found == []
    assert refused < done / 4  # few of the operations that are drawn leave their domains


def test_every_operation_is_drawn() -> None:
    drawn = {name for seed in range(100) for name in run(seed, 2).names}
    assert drawn == set(OPERATIONS)
