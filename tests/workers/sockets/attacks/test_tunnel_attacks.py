"""A client that passes on what two servers say learns nothing of it and cannot change it.

Nobody has a tunnel to where it was not introduced, or tunnels without end.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import syft as sy
from syft.exceptions import (
    BrokenFraming,
    MalformedMessage,
    SyftError,
    WorkerLost,
)
from syft.serde.frame import Frame, to_bytes
from syft.serde.limits import Limits
from syft.trust.certificates import Identity, own_certificate, passing_context
from syft.workers.shells.network import Network
from syft.workers.sockets.arriving import small_frame
from syft.workers.sockets.client import WebsocketClientWorker
from syft.workers.sockets.dialling import Target
from syft.workers.sockets.introducing import TunnelTo
from syft.workers.sockets.line import TUNNELS, Line
from syft.workers.sockets.line_messages import (
    CONTROLS,
    Closed,
    Meet,
    Opened,
    Resume,
    Room,
    Tunnel,
    decode_control,
)
from syft.workers.sockets.tunnels import Relays
from syft.workers.sockets.serving import _refuse_tunnel
from syft.workers.sockets.streams import TlsStream
from syft.workers.sockets.tunnels import MOST_TUNNELS, ROOM, TunnelEnds
from syft.workers.wire.sealed_bytes import read_sealed, sealed_frame
from tests.workers.sockets.out_of_reach import (  # noqa: F401
    Tap,
    comes_true,
    move_something,
    out_of_reach,
)
from tests.workers.sockets.line_records import said_in
from tests.workers.sockets.raw_caller import RawCaller


@contextlib.contextmanager
def apart(
    hook: sy.TorchHook, alice: Identity | None = None, **settings: Any
) -> Iterator[tuple[Any, Any, Any, Any]]:
    """Clients of bob and alice, and the two servers."""
    own = {} if alice is None else {"cert_path": alice.cert_path, "key_path": alice.key_path}
    with (
        sy.WebsocketServerWorker(hook, port=0, id="alice", heartbeat=60.0, **own) as there,
        sy.WebsocketServerWorker(hook, port=0, id="bob", heartbeat=60.0, **settings) as here,
    ):
        pin = None if alice is None else alice.fingerprint
        to_bob = sy.connect(str(here.address))
        to_alice = sy.connect(str(there.address), fingerprint=pin)
        yield to_bob, to_alice, here, there
        to_bob.close()
        to_alice.close()


@pytest.fixture
def tap(monkeypatch: pytest.MonkeyPatch) -> Tap:
    return Tap(monkeypatch)


@pytest.fixture
def made(tmp_path: Path) -> Identity:
    return own_certificate(tmp_path / "alice")


# ------------------------------------------------------------------------------- what is learned


def settled(tap: Tap) -> list[int]:
    """How many bytes each end has sent, once neither sends any more."""
    sizes: list[int] = []
    while sizes != (sizes := [tap.size("bob"), tap.size("alice")]):
        time.sleep(0.5)
    return sizes


def transcript(hook: sy.TorchHook, tap: Tap, made: Identity, secret: list[float]) -> list[int]:
    """How many bytes each end sends while a private value moves to where its owner lets it go."""
    tap.seen.clear()
    with apart(hook, made, destinations={"alice": made.fingerprint}) as (bob, alice, here, there):
        private = torch.tensor(secret).private_tensor(["ann"], allow_destinations=["alice"])
        here.hold(private.tag("#secret"), allow_writes=["me"])
        (found,) = bob.search("#secret")
        move_something(bob, alice)
        before = settled(tap)
        moved = (found * 2).move(alice)
        sizes = [now - then for now, then in zip(settled(tap), before, strict=True)]
        with there.owning():
            held = [one.tolist() for one in there.core.store.objects.values()]
        assert [value * 2 for value in torch.tensor(secret).tolist()] in held
        del found, moved
        sy.synchronize()
    return sizes


@pytest.mark.usefixtures("out_of_reach")
def test_the_client_sees_no_byte_of_a_private_value(
    hook: sy.TorchHook, tap: Tap, made: Identity
) -> None:
    one, two = [271.8281828, 314.1592653, 161.8033988], [0.0, 0.0, 0.0]
    sizes = transcript(hook, tap, made, one)
    for value in one:
        for number in (value, value * 2):
            for form in ("<f", ">f", "<d", ">d"):
                assert struct.pack(form, number) not in tap.all()
    assert sizes[0] > 100
    assert transcript(hook, tap, made, two) == sizes, "nor can sizes be told apart"


@pytest.mark.usefixtures("out_of_reach")
def test_a_public_value_would_be_seen_on_the_clients_own_line(hook: sy.TorchHook, tap: Tap) -> None:
    """The scan finds what is not sealed: the control of the test above."""
    tap.change = lambda relays, line, frame: [(line, frame)]
    with apart(hook) as (bob, alice, here, there):
        move_something(bob, alice)
        relays, seen = bob.board.relays, len(tap.seen)
        marked = torch.frombuffer(bytearray(b"in the clear"), dtype=torch.uint8)
        relays.passed(bob.line, sealed_frame(99, marked))
        assert b"in the clear" in tap.all() and len(tap.seen) == seen + 1


@pytest.mark.usefixtures("out_of_reach")
def test_a_lie_about_the_fingerprint_leads_nothing_private_there(
    hook: sy.TorchHook, made: Identity, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The client says that its own worker is the alice of bob's owner, and has another one."""
    theirs = own_certificate(tmp_path / "evil")
    with apart(hook, theirs, destinations={"alice": made.fingerprint}) as (bob, alice, here, there):
        secret = torch.tensor([1.0]).private_tensor(["ann"], allow_destinations=["alice"])
        here.hold(secret.tag("#secret"), allow_writes=["me"])
        (found,) = bob.search("#secret")
        with pytest.raises(SyftError):
            (found * 2).move(alice).get()
        alice.target_address = replace(alice.target_address, fingerprint=made.fingerprint)
        for guest in here.reception.guests.values():
            for worker in guest.introduced.values():
                with here.owning():
                    here.board.remove(worker.line, "once more, with a lie")
        with pytest.raises(WorkerLost, match="certificate is not the pinned one"):
            (found * 2).move(alice)
        assert there.objects_count() == 0
        del found


@pytest.mark.usefixtures("out_of_reach")
def test_another_certificate_later_is_refused(hook: sy.TorchHook) -> None:
    """What the first tunnel showed is what each later one must show."""
    with apart(hook) as (bob, alice, here, there):
        move_something(bob, alice)
        line = next(line for line in here.board.lines if here.board.redialler.knows(line))
        there._sealed_by = passing_context()
        line.websocket.stream.socket.shutdown(2)
        assert comes_true(lambda: line.ended is not None)
        assert "certificate is not the pinned one" in line.ended
        move_something(bob, alice)  # a new line, to whoever the client says that it is


# -------------------------------------------------------------------------------- what is changed


def flip(relays: Relays, line: Line, frame: Frame) -> list[tuple[Line, Frame]]:
    number, data = read_sealed(frame)
    data = data.clone()
    data[data.numel() // 2] ^= 1
    return [(line, sealed_frame(number, data))]


def repeat(relays: Relays, line: Line, frame: Frame) -> list[tuple[Line, Frame]]:
    return [(line, frame), (line, frame)]


@pytest.mark.usefixtures("out_of_reach")
@pytest.mark.parametrize("change", [flip, repeat])
@pytest.mark.parametrize("sender", ["bob", "alice"])
def test_what_is_changed_on_the_way_ends_the_line(
    hook: sy.TorchHook, tap: Tap, change: Any, sender: str
) -> None:
    with apart(hook) as (bob, alice, here, there):
        move_something(bob, alice)
        line = next(line for line in here.board.lines if here.board.redialler.knows(line))

        def now(relays: Relays, one: Line, frame: Frame) -> list[tuple[Line, Frame]]:
            if one.name == sender:
                tap.change = None
                return list(change(relays, one, frame))
            return [(one, frame)]

        tap.change = now
        x = torch.ones(2).send(bob)
        with contextlib.suppress(WorkerLost):  # the request may have been answered before
            x.move(alice)
        assert comes_true(lambda: line.ended is not None)
        assert "changed on its way" in line.ended
        move_something(bob, alice)  # over another line
        del x


@pytest.mark.usefixtures("out_of_reach")
def test_tunnels_that_are_swapped(hook: sy.TorchHook, tap: Tap) -> None:
    """Bytes of one tunnel do not belong into another one, between the same two workers either."""
    with apart(hook) as (bob, alice, here, there):
        move_something(bob, alice)
        line = next(line for line in here.board.lines if here.board.redialler.knows(line))
        (guest,) = here.reception.guests.values()
        near, _ = TunnelTo(here.board, guest.line, "alice").dial(10)
        first, second = sorted(n for one, n in bob.board.relays._ends if one is bob.line)[:2]

        def swap(relays: Relays, one: Line, frame: Frame) -> list[tuple[Line, Frame]]:
            number, data = read_sealed(frame)
            if one is bob.line and number in (first, second):
                number = first + second - number
            return [(one, sealed_frame(number, data))]

        tap.change = swap
        near.send(b"what one end of another tunnel says")
        assert comes_true(lambda: line.ended is not None)
        assert "changed on its way" in line.ended
        near.close()
        tap.change = None
        move_something(bob, alice)


def test_what_is_changed_on_a_direct_way_breaks_the_connection_alone() -> None:
    class Changed:
        def setblocking(self, blocks: bool) -> None:
            assert not blocks

        def recv_into(self, memory: memoryview) -> int:
            raise ssl.SSLError(1, "bad record mac")

    for tunnelled, error in ((False, ssl.SSLError), (True, BrokenFraming)):
        stream = TlsStream(Changed(), tunnelled)  # type: ignore[arg-type]
        with pytest.raises(error):
            stream.read(memoryview(bytearray(4)))


# -------------------------------------------------------------------- who comes through a tunnel


def dial_through(here: Any, **changed: Any) -> Any:
    """Connect to alice as a worker that was let into the tunnel might."""
    (guest,) = here.reception.guests.values()
    target = Target(here.address, "bob", tunnel=TunnelTo(here.board, guest.line, "alice"))
    resume = changed.pop("resume", None)
    websocket, welcome = replace(target, **changed).dial(resume, 10)
    websocket.stream.close()
    return welcome


@pytest.mark.usefixtures("out_of_reach")
def test_a_tunnel_is_for_those_with_a_ticket_of_who_opened_it(hook: sy.TorchHook) -> None:
    with apart(hook) as (bob, alice, here, there):
        move_something(bob, alice)
        other = sy.connect(str(there.address), id="alice for another")
        (theirs,) = [one for one in there.reception.guests.values() if one.line.id == other.line.id]
        ticket = other.introduction(_meet("alice"), "bob").ticket
        mine = alice.introduction(_meet("alice"), "bob").ticket
        for proof in (
            {},
            {"token": "syft_0123456789abcdef_" + "x" * 43},
            {"ticket": ticket},
            {"ticket": "nonsense"},
            {"resume": Resume(theirs.line.id, theirs.line.secret, 0)},
            {"resume": Resume("nothing", "x" * 43, 0)},
            {"resume": Resume(alice.line.id, alice.line.secret, 0)},
        ):
            with pytest.raises(SyftError) as refusal:
                dial_through(here, **proof)
            assert getattr(refusal.value, "code", "") in ("ticket", "unknown line")
        assert not there.reception.lockout.is_locked("127.0.0.1", 0)
        assert dial_through(here, ticket=mine).worker == "alice"
        other.close()


def _meet(name: str) -> Meet:
    return Meet(1, name)


def test_what_is_not_encrypted_is_not_let_in(hook: sy.TorchHook) -> None:
    with sy.WebsocketServerWorker(hook, port=0, id="alice") as there, RawCaller(there.port) as eve:
        eve.greet()
        eve.say(kind="tunnel", number=2)
        assert eve.text()["kind"] == "received"
        opened = eve.text()
        assert opened["kind"] == "opened" and opened["fingerprint"].startswith("sha256:")
        pass_on(eve, 2, b"GET / HTTP/1.1\r\n\r\n")
        assert closed_tunnel(eve)["number"] == 2
        assert comes_true(lambda: not there.board.openings)


def pass_on(caller: RawCaller, number: int, data: bytes) -> None:
    """Send bytes of a tunnel."""
    frame = sealed_frame(number, torch.frombuffer(bytearray(data), dtype=torch.uint8))
    caller.send(2, bytes(to_bytes(frame, False)[:6] + bytes((TUNNELS, 0)) + to_bytes(frame)[8:]))


def closed_tunnel(caller: RawCaller) -> dict[str, Any]:
    """The next text that says that a tunnel is over."""
    while True:
        kind, data = caller.come()
        said = said_in(kind, data)
        if said is not None and said["kind"] == "closed":
            return said


def begin_twice(caller: RawCaller) -> None:
    for _ in range(2):
        caller.say(kind="tunnel", number=2)


def give_room(caller: RawCaller, count: int) -> None:
    caller.say(kind="tunnel", number=2)
    caller.say(kind="room", number=2, count=count)


def test_tunnels_without_end_are_refused(hook: sy.TorchHook) -> None:
    with sy.WebsocketServerWorker(hook, port=0, id="alice") as there, RawCaller(there.port) as eve:
        eve.greet()
        for number in range(2, 2 * MOST_TUNNELS + 4, 2):
            eve.say(kind="tunnel", number=number)
        closed = closed_tunnel(eve)
        assert closed["number"] == 2 * MOST_TUNNELS + 2
        assert closed["reason"] == f"there are {MOST_TUNNELS} tunnels already"
        assert len(there.board.tunnels) == MOST_TUNNELS
        eve.say(kind="closed", number=2, reason="enough")
        assert comes_true(lambda: len(there.board.tunnels) == MOST_TUNNELS - 1)
        assert comes_true(lambda: not there.board.openings, 30), "nobody has said who is calling"
        assert comes_true(lambda: len(there.board.tunnels) == 0)


@pytest.mark.parametrize(
    ("attack", "reason"),
    [
        (lambda eve: eve.say(kind="tunnel", number=3), "no tunnel can have the number 3"),
        (lambda eve: eve.say(kind="tunnel", number=0), "no tunnel can have the number 0"),
        (lambda eve: begin_twice(eve), "no tunnel can have the number 2"),
        (lambda eve: give_room(eve, 1), "there is no room for 1 more bytes"),
        (lambda eve: give_room(eve, -5), "there is no room for -5 more bytes"),
    ],
)
def test_texts_about_tunnels_that_break_a_rule(
    hook: sy.TorchHook, attack: Callable[[RawCaller], Any], reason: str
) -> None:
    with sy.WebsocketServerWorker(hook, port=0, id="alice") as there, RawCaller(there.port) as eve:
        eve.greet()
        attack(eve)
        code, said = eve.closed()
        assert code == 1008 and reason in said
        assert comes_true(lambda: len(there.board.tunnels) == 0)


def test_texts_and_bytes_of_tunnels_that_are_not_there(hook: sy.TorchHook) -> None:
    with sy.WebsocketServerWorker(hook, port=0, id="alice") as there, RawCaller(there.port) as eve:
        eve.greet()
        eve.say(kind="room", number=8, count=5)
        eve.say(kind="closed", number=8, reason="")
        eve.say(kind="opened", number=8, fingerprint="")
        pass_on(eve, 8, b"late")
        eve.say(kind="tunnel", number=8)
        eve.say(kind="opened", number=8, fingerprint="sha256:00")  # as if she had asked
        eve.ask(7, 1, ["#nothing"], [], None)
        assert eve.reply()[1][0] == 33
        eve.say(kind="tunnel", number=9)
        assert eve.closed()[0] == 1008


def test_only_callers_that_speak_for_themselves_open_tunnels(hook: sy.TorchHook) -> None:
    with apart(hook) as (bob, alice, here, there):
        move_something(bob, alice)
        acting = next(one for one in there.reception.guests.values() if one.root is not None)
        with there.owning():
            there.board.tunnels.said(acting.line, Tunnel(2))
        assert len(there.board.tunnels) == 0
        with pytest.raises(ConnectionRefusedError):
            _refuse_tunnel(acting.line, there.listener)


# ------------------------------------------------------------------------ the ends by themselves


def texts_of(line: Line) -> list[Any]:
    """What was said about a line."""
    frames = [small_frame(b"".join(parts), line.limits) for parts in line._kept]
    return [decode_control(frame) for channel, frame in frames if channel == CONTROLS]


def sealed_of(line: Line) -> list[Any]:
    """What was sent of the bytes of tunnels."""
    return [parts for parts in line._kept if bytes(parts[0][6:8]) == bytes((TUNNELS, 0))]


class Ends:
    """The ends of tunnels of one worker, whose sockets nobody watches but the test."""

    def __init__(self) -> None:
        self.events: dict[int, tuple[int, Callable[[int], None]]] = {}
        self.line = Line("bob", Limits(), odd=True)
        self.near: list[socket.socket] = []
        self.acts: dict[Any, Any] = {}
        self.passes: dict[int, Any] = {}
        self.watched: Any = self
        self.tunnels = TunnelEnds(self, self.accept)  # type: ignore[arg-type]
        self.news: list[str] = []

    def watch(self, number: int, events: int, act: Callable[[int], None]) -> None:
        self.events[number] = events, act

    def forget(self, number: int) -> None:
        self.events.pop(number, None)

    def accept(self, line: Line, sock: socket.socket) -> str:
        self.near.append(sock)
        return "sha256:ab"

    def opened(self, fingerprint: str) -> None:
        self.news.append(fingerprint)

    def closed(self, reason: str, gone: bool = False) -> None:
        self.news.append(reason)

    def texts(self) -> list[Any]:
        return texts_of(self.line)

    def frames(self) -> int:
        return len(sealed_of(self.line))

    def ready(self, events: int) -> None:
        for wanted, act in list(self.events.values()):
            if wanted & events:
                act(wanted & events)

    def close(self) -> None:
        self.tunnels.look(all_of_them=True)
        for sock in self.near:
            sock.close()


@pytest.fixture
def ends() -> Iterator[Ends]:
    ends = Ends()
    yield ends
    ends.close()


def zeros(count: int) -> Frame:
    return sealed_frame(2, torch.zeros(count, dtype=torch.uint8))


def test_an_end_keeps_no_more_than_there_is_room_for(ends: Ends) -> None:
    ends.tunnels.said(ends.line, Tunnel(2))
    for _ in range(ROOM >> 16):
        ends.tunnels.passed(ends.line, zeros(1 << 16))
    assert len(ends.tunnels) == 1 and not any(type(t) is Closed for t in ends.texts())
    ends.tunnels.passed(ends.line, zeros(1))
    assert len(ends.tunnels) == 0
    assert ends.texts()[-1] == Closed(2, "more came than there was room for")


def test_room_is_told_as_the_bytes_are_read(ends: Ends) -> None:
    ends.tunnels.said(ends.line, Tunnel(2))
    (near,) = ends.near
    told = sent = 0
    for _ in range(200):
        ends.tunnels.passed(ends.line, zeros(1 << 16))
        sent += 1 << 16
        near.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while near.recv(1 << 20):
                ends.ready(2)
        told = sum(text.count for text in ends.texts() if type(text) is Room)
        assert 0 <= sent - told < ROOM
    assert told > 150 << 16


def test_an_end_sends_no_more_than_it_was_told_of(ends: Ends) -> None:
    ends.tunnels.said(ends.line, Tunnel(2))
    (near,) = ends.near
    near.setblocking(False)
    for _ in range(100):
        with contextlib.suppress(BlockingIOError):
            while True:
                near.send(bytes(1 << 16))
        ends.ready(1)
    frames = sealed_of(ends.line)
    sent = sum(sum(map(len, parts[1:])) for parts in frames)
    assert ROOM <= sent < ROOM + 128 * len(frames)
    ends.tunnels.said(ends.line, Room(2, 1000))
    ends.ready(1)
    assert ends.frames() == len(frames) + 1


def test_what_is_left_is_written_before_an_end_closes(ends: Ends) -> None:
    near, far = socket.socketpair()
    ends.near.append(near)
    ends.tunnels.begin(ends.line, "alice", far, ends)
    assert ends.texts() == [Tunnel(1, "alice")]
    ends.tunnels.said(ends.line, Opened(1, "sha256:ab"))
    for _ in range(10):
        ends.tunnels.passed(ends.line, sealed_frame(1, torch.ones(1 << 16, dtype=torch.uint8)))
    ends.tunnels.said(ends.line, Closed(1, "she has left"))
    assert ends.news == ["sha256:ab", "she has left"]
    came = 0
    while data := near.recv(1 << 16):
        came += len(data)
        ends.ready(2)
    assert came == 10 << 16 and len(ends.tunnels) == 0
    assert not any(type(text) is Room and text.count > ROOM for text in ends.texts())


def test_an_end_whose_socket_is_gone(ends: Ends) -> None:
    for number in (2, 4):
        ends.tunnels.said(ends.line, Tunnel(number))
    first, second = ends.near
    first.close()
    ends.tunnels.passed(ends.line, zeros(5))  # a broken pipe
    second.close()
    ends.ready(1)
    assert len(ends.tunnels) == 0
    reasons = [text.reason for text in ends.texts() if type(text) is Closed]
    assert len(reasons) == 2 and reasons[1] == "its end was closed"


def test_a_line_that_is_over_has_no_tunnels(ends: Ends) -> None:
    near, far = socket.socketpair()
    ends.near.append(near)
    ends.tunnels.begin(ends.line, "alice", far, ends)
    ends.line.end("it has left")
    ends.tunnels.look()
    assert ends.news == ["it has left"] and near.recv(5) == b""
    near, far = socket.socketpair()
    ends.near.append(near)
    ends.tunnels.begin(ends.line, "alice", far, ends)
    assert ends.news == ["it has left"] * 2 and len(ends.tunnels) == 0


@pytest.mark.parametrize(
    "frame",
    [
        Frame(b"", []),
        Frame(b"\x02", []),
        Frame(b"\x90", [torch.zeros(5, dtype=torch.uint8)]),
        Frame(b"\xff", [torch.zeros(5, dtype=torch.uint8)]),
        Frame(b"\x02", [torch.zeros(0, dtype=torch.uint8)]),
        Frame(b"\x02", [torch.zeros(65537, dtype=torch.uint8)]),
        Frame(b"\x02", [torch.zeros(5, dtype=torch.uint8)] * 2),
    ],
)
def test_frames_that_are_no_bytes_of_a_tunnel(ends: Ends, frame: Frame) -> None:
    with pytest.raises(MalformedMessage):
        ends.tunnels.passed(ends.line, frame)


# ------------------------------------------------------------------------ a program that passes on


class Program:
    """The relays of a program with lines to bob and alice."""

    def __init__(self) -> None:
        self.network = Network()
        self.bob, self.alice = (Line(name, Limits(), odd=False) for name in ("bob", "alice"))
        self.revived: list[str] = []
        self.acts: dict[Any, Any] = {}
        self.passes: dict[int, Any] = {}
        self.relays = Relays(self, self.revive)  # type: ignore[arg-type]
        self.relays.leads_to = lambda line, name: self.alice if name == "alice" else None

    def push(self, line: Line) -> None:
        assert line.ended is None

    def revive(self, line: Line) -> None:
        self.revived.append(line.name)

    def texts(self, line: Line) -> list[Any]:
        return texts_of(line)


def data(number: int, count: int = 5) -> Frame:
    return sealed_frame(number, torch.zeros(count, dtype=torch.uint8))


def test_a_program_passes_on_between_those_that_it_introduces() -> None:
    program = Program()
    relays, bob, alice = program.relays, program.bob, program.alice
    relays.said(bob, Tunnel(1, "alice"))
    relays.said(bob, Tunnel(3, "carl"))
    relays.said(bob, Tunnel(5))
    why = "this program does not introduce the two workers to each other"
    assert program.texts(bob) == [Closed(3, why), Closed(5, why)]
    assert program.texts(alice) == [Tunnel(2)] and len(relays) == 1
    relays.said(alice, Opened(2, "sha256:ab"))
    relays.passed(bob, data(1))
    relays.passed(alice, data(2, 7))
    relays.passed(bob, data(99))
    relays.said(alice, Room(2, 5))
    assert relays.passed_on == 12
    relays.said(alice, Closed(2, "she has left"))
    assert program.texts(bob)[2:] == [
        Opened(1, "sha256:ab"),
        Room(1, 5),
        Closed(1, "she has left"),
    ]
    assert len(relays) == 0
    relays.said(alice, Room(2, 5))
    relays.look()
    assert not program.revived


def test_a_program_that_knows_no_workers_passes_nothing_on() -> None:
    program = Program()
    relays = Relays(program, program.revive)  # type: ignore[arg-type]
    relays.said(program.bob, Tunnel(1, "alice"))
    assert type(program.texts(program.bob)[0]) is Closed and len(relays) == 0


def test_a_program_bounds_what_it_passes_on() -> None:
    program = Program()
    relays, bob, alice = program.relays, program.bob, program.alice
    for number in range(1, 2 * MOST_TUNNELS + 3, 2):
        relays.said(bob, Tunnel(number, "alice"))
    assert program.texts(bob) == [
        Closed(2 * MOST_TUNNELS + 1, f"there are {MOST_TUNNELS} tunnels already")
    ]
    for number in (1, 2, 0, -1):
        with pytest.raises(BrokenFraming, match="no tunnel can have the number"):
            relays.said(bob, Tunnel(number, "alice"))
    for _ in range(ROOM >> 16):
        relays.passed(bob, data(1, 1 << 16))
    for count in (0, -1, ROOM + 1):
        with pytest.raises(BrokenFraming, match="no such room"):
            relays.said(alice, Room(2, count))
    with pytest.raises(BrokenFraming, match="than there was room for"):
        relays.passed(bob, data(1, 1))


def test_a_program_that_loses_a_worker_closes_its_tunnels() -> None:
    program = Program()
    relays, bob, alice = program.relays, program.bob, program.alice
    relays.said(bob, Tunnel(1, "alice"))
    relays.look()
    relays.look()
    assert sorted(program.revived) == ["alice", "bob"], "lines that tunnels need, now and then"
    alice.end("she has stopped")
    relays.passed(bob, data(1))
    assert relays.passed_on == 0
    relays.look()
    assert program.texts(bob) == [Closed(1, "she has stopped")] and len(relays) == 0
    relays.said(bob, Tunnel(3, "alice"))
    assert program.texts(bob)[1:] == [Closed(3, "she has stopped")]


def test_a_line_that_cannot_be_revived_stays_as_it_is(hook: sy.TorchHook) -> None:
    with sy.WebsocketServerWorker(hook, port=0, id="dan") as server:
        dan = sy.connect(str(server.address))
        dan.board.revive(dan.line)  # it is not broken
        dan.line.websocket.stream.socket.shutdown(2)
        assert comes_true(lambda: dan.line.websocket is None)
        dan.board._dials[dan.line] = _refuse
        with dan.board.monitor:
            dan.board.revive(dan.line)
        assert dan.line.websocket is None and dan.line.ended is None
        dan.board._dials[dan.line] = dan.target_address.dial
        with dan.board.monitor:
            dan.board.revive(dan.line)
        assert (torch.ones(2).send(dan) + 1).get().tolist() == [2, 2]
        assert type(dan) is WebsocketClientWorker
        dan.close()


def _refuse(resume: Any, seconds: float) -> Any:
    raise ConnectionRefusedError("nobody is there")
