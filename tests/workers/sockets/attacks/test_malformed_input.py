"""Whatever is written to the port, the worker goes on: it serves the next honest caller, its memory
stays, and its log does not fill."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import struct
import time
from collections.abc import Callable, Iterator

import lz4.frame
import pytest

from syft.workers.wire import messages
from syft.workers.wire.messages import Search
from tests.sampling import fewer
from tests.workers.sockets.attacks.mutations import SAMPLES, mutated, mutated_text
from tests.workers.sockets.attacks.stranger import (
    BINARY,
    CLOSE,
    PING,
    PONG,
    TEXT,
    Stranger,
    frame,
    hello,
    syft_frame,
)
from tests.workers.sockets.attacks.victim import ROOT, Victim
from tests.workers.sockets.line_records import message_of

SMALL = {"max_bytes": 1 << 26, "max_header_bytes": 1 << 20}
"""The limits of the worker: 64 MB a frame."""


@pytest.fixture(scope="module")
def victim() -> Iterator[Victim]:
    """One worker for all attacks of this module: it survives each."""
    with Victim(limits=SMALL, heartbeat=0.5, lease=1.0) as victim:
        yield victim


@pytest.fixture(autouse=True)
def next_caller_is_served(victim: Victim) -> Iterator[None]:
    """After each attack an honest caller is let in, and gets an answer."""
    yield
    with Stranger(victim.port) as honest:
        assert honest.greet(name="honest")["kind"] == "welcome"
        assert type(honest.ask(Search(1, ("#nothing",)))).__name__ == "Value"


# --------------------------------------------------------------------- RFC 6455, rule by rule

SEARCH = syft_frame(messages.encode(Search(1, ("#nothing",))))

VIOLATIONS: dict[str, tuple[bytes, int]] = {
    "the first reserved bit": (frame(BINARY, SEARCH, reserved=4), 1002),
    "the second reserved bit": (frame(BINARY, SEARCH, reserved=2), 1002),
    "the third reserved bit": (frame(PING, reserved=1), 1002),
    "a frame without a mask": (frame(BINARY, SEARCH, key=None), 1002),
    "a ping without a mask": (frame(PING, key=None), 1002),
    "a length of 16 bits that fits in 7": (frame(BINARY, SEARCH, wide=2), 1002),
    "a length of 64 bits that fits in 16": (frame(BINARY, SEARCH, wide=8), 1002),
    "a length beyond 63 bits": (frame(BINARY, SEARCH, size=1 << 63, wide=8), 1002),
    "a ping of 126 bytes": (frame(PING, bytes(126)), 1002),
    "a ping in pieces": (frame(PING, b"", final=False), 1002),
    "a close in pieces": (frame(CLOSE, b"", final=False), 1002),
    "an opcode for data that is not defined": (frame(3, b""), 1002),
    "an opcode for control that is not defined": (frame(11, b""), 1002),
    "a continuation of nothing": (frame(0, b""), 1002),
    "a text inside a text": (frame(TEXT, b"{", final=False) + frame(TEXT, b"}"), 1002),
    "a frame inside a frame": (frame(BINARY, SEARCH[:9], False) + frame(BINARY, b""), 1002),
    "a text inside a frame": (frame(BINARY, SEARCH[:9], False) + frame(TEXT, b"{}"), 1002),
    "a text that is no UTF-8": (frame(TEXT, b'{"kind":"bye","reason":"\xff"}'), 1007),
    "a text that is too long": (frame(TEXT, bytes(1 << 15)), 1009),
    "a text of endless pieces": (
        frame(TEXT, b"", final=False) + frame(0, b"", final=False) * 400,
        1009,
    ),
    "a text that is too long in pieces": (
        frame(TEXT, bytes(9000), final=False) + frame(0, bytes(9000)),
        1009,
    ),
    "a close of one byte": (frame(CLOSE, b"\x03"), 1002),
    "a close with a number that means no code": (frame(CLOSE, struct.pack(">H", 1005)), 1002),
    "a close with a number beyond all": (frame(CLOSE, struct.pack(">H", 65535)), 1002),
    "a close whose reason is no UTF-8": (frame(CLOSE, struct.pack(">H", 1000) + b"\xff"), 1007),
}


@pytest.mark.parametrize("name", VIOLATIONS)
def test_each_rule_of_the_framing_is_kept(victim: Victim, name: str) -> None:
    data, code = VIOLATIONS[name]
    with Stranger(victim.port) as stranger:
        stranger.greet()
        stranger.attempt(data)
        assert stranger.closing_code() == code


@pytest.mark.parametrize("name", VIOLATIONS)
def test_each_rule_is_kept_before_the_caller_is_known(victim: Victim, name: str) -> None:
    with Stranger(victim.port) as stranger:
        stranger.attempt(VIOLATIONS[name][0])
        assert stranger.closing_code() in (1002, 1007, 1008, 1009, None)


def test_pieces_with_pings_between_them_are_one_message(victim: Victim) -> None:
    with Stranger(victim.port) as stranger:
        stranger.greet()
        cuts = [SEARCH[:1], SEARCH[1:7], b"", SEARCH[7:]]
        for index, piece in enumerate(cuts):
            last = index == len(cuts) - 1
            stranger.send(frame(0 if index else BINARY, piece, final=last) + frame(PING, b"now"))
        answers = [stranger.read() for _ in range(5)]
        assert [opcode for opcode, _ in answers].count(PONG) == 4
        assert [opcode for opcode, _ in answers].count(BINARY) == 1


def test_nothing_but_a_hello_is_read_from_strangers(victim: Victim) -> None:
    for first in (
        frame(BINARY, SEARCH),
        frame(TEXT, b'{"kind":"received","count":0}'),
        frame(TEXT, b"not JSON"),
        frame(CLOSE),
    ):
        with Stranger(victim.port) as stranger:
            stranger.attempt(first)
            assert stranger.closing_code() in (1002, 1008, 0, None), "0: the goodbye is answered"


# ---------------------------------------------------------------------------------- HTTP, and bytes

REQUESTS = [
    b"GET / HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\r\n",
    b"POST / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n",
    b"GET / HTTP/1.1\r\n" + b"".join(b"X%d: y\r\n" % i for i in range(400)) + b"\r\n",
    b"GET " + b"a" * 9000 + b" HTTP/1.1\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200) + b"\r\n\r\n",
    b"\r\n\r\n",
    b"\xff\xfe\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
]


@pytest.mark.parametrize("request_", REQUESTS, ids=range(len(REQUESTS)))
def test_what_is_no_request_for_a_web_socket_is_refused(victim: Victim, request_: bytes) -> None:
    with Stranger(victim.port, upgrade=False) as stranger:
        stranger.attempt(request_)
        stranger.attempt(frame(TEXT, json.dumps(hello()).encode()))
        answer = b""
        try:
            while data := stranger.socket.recv(4096):
                answer += data
        except ConnectionError:
            pass
        assert b"101" not in answer and b"welcome" not in answer


def test_pages_in_browsers_are_refused(victim: Victim) -> None:
    with Stranger(victim.port, upgrade=False) as stranger:
        assert "403" in stranger.upgrade(Origin="http://localhost").splitlines()[0]


# ----------------------------------------------------------------------------- texts about the line

HELLOS = [
    {"resume": {"line": "\u00e9", "secret": "\u00e9", "received": 0}},
    {"resume": {"line": "", "secret": "", "received": 10**30}},
    {"ticket": "\u00e9.\u00e9"},
    {"ticket": "." * 8000},
    {"name": ""},
    {"name": "x\nWARNING the owner: all is well"},
    {"name": "n" * 5000},
    {"protocol": -1},
    {"protocol": 10**40},
    {"token": "syft_" + "0" * 16 + "_"},
]


@pytest.mark.parametrize("fields", HELLOS, ids=range(len(HELLOS)))
def test_who_says_hello_wrongly_is_told_why(victim: Victim, fields: dict[str, object]) -> None:
    with Stranger(victim.port) as stranger:
        assert stranger.greet(**fields)["kind"] == "refused"
    assert "\nWARNING the owner" not in victim.log()


FORGED = [
    {"kind": "received", "count": -1},
    {"kind": "received", "count": 10**6},
    {"kind": "open", "channel": -3, "source": "x", "target": "bob"},
    {"kind": "open", "channel": 5, "source": "x", "target": "bob"},
    {"kind": "open", "channel": 10**18, "source": "x", "target": "bob"},
    {"kind": "open", "channel": 0, "source": "x", "target": "bob"},
    {"kind": "open", "channel": 8, "source": "", "target": "bob"},
    {"kind": "nothing"},
    {"count": 1},
    [],
]


@pytest.mark.parametrize("record", FORGED, ids=range(len(FORGED)))
def test_texts_that_make_no_sense_end_the_line(victim: Victim, record: object) -> None:
    with Stranger(victim.port) as stranger:
        stranger.greet()
        stranger.tell(record)
        assert stranger.closing_code() in (1002, 1008)


def test_answers_that_nobody_asked_for_are_passed_over(victim: Victim) -> None:
    """Kept, they would be taken for the answer of somebody else, or fill the memory."""
    with Stranger(victim.port) as stranger:
        stranger.greet()
        before = victim.memory
        for number in range(2000):
            stranger.tell(
                {"kind": "introduction", "number": number, "name": "alice", "others": ["x" * 999]}
            )
            stranger.tell({"kind": "settled", "number": number, "moved": True})
            stranger.tell({"kind": "told", "number": number, "answer": ["x" * 999]})
        assert stranger.is_served()
        assert victim.memory - before < 4


def test_channels_come_to_an_end(victim: Victim) -> None:
    with Stranger(victim.port) as stranger:
        stranger.greet()
        for number in range(4, 3000, 2):
            text = {"kind": "open", "channel": number, "source": f"w{number}", "target": "bob"}
            stranger.attempt(frame(*message_of(text)))
        assert stranger.closing_code() in (1008, None)


def test_frames_on_channels_that_are_not_open_end_the_line(victim: Victim) -> None:
    done = messages.encode(messages.Done(1))
    for data in (syft_frame(SEARCH[16:], channel=4), syft_frame(done), syft_frame(done, 9)):
        with Stranger(victim.port) as stranger:
            stranger.greet()
            stranger.send(frame(BINARY, data))
            assert stranger.closing_code() == 1008
    with Stranger(victim.port) as stranger:
        stranger.greet()
        stranger.send(frame(BINARY, syft_frame(SEARCH[16:], channel=2)))  # no bytes of a tunnel
        assert stranger.closing_code() == 1002
    with Stranger(victim.port) as stranger:
        stranger.greet()
        text = {"kind": "open", "channel": 2, "source": "w", "target": "bob"}
        stranger.send(frame(*message_of(text)))
        assert stranger.closing_code() == 1008


# ------------------------------------------------------------------- memory: lies, bombs and floods


def lying(size: int, header: bytes = b"\xc0", count: int = 0, table: bytes = b"") -> bytes:
    """A frame whose prefix says what its rest does not keep."""
    return struct.pack("<4sBBHII", b"syft", 1, 0, 0, count, size) + table + header


def entry(stored: int, raw: int, kind: int) -> bytes:
    """A row of the table of buffers."""
    return struct.pack("<QQII", stored, raw, kind, 0)


BOMB = lz4.frame.compress(bytes(1 << 28))
NESTED = b"\x91" * 100_000 + b"\xc0"

LIES: dict[str, bytes] = {
    "a header of 4 GB": lying(2**32 - 1),
    "a header that never comes": lying(1 << 20),
    "four billion buffers": lying(1, count=2**32 - 1),
    "a buffer of 2**63 bytes": lying(1, count=1, table=entry(2**63, 2**63, 0)),
    "a buffer larger than the cap": lying(1, count=1, table=entry(1 << 30, 1 << 30, 0)),
    "a bomb beyond the cap": lying(1, count=1, table=entry(len(BOMB), 1 << 28, 1)) + BOMB,
    "a bomb that says it is small": lying(1, count=1, table=entry(len(BOMB), len(BOMB), 1)) + BOMB,
    "many buffers within the cap": lying(1, count=65, table=entry(1 << 20, 1 << 20, 0) * 65),
    "deep nesting": syft_frame(NESTED),
    "an array of four billion": syft_frame(b"\xdd\xff\xff\xff\xff"),
    "a text of four billion": syft_frame(b"\x94\x03\x01\xdb\xff\xff\xff\xff"),
    "a tuple of a million": syft_frame(
        b"\x94\x02\x01\x05\xdd\x00\x0f\x42\x40" + b"\x01" * 1_000_000
    ),
    "a number of 2**64 - 1": syft_frame(b"\x94\x03\xcf" + b"\xff" * 8 + b"\x05\x00"),
}
HOSTILE = sorted((ROOT / "tests" / "frames" / "hostile").glob("*.bin"))
LIES |= {path.stem: path.read_bytes() for path in HOSTILE}
LIES |= {path.stem: path.read_bytes() for path in HOSTILE[0].parents[1].glob("messages/*.bin")}


def masked(data: bytes) -> bytes:
    """One WebSocket message, or two pieces of one."""
    return frame(BINARY, data, key=bytes(4))


@pytest.mark.parametrize("name", sorted(LIES))
def test_memory_stays_under_the_cap(victim: Victim, name: str) -> None:
    before = victim.memory
    victim.forget_peak()
    for data in (
        masked(LIES[name]),
        frame(BINARY, LIES[name][:20], False) + frame(0, LIES[name][20:]),
    ):
        with Stranger(victim.port) as stranger:
            stranger.greet()
            stranger.attempt(data)
            stranger.is_served()
    assert victim.peak - before < 64 + 32, "the cap, and 32 MB"


def test_frames_that_never_end_take_what_has_come(victim: Victim) -> None:
    """Twenty callers announce 60 MB each, and send a little."""
    table = entry(60 << 20, 60 << 20, 0)
    data = lying(1, count=1, table=table)
    before = victim.memory
    strangers = [Stranger(victim.port) for _ in range(20)]
    try:
        for stranger in strangers:
            stranger.greet()
            stranger.send(frame(BINARY, data, size=len(data) + (60 << 20), key=bytes(4)))
            stranger.send(bytes(1000))
        with Stranger(victim.port) as honest:
            honest.greet()
            assert honest.is_served()
        assert victim.memory - before < 32
    finally:
        for stranger in strangers:
            stranger.socket.close()


FLOODS: dict[str, Callable[[], bytes]] = {
    "pings": lambda: frame(PING, bytes(125)) * 500,
    "requests": lambda: frame(BINARY, SEARCH) * 500,
    "questions": lambda: frame(*message_of({"kind": "settle", "number": 1})) * 500,
    "urgent requests": lambda: frame(BINARY, syft_frame(SEARCH[16:], 1)) * 500,
}


@pytest.mark.parametrize("name", FLOODS)
@pytest.mark.parametrize("reads", [False, True])
def test_floods_do_not_pile_up(victim: Victim, name: str, reads: bool) -> None:
    """A caller that asks and asks, and never reads an answer, or never says that one has come."""
    data = FLOODS[name]()
    before = victim.memory
    with Stranger(victim.port) as stranger:
        stranger.greet()
        stranger.socket.settimeout(0.2)
        sent, until = 0, time.monotonic() + 3
        with contextlib.suppress(OSError):
            while sent < 60 << 20 and time.monotonic() < until:
                stranger.send(data)
                sent += len(data)
                with contextlib.suppress(BlockingIOError):
                    while reads and stranger.socket.recv(1 << 20, socket.MSG_DONTWAIT):
                        pass
        growth = victim.memory - before
        with Stranger(victim.port) as honest:
            honest.greet()
            assert honest.is_served(), "others are served meanwhile"
    assert growth < 100, "64 MB of requests that wait, or of answers that nobody reads"


# ------------------------------------------------------------------------------------- mutations


def one_attack(random_: random.Random) -> bytes:
    """A WebSocket frame, most of them well-formed, so that what is in them is looked at."""
    kind = random_.randrange(10)
    if kind == 0:
        return random_.randbytes(random_.randrange(1, 200))
    if kind == 1:
        return mutated(random_, frame(random_.choice([BINARY, TEXT, PING]), SEARCH))
    if kind < 4:
        return frame(*mutated_text(random_))
    return frame(BINARY, mutated(random_, random_.choice(SAMPLES)))


def attack(victim: Victim, count: int, seed: int) -> None:
    """Send so many malformed frames, over as many connections as it takes."""
    random_ = random.Random(seed)
    sent = 0
    while sent < count:
        with Stranger(victim.port, upgrade=False) as stranger:
            if random_.random() < 0.05:
                stranger.attempt(mutated(random_, REQUESTS[1]) + random_.randbytes(50))
                sent += 1
                continue
            stranger.upgrade()
            if random_.random() > 0.05:
                stranger.greet()
            stranger.socket.settimeout(0.03)  # the worker may wait for the rest of a frame
            with contextlib.suppress(TimeoutError):
                for _ in range(10):
                    stranger.attempt(one_attack(random_))
                    sent += 1
                    if not stranger.is_served():
                        break


def assert_survives(victim: Victim, count: int, seed: int) -> str:
    attack(victim, max(5000, count // 5), seed + 1)  # 20,000 frames make all that is made once
    time.sleep(2.5)
    before, lines, since = victim.memory, victim.log().count("\n"), time.monotonic()
    attack(victim, count, seed)
    seconds = time.monotonic() - since
    with Stranger(victim.port) as honest:
        began = time.perf_counter()
        assert honest.greet(name="honest")["kind"] == "welcome"
        served = time.perf_counter() - began
    victim.await_count("guests", 0)
    growth, lines = victim.memory - before, victim.log().count("\n") - lines
    assert growth < 10, f"{growth:.1f} MB"
    assert lines <= 2 * seconds + 5, f"{lines} lines of log in {seconds:.0f} s"
    return (
        f"{count} malformed frames in {seconds:.1f} s: {growth:+.1f} MB, {lines} lines of log, "
        f"the next caller was served after {served * 1000:.1f} ms"
    )


def test_malformed_frames(
    victim: Victim, record_property: Callable[[str, object], None], pytestconfig: pytest.Config
) -> None:
    figure = assert_survives(victim, fewer(3000, pytestconfig), random.randrange(10**9))
    record_property("figure", figure)
    print(figure)


@pytest.mark.soak
def test_a_hundred_thousand_malformed_frames(
    victim: Victim, record_property: Callable[[str, object], None]
) -> None:
    figure = assert_survives(victim, 100_000, random.randrange(10**9))
    record_property("figure", figure)
    print(figure)
