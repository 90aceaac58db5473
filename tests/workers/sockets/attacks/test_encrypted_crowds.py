"""The same crowds, and what only TLS makes possible, at a worker that encrypts: whatever comes, it
serves the next honest caller, and gives up those that do not get on."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import ssl
import time
from collections.abc import Iterator

import pytest

from syft.workers.wire import messages
from syft.workers.wire.messages import Search
from tests.workers.sockets.attacks.stranger import (
    BINARY,
    PING,
    PONG,
    TEXT,
    Stranger,
    frame,
    hello,
    syft_frame,
)
from tests.workers.sockets.attacks.test_crowds import FILES, many_files
from tests.workers.sockets.attacks.victim import Victim

__all__ = ["many_files"]  # each test here lets this process open many files

SEARCH = frame(BINARY, syft_frame(messages.encode(Search(1, ("#nothing",)))))


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    """One worker for all attacks of this module: it survives each."""
    state = str(tmp_path_factory.mktemp("state"))
    settings = {"heartbeat": 0.5, "lease": 1.0, "anonymous": True, "files": FILES}
    with Victim(host="0.0.0.0", state=state, **settings) as victim:
        yield victim


def encrypted(sock: socket.socket, wait: bool = True) -> ssl.SSLSocket:
    """The same connection over TLS, whoever is at the other end."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(sock, do_handshake_on_connect=wait)


class TlsStranger(Stranger):
    """A stranger that encrypts what it writes."""

    def __init__(self, port: int, upgrade: bool = True) -> None:
        super().__init__(port, upgrade=False)
        self.socket = encrypted(self.socket)
        if upgrade:
            self.upgrade()


def served_in(victim: Victim) -> float:
    """Let an honest client in; how many seconds that took."""
    began = time.perf_counter()
    with TlsStranger(victim.port) as honest:
        assert honest.greet(name="honest")["kind"] == "welcome"
        assert type(honest.ask(Search(1, ("#nothing",)))) is messages.Value
    return time.perf_counter() - began


def client_hello() -> bytes:
    """The first bytes of a TLS connection."""
    out = ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), out).do_handshake()
    return out.read()


def half_open(victim: Victim, count: int) -> None:
    """So many handshakes that do not get on: nothing, a byte now and then, all but the last byte,
    and a whole first message without another."""
    first = client_hello()
    began = time.monotonic()
    slow = [socket.create_connection(("127.0.0.1", victim.port), 20) for _ in range(count)]
    for number, sock in enumerate(slow):
        sock.sendall([b"", first[:1], first[:-1], first][number % 4])
    times, sent = [served_in(victim)], 1  # on a busy machine they may all be given up by now
    while victim.ask("openings"):
        for sock in slow[1::4]:
            with contextlib.suppress(OSError):
                sock.sendall(first[sent : sent + 1])
        sent += 1
        times.append(served_in(victim))
        assert time.monotonic() - began < 30, "they are given up"
    for sock in slow:
        sock.close()
    times.sort()
    print(
        f"{count} half-open handshakes were dropped within {time.monotonic() - began:.1f} s; an "
        f"honest caller was served in {times[len(times) // 2] * 1000:.0f} ms (median), "
        f"{times[-1] * 1000:.0f} ms (worst)"
    )


def test_half_open_handshakes(victim: Victim) -> None:
    half_open(victim, 100)


@pytest.mark.soak
def test_a_thousand_half_open_handshakes(victim: Victim) -> None:
    half_open(victim, 1000)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n\r\n",
        b"\x16\x03\x01\xff\xff" + bytes(70_000),
        b"\x16\x03\x01\x00\x00" * 100,
        b"\x17\x03\x03\x00\x05hello",
        b"\x15\x03\x03\x00\x02\x01\x00",
        b"\x80\x2e\x01\x00\x02",
        client_hello() * 20,
    ],
    ids=["HTTP", "a lie", "empty records", "data first", "close_notify first", "SSL 2", "hellos"],
)
def test_what_is_no_handshake_is_refused(victim: Victim, data: bytes) -> None:
    with socket.create_connection(("127.0.0.1", victim.port), 10) as sock:
        with contextlib.suppress(OSError):
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
        answer = b""
        with contextlib.suppress(OSError):
            while more := sock.recv(4096):
                answer += more
        assert b"101" not in answer[:20] and b"welcome" not in answer
    served_in(victim)


def test_random_changes_of_a_handshake(victim: Victim) -> None:
    random_ = random.Random(random.randrange(10**9))
    for _ in range(50):
        data = bytearray(client_hello())
        for _ in range(random_.randrange(1, 4)):
            data[random_.randrange(len(data))] = random_.randrange(256)
        with socket.create_connection(("127.0.0.1", victim.port), 10) as sock:
            with contextlib.suppress(OSError):
                sock.sendall(data)
                sock.sendall(random_.randbytes(300))
    served_in(victim)
    victim.await_count("openings", 0)


@pytest.mark.parametrize("stage", ["handshake", "upgrade", "welcome", "request", "half a request"])
def test_an_end_at_any_stage(victim: Victim, stage: str) -> None:
    """The caller says that it ends (close_notify), and leaves the socket open."""
    stranger = TlsStranger(victim.port, upgrade=stage != "handshake")
    if stage not in ("handshake", "upgrade"):
        stranger.greet()
        part = {"welcome": b"", "request": SEARCH, "half a request": SEARCH[:9]}[stage]
        stranger.attempt(part)
    tls = stranger.socket
    assert isinstance(tls, ssl.SSLSocket)
    tls.settimeout(0.2)
    with contextlib.suppress(OSError):
        tls.unwrap()
    served_in(victim)
    victim.await_count("openings", 0)
    victim.await_count("guests", 0)
    tls.close()


@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_records_of_odd_sizes(victim: Victim, size: int) -> None:
    """Records of a byte each, and all of it in as few as there can be: what OpenSSL has decrypted
    with the first message is answered at once, although the socket has no more to read."""
    data = (
        b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Protocol: syft\r\n\r\n"
    )
    data += frame(TEXT, json.dumps(hello()).encode())
    asked = 100 if size > 100 else 3
    data += frame(PING, bytes(100)) * asked
    with TlsStranger(victim.port, upgrade=False) as stranger:
        stranger.socket.settimeout(5)
        for start in range(0, len(data), size):
            stranger.send(data[start : start + size])
        while b"\r\n\r\n" not in stranger._read:
            stranger._more()
        stranger._read = stranger._read.partition(b"\r\n\r\n")[2]
        got = 0
        while got < asked:
            got += stranger.read()[0] == PONG


def test_floods_of_requests_while_others_are_served(victim: Victim) -> None:
    flood = SEARCH * 500
    crowd = [TlsStranger(victim.port) for _ in range(8)]
    for stranger in crowd:
        stranger.greet(name="me")
        stranger.socket.settimeout(0.02)
    times = []
    for _ in range(10):
        for stranger in crowd:
            stranger.attempt(flood)
        times.append(served_in(victim))
    for stranger in crowd:
        stranger.socket.close()
    victim.await_count("guests", 0)
    print(f"8 floods over TLS: an honest caller was served in {max(times) * 1000:.0f} ms (worst)")
    assert max(times) < 10
