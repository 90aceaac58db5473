"""Who goes from a full table, against the rule done one by one."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from syft.workers.core.evictions import Evictions, oldest_of_the_busiest


def one_by_one(table: dict[int, str], count: int) -> list[int]:
    left, gone = dict(table), []
    while left and len(gone) < count:
        ((busiest, _),) = Counter(left.values()).most_common(1)
        gone.append(next(key for key, sender in left.items() if sender == busiest))
        del left[gone[-1]]
    return gone


@given(st.lists(st.sampled_from("abc")), st.integers(0, 20))
def test_the_same_as_one_by_one(senders: list[str], count: int) -> None:
    table = dict(enumerate(senders))
    assert oldest_of_the_busiest(table, count) == one_by_one(table, count)


def test_what_is_gone_already_is_passed_over_and_the_table_asked_again() -> None:
    table = dict.fromkeys(range(100), "eve")
    evictions: Evictions[int] = Evictions()
    asked = []

    def senders() -> dict[int, str]:
        asked.append(len(table))
        return table

    gone = []
    while (key := evictions.next(senders, table.__contains__)) is not None:
        gone.append(key)
        del table[key]
        table.pop(key + 1, None)
    assert gone == list(range(0, 100, 2))
    assert asked == [100, 36, 0]
    assert evictions.next(senders, table.__contains__) is None
