"""What containers in a program count against what is remembered: both ends have to count alike."""

from __future__ import annotations

from typing import Any

import pytest

from syft.ops.table import BY_NAME
from syft.program.program import Action, Program, Slot
from syft.workers.wire.definitions import size_of


def size(operand: Any) -> int:
    add = Action(BY_NAME["torch.add"], (Slot(0), operand), {}, Slot(1))
    return size_of(Program(1, (add,), ()))


@pytest.mark.parametrize(
    "operand, more",
    [
        ({}, 0),
        ([[]], 1),
        ({"ab": 1, "c": [2]}, 10),
        (slice(1, Slot(0), None), 4),
        ((True, "abc"), 5),
    ],
    ids=str,
)
def test_a_container_counts_with_what_is_in_it(operand: Any, more: int) -> None:
    assert size(operand) == size(()) + more
