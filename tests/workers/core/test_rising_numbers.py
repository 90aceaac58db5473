"""Numbers that are used once: exactly, with bounded memory."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from syft.workers.core.peer import KEPT, RisingNumbers


@given(st.lists(st.integers(0, 50), max_size=100))
def test_few_numbers_are_told_apart_exactly(numbers: list[int]) -> None:
    used, seen = RisingNumbers(), set[int]()
    for number in numbers:
        assert used.admit(number) is (number not in seen)
        seen.add(number)


def test_what_was_forgotten_is_not_admitted_again() -> None:
    used = RisingNumbers()
    for number in range(3 * KEPT):
        assert used.admit(number)
    assert not any(used.admit(number) for number in range(3 * KEPT))
    assert used.admit(3 * KEPT + 5) and used.admit(3 * KEPT + 2), "a little out of order"
    assert not used.admit(-1)
    assert len(used._used) == KEPT
