"""Callers whom nobody knows and who do not read, or do not say what has arrived: together they have
the worker hold so much, and no more, and whoever reads is served."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator

import pytest
import torch

import syft as sy
from syft.serde.limits import Limits
from syft.trust.tokens import TokenBook
from syft.workers.sockets import serving
from syft.workers.sockets.line import Line
from syft.workers.wire import messages
from tests.workers.sockets.attacks.stranger import BINARY, Stranger, frame, syft_frame
from tests.workers.sockets.attacks.test_crowds import put, put_value
from tests.workers.sockets.attacks.victim import Victim
from tests.workers.sockets.line_records import is_served

MOST = 1 << 20
BATCH = 256 * 5000
"""Bytes of the replies to what is served of one line before others have their turn."""


@pytest.fixture
def server(
    hook: sy.TorchHook, monkeypatch: pytest.MonkeyPatch
) -> Iterator[sy.WebsocketServerWorker]:
    monkeypatch.setattr(serving, "_MOST_HELD", MOST)
    monkeypatch.setattr(serving, "_LEAST_SHARE", MOST // 8)
    monkeypatch.setattr(serving, "_SUM_EVERY", 0.0)
    settings = {"tokens": TokenBook(), "anonymous": True, "heartbeat": 30.0}
    with sy.WebsocketServerWorker(hook, port=0, id="bob", **settings) as server:
        yield server


def fetches(id: int, count: int) -> bytes:
    """Requests for a copy of an object of 4 kB."""
    one = frame(BINARY, syft_frame(messages.encode(messages.Fetch(9, id, keep=True))))
    return one * count


def held(server: sy.WebsocketServerWorker) -> int:
    with server.board.monitor, server.board.io:
        return sum(line.kept_bytes for line in server.board.lines)


def settled(server: sy.WebsocketServerWorker) -> int:
    """What is held once it does not grow any more."""
    before, now = -1, held(server)
    while now != before:
        time.sleep(0.2)
        before, now = now, held(server)
    return now


def caller(server: sy.WebsocketServerWorker, id: int, **hello: object) -> Stranger:
    """One that has stored an object of 4 kB."""
    stranger = Stranger(server.port)
    stranger.greet(**hello)
    stranger.send(put_value(id, torch.rand(1000)))
    assert is_served(*stranger.read())
    return stranger


def test_what_all_strangers_leave_unread_has_a_bound(server: sy.WebsocketServerWorker) -> None:
    strangers = [caller(server, 5000 + number) for number in range(4)]
    for number, stranger in enumerate(strangers):
        stranger.send(fetches(5000 + number, 600))
    assert MOST < settled(server) < MOST + 4 * BATCH, "of 10 MB that were asked for"
    with Stranger(server.port) as honest:
        honest.greet(name="honest")
        assert type(honest.ask(messages.Search(1, ("#x",)))) is messages.Value
    for stranger in strangers:  # whoever reads gets all of it
        replies = 1
        while replies < 600:
            replies += is_served(*stranger.read())
            if replies % 10 == 0:
                stranger.tell({"kind": "received", "count": replies})
        stranger.socket.close()


def test_users_have_room_of_their_own(server: sy.WebsocketServerWorker) -> None:
    book = server.reception.tokens
    assert book is not None
    ann = caller(server, 5000, name="ann calls", token=book.make("ann", time.time()))
    ann.send(fetches(5000, 1500))
    assert settled(server) > 1400 * 4000
    ann.socket.close()


def test_one_that_asks_for_more_and_never_says_what_has_arrived_is_sent_away(
    server: sy.WebsocketServerWorker,
) -> None:
    with caller(server, 5000) as stranger:
        stranger.socket.settimeout(0.01)
        until = time.monotonic() + 20
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            while time.monotonic() < until:
                with contextlib.suppress(TimeoutError):
                    stranger.socket.send(fetches(5000, 100))
                    while stranger.socket.recv(1 << 20):
                        pass
        assert held(server) < MOST + 2 * BATCH


def test_a_line_that_is_over_has_no_share(server: sy.WebsocketServerWorker) -> None:
    line = Line("eve", Limits(), odd=True)
    assert not server.board.lines and not server.board._share.is_exceeded(line, 10 * MOST)


@pytest.mark.soak
def test_a_hundred_callers_that_never_read() -> None:
    with Victim(log="WARNING", files=1024) as victim:
        before = victim.memory
        strangers = [Stranger(victim.port) for _ in range(100)]
        for number, stranger in enumerate(strangers):
            stranger.greet()
            stranger.send(put_value(5000 + number, torch.rand(3700)))
        until = time.monotonic() + 30
        while time.monotonic() < until:
            for number, stranger in enumerate(strangers):
                with contextlib.suppress(OSError):
                    stranger.socket.send(fetches(5000 + number, 500), socket.MSG_DONTWAIT)
        growth = victim.memory - before
        began = time.perf_counter()
        with Stranger(victim.port) as honest:
            honest.greet(name="honest")
            honest.send(put(1, 1.0))
            assert is_served(*honest.read())
        took = time.perf_counter() - began
        for stranger in strangers:
            stranger.socket.close()
        print(f"100 callers that never read: {growth:+.0f} MB; the next served in {took:.2f} s")
        assert growth < 1200
