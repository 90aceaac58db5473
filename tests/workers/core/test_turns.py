"""Turns: one after another, in order, however many wait."""

from __future__ import annotations

from syft.workers.core.shares import Turns


def test_a_turn_that_ends_at_once_lets_any_number_follow() -> None:
    turns, log = Turns(), []

    def act(number: int) -> None:
        log.append(number)
        if number:
            turns.done()

    for number in range(5000):
        turns.take(lambda number=number: act(number))  # type: ignore[misc]
    assert log == [0] and turns.busy
    turns.done()
    assert log == list(range(5000)) and not turns.busy


def test_what_is_asked_for_during_a_turn_comes_after_it() -> None:
    turns, log = Turns(), []

    def first() -> None:
        turns.take(lambda: log.append("second"))
        log.append("first")
        turns.done()

    turns.take(first)
    assert log == ["first", "second"] and turns.busy
