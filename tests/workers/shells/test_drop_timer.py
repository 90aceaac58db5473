"""The timer of a program without an event loop."""

from __future__ import annotations

import threading
from queue import Empty, SimpleQueue

import pytest

from syft.workers.shells.drop_timer import DropTimer


def test_many_starts_are_one_flush() -> None:
    calls: SimpleQueue[int] = SimpleQueue()
    with DropTimer(lambda: calls.put(threading.active_count()), delay=0.2) as timer:
        threads = threading.active_count()
        for _ in range(1000):
            timer.start()
        assert calls.get(timeout=60) == threads, "no thread for a start"
        with pytest.raises(Empty):
            calls.get(timeout=0.5)
        timer.start()
        calls.get(timeout=60)


def test_what_happens_during_a_flush_is_flushed_again() -> None:
    calls: SimpleQueue[int] = SimpleQueue()
    count = iter(range(3))

    def flush() -> None:
        number = next(count)
        if number < 2:
            timer.start()
        calls.put(number)

    with DropTimer(flush, delay=0) as timer:
        timer.start()
        assert [calls.get(timeout=60) for _ in range(3)] == [0, 1, 2]


@pytest.mark.parametrize("started", [True, False])
def test_a_stopped_timer_flushes_no_more(started: bool) -> None:
    calls: list[int] = []
    timer = DropTimer(lambda: calls.append(1), delay=60)
    if started:
        timer.start()
    timer.stop()
    assert not calls
    timer.start()
    assert not calls


def test_a_flush_that_fails_does_not_end_the_thread(caplog: pytest.LogCaptureFixture) -> None:
    calls: SimpleQueue[int] = SimpleQueue()
    count = iter(range(2))

    def flush() -> None:
        number = next(count)
        calls.put(number)
        if not number:
            raise ArithmeticError("a fault")

    with DropTimer(flush, delay=0) as timer:
        for number in range(2):
            timer.start()
            assert calls.get(timeout=60) == number
    assert "a fault of this program: ArithmeticError('a fault')" in caplog.text
