"""What happens seldom: other ends that break off, lie or are missing, and lines that are over."""

from __future__ import annotations

import itertools
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import syft as sy
from syft.exceptions import (
    BrokenFraming,
    FileRefused,
    InsecureAddress,
    LimitExceeded,
    MalformedMessage,
    ObjectNotReady,
    PermissionDenied,
    PromiseGivenUp,
    UnknownWorker,
    UnusableSetting,
    WireError,
    WorkerClosed,
    WorkerLost,
    WorkerRefused,
)
from syft.ops.table import NAMES
from syft.serde.frame import Frame, to_parts
from syft.serde.limits import Limits
from syft.trust.tokens import TokenBook
from syft.workers.client.pending import Pending
from syft.workers.sockets import board as loop
from syft.workers.sockets import serving
from syft.workers.sockets.address import Address
from syft.workers.sockets.arriving import FrameAssembly
from syft.workers.sockets.calling import CallingBoard
from syft.workers.sockets.dialling import Target
from syft.workers.sockets.guests import NotWelcome
from syft.workers.sockets.handshake import ServerHandshake, open_client
from syft.workers.sockets.introducing import IntroducedWorker, connect
from syft.workers.sockets.line import Channel, Line
from syft.workers.sockets.line_messages import (
    Busy,
    Introduction,
    Meet,
    Open,
    Refused,
    Resume,
    Settle,
    Welcome,
    encode_control,
    encode_greeting,
)
from syft.workers.sockets.line_transport import LineWorker
from syft.workers.sockets.streams import PlainStream, TlsStream
from syft.workers.sockets.switchboard import _refusal
from syft.workers.sockets.websocket import BINARY, TEXT, WebSocket
from syft.workers.wire import messages
from syft.workers.wire.messages import Fetch, Move

Answer = Callable[[WebSocket], None]


def dial_impostor(answer: Answer | bytes, seconds: float = 5.0) -> Any:
    """Connect to something that answers the opening handshake, or the hello, in its own way."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        sock, _ = listener.accept()
        if isinstance(answer, bytes):
            sock.recv(4096)
            sock.sendall(answer)
            sock.close()
            return
        stream = PlainStream(sock)
        handshake = ServerHandshake(stream)
        while not handshake.advance():
            stream.wait(False)
        websocket = WebSocket(stream, False, Limits())
        websocket.feed(handshake.rest)
        while not websocket.messages:
            stream.wait(False)
            websocket.receive()
        answer(websocket)
        websocket.flush()
        time.sleep(min(seconds, 0.5))
        stream.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        target = Target(Address("ws", "127.0.0.1", listener.getsockname()[1]), "me")
        return target.dial(None, seconds)
    finally:
        thread.join()
        listener.close()


def welcome(**fields: Any) -> Answer:
    said = {"worker": "dan", "protocol": 3, "ops": 5, "line": "x", "secret": "y", "name": "me"}
    return lambda websocket: websocket.put([encode_greeting(Welcome(**{**said, **fields}))], TEXT)


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        (welcome(fingerprint="other"), WorkerRefused, "numbers operations otherwise"),
        (
            lambda websocket: websocket.put([encode_greeting(Refused("no", "not today"))], TEXT),
            WorkerRefused,
            "not today",
        ),
        (
            lambda websocket: websocket.put([encode_control(Settle(1))], BINARY),
            MalformedMessage,
            "expected a welcome",
        ),
        (lambda websocket: websocket.close(1000, "bye"), ConnectionResetError, "closed"),
        (lambda websocket: None, (TimeoutError, ConnectionResetError), "the"),
        (b"HTTP/1.1 200 OK\r\n\r\n", ConnectionError, "no worker answered|reset|closed"),
        (b"nonsense\r\n\r\n", ConnectionAbortedError, "no worker answered"),
        (b"", OSError, "no worker answered|reset"),
    ],
)
def test_other_ends_that_are_no_worker(answer: Answer | bytes, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        dial_impostor(answer, 0.4)


def test_a_worker_with_another_table_of_operations_is_refused(
    hook: sy.TorchHook, server: sy.WebsocketServerWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = "syft.workers.sockets.dialling.ops_fingerprint"
    monkeypatch.setattr(module, lambda count: "another")
    with pytest.raises(WorkerRefused, match="numbers torch's operations otherwise"):
        sy.connect(str(server.address))
    assert len(NAMES) > 0


def test_an_address_elsewhere_must_be_encrypted(monkeypatch: pytest.MonkeyPatch) -> None:
    here = socket.create_server(("127.0.0.1", 0))
    monkeypatch.setattr("syft.workers.sockets.address.is_loopback", lambda host: False)
    with pytest.raises(InsecureAddress):
        Address("ws", "127.0.0.1", here.getsockname()[1]).dial(1)
    here.close()


def test_a_large_frame_is_bounded_before_it_comes() -> None:
    frame = Frame(b"\xc0", [torch.zeros(5000, dtype=torch.uint8)])
    data = b"".join(bytes(part) for part in to_parts(frame, False))
    assembly = FrameAssembly(Limits(max_bytes=5010))
    with pytest.raises(LimitExceeded):
        while data:
            space = assembly.space()
            space[: len(data)] = data[: len(space)]
            count = min(len(space), len(data))
            data = data[count:]
            assembly.filled(count)


def test_bytes_that_come_with_the_handshake() -> None:
    end, other = socket.socketpair()
    one, two = WebSocket(PlainStream(end), True, Limits()), WebSocket(
        PlainStream(other), False, Limits()
    )
    one.put([b"early"], TEXT)
    one.flush()
    two.feed(other.recv(4096))
    assert two.messages.popleft() == (TEXT, b"early") and two.arriving is None
    one.stream.close()
    two.stream.close()


def test_a_unix_socket_that_nobody_serves_is_replaced(hook: sy.TorchHook, tmp_path: Path) -> None:
    path = tmp_path / "dan.sock"
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(path))
    left.close()
    with sy.WebsocketServerWorker(hook, unix=path, id="dan") as server:
        dan = sy.connect(str(server.address))
        assert (torch.ones(2).send(dan) + 1).get().tolist() == [2, 2]
        dan.close()


def test_a_worker_in_the_callers_process_can_be_sent_to(
    hook: sy.TorchHook, dan: sy.WebsocketClientWorker
) -> None:
    here = sy.VirtualWorker(hook, id="here")
    moved = torch.ones(2).send(dan).move(here)
    assert moved.location is here and (moved + 1).get().tolist() == [2, 2]
    with pytest.raises(UnknownWorker):
        x = torch.ones(2).send(dan)
        x.child.connection.ask(Move, x.id_at_location, "nobody")


def test_messages_of_a_server_can_be_watched(
    dan: sy.WebsocketClientWorker, server: sy.WebsocketServerWorker
) -> None:
    seen: list[tuple[str, str]] = []
    with server.owning():
        server.network.observers.append(
            lambda sender, receiver, frame: seen.append((sender, receiver))
        )
    x = torch.ones(2).send(dan)
    assert (x + 1).get().tolist() == [2, 2]
    assert set(seen) == {("me", "dan"), ("dan", "me")}


def test_what_a_server_that_is_lost_leaves(
    hook: sy.TorchHook, server: sy.WebsocketServerWorker
) -> None:
    dan = sy.connect(str(server.address), heartbeat=0.2)
    transport = dan.connection().transport
    server.close()
    with pytest.raises(WorkerLost):
        while True:
            torch.ones(2).send(dan).get()
    for act in (
        lambda: transport.board.turn(dan.line, True),
        lambda: transport.board.ask(dan.line, 1, Meet(1, "x")),
        lambda: transport.advance(parked=False),
    ):
        with pytest.raises(WorkerLost):
            act()
    dan.line.sent += 1
    with pytest.raises(WorkerLost):
        transport.board.wait_until_arrived(dan.line)
    dan.line.sent -= 1
    dan.close()


def test_a_worker_that_started_anew_has_given_the_line_up(
    hook: sy.TorchHook, tmp_path: Path
) -> None:
    path = tmp_path / "dan.sock"
    first = sy.WebsocketServerWorker(hook, unix=path, id="dan")
    first.__enter__()
    dan = sy.connect(str(first.address))
    x = torch.ones(2).send(dan)
    assert x.shape == (2,)
    with first.owning():  # it dies without a word
        for line in list(first.board.lines):
            first.board.detach(line)
        first.listener.close()
    path.unlink()
    with sy.WebsocketServerWorker(hook, unix=path, id="dan"):
        with pytest.raises(WorkerLost, match="started anew"):
            while True:
                (x + 1).get()
    del x
    dan.close()
    first.unix = None
    first.close()


def test_nobody_at_the_address_any_more(hook: sy.TorchHook, tmp_path: Path) -> None:
    path = tmp_path / "dan.sock"
    server = sy.WebsocketServerWorker(hook, unix=path, id="dan").__enter__()
    dan = sy.connect(str(server.address))
    x = torch.ones(2).send(dan)
    assert x.shape == (2,)
    path.unlink()
    with server.owning():
        for line in list(server.board.lines):
            server.board.detach(line)
    for _ in range(2):
        with pytest.raises(WorkerLost):
            while True:
                (x + 1).get()
    del x
    dan.close()
    server.unix = None
    server.close()


def test_a_silent_caller_is_asked_and_given_up(
    hook: sy.TorchHook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "IDLE", 0.05)
    with sy.WebsocketServerWorker(hook, port=0, id="dan", heartbeat=0.1, lease=0.2) as server:
        dan = sy.connect(str(server.address))
        x = torch.ones(2).send(dan)
        assert x.shape == (2,)
        exchange = dan._exchange
        keeper, exchange.keeper = exchange.keeper, None
        assert keeper is not None
        keeper.stop()
        end = time.monotonic() + 10
        while server.reception.guests and time.monotonic() < end:
            time.sleep(0.02)
        assert not server.reception.guests
        assert server.objects_count() == 0
        del x
        dan.close()


def test_promises_of_a_caller_that_left_are_given_up(
    hook: sy.TorchHook, server: sy.WebsocketServerWorker
) -> None:
    dan, other = sy.connect(str(server.address)), sy.connect(str(server.address), id="other")
    promise = dan.promise()
    waits = promise + 1
    sy.synchronize()
    dan.close()
    end = time.monotonic() + 10
    while server.core.dataflow.tasks and time.monotonic() < end:
        time.sleep(0.01)
    assert not server.core.dataflow.tasks and not server.core.store.promised
    mine = other.promise()
    later = mine + 1
    sy.synchronize()
    for name in {peer.name for peer in server.callers}:
        server.give_up_promises_of(name, "enough")
    with pytest.raises(PromiseGivenUp, match="enough"):
        later.get()
    del promise, waits, mine, later
    other.close()
    assert server._objects == {}


def test_what_opens_channels_badly_is_ended(dan: sy.WebsocketClientWorker) -> None:
    x = torch.ones(2).send(dan)
    assert x.shape == (2,)
    dan.line.tell(Open(0, "me", "dan"))
    with pytest.raises((WorkerLost, WireError)):
        while True:
            (x + 1).get()
    del x


def test_another_worker_of_a_server_may_ask(dan: sy.WebsocketClientWorker) -> None:
    board = dan.board
    board.opened(dan.line, Open(22, "eve", "me"))
    channel = dan.line.channels[22]
    assert channel.host is board.network.hosts["me"]
    assert channel.peer.name == "dan", "nobody else speaks over its line, whatever it says"
    for number in (22, 0, -2, 23, 1 << 16):
        with pytest.raises(BrokenFraming):
            board.opened(dan.line, Open(number, "dan", "me"))
    board.opened(dan.line, Open(26, "dan", "nobody"))
    assert dan.line.channels[26].host is None
    for number in range(30, 30 + 4 * 253, 4):
        board.opened(dan.line, Open(number, "dan", "me"))
    with pytest.raises(BrokenFraming, match="more than 256 channels"):
        board.opened(dan.line, Open(5000, "dan", "me"))
    assert channel.peer.user is None and board.reached_for(dan.line) == []
    dan.close()
    assert channel.peer not in board.network.hosts["me"].callers


def test_lines_without_a_program_behind_them() -> None:
    board = CallingBoard(sy.workers.shells.network.Network())
    line = Line("dan", Limits(), odd=False)
    assert board.introduce(line, Meet(3, "eve")) == Introduction(3, "eve", unknown=True)
    worker = LineWorker(board, "dan", line)
    assert repr(worker) == "<LineWorker id:dan>" and worker.proof("ann") == (None, None)
    board.broke(line, OSError("gone already"))
    worker.close()
    assert worker.closed and str(worker.gone()).startswith("Worker 'dan' is closed")
    del board.acts[Busy]
    board._told(line, Busy("torch.add", None, 1.0, 0))  # nobody wants to know
    assert not line.inbox


def test_an_error_of_a_dialled_worker_is_the_requests(server: sy.WebsocketServerWorker) -> None:
    other = sy.WebsocketServerWorker(port=0, id="other")

    def fail() -> None:
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        other.in_background(fail)
    other.close()


def test_no_file_is_left_for_a_caller(
    hook: sy.TorchHook, server: sy.WebsocketServerWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept, tries = server.board.openings._accept, itertools.count()

    def refuse_once(sock: socket.socket) -> Any:
        if next(tries) == 0:
            raise OSError("the caller has left already")
        return accept(sock)

    monkeypatch.setattr(server.board.openings, "_accept", refuse_once)
    with pytest.raises(OSError):
        sy.connect(str(server.address))
    dan = sy.connect(str(server.address))
    assert (torch.ones(2).send(dan) + 1).get().tolist() == [2, 2]
    dan.close()
    assert os.getpid()


def test_a_request_that_waits_for_another_callers_promise_ends_with_its_caller(
    hook: sy.TorchHook, server: sy.WebsocketServerWorker
) -> None:
    dan, other = sy.connect(str(server.address)), sy.connect(str(server.address), id="other")
    promise = other.promise()
    waits = dan.connection().pointer(promise.id_at_location, garbage_collect_data=False) + 1
    sy.synchronize()
    assert len(server.core.dataflow.tasks) == 1
    dan.close()
    assert comes_true(lambda: not server.core.dataflow.tasks)
    other.give_up(promise, "over")
    del promise, waits
    other.close()


def comes_true(condition: Callable[[], bool]) -> bool:
    """Whether something happens by itself."""
    end = time.monotonic() + 10
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


def test_a_get_that_is_made_again_may_wait_for_a_promise(hook: sy.TorchHook) -> None:
    bob = sy.VirtualWorker(hook, id="bob", pipelined=True)
    x = torch.ones(2).send(bob)
    connection = x.child.connection
    sy.synchronize()
    key = (Fetch, (5,), None)
    connection.interrupted[key] = Pending()
    with pytest.raises(ObjectNotReady):
        connection.ask(Fetch, 5, user=None)
    connection.interrupted.clear()
    del x


def test_a_program_with_several_lines_that_another_thread_reads(
    dan: sy.WebsocketClientWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    board, line = dan.board, dan.line
    x = torch.ones(2).send(dan)
    assert x.shape == (2,)
    transport = x.child.connection.transport
    with board.monitor:
        websocket, line.websocket = line.websocket, None
        board._reading.add(line)
        line.heartbeat = 0.05
        board.reconnects(line)  # it waits for the thread that dials, and leaves it at that
        board._reading.discard(line)
        line.websocket = websocket
        transport.replies.append(Frame(b"", []))
        assert transport.advance()
        transport.replies.clear()
    assert dan.proof(None) == (None, None) and line.kept >= 0
    assert isinstance(transport.gone("dan"), WorkerClosed)
    with board.monitor:
        board.broke(line, MalformedMessage("$", "a frame", "noise"))
    assert line.ended is not None and "noise" in line.ended
    del x


def test_a_program_that_leaves_waits_until_all_is_written(
    dan: sy.WebsocketClientWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    flush, flushes = dan.line.flush, iter([False, False])
    monkeypatch.setattr(dan.line, "flush", lambda: next(flushes, True) and flush())
    with dan.board.monitor:  # the keeper writes to this line, too
        dan.board.leave(dan.line)
    assert dan.line.ended is not None and next(flushes, None) is None


def test_a_line_that_is_cut_while_a_program_leaves(
    dan: sy.WebsocketClientWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> bool:
        raise ConnectionResetError

    monkeypatch.setattr(dan.line, "flush", fail)
    with dan.board.monitor:  # the keeper writes to this line, too
        dan.board.leave(dan.line)
    assert dan.line.ended is not None


def test_a_revoked_token_does_not_come_back(hook: sy.TorchHook, tmp_path: Path) -> None:
    book = TokenBook(None)
    token = book.make("ann", time.time())
    with sy.WebsocketServerWorker(hook, port=0, id="dan", tokens=book) as server:
        dan = sy.connect(str(server.address), token)
        x = torch.ones(2).send(dan)
        assert x.shape == (2,)
        (guest,) = server.reception.guests.values()
        resume = Resume(guest.line.id, guest.line.secret, guest.line.sent)
        with server.owning():
            book.revoke(book.rows()[0].key_id)
            with pytest.raises(NotWelcome, match="revoked"):
                server.reception._known(resume)
        assert comes_true(lambda: not server.reception.guests)
        del x
        dan.close()


def test_tokens_that_cannot_be_read_end_nobody(
    server: sy.WebsocketServerWorker, dan: sy.WebsocketClientWorker
) -> None:
    class Unreadable:
        def check(self, token: str, now: float) -> None:
            raise FileRefused("tokens.json", "others may read it", "chmod 600")

    with server.owning():
        (guest,) = server.reception.guests.values()
        guest.tokens["ann"] = "a token"
        server.reception.tokens = Unreadable()  # type: ignore[assignment]
        assert server.reception._is_trusted(guest)
        server.reception.tokens = None
        with pytest.raises(BrokenFraming, match="by those who have called"):
            server.reception.open(Line("eve", Limits(), odd=True), Open(4, "eve", "dan"))
        with pytest.raises(BrokenFraming, match="is open already"):
            guest.line.channel(4).refused = ValueError("before")
            server.reception.open(guest.line, Open(4, "me", "dan"))


def test_what_a_serving_board_does_with_lines_that_are_not_its_own(
    server: sy.WebsocketServerWorker,
    dan: sy.WebsocketClientWorker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    board = server.board
    stranger = Line("eve", Limits(), odd=True)
    with server.owning():
        board._listen_for(stranger)
        board.broke(stranger, OSError("gone"))
        (line,) = board.lines
        monkeypatch.setattr(serving, "_MOST_WAITING", -1)
        line.inbox.append(Settle(5))
        board._take_in(line)
        assert line in board._stalled
        monkeypatch.undo()
        line.inbox.clear()
        board._resume_reading(line)
        assert line not in board._stalled
        line.websocket.put([bytes(8000)], BINARY)  # type: ignore[union-attr]
        line.websocket._out.clear()  # type: ignore[union-attr]
        line.websocket.queued = 1 << 13  # type: ignore[union-attr]
        board.push(line)
        line.websocket.queued = 0  # type: ignore[union-attr]


def test_a_server_that_stops_closes_who_has_not_said_hello(hook: sy.TorchHook) -> None:
    server = sy.WebsocketServerWorker(hook, port=0, id="dan").__enter__()
    silent = socket.create_connection(("127.0.0.1", server.port))
    assert comes_true(lambda: bool(server.board.openings))
    server.close()
    assert silent.recv(10) == b""
    silent.close()


def test_no_file_is_left_at_the_door(
    hook: sy.TorchHook, server: sy.WebsocketServerWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Listener:
        def accept(self) -> None:
            raise OSError(24, "Too many open files")

    server.board.openings._take(Listener())  # type: ignore[arg-type]
    dan = sy.connect(str(server.address))
    assert (torch.ones(2).send(dan) + 1).get().tolist() == [2, 2]
    dan.close()


def test_what_cannot_be_read_is_refused_too(hook: sy.TorchHook) -> None:
    network = hook.local_worker.network
    channel = Channel(Line("dan", Limits(), odd=True), 4)
    reply = messages.read_reply(_refusal(channel, Frame(b"noise", []), network).header)
    assert type(reply) is messages.Failure and reply.seq == -1


def test_a_worker_that_cannot_be_dialled_is_lost(hook: sy.TorchHook) -> None:
    other = sy.WebsocketServerWorker(port=0, id="other")

    def fail() -> None:
        raise ConnectionRefusedError("nobody is there")

    with pytest.raises(WorkerLost, match="nobody is there"):
        other.in_background(fail)
    other.close()


def test_a_request_that_does_not_fit_into_the_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    end, other = socket.socketpair()
    stream = PlainStream(end)
    written = iter([10])
    write = stream.write
    monkeypatch.setattr(
        stream, "write", lambda pieces: write([pieces[0][: next(written, 1 << 20)]])
    )
    other.sendall(b"HTTP/1.1 101 nonsense\r\nbroken\r\n\r\n")
    with pytest.raises(ConnectionAbortedError, match="no worker answered"):
        open_client(stream, "ws://localhost/", time.monotonic() + 5)
    stream.close()
    other.close()


def test_an_encrypted_end_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone:
        def setblocking(self, blocks: bool) -> None:
            assert not blocks

        def recv_into(self, memory: memoryview) -> int:
            raise ssl.SSLEOFError

    assert TlsStream(Gone()).read(memoryview(bytearray(4))) == 0  # type: ignore[arg-type]


def test_other_callers_of_a_line_may_act_for_nobody(
    hook: sy.TorchHook, server: sy.WebsocketServerWorker
) -> None:
    dan = sy.connect(str(server.address))
    alice = sy.VirtualWorker(hook, id="alice")
    theirs = torch.ones(2).send(dan)
    inner = theirs.send(alice)  # alice asks dan while she serves
    assert (inner + 1).get().get().tolist() == [2, 2]
    with pytest.raises(PermissionDenied):
        alice.connection_to(dan).transport.speak_for("eve")
    del theirs, inner
    dan.close()


def test_a_pointer_to_the_callers_own_worker(
    hook: sy.TorchHook, dan: sy.WebsocketClientWorker
) -> None:
    me = hook.local_worker
    inner = torch.ones(2).send(me).send(dan)
    assert (inner + 1).get().get().tolist() == [2, 2]
    del inner
    assert comes_true(lambda: not me.core.store.objects), "dan says that it needs it no more"


def test_a_caller_from_elsewhere_leads_to_no_address_on_this_machine(
    hook: sy.TorchHook, server: sy.WebsocketServerWorker, dan: sy.WebsocketClientWorker
) -> None:
    with sy.WebsocketServerWorker(hook, port=0, id="eve") as other:
        eve = sy.connect(str(other.address))
        (guest,) = server.reception.guests.values()
        guest.host = "10.0.0.7"
        moved = torch.ones(2).send(dan).move(eve)
        assert isinstance(guest.introduced["eve"], IntroducedWorker)
        assert guest.introduced["eve"].known_by.startswith("sha256:"), "through a tunnel"
        assert moved.get().tolist() == [1, 1]
        (guest,) = server.reception.guests.values()
        told = Introduction(1, "eve", str(other.address))
        with server.owning(), pytest.raises(WorkerLost, match="has no connection to it"):
            connect(server, guest, "eve", told)
        eve.close()


def test_a_line_that_is_over_is_not_waited_for(
    server: sy.WebsocketServerWorker,
    dan: sy.WebsocketClientWorker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with server.owning():
        with pytest.raises(WorkerLost):
            server.board.turn(Line("eve", Limits(), odd=True), True)
        (line,) = server.board.lines
        monkeypatch.setattr(Line, "must_break_off", True)
        monkeypatch.setattr(serving, "_UNASKED", -1)
        line.inbox.append(Settle(5))
        server.board._take_in(line)
        monkeypatch.undo()
        assert line.ended is not None and "nothing of what was sent" in line.ended


def test_a_caller_that_leaves_introduces_nobody(
    server: sy.WebsocketServerWorker, dan: sy.WebsocketClientWorker
) -> None:
    with server.owning():
        (guest,) = server.reception.guests.values()
        guest.line.end("it has left")
        assert server._meet(guest, "eve") is None


def test_a_worker_writes_nothing_into_a_notebook(
    hook: sy.TorchHook, server: sy.WebsocketServerWorker
) -> None:
    """A worker chooses its name and what it says that it runs."""
    server.id = "<script>alert(1)</script>"
    dan = sy.connect(str(server.address))
    dan.welcome.software = "<img src=x>"
    assert "<script" not in dan._repr_html_() and "<img" not in dan._repr_html_()
    dan.welcome.software = ""
    assert "<b>&lt;script" in dan._repr_html_()
    dan.close()


def test_a_certificate_comes_with_its_key(hook: sy.TorchHook, tmp_path: Path) -> None:
    with pytest.raises(UnusableSetting, match="key_path"):
        sy.WebsocketServerWorker(hook, port=0, id="dan", cert_path=tmp_path / "cert.pem")


def test_a_line_that_is_over_is_forgotten(
    hook: sy.TorchHook, server: sy.WebsocketServerWorker
) -> None:
    dan = sy.connect(str(server.address))
    assert torch.ones(2).send(dan).get().tolist() == [1, 1]
    board, line = dan.board, dan.line
    dan.close()
    assert line not in board.unwritten and line not in board._dials and line not in board.lines


def test_reading_goes_on_when_what_waited_was_served(
    dan: sy.WebsocketClientWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "_MOST_WAITING", 1000)
    assert dan.pipelined
    x = torch.zeros(2).send(dan)
    for _ in range(500):
        x = x + 1
    assert x.get().tolist() == [500, 500]
    del x


def test_requests_back_to_a_caller_have_nobodys_rights(
    dan: sy.WebsocketClientWorker, server: sy.WebsocketServerWorker
) -> None:
    with server.owning():
        (guest,) = server.reception.guests.values()
        assert guest.stand_in is not None
        transport = guest.stand_in.transport_for(server)
        channel = transport.channel
        transport.speak_for("ann")
        assert transport.channel is channel, "whatever is said"
        assert server.reception.reached_for(Line("eve", Limits(), odd=True)) == []
