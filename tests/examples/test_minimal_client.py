"""The client of the standard library: it reads what the worker holds; one that lies is an error."""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lz4.frame
import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import syft as sy
from examples.clients import minimal_client
from examples.clients.minimal_client import (
    Client,
    ClientError,
    Failure,
    Refused,
    Unpacker,
    WebSocket,
    packed,
    unframe,
    unlz4,
    value_of,
)
from syft.serde import serialize
from syft.trust.certificates import own_certificate
from syft.trust.tokens import TokenBook
from tests.examples.served_data import TENSORS, extremes, mean, put_plans, serving


@pytest.fixture
def server(hook: sy.TorchHook) -> Iterator[sy.WebsocketServerWorker]:
    with serving(hook, allow_plans=True) as server:
        yield server


@pytest.fixture
def client(server: sy.WebsocketServerWorker) -> Iterator[Client]:
    with Client(str(server.address)) as client:
        yield client


@pytest.fixture
def plans(hook: sy.TorchHook, server: sy.WebsocketServerWorker) -> Iterator[None]:
    there = put_plans(hook, server)
    yield
    there.plans.clear()
    there.close()


# ------------------------------------------------------------------------------------ what it reads


def test_each_tensor_is_read_as_torch_has_it(client: Client) -> None:
    for tag, tensor in TENSORS.items():
        (found,) = client.search("#data", tag)
        assert (found.description, found.shape) == (f"data for {tag}", tuple(tensor.shape))
        assert sorted(found.tags) == sorted(["#data", tag])
        value = client.read(found.id)
        assert value.tolist() == tensor.tolist(), tag
        assert (f"torch.{value.dtype}", value.shape) == (str(tensor.dtype), tuple(tensor.shape))
    assert len(client.search("#data")) == len(TENSORS)
    assert client.search("#nothing") == []


def test_what_it_reads_stays(client: Client, server: sy.WebsocketServerWorker) -> None:
    before = server.objects_count()
    for found in client.search("#matrix"):
        client.read(found.id)
        client.read(found.id, keep=False)  # the owner's objects stay all the same
    assert server.objects_count() == before


def test_it_tells_how_much_has_arrived(client: Client, server: sy.WebsocketServerWorker) -> None:
    for _ in range(300):
        client.search("#scalar")
    (guest,) = server.reception.guests.values()
    assert guest.line.sent == 300 and guest.line.kept <= 64


def test_private_values_and_missing_objects_are_failures(client: Client) -> None:
    (secret,) = client.search("#secret")
    with pytest.raises(Failure, match="^permission denied: get, bob") as denied:
        client.read(secret.id)
    assert denied.value.code == 151
    with pytest.raises(Failure, match="^object not found: 5, bob") as missing:
        client.read(5)
    assert missing.value.code == 135
    with pytest.raises(Failure, match="^error 149: "):
        client.ask(99)
    assert len(client.search("#scalar")) == 1, "the line is whole"


@pytest.mark.usefixtures("plans")
def test_plans_give_what_they_give_here(client: Client, server: sy.WebsocketServerWorker) -> None:
    (matrix,), (noise,) = client.search("#matrix"), client.search("#noise")
    before = server.objects_count()
    for _ in range(2):
        (plan,) = client.search("#mean")
        (result,) = client.call(plan, matrix.id)
        assert result.tolist() == mean(TENSORS["#matrix"]).tolist()
    (plan,) = client.search("#extremes")
    *tensors, number = client.call(plan, matrix.id, noise.id)
    expected = extremes(TENSORS["#matrix"], TENSORS["#noise"])
    assert [*(tensor.tolist() for tensor in tensors), number] == [
        *(tensor.tolist() for tensor in expected[:2]),
        expected[2],
    ]
    assert server.objects_count() == before, "the results were taken away"
    with pytest.raises(ClientError, match="is no plan"):
        client.call(matrix, noise.id)
    with pytest.raises(Failure, match="error 149"):
        client.call(plan, matrix.id)


@pytest.mark.usefixtures("plans")
def test_plans_are_refused_where_the_owner_allows_none(
    client: Client, server: sy.WebsocketServerWorker
) -> None:
    server.core.allow_plans = False
    (plan,), (matrix,) = client.search("#mean"), client.search("#matrix")
    with pytest.raises(Failure, match="plans not allowed: bob"):
        client.call(plan, matrix.id)


def test_it_waits_for_what_is_only_promised(
    client: Client, hook: sy.TorchHook, server: sy.WebsocketServerWorker
) -> None:
    client.websocket.socket.settimeout(0.02)  # so that it asks for signs of life meanwhile
    client.ask(11, [77], "me")
    read: list[Any] = []
    waiting = threading.Thread(target=lambda: read.append(client.read(77)))
    waiting.start()
    time.sleep(0.2)
    assert not read
    bob: Any = sy.WebsocketClientWorker(hook, port=server.port, id="bob")
    pointer = torch.tensor([5.0]).send(bob, id=77)
    sy.synchronize()
    waiting.join()
    assert read[0].tolist() == [5.0]
    del pointer
    bob.close()


# ---------------------------------------------------------------------------------- who is let in


def test_a_token_says_who_it_is(hook: sy.TorchHook) -> None:
    book = TokenBook()
    token = book.make("ann", time.time())
    with serving(hook, tokens=book) as server:
        address = str(server.address)
        with pytest.raises(Refused, match="no token was given") as refusal:
            Client(address)
        assert refusal.value.code == "token"
        with pytest.raises(Refused, match="unknown or has expired"):
            Client(address, token[:-1])
        with Client(address, token) as client:
            assert client.welcome["user"] == "ann"
            (secret,) = client.search("#secret")
            assert client.read(secret.id).tolist() == [42.0]


def test_encrypted_and_pinned(hook: sy.TorchHook, tmp_path: Path) -> None:
    with serving(hook, host="0.0.0.0", state=tmp_path, anonymous=True) as server:
        address = f"wss://127.0.0.1:{server.port}"
        fingerprint = own_certificate(tmp_path).fingerprint
        with Client(address, fingerprint=fingerprint) as client:
            (found,) = client.search("#noise")
            assert client.read(found.id).tolist() == TENSORS["#noise"].tolist()
        with pytest.raises(ClientError, match="not the pinned one: sha256:"):
            Client(address, fingerprint="sha256:" + "ab" * 32)
        with pytest.raises(OSError, match="certificate verify failed"):
            Client(address)
        with pytest.raises((ClientError, OSError)):
            Client(address.replace("wss:", "ws:"))


def test_over_a_unix_socket(hook: sy.TorchHook, tmp_path: Path) -> None:
    with serving(hook, unix=tmp_path / "bob.sock") as server:
        with Client(str(server.address)) as client:
            assert client.welcome["worker"] == "bob"


@pytest.mark.parametrize("address", ["bob", "http://127.0.0.1:80", "ws://127.0.0.1", "ws://:80"])
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(ClientError, match="is none of"):
        Client(address)


def test_nothing_is_said_unencrypted_to_another_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    end, other = socket.socketpair()

    class Elsewhere:
        def __getattr__(self, name: str) -> Any:
            return getattr(end, name)

        def getpeername(self) -> tuple[str, int]:
            return "192.0.2.1", 8777

        def setsockopt(self, *option: Any) -> None:
            return

    monkeypatch.setattr(socket, "create_connection", lambda *_: Elsewhere())
    with pytest.raises(ClientError, match="for this machine alone"):
        Client("ws://worker.example:8777")
    assert other.recv(1) == b"", "nothing was sent"
    other.close()


# ---------------------------------------------------------------------- encodings, against oracles

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
    | st.binary(max_size=300),
    lambda items: st.lists(items, max_size=20),
    max_leaves=40,
)


@given(VALUES)
def test_messagepack_is_that_of_others(value: Any) -> None:
    assert msgspec.msgpack.decode(packed(value)) == value
    assert Unpacker(msgspec.msgpack.encode(value)).whole() == value


@pytest.mark.parametrize("value", [1.5, -0.0, "x" * 70_000, b"x" * 70_000, [1] * 70_000, [1] * 20])
def test_messagepack_of_each_size(value: Any) -> None:
    assert Unpacker(msgspec.msgpack.encode(value)).whole() == value


def is_plain(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(is_plain, value))
    return value is None or isinstance(value, int | float | str | bytes)


@given(st.binary(max_size=60))
def test_other_bytes_are_refused(data: bytes) -> None:
    try:
        expected = msgspec.msgpack.decode(data)
        assert is_plain(expected)
        assert repr(Unpacker(data).whole()) == repr(expected)
    except (msgspec.DecodeError, UnicodeDecodeError, AssertionError):
        with pytest.raises((ClientError, UnicodeDecodeError)):
            Unpacker(data).whole()
    with pytest.raises((ClientError, *minimal_client.UNREADABLE)):
        unlz4(data, 5)


@pytest.mark.parametrize("data", [b"\x91" * 300 + b"\xc0", b"\xdd\xff\xff\xff\xff", b"\x01\x01"])
def test_headers_that_lie(data: bytes) -> None:
    with pytest.raises(ClientError):
        Unpacker(data).whole()


@given(st.lists(st.binary(max_size=80), max_size=12), st.integers(0, 2000), st.booleans())
def test_lz4_is_that_of_others(pieces: list[bytes], times: int, sums: bool) -> None:
    data = b"".join(pieces) * times
    compressed = lz4.frame.compress(
        data, block_size=1, store_size=sums, block_checksum=sums, content_checksum=sums
    )
    assert unlz4(compressed, len(data)) == data
    if data:
        with pytest.raises((ClientError, *minimal_client.UNREADABLE)):
            unlz4(compressed, len(data) - 1)


def test_lz4_that_points_before_its_beginning() -> None:
    for offset, fits in ((1, True), (2, False), (9, False), (0, False)):
        block = b"\x10a" + offset.to_bytes(2, "little") + b"\x10b"
        head = bytes.fromhex("04224d18 60 40 82")
        frame = head + len(block).to_bytes(4, "little") + block + bytes(4)
        if fits:
            assert unlz4(frame, 6) == b"aaaaab"
            continue
        with pytest.raises(ClientError, match="points outside of itself"):
            unlz4(frame, 6)


def test_lz4_of_what_does_not_compress() -> None:
    data = random.Random(3).randbytes(300_000)
    assert unlz4(lz4.frame.compress(data), len(data)) == data


@given(st.data())
def test_a_frame_with_a_wrong_byte_is_read_or_refused(data: st.DataObject) -> None:
    whole = bytearray(serialize([torch.zeros(2000), torch.ones(3, 2).t()]))
    assert [tensor.shape for tensor in value_of(*unframe(bytes(whole)))] == [(2000,), (2, 3)]
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, 3))
    try:
        value_of(*unframe(bytes(whole[: len(whole) - cut])))
    except (ClientError, *minimal_client.UNREADABLE):
        pass


# ------------------------------------------------------------------------------- workers that lie


@pytest.fixture
def lying(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[bytes], Any]]:
    """Makes connections to a worker that says certain bytes, whatever it is told."""
    ends: list[socket.socket] = []

    def connect(said: bytes, head: bytes | None = None) -> Any:
        end, other = socket.socketpair()
        ends.extend((end, other))
        end.settimeout(0.02)
        monkeypatch.setattr(minimal_client, "_dial", lambda *_: end)
        monkeypatch.setattr(minimal_client.os, "urandom", bytes)
        answer = (
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: ICX+Yqv66kxgM0FcWaLWlFLwTAI=\r\n"
            b"sec-websocket-protocol:syft\r\n\r\n"
        )
        other.sendall((answer if head is None else head) + said)
        return other

    yield connect
    for end in ends:
        end.close()


def text(said: bytes) -> bytes:
    return (
        b"\x81"
        + (bytes([len(said)]) if len(said) < 126 else struct.pack(">BH", 126, len(said)))
        + said
    )


WELCOME = text(b'{"kind":"welcome","worker":"bob","heartbeat":0.02}')


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"SSH-2.0\r\n\r\n",
        b"x" * 40_000,
    ],
)
def test_other_servers_are_no_workers(lying: Any, head: bytes) -> None:
    lying(b"", head)
    with pytest.raises(ClientError, match="no worker answered"):
        WebSocket("ws://bob:1")


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (text(b'{"kind":"received","count":1}'), "did not answer with a welcome"),
        (text(b"[]"), "a text message is no object"),
        (b"\x82\x01x", "did not answer with a welcome"),
        (b"\x88\x02\x03\xe8", "the worker has left"),
        (b"\x81\xff" + bytes(20), "too large, masked"),
        (b"\xc1\x01x", "too large, masked or extended"),
        (b"\x81\x7f" + b"\xff" * 8, "too large, masked"),
        (b"", "fallen silent"),
    ],
)
def test_a_worker_that_does_not_welcome(lying: Any, said: bytes, expected: str) -> None:
    lying(said)
    with pytest.raises(ClientError, match=expected):
        Client("ws://bob:1")


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ([32, 2], "a reply to request 1 was expected"),
        ([36, 1], "a reply to request 1 was expected"),
        ([7, 1, []], "a reply to request 1 was expected"),
        ([33, 1], "cannot read"),
        ([33, 1, [2, [32, 0, [2], None, 0]]], "cannot read"),
        ([33, 1, [32, 99, [2], None, 0]], "no tensors of DTypeCode 99"),
        ([33], "cannot read"),
        (5, "cannot read"),
    ],
)
def test_a_worker_whose_replies_lie(lying: Any, header: Any, expected: str) -> None:
    reply = minimal_client.frame(msgspec.msgpack.encode(header))
    lying(WELCOME + b"\x82" + bytes([len(reply)]) + reply)
    with Client("ws://bob:1") as client, pytest.raises(ClientError, match=expected):
        client.ask(7, [])


def test_notices_heartbeats_and_messages_in_pieces(lying: Any) -> None:
    replies = [[38, False], [37], [35, 1, [], False], [33, 1, 5]]
    frames = [minimal_client.frame(msgspec.msgpack.encode(reply)) for reply in replies]
    busy = minimal_client.frame(msgspec.msgpack.encode([11, "add", None, 1.0, 1]), channel=3)
    said = WELCOME + b"\x82" + bytes([len(busy)]) + busy
    for frame in frames[:-1]:
        said += b"\x82" + bytes([len(frame)]) + frame
    said += b"\x02\x04" + frames[-1][:4] + b"\x89\x02hi" + b"\x80" + bytes([len(frames[-1]) - 4])
    other = lying(said + frames[-1][4:] + b"\x8a\x00")
    with Client("ws://bob:1") as client:
        assert client.ask(7, []) == 5
    other.settimeout(1)
    assert b"\x8a\x82\0\0\0\0hi" in other.recv(1 << 16), "it answers the heartbeat"


def test_a_silent_worker_is_asked_and_then_given_up(lying: Any) -> None:
    other = lying(WELCOME)
    with Client("ws://bob:1") as client, pytest.raises(ClientError, match="fallen silent"):
        client.ask(7, [])
    assert other.recv(1 << 16).count(b"\x89\x80\0\0\0\0") == 2
    other = lying(WELCOME)
    with Client("ws://bob:1") as client:
        other.close()
        with pytest.raises((ClientError, OSError)):
            client.ask(7, [])
