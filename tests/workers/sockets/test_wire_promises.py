"""What docs/wire.md says of lines, each promise tried by a caller that is not ours."""

from __future__ import annotations

import ast
import base64
import hashlib
import hmac
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import torch

import syft as sy
from examples.clients.minimal_client import TEXT, frame, packed
from syft import codes
from syft.ops.table import NAMES
from syft.trust import tickets
from syft.trust.tokens import TokenBook
from syft.workers.sockets import board, guests, line, line_messages, serving, websocket
from syft.workers.wire.messages import Search, encode
from tests.workers.sockets.line_records import RECORDS, UNCOUNTED, message_of, said_in
from tests.workers.sockets.raw_caller import HEAD, RawCaller, opened

PAGE = (Path(__file__).parents[3] / "docs" / "wire.md").read_text(encoding="utf-8")
LINES = PAGE.partition("\n## Lines\n")[2].partition("\n## Limits\n")[0]
SEARCH = (7, 1, ["#found"])


@pytest.fixture
def bob(hook: sy.TorchHook) -> Iterator[sy.WebsocketServerWorker]:
    with sy.WebsocketServerWorker(hook, port=0, id="bob", lease=30.0) as bob:
        held: Any = torch.ones(3).tag("#found")
        bob.hold(held)
        yield bob


@pytest.fixture
def caller(bob: sy.WebsocketServerWorker) -> Iterator[RawCaller]:
    with RawCaller(bob.port) as caller:
        yield caller


# ---------------------------------------------------------------------------------------- opening


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        ((*HEAD, "Sec-WebSocket-Protocol: syft"), 101),
        (("GET /any?path=1 HTTP/1.1", *HEAD[1:], "Sec-WebSocket-Protocol: chat, syft"), 101),
        (HEAD, 400),
        ((*HEAD, "Sec-WebSocket-Protocol: syft", "Origin: http://localhost"), 403),
        (("GET / HTTP/1.1", "Host: localhost"), 426),
    ],
)
def test_who_asks_for_what(
    bob: sy.WebsocketServerWorker, lines: tuple[str, ...], status: int
) -> None:
    sock, head = opened(bob.port, *lines)
    assert head.startswith(f"HTTP/1.1 {status} ")
    if status != 101:
        while sock.recv(4096):
            pass
    sock.close()


def test_extensions_are_offered_in_vain(bob: sy.WebsocketServerWorker) -> None:
    deflate = "Sec-WebSocket-Extensions: permessage-deflate"
    sock, head = opened(bob.port, *HEAD, "Sec-WebSocket-Protocol: syft", deflate)
    assert " 101 " in head and "extensions" not in head.lower()
    sock.close()


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"protocol": 4}, "version"),
        ({"protocol": 0}, "version"),
        ({"name": ""}, "name"),
        ({"name": "n" * 256}, "name"),
        ({"name": "two\nlines"}, "name"),
        ({"ops": 5, "fingerprint": "0" * 16}, "operations"),
        ({"token": "syft_0_0"}, "token"),
        ({"ticket": "a.b"}, "ticket"),
        ({"resume": {"line": "x", "secret": "x", "received": 0}}, "unknown line"),
    ],
)
def test_refusals_have_codes(caller: RawCaller, fields: dict[str, Any], code: str) -> None:
    answer = caller.greet(**fields)
    assert (answer["kind"], answer["code"]) == ("refused", code)
    assert caller.closed()[0] == 1008


def test_every_code_of_a_refusal_is_in_the_page() -> None:
    tree = ast.parse(Path(guests.__file__).read_text(encoding="utf-8"))
    codes = {
        node.args[0].value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "NotWelcome"
        if isinstance(node.args[0], ast.Constant)
    }
    table = LINES.partition("| code of `refused` |")[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| `([a-z ]+)` \|", table, re.M)) == codes


@pytest.mark.parametrize(("protocol", "older"), [(4, "this worker is"), (2, "the caller is")])
def test_a_refused_version_says_who_is_older(caller: RawCaller, protocol: int, older: str) -> None:
    assert older in caller.greet(protocol=protocol)["reason"]


def test_wrong_tokens_lock_an_address_out(hook: sy.TorchHook) -> None:
    with sy.WebsocketServerWorker(hook, port=0, id="bob", tokens=TokenBook()) as bob:
        codes = []
        for _ in range(11):
            with RawCaller(bob.port) as caller:
                codes.append(caller.greet(token="syft_0_0")["code"])
    assert codes == ["token"] * 10 + ["locked"]


@pytest.mark.parametrize(
    "fields",
    [
        {"ops": 5, "fingerprint": hashlib.sha256("\n".join(NAMES[:5]).encode()).hexdigest()[:16]},
        {"ops": 10**6, "fingerprint": "of another table"},
        {"name": "é" * 255},
        {"a field of": "tomorrow"},
    ],
    ids=["known operations", "a longer table", "a long name", "a field"],
)
def test_who_is_welcome(caller: RawCaller, fields: dict[str, Any]) -> None:
    answer = caller.greet(**fields)
    assert answer["kind"] == "welcome"
    assert (answer["worker"], answer["lease"], answer.get("user")) == ("bob", 30.0, None)
    ours = hashlib.sha256("\n".join(NAMES).encode()).hexdigest()[:16]
    assert (answer["ops"], answer["fingerprint"]) == (len(NAMES), ours)


def test_no_two_callers_have_one_name(bob: sy.WebsocketServerWorker) -> None:
    with RawCaller(bob.port) as one, RawCaller(bob.port) as two, RawCaller(bob.port) as three:
        names = [one.greet()["name"], two.greet()["name"], three.greet(name="bob")["name"]]
    assert len({*names, "bob"}) == 4


# -------------------------------------------------------------------------------- broken rules


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (b"{", 1008),
        (b'{"kind":"received","count":0}', 1008),
        (b'{"kind":"hello","protocol":"1","ops":0,"name":"x"}', 1008),
        (b" " * (2**14 + 1), 1008),
    ],
    ids=["no JSON", "no hello", "another type", "too long"],
)
def test_who_does_not_say_hello(caller: RawCaller, text: bytes, code: int) -> None:
    caller.send(TEXT, text)
    assert caller.closed()[0] == code


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (message_of({"kind": "tomorrow"}), 1002),
        (message_of({"kind": "received"}), 1002),
        (message_of({"kind": "received", "count": "1"}), 1002),
        (message_of({"kind": "received", "count": 1}), 1002),
        (message_of({"kind": "open", "channel": 0, "source": "x", "target": "bob"}), 1008),
        (message_of({"kind": "open", "channel": 5, "source": "x", "target": "bob"}), 1008),
        (message_of({"kind": "open", "channel": 65536, "source": "x", "target": "bob"}), 1008),
        (message_of({"kind": "open", "channel": 4, "source": "", "target": "bob"}), 1008),
        (message_of({"kind": "bye", "reason": "x" * 2**14}), 1009),
        ((2, frame(packed([16, "enough"]), [b"x"], channel=3)), 1009),
        ((1, b'{"kind":"received","count":0}'), 1002),
        ((1, b'{"kind":"hello","protocol":3,"ops":0,"name":"x"}'), 1002),
        ((1, b" " * (2**14 + 1)), 1009),
        ((2, frame(b"\xc0")[:6] + b"\x08\0" + frame(b"\xc0")[8:]), 1008),
        ((2, b"no frame"), 1002),
        ((2, b"syft\x01\0\0\0\0\0\0\0\xff\xff\xff\xff"), 1002),
        ((3, b""), 1002),
        ((8, b"\x03\xe8\xff"), 1007),
        ((8, b"\x00\x01"), 1002),
    ],
)
def test_what_ends_a_line(caller: RawCaller, message: tuple[int, bytes], code: int) -> None:
    caller.greet()
    caller.send(*message)
    assert caller.closed()[0] == code


@pytest.mark.parametrize(
    "data",
    [b"\x82\x01x", b"\xc2\x81\0\0\0\0x", b"\x82\xfe\0\x01\0\0\0\0x", b"\x09\x80\0\0\0\0"],
    ids=["not masked", "a reserved bit", "a long length", "a ping in pieces"],
)
def test_what_breaks_the_rules_of_websockets(caller: RawCaller, data: bytes) -> None:
    caller.greet()
    caller.socket.sendall(data)
    assert caller.closed()[0] == 1002


def test_any_key_and_any_number_of_pieces(caller: RawCaller) -> None:
    caller.greet()
    request = frame(packed(list(SEARCH)))
    caller.socket.sendall(b"\x02\x84\0\0\0\0" + request[:4] + b"\x89\x82\0\0\0\0hi")
    assert caller.come() == (10, b"hi"), "a ping inside of a message"
    caller.socket.sendall(b"\x80" + bytes([0x80 | len(request[4:])]) + b"\0\0\0\0" + request[4:])
    assert caller.reply()[1][:2] == [33, 1]


# ------------------------------------------------------------------------ counting and coming back


def test_texts_that_count_are_acknowledged_at_once(caller: RawCaller) -> None:
    caller.greet()
    caller.say(kind="settle", number=5)
    assert caller.text() == {"kind": "received", "count": 1}
    assert caller.text() == {"kind": "settled", "number": 5, "moved": True}
    for kind in ("received", "tell"):
        caller.say(kind=kind, count=1, number=1, question="x")
    assert caller.text() == {"kind": "received", "count": 2}, "reserved, counted, not answered"


def test_fields_of_tomorrow_are_ignored_and_those_at_the_end_may_be_left_out(
    caller: RawCaller,
) -> None:
    caller.greet()
    for number, fields in enumerate(([], [False], [False, "tomorrow", [1]]), 1):
        caller.send(2, frame(packed([9, number, *fields]), channel=3))
        assert caller.text() == {"kind": "received", "count": number}
        assert caller.text()["number"] == number


def test_the_records_of_these_tests_are_those_of_the_code() -> None:
    kinds = get_args(line_messages.Kind)
    ours = {codes.LineCode(kind.__struct_config__.tag).name.lower(): kind for kind in kinds}
    assert RECORDS.keys() == ours.keys() and len(kinds) == len(codes.LineCode)
    for name, (code, fields) in RECORDS.items():
        kind = ours[name]
        assert (code, *fields) == (kind.__struct_config__.tag, *kind.__struct_fields__)
        assert kind.counted == (name not in UNCOUNTED)


def test_messages_are_acknowledged_after_128(caller: RawCaller) -> None:
    caller.greet()
    for _ in range(128):
        caller.ask(*SEARCH)
    while (said := said_in(*caller.come())) is None:
        pass
    assert said == {"kind": "received", "count": 128}


def test_a_line_goes_on_over_another_connection(bob: sy.WebsocketServerWorker) -> None:
    with RawCaller(bob.port) as first:
        welcome = first.greet()
        for seq in (1, 2, 3):
            first.ask(7, seq, ["#found"])
        assert first.reply()[1][1] == 1
        known = {"line": welcome["line"], "secret": welcome["secret"]}
        with RawCaller(bob.port) as second:  # the first one is still there
            answer = second.greet(resume={**known, "received": 1})
            assert (answer["line"], answer["received"]) == (welcome["line"], 3)
            assert [second.reply()[1][1], second.reply()[1][1]] == [2, 3]
            second.ask(7, 4, ["#found"])
            assert second.reply()[1][1] == 4, "nothing was sent twice"
    for received in (0, 5):
        with RawCaller(bob.port) as third:
            answer = third.greet(resume={**known, "received": received})
            assert answer.get("code") == "unknown line"


def test_who_says_goodbye_is_forgotten_at_once(bob: sy.WebsocketServerWorker) -> None:
    with RawCaller(bob.port) as caller:
        welcome = caller.greet()
        caller.ask(11, 1, [77])
        caller.say(kind="bye", reason="enough")
        assert caller.reply()[1] == [32, 1], "what was asked before is done"
        assert caller.closed() == (1000, "enough")
    known = {"line": welcome["line"], "secret": welcome["secret"], "received": 1}
    with RawCaller(bob.port) as caller:
        assert caller.greet(resume=known)["code"] == "unknown line"


def test_who_closes_without_a_word_may_come_back(bob: sy.WebsocketServerWorker) -> None:
    with RawCaller(bob.port) as caller:
        welcome = caller.greet()
        caller.ask(*SEARCH)
        assert caller.reply()[1][:2] == [33, 1]
        caller.send(8, b"\x03\xe8")
        assert caller.socket.recv(5) == b"\x88\x02\x03\xe8", "the answer is the same code"
        assert caller.socket.recv(1) == b"", "and the socket is closed"
    known = {"line": welcome["line"], "secret": welcome["secret"], "received": 1}
    with RawCaller(bob.port) as caller:
        assert caller.greet(resume=known)["kind"] == "welcome"


def test_who_never_tells_what_has_arrived_is_not_served(caller: RawCaller) -> None:
    caller.greet()
    for seq in range(1, 9001):
        caller.ask(7, seq, ["#nothing"])
    came = 0
    while came < 2**13:
        came += caller.reply()[1][0] == 33
    more = True
    while more:  # until nothing comes before the answer to a ping
        more = False
        caller.send(9, b"")
        while (message := caller.come())[0] != 10:
            came += message[0] == 2 and said_in(*message) is None
            more |= message[0] == 2
    assert came < 9000
    caller.say(kind="received", count=came)
    for seq in range(came + 1, 9001):
        assert caller.reply()[1][:2] == [33, seq]


# ---------------------------------------------------------------------------------------- channels


def test_channels_and_those_beside_them(caller: RawCaller) -> None:
    caller.greet()
    caller.say(kind="open", channel=4, source="x", target="bob")
    for channel in (0, 1, 4, 5):
        caller.ask(*SEARCH, channel=channel)
        assert caller.reply()[0] == channel & ~1, "replies bear the even number"
    caller.say(kind="open", channel=8, source="x", target="carol")
    caller.ask(*SEARCH, channel=8)
    channel, (code, seq, error, _) = caller.reply()
    assert (channel, code, seq, error[1]) == (8, 34, 1, 130)


def test_an_open_with_a_wrong_proof_has_requests_fail(caller: RawCaller) -> None:
    caller.greet()
    caller.say(kind="open", channel=4, source="x", target="bob", token="syft_0_0")
    caller.ask(*SEARCH, channel=4)
    channel, (code, seq, *_) = caller.reply()
    assert (channel, code, seq) == (4, 34, 1)
    caller.ask(*SEARCH)
    assert caller.reply()[1][:2] == [33, 1]


# ----------------------------------------------------------------------------------------- numbers


@pytest.mark.parametrize("user", [None, "ann", 'é "\\ /\n\x7f\u2028\U0001f600'])
def test_a_ticket_as_the_page_writes_it_is_one(user: str | None) -> None:
    secret, expires = "a secret of a line", 1767225600123
    key = hashlib.sha256(b"syft tickets\0" + secret.encode()).digest()
    assert key == tickets.ticket_key(secret)
    nonce = base64.urlsafe_b64encode(bytes(16)).rstrip(b"=").decode()
    fields = ["line", "holder", user, expires, nonce]
    payload = json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()
    signature = hmac.digest(key, b"syft ticket 1\0" + payload, hashlib.sha256)
    text = ".".join(
        base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in (payload, signature)
    )
    ticket = tickets.read(key, text, expires / 1000 - 1)
    assert (ticket.session, ticket.holder, ticket.user) == ("line", "holder", user)


def test_the_numbers_of_the_page_are_those_of_the_code() -> None:
    assert websocket.MAX_TEXT == websocket._LARGE == line.LARGE == 2**14
    assert serving._MOST_WAITING == serving._MOST_UNREAD == 2**26
    assert (line_messages.PROTOCOL, line.NESTED, line._REPORT_AFTER) == (3, 1, 128)
    assert (line.LOST_AFTER, guests.TICKET_SECONDS, board.IDLE) == (3, 60.0, 1.0)
    ours = line.Line("x", sy.serde.Limits(), odd=True), line.Line("x", sy.serde.Limits(), odd=False)
    numbers = [[end.new_channel().number for _ in range(3)] for end in ours]
    assert numbers == [[6, 10, 14], [4, 8, 12]]
    for number in ("128 messages", "two heartbeats more", "4, 8, 12, …", "6, 10, 14, …"):
        assert number in " ".join(LINES.split())


def test_the_example_is_the_message() -> None:
    (example,) = re.findall(r"((?:    (?:[0-9a-f]{2} ?)+\n)+)", LINES)
    assert bytes.fromhex(example) == frame(encode(Search(1, ("#digits",))))


def test_it_is_given_up_who_is_silent(hook: sy.TorchHook) -> None:
    with sy.WebsocketServerWorker(hook, port=0, id="bob", heartbeat=0.05) as bob:
        with RawCaller(bob.port) as caller:
            caller.greet()
            assert caller.socket.recv(2) == b"\x89\0"
            while caller.socket.recv(100):
                pass  # nothing but the end of the connection ends this
