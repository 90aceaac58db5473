"""How a connection is closed, by the cases of the Autobahn test suite that are about it.

The numbers are those of its cases, and of the sections of RFC 6455.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import pytest

import syft as sy
from syft.exceptions import BrokenFraming
from syft.serde.limits import Limits
from syft.workers.sockets.streams import PlainStream
from syft.workers.sockets.websocket import BINARY, CLOSE, CONTINUATION, PING, TEXT, WebSocket
from syft.workers.sockets.websocket import _MOST_PIECES
from tests.workers.sockets.attacks.stranger import frame
from tests.workers.sockets.raw_caller import RawCaller

Ends = tuple[WebSocket, socket.socket]


@pytest.fixture
def ends() -> Iterator[Ends]:
    end, other = socket.socketpair()
    websocket = WebSocket(PlainStream(end), False, Limits())
    yield websocket, other
    websocket.abandon()
    other.close()


def said(other: socket.socket) -> bytes:
    """What was written to the other end."""
    try:
        return other.recv(1 << 16, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return b""


def answer(ends: Ends, *frames: bytes) -> bytes:
    """What is answered to frames, as whoever uses a connection does: a broken rule closes it."""
    websocket, other = ends
    other.sendall(b"".join(frames))
    try:
        websocket.receive()
        websocket.flush()
    except BrokenFraming as error:
        websocket.close(error.code, "")
    return said(other)


def closing(code: int, reason: bytes = b"") -> bytes:
    return frame(CLOSE, struct.pack(">H", code) + reason)


ALLOWED = [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999]
FORBIDDEN = [0, 999, 1004, 1005, 1006, 1016, 1100, 2000, 2999, 5000, 65535]


@pytest.mark.parametrize("code", ALLOWED)
def test_7_7_a_code_that_is_known_comes_back(ends: Ends, code: int) -> None:
    assert answer(ends, closing(code)) == b"\x88\x02" + struct.pack(">H", code)


@pytest.mark.parametrize("code", FORBIDDEN)
def test_7_9_and_7_13_a_code_that_must_not_be_sent_is_an_error(ends: Ends, code: int) -> None:
    assert answer(ends, closing(code)) == b"\x88\x02\x03\xea"


def test_7_1_1_and_7_3_1_what_came_before_is_taken_and_a_close_without_a_code_answered(
    ends: Ends,
) -> None:
    assert answer(ends, frame(TEXT, b"Hello"), frame(CLOSE)) == b"\x88\x00"
    assert list(ends[0].messages) == [(TEXT, b"Hello"), (CLOSE, (1000, ""))]


def test_7_1_2_to_7_1_6_nothing_after_a_close_is_taken_or_answered(ends: Ends) -> None:
    begun = frame(TEXT, b"frag", final=False)
    after = closing(1000), frame(PING, b"x"), frame(TEXT, b"late"), frame(CONTINUATION, b"ment")
    assert answer(ends, begun, closing(1000), *after) == b"\x88\x02\x03\xe8"
    assert answer(ends, frame(PING, b"x"), frame(7)) == b""
    assert list(ends[0].messages) == [(CLOSE, (1000, ""))]


@pytest.mark.parametrize(
    ("payload", "code"),
    [(b"\x03", 1002), (b"\x03\xe8" + b"*" * 124, 1002), (b"\x03\xe8\xce\xba\xe1\xf4\x8f", 1007)],
)
def test_7_3_2_and_7_3_6_and_7_5_1_a_malformed_close_is_an_error(
    ends: Ends, payload: bytes, code: int
) -> None:
    assert answer(ends, frame(CLOSE, payload)) == b"\x88\x02" + struct.pack(">H", code)


@pytest.mark.parametrize("reason", [b"Hello World!", b"*" * 123, "κόσμε".encode()])
def test_7_3_4_and_7_3_5_a_reason_is_taken(ends: Ends, reason: bytes) -> None:
    assert answer(ends, closing(1000, reason)) == b"\x88\x02\x03\xe8"
    assert list(ends[0].messages) == [(CLOSE, (1000, reason.decode()))]


def test_6_3_a_text_that_is_no_utf_8_is_an_error_in_any_pieces(ends: Ends) -> None:
    pieces = frame(TEXT, b"\xce\xba\xe1\xbd", final=False), frame(CONTINUATION, b"\xb9\xed\xa0\x80")
    assert answer(ends, *pieces) == b"\x88\x02\x03\xef"


def test_6_1_2_and_6_2_2_pieces_without_a_byte_and_letters_in_two_pieces_are_taken(
    ends: Ends,
) -> None:
    texts = b"\xce", b"", b"\xba"
    pieces = [frame(CONTINUATION if i else TEXT, p, final=i == 2) for i, p in enumerate(texts)]
    assert answer(ends, *pieces) == b""
    assert list(ends[0].messages) == [(TEXT, "κ".encode())]


@pytest.mark.parametrize("kind", [TEXT, BINARY])
def test_pieces_without_a_byte_do_not_go_on_for_ever(ends: Ends, kind: int) -> None:
    empty = frame(CONTINUATION, final=False)
    assert answer(ends, frame(kind, final=False), *[empty] * (_MOST_PIECES - 1)) == b""
    assert answer(ends, empty) == b"\x88\x02\x03\xf1"


def test_who_has_said_goodbye_answers_no_goodbye(ends: Ends) -> None:
    websocket, other = ends
    websocket.close(1000, "")
    websocket.close(1001, "")
    assert said(other) == b"\x88\x02\x03\xe8"


def test_a_worker_answers_before_it_hangs_up(server: sy.WebsocketServerWorker) -> None:
    with RawCaller(server.port) as caller:
        caller.greet()
        caller.send(CLOSE, b"\x03\xe8bye")
        assert caller.come() == (CLOSE, b"\x03\xe8")
        assert caller.socket.recv(1) == b""
