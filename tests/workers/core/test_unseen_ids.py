"""Ids that a caller names in vain: what stands for them in requests and replies, at what cost."""

from __future__ import annotations

import time

from syft.workers.core import unseen_ids
from syft.workers.core.unseen_ids import UnseenIds
from syft.workers.wire.messages import Fetch, Search, Value


def test_texts_cost_the_same_however_many_ids_were_named() -> None:
    unseen = UnseenIds()
    unseen.in_request(Fetch(1, 0), range(4000), None)
    began = time.perf_counter()
    unseen.in_request(Search(2, ["#salaries of people"] * 40_000), (), None)
    assert (
        time.perf_counter() - began < 2.0
    ), "a replacement for each id in each text takes a minute"


def test_a_number_in_a_text_is_exchanged_as_a_whole() -> None:
    unseen = UnseenIds()
    first, long = 5, 2**63 - 1
    request = unseen.in_request(Search(1, [f"{first} 15 5a {long}", "05"]), [first, long], None)
    other, other_long = unseen._instead[first], unseen._instead[long]
    assert request.words == [f"{other} 15 {other}a {other_long}", "05"]
    reply = unseen.in_reply(Value(1, [f"no object {other} or {other_long}, 15", other, True, 5]))
    assert reply.value == [f"no object {first} or {long}, 15", first, True, 5]


def test_ids_are_forgotten_unless_something_was_stored_in_their_place() -> None:
    unseen, most = UnseenIds(), unseen_ids._MOST
    unseen.in_request(Fetch(1, 0), [7, 8], None)
    stored = {unseen._instead[7]}
    for id in range(10, 10 * most):
        unseen.have_come((), stored.__contains__)
        unseen.in_request(Fetch(1, id), [id], None)
        assert len(unseen) <= most + 3
    assert unseen.in_request(Fetch(1, 7), (), None).id in stored, "it is the caller's own"
    assert unseen.in_request(Fetch(1, 8), (), None).id == 8, "until it is found hidden again"
    assert len(unseen._named) == len(unseen)


def test_what_is_stored_is_not_looked_through_at_each_request() -> None:
    unseen, looks = UnseenIds(), 0

    def knows(id: int) -> bool:
        nonlocal looks
        looks += 1
        return True

    for id in range(4 * unseen_ids._MOST):
        unseen.have_come((), knows)
        unseen.in_request(Fetch(1, id), [id], None)
    assert len(unseen) == 4 * unseen_ids._MOST and looks < 4 * len(unseen)
