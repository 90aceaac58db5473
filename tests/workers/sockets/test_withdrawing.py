"""``cancel()`` over sockets, while the worker is in the middle of a long operation."""

from __future__ import annotations

import signal
import threading
import time

import pytest
import torch

import syft as sy
from syft.exceptions import ObjectNotFound, RequestWithdrawn, WorkerClosed, WorkerLost
from syft.serde.frame import Frame
from syft.serde.limits import Limits
from syft.workers.core.peer import Peer, Session
from syft.workers.core.state_machine import WorkerCore
from syft.workers.core.store import TAKEN_BACK
from syft.workers.shells.network import Network
from syft.workers.sockets import switchboard
from syft.workers.sockets.calling import CallingBoard
from syft.workers.sockets.serving import described
from syft.workers.sockets.line import LeftOut, Line
from syft.workers.sockets.line_messages import Withdraw
from syft.workers.wire.messages import Drop, Fetch, encode


class Slow:
    """An operation, ``torch.cos``, that has begun, and takes until it may end."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.may_end = threading.Event()


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Slow:
    slow = Slow()
    respond = WorkerCore.respond

    def wait(core: WorkerCore, frame: Frame, peer: Peer) -> Frame | None:
        if described(frame) == "torch.Tensor.cos":
            slow.begun.set()
            slow.may_end.wait(20)
        return respond(core, frame, peer)

    monkeypatch.setattr(WorkerCore, "respond", wait)
    return slow


def _started(worker: sy.WebsocketClientWorker, slow: Slow) -> tuple[torch.Tensor, torch.Tensor]:
    """A tensor, and the result of an operation on it that is running."""
    x = torch.zeros(2).send(worker)
    y = x.cos()
    worker.connection().flush()
    assert slow.begun.wait(20)
    return x, y


def test_what_runs_ends_and_the_rest_does_not_begin(
    dan: sy.WebsocketClientWorker, slow: Slow
) -> None:
    x, y = _started(dan, slow)
    made = [y + 1, x + 1]
    x.add_(5)
    big = torch.zeros(100_000).send(dan)  # has arrived when this returns, though nobody serves it
    assert dan.cancel() == 4, "while the operation runs"
    assert dan.cancel() == 0
    assert not slow.may_end.is_set()
    slow.may_end.set()
    assert y.get().tolist() == [1, 1]
    assert x.get().tolist() == [0, 0]
    assert all(type(one.child.handle.exception()) is RequestWithdrawn for one in made)
    for one in (*made, big):
        with pytest.raises(ObjectNotFound, match=TAKEN_BACK):
            one.get()
    assert (torch.ones(2).send(dan) + 1).get().tolist() == [2, 2], "the connection goes on"


def test_after_an_interrupt(dan: sy.WebsocketClientWorker, slow: Slow) -> None:
    x, y = _started(dan, slow)
    z = x + 1
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(0.5, lambda: signal.pthread_kill(main, signal.SIGINT))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background
    try:
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            z.get()
        timer.join()
    finally:
        signal.signal(signal.SIGINT, before)
    assert dan.cancel() == 2, "the sum, and the question"
    slow.may_end.set()
    with pytest.raises(ObjectNotFound, match=TAKEN_BACK):
        z.get()
    assert y.get().tolist() == [1, 1]
    assert x.get().tolist() == [0, 0]


def test_a_thread_that_waits_is_told(dan: sy.WebsocketClientWorker, slow: Slow) -> None:
    x, y = _started(dan, slow)
    errors: list[Exception] = []

    def ask() -> None:
        try:
            x.sum().item()
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    count, until = 0, time.monotonic() + 20
    while count < 2 and time.monotonic() < until:  # the sum, and the question
        count += dan.cancel()
    slow.may_end.set()
    thread.join()
    assert [type(error) for error in errors] == [RequestWithdrawn]
    assert y.get().tolist() == [1, 1]


def test_where_each_request_waits(dan: sy.WebsocketClientWorker, slow: Slow) -> None:
    dan.blocking = True
    x = torch.zeros(2).send(dan)
    errors: list[Exception] = []

    def ask(name: str) -> None:
        try:
            getattr(x, name)()
        except Exception as error:
            errors.append(error)

    first = threading.Thread(target=ask, args=("cos",))
    first.start()
    assert slow.begun.wait(20)
    second = threading.Thread(target=ask, args=("sin",))
    second.start()
    until = time.monotonic() + 20
    while not dan.cancel() and time.monotonic() < until:
        time.sleep(0.01)
    slow.may_end.set()
    first.join()
    second.join()
    assert [type(error) for error in errors] == [RequestWithdrawn]
    assert x.get().tolist() == [0, 0]


def test_groups_are_defined_again(dan: sy.WebsocketClientWorker, slow: Slow) -> None:
    def multiplied(x: torch.Tensor, factor: float) -> torch.Tensor:
        with dan.group():
            y = x * factor + 1
        return y

    x = torch.ones(2).send(dan)
    assert multiplied(x, 2.0).get().tolist() == [3, 3]
    _, running = _started(dan, slow)
    lost = multiplied(x, 5.0)
    assert dan.cancel() == 1
    again = multiplied(x, 5.0)  # before the worker has answered what was withdrawn
    slow.may_end.set()
    assert again.get().tolist() == [6, 6]
    assert running.get().tolist() == [1, 1]
    with pytest.raises(ObjectNotFound, match=TAKEN_BACK):
        lost.get()


def test_others_are_not_withdrawn(
    hook: sy.TorchHook, server: sy.WebsocketServerWorker, dan: sy.WebsocketClientWorker, slow: Slow
) -> None:
    x, y = _started(dan, slow)
    other = sy.connect(str(server.address), id="the same")
    theirs = torch.ones(2).send(other) + 1
    other.connection().flush()
    z = x + 1
    assert dan.cancel() == 1
    slow.may_end.set()
    assert theirs.get().tolist() == [2, 2]
    assert y.get().tolist() == [1, 1]
    del z, theirs
    other.close()


def test_a_line_that_broke_meanwhile(dan: sy.WebsocketClientWorker, slow: Slow) -> None:
    x, y = _started(dan, slow)
    z = x + 1
    assert dan.line.websocket is not None
    dan.line.websocket.stream.close()
    assert dan.cancel() == 1, "it is sent again, after what was asked before"
    slow.may_end.set()
    assert y.get().tolist() == [1, 1]
    with pytest.raises(ObjectNotFound, match=TAKEN_BACK):
        z.get()


def test_what_stays_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Frame] = []

    def look(frame: Frame) -> bool:
        looked.append(frame)
        return frame.header != kept.header

    monkeypatch.setattr(switchboard, "may_be_withdrawn", look)
    board = CallingBoard(Network())
    line = Line("dan", Limits(), odd=False)
    channel = line.channel(0)
    channel.host, channel.peer = object(), Peer("dan", None, Session())
    kept, other = Frame(encode(Drop(0, (5,))), []), Frame(encode(Fetch(7, 5)), [])
    line.inbox.extend((channel, frame, 9) for frame in (kept, other, kept))
    for number in range(100):
        board._told(line, Withdraw(number))
    line.inbox.append((channel, kept, 9))
    board._told(line, Withdraw(100))
    assert len(looked) == 4, "withdrawing again and again costs nothing"
    kinds = [type(item) for item in line.inbox]
    assert kinds == [tuple, LeftOut, tuple, Withdraw, tuple, Withdraw]


def test_workers_that_are_gone(
    server: sy.WebsocketServerWorker, dan: sy.WebsocketClientWorker
) -> None:
    connection = dan.connection()
    server.close()
    with pytest.raises(WorkerLost):
        dan.cancel()
    with pytest.raises(WorkerLost):
        connection.transport.withdraw_all()
    dan.close()
    with pytest.raises(WorkerClosed):
        dan.cancel()
