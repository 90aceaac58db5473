"""What one user may have, over all connections; and where callers are behind a proxy."""

from __future__ import annotations

import socket
import threading
import time

import pytest
import torch

import syft as sy
from syft.exceptions import LimitExceeded, UnusableSetting, WorkerRefused
from syft.trust.lockout import Lockout
from syft.trust.tokens import TokenBook
from syft.workers.core.peer_limits import PeerLimits
from syft.workers.sockets.admission import TrustedProxies
from tests.workers.sockets.raw_caller import HEAD, RawCaller, opened


def connected(server: sy.WebsocketServerWorker, token: str | None, name: str) -> sy.BaseWorker:
    return sy.connect(str(server.address), token, id=name)


def test_a_user_has_one_limit_over_all_connections(hook: sy.TorchHook) -> None:
    book = TokenBook(None)
    ann, ben = book.make("ann", time.time()), book.make("ben", time.time())
    limits = PeerLimits(bytes=1 << 20)
    settings = {"id": "dan", "tokens": book, "peer_limits": limits}
    with sy.WebsocketServerWorker(hook, port=0, **settings) as server:
        one, two = connected(server, ann, "one"), sy.WebsocketClientWorker(
            hook, port=server.port, id="two", token=ann, timeout=30
        )
        other = connected(server, ben, "other")
        large = torch.ones(150_000)  # 600 kB
        x = large.send(one)
        assert x.sum().get() == 150_000
        with pytest.raises(LimitExceeded, match="peer_limits.bytes"):
            large.send(two).sum().get()
        assert large.send(other).sum().get() == 150_000, "another user has limits of its own"
        assert x.sum().get() == 150_000, "and nothing is lost of who is within"
        del x
        one.close()
        assert large.send(two).sum().get() == 150_000, "what is gone does not count"
        two.close()
        other.close()
        assert all(not account.bytes for account in server.reception.admissions.accounts().values())


def test_a_user_has_so_many_connections(hook: sy.TorchHook) -> None:
    book = TokenBook(None)
    ann, ben = book.make("ann", time.time()), book.make("ben", time.time())
    with sy.WebsocketServerWorker(hook, port=0, id="dan", tokens=book, connections=2) as server:
        with RawCaller(server.port) as one, RawCaller(server.port) as two:
            for caller in (one, two):
                assert caller.greet(token=ann)["kind"] == "welcome"
            with RawCaller(server.port) as three:
                refused = three.greet(token=ann)
                assert refused["code"] == "connections"
                assert refused["reason"] == "user ann has 2 connections, and the limit is 2"
            with RawCaller(server.port) as other:
                assert other.greet(token=ben)["kind"] == "welcome"
            assert server.reception.admissions.refused == {"connections": 1}


def test_who_begins_with_an_answer_is_not_let_in(hook: sy.TorchHook) -> None:
    with sy.WebsocketServerWorker(hook, port=0, id="dan") as server:
        with RawCaller(server.port) as caller:
            caller.say(kind="refused", code="version", reason="it is too old")
            code, reason = caller.closed()
            assert code == 1008 and "the first message says who is calling" in reason
        assert not server.reception.guests


def test_who_has_no_token_is_counted_by_address(hook: sy.TorchHook) -> None:
    with sy.WebsocketServerWorker(hook, port=0, id="dan", connections=1) as server:
        with RawCaller(server.port) as one, RawCaller(server.port) as two:
            one.greet()
            assert "address 127.0.0.1 has 1 connections" in two.greet()["reason"]


class Forwarded(RawCaller):
    """A caller behind a proxy that says where it is."""

    def __init__(self, port: int, said: str) -> None:
        self.buffer, self.binary = bytearray(), []
        lines = (*HEAD, "Sec-WebSocket-Protocol: syft", f"X-Forwarded-For: {said}")
        self.socket, _ = opened(port, *lines)


def test_wrong_tokens_behind_a_proxy_lock_out_who_tried_them(hook: sy.TorchHook) -> None:
    book = TokenBook(None)
    ann = book.make("ann", time.time())
    with sy.WebsocketServerWorker(
        hook, port=0, id="dan", tokens=book, trusted_proxies=["127.0.0.0/8"], lockout=Lockout(3)
    ) as server:
        for _ in range(3):
            with Forwarded(server.port, "203.0.113.5, 198.51.100.1") as eve:
                assert eve.greet(token="syft_guess")["code"] == "token"
        with Forwarded(server.port, "198.51.100.1") as eve:
            assert eve.greet(token=ann)["code"] == "locked"
        for where in ("198.51.100.2", "203.0.113.5", "2001:db8::1", "198.51.100.1, 192.0.2.4:99"):
            with Forwarded(server.port, where) as honest:
                assert honest.greet(token=ann)["kind"] == "welcome", where


def test_whoever_is_no_trusted_proxy_says_nothing_of_where_it_is(hook: sy.TorchHook) -> None:
    book = TokenBook(None)
    ann = book.make("ann", time.time())
    with sy.WebsocketServerWorker(
        hook, port=0, id="dan", tokens=book, trusted_proxies=["10.0.0.0/8"], lockout=Lockout(2)
    ) as server:
        for where in ("198.51.100.1", "198.51.100.2"):
            with Forwarded(server.port, where) as eve:
                eve.greet(token="syft_guess")
        with Forwarded(server.port, "198.51.100.3") as caller:
            assert caller.greet(token=ann)["code"] == "locked"


@pytest.mark.parametrize(
    ("host", "said", "where"),
    [
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", ["192.0.2.1"], "192.0.2.1"),
        ("::ffff:10.0.0.1", ["192.0.2.1"], "192.0.2.1"),
        ("10.0.0.1", ["192.0.2.1", "10.0.0.2"], "192.0.2.1"),
        ("10.0.0.1", ["198.51.100.9, 192.0.2.1,10.0.0.2"], "192.0.2.1"),
        ("10.0.0.1", ["[2001:db8::1]:443"], "2001:db8::1"),
        ("10.0.0.1", ["unknown, 10.0.0.2"], "10.0.0.2"),
        ("10.0.0.1", [" "], "10.0.0.1"),
        ("192.0.2.7", ["192.0.2.1"], "192.0.2.7"),
        (None, ["192.0.2.1"], None),
    ],
)
def test_where_a_caller_is(host: str | None, said: list[str], where: str | None) -> None:
    assert TrustedProxies(["10.0.0.0/8"]).caller(host, said) == where


def test_a_proxy_at_a_unix_socket() -> None:
    assert TrustedProxies(["unix"]).caller(None, ["192.0.2.1"]) == "192.0.2.1"


def test_settings_that_make_no_sense(hook: sy.TorchHook) -> None:
    for settings, said in [
        ({"trusted_proxies": ["proxy.example"]}, "--trusted-proxy must be an IP address"),
        ({"connections": 0}, "connections must be a number over 0, got 0"),
        ({"lease": -1}, "lease must be a number over 0, got -1"),
        ({"heartbeat": 0}, "heartbeat must be a number over 0, got 0"),
    ]:
        with pytest.raises(UnusableSetting, match=said):
            sy.WebsocketServerWorker(hook, port=0, **settings)
    with pytest.raises(UnusableSetting, match="peer_limits.objects must be a number over 0, got 0"):
        PeerLimits(objects=0)
    with pytest.raises(UnusableSetting, match="peer_limits.bytes"):
        PeerLimits(bytes=-1)


def test_an_address_may_have_a_path(hook: sy.TorchHook) -> None:
    with sy.WebsocketServerWorker(hook, port=0, id="dan") as server:
        dan = sy.connect(f"{server.address}/behind/a-proxy/")
        assert str(dan.address) == f"{server.address}/behind/a-proxy"
        assert (torch.ones(2).send(dan) + 1).get().tolist() == [2, 2]
        dan.close()
    with pytest.raises((WorkerRefused, OSError)):
        sy.connect(f"{server.address}/behind/a-proxy")


def test_a_proxy_whose_worker_is_not_there_is_no_worker(hook: sy.TorchHook) -> None:
    """Its page may be longer than the head that is read of an answer."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            sock, _ = listener.accept()
            with sock:
                sock.recv(4096)
                sock.sendall(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 150\r\n\r\n<html>")
                sock.recv(4096)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(ConnectionAbortedError, match="502 Bad Gateway"):
            sy.connect(f"ws://127.0.0.1:{listener.getsockname()[1]}/bob")
        thread.join()
