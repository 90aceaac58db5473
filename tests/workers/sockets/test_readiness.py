"""Both ways to wait for sockets tell the same."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator

import pytest

from syft.workers.sockets.readiness import READ, WRITE, Epoll, Readiness, Selectors, readiness

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture(params=[Epoll, Selectors])
def watched(request: pytest.FixtureRequest) -> Iterator[Readiness]:
    made: Readiness = request.param()
    yield made
    made.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    end, other = socket.socketpair()
    yield end, other
    end.close()
    other.close()


def test_it_tells_of_what_is_looked_for(watched: Readiness, pair: Pair) -> None:
    end, other = pair
    watched.watch(end.fileno(), READ, "end")
    assert watched.wait(0) == []
    other.send(b"a")
    assert watched.wait(1) == watched.wait(0) == [("end", READ)]
    watched.watch(end.fileno(), READ | WRITE, "the same")
    assert watched.wait(0) == [("the same", READ | WRITE)]
    watched.watch(end.fileno(), WRITE, "the same")
    assert watched.wait(0) == [("the same", WRITE)]


def test_the_end_of_a_connection_is_told_as_what_is_looked_for(
    watched: Readiness, pair: Pair
) -> None:
    end, other = pair
    other.close()
    for events in (READ, WRITE, READ | WRITE):
        watched.watch(end.fileno(), events, "end")
        assert watched.wait(0) == [("end", events)]


def test_what_is_forgotten_is_not_told(watched: Readiness, pair: Pair) -> None:
    end, other = pair
    other.send(b"a")
    watched.watch(end.fileno(), READ, "end")
    watched.forget(end.fileno())
    watched.forget(end.fileno())
    assert watched.wait(0) == []


def test_a_number_is_watched_again_after_its_socket_was_closed(watched: Readiness) -> None:
    end, other = socket.socketpair()
    number = end.fileno()
    watched.watch(number, READ, "the first")
    end.close()
    other.close()
    second, writer = socket.socketpair()
    assert number in (second.fileno(), writer.fileno()), "the system gives the lowest number"
    watched.watch(second.fileno(), READ, "the second")
    writer.send(b"a")
    assert watched.wait(1) == [("the second", READ)]
    second.close()
    watched.forget(second.fileno())
    watched.forget(number)
    writer.close()
    assert watched.wait(0) == []


def test_the_system_decides_which_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(select, "epoll", raising=False)
    fallback = readiness()
    assert type(fallback) is Selectors
    fallback.close()
