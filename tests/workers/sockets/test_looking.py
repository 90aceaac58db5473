"""Looking for a moment before sleeping: what is found, when it ends, and where there is none."""

from __future__ import annotations

import os
import socket
import threading
import time

import pytest

from syft.workers.sockets import readiness, streams
from syft.workers.sockets.readiness import give_way, look
from syft.workers.sockets.streams import PlainStream


def test_it_ends_with_what_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syft.workers.sockets.readiness.MOMENT", 60)
    found = iter(["", "", "something", "more"])
    yielded: list[None] = []
    assert look(lambda: next(found), lambda: yielded.append(None)) == "something"
    assert len(yielded) == 2, "others get the core between two glances"


def test_it_ends_after_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(readiness.time, "perf_counter", lambda: now[0])

    def pass_time() -> None:
        now[0] += readiness.MOMENT / 4

    assert look(lambda: "", pass_time) == ""
    assert now[0] == readiness.MOMENT


@pytest.mark.parametrize("cores", [1, 2])
def test_on_one_core_nobody_looks(monkeypatch: pytest.MonkeyPatch, cores: int) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(cores)), raising=False)
    assert (give_way() is None) == (cores == 1)


def test_where_the_system_does_not_tell_its_cores_nobody_looks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert give_way() is None


@pytest.mark.parametrize("looks", [True, False])
@pytest.mark.parametrize("late", [0.0, 0.05], ids=["at once", "late"])
def test_a_read_that_waits_gets_what_comes(
    monkeypatch: pytest.MonkeyPatch, looks: bool, late: float
) -> None:
    monkeypatch.setattr(streams, "give_way", lambda: (lambda: time.sleep(0)) if looks else None)
    end, other = socket.socketpair()
    stream, memory = PlainStream(end), memoryview(bytearray(8))
    sender = threading.Timer(late, lambda: other.send(b"abc"))
    sender.start()
    assert stream.read(memory, wait=True) == 3 and memory[:3] == b"abc"
    assert stream.read(memory) is None, "without waiting it does not look either"
    sender.join()
    stream.close()
    other.close()
