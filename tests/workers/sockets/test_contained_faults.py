"""A callback that raises ends the line it belongs to, and no thread that looks after others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import syft as sy
from examples.clients.minimal_client import Client, ClientError
from syft.exceptions import WorkerLost, WorkerTimeout
from syft.workers.sockets import serving
from syft.workers.sockets.line import Line
from syft.workers.sockets.line_messages import Settle
from syft.workers.sockets.dialling import Redialler
from syft.workers.sockets.websocket import WebSocket

SECONDS = 20.0


class Fault:
    """Something that raises, from when it is told to, and notes that it did."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch = monkeypatch
        self.raised = threading.Event()

    def instead_of(self, owner: Any, name: str, concerned: Any = None) -> None:
        """Raise in a method: if ``concerned`` is given, where it is an argument, or the object."""
        real, raised = getattr(owner, name), self.raised

        def method(*args: Any, **kwargs: Any) -> Any:
            if concerned is None or any(one is concerned for one in args):
                raised.set()
                raise ArithmeticError("a fault")
            return real(*args, **kwargs)

        self.monkeypatch.setattr(owner, name, method)

    def wait(self) -> None:
        assert self.raised.wait(SECONDS), "it was never called"


@pytest.fixture
def fault(monkeypatch: pytest.MonkeyPatch) -> Fault:
    return Fault(monkeypatch)


def comes_true(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + SECONDS
    while not condition() and time.monotonic() < end:
        time.sleep(0.005)
    return condition()


# ------------------------------------------------------------------------- a program that calls


class Calling:
    """Two workers, and a program that calls both."""

    def __init__(self, hook: sy.TorchHook) -> None:
        self.dan = sy.WebsocketServerWorker(hook, port=0, id="dan").__enter__()
        self.eve = sy.WebsocketServerWorker(hook, port=0, id="eve").__enter__()
        self.at_dan = sy.connect(str(self.dan.address), heartbeat=0.1)
        self.at_eve = sy.connect(str(self.eve.address), heartbeat=0.1)
        self.board = self.at_dan.board
        self.line = self.at_dan.line
        self.keeper: Any = self.at_dan._exchange.keeper

    def ask_something(self) -> None:
        """Have something come over the line, as if the worker had asked it, and be answered."""
        with self.board.monitor:
            self.line.inbox.append(Settle(1, False))
            self.line.report()


@pytest.fixture
def calling(hook: sy.TorchHook) -> Iterator[Calling]:
    calling = Calling(hook)
    yield calling
    calling.at_dan.close()
    calling.at_eve.close()
    calling.dan.close()
    calling.eve.close()


OF_A_LINE: dict[str, Callable[[Calling, Fault], None]] = {
    "what comes is taken in": lambda it, fault: fault.instead_of(it.board, "take", it.line),
    "what is asked is served": lambda it, fault: fault.instead_of(it.board, "serve", it.line),
    "a socket is read": lambda it, fault: fault.instead_of(WebSocket, "receive", it.line.websocket),
    "a socket is written": lambda it, fault: fault.instead_of(
        WebSocket, "flush", it.line.websocket
    ),
    "a heartbeat is due": lambda it, fault: fault.instead_of(
        WebSocket, "is_taken", it.line.websocket
    ),
}


@pytest.mark.parametrize("of", OF_A_LINE)
def test_a_fault_while_a_line_is_looked_after_ends_that_line(
    calling: Calling, fault: Fault, of: str, caplog: pytest.LogCaptureFixture
) -> None:
    x = torch.ones(2).send(calling.at_eve)
    OF_A_LINE[of](calling, fault)
    calling.ask_something()
    fault.wait()
    assert comes_true(lambda: calling.line.ended is not None)
    with pytest.raises(WorkerLost, match=r"a fault of this program: ArithmeticError\('a fault'\)"):
        calling.at_dan.list_objects()
    assert "a fault of this program: ArithmeticError" in caplog.text
    heard = calling.at_eve.line.websocket.heard  # type: ignore[union-attr]
    assert comes_true(lambda: calling.at_eve.line.websocket.heard > heard), "the keeper goes on"
    assert calling.keeper._thread.is_alive()
    assert (x + 1).get().tolist() == [2, 2]


OF_NONE: dict[str, Callable[[Calling], tuple[Any, str]]] = {
    "what is shown": lambda it: (it.board, "awaited"),
    "a turn": lambda it: (it.board, "turn"),
    "dropped pointers": lambda it: (it.board.network, "flush_idle"),
    "heartbeats": lambda it: (it.board, "beat"),
    "tunnels": lambda it: (it.board.relays, "look"),
    "memory": lambda it: (it.board.memory, "look"),
}


@pytest.mark.parametrize("of", OF_NONE)
def test_a_fault_of_no_line_ends_none(calling: Calling, fault: Fault, of: str) -> None:
    with fault.monkeypatch.context() as patch:
        fault.monkeypatch, before = patch, fault.monkeypatch
        fault.instead_of(*OF_NONE[of](calling))
        fault.wait()
    fault.monkeypatch = before
    assert comes_true(calling.keeper._thread.is_alive)
    for worker in (calling.at_dan, calling.at_eve):
        assert torch.ones(2).send(worker).get().tolist() == [1, 1]


def test_a_fault_while_the_monitor_is_held_is_survived(calling: Calling, fault: Fault) -> None:
    with fault.monkeypatch.context() as patch:
        fault.monkeypatch = patch
        fault.instead_of(calling.board, "sign")
        with calling.board.monitor:
            fault.wait()
    assert calling.keeper._thread.is_alive()
    assert torch.ones(2).send(calling.at_dan).get().tolist() == [1, 1]


def test_whoever_waits_for_a_line_that_fails_is_told(calling: Calling, fault: Fault) -> None:
    """Both who reads it and who waits until that one has read."""
    x = torch.ones(2).send(calling.at_dan)
    told: list[Exception] = []

    def ask(x: torch.Tensor) -> None:
        try:
            x.copy().get()
        except WorkerLost as error:
            told.append(error.with_traceback(None))

    threads = [threading.Thread(target=ask, args=(x,), daemon=True) for _ in range(2)]
    with calling.dan.owning():  # it answers nothing
        for thread in threads:
            thread.start()
        assert comes_true(lambda: calling.board._polls)
        fault.instead_of(calling.board, "take", calling.line)
    for thread in threads:
        thread.join(SECONDS)
        assert not thread.is_alive(), "it waits for ever"
    assert len(told) == 2 and all("ArithmeticError('a fault')" in str(error) for error in told)
    assert torch.ones(2).send(calling.at_eve).get().tolist() == [1, 1]


def test_a_worker_that_is_opened_while_the_last_one_is_closed_is_looked_after(
    hook: sy.TorchHook, server: sy.WebsocketServerWorker
) -> None:
    """Whichever is first."""
    opened: list[sy.WebsocketClientWorker] = []
    thread = threading.Thread(
        target=lambda: opened.append(sy.connect(str(server.address), id="second")), daemon=True
    )

    class Workers(dict[Any, Any]):
        """The workers, of which another one is opened just when there was none."""

        def __len__(self) -> int:
            count = super().__len__()
            if not count and thread.ident is None:
                thread.start()
                thread.join(0.5)  # it waits for the monitor, or is done
            return count

    first = sy.connect(str(server.address), id="first")
    exchange = first._exchange
    exchange.workers = Workers(exchange.workers)
    first.close()
    thread.join(SECONDS)
    (second,) = opened
    assert exchange.keeper is not None and exchange.keeper._thread.is_alive()
    second.close()
    assert exchange.keeper is None


def test_the_end_of_a_wait_is_no_fault(calling: Calling) -> None:
    def late() -> None:
        raise WorkerTimeout("dan", 1.0, "it has not said why")

    with pytest.raises(WorkerTimeout):
        calling.board.contain(calling.line, late)
    assert calling.line.ended is None


# -------------------------------------------------------------------------- a worker that serves


class Serving:
    """A worker, and two callers."""

    def __init__(self, server: sy.WebsocketServerWorker) -> None:
        self.server = server
        self.board = server.board
        self.client, self.other = Client(str(server.address)), Client(str(server.address))
        with server.owning():
            guests = {guest.line.id: guest.line for guest in server.reception.guests.values()}
        self.line: Line = guests[self.client.welcome["line"]]


@pytest.fixture
def serves(server: sy.WebsocketServerWorker) -> Iterator[Serving]:
    server.reception.heartbeat = 0.1
    serving = Serving(server)
    yield serving
    serving.client.close()
    serving.other.close()


OF_A_CALLER: dict[str, Callable[[Serving, Fault], None]] = {
    "what comes is taken in": lambda it, fault: fault.instead_of(it.board, "take", it.line),
    "what is asked is served": lambda it, fault: fault.instead_of(it.board, "serve", it.line),
    "a socket is read": lambda it, fault: fault.instead_of(WebSocket, "receive", it.line.websocket),
    "a socket is written": lambda it, fault: fault.instead_of(
        WebSocket, "flush", it.line.websocket
    ),
    "a heartbeat is due": lambda it, fault: (
        setattr(it.line, "heartbeat", 0.0),
        fault.instead_of(WebSocket, "is_taken", it.line.websocket),
    )[0],
}


@pytest.mark.parametrize("of", OF_A_CALLER)
def test_a_fault_while_a_caller_is_served_ends_its_line(
    serves: Serving, fault: Fault, of: str, caplog: pytest.LogCaptureFixture
) -> None:
    OF_A_CALLER[of](serves, fault)
    with pytest.raises((ClientError, OSError)):
        while True:
            serves.client.search("#nothing")
    fault.wait()
    assert "a fault of this worker: ArithmeticError" in caplog.text
    assert serves.other.search("#nothing") == []
    assert serves.server._thread is not None and serves.server._thread.is_alive()


OF_THE_WORKER: dict[str, Callable[[Serving, Fault], Any]] = {
    "leases": lambda it, fault: fault.instead_of(it.board, "_house"),
    "tunnels": lambda it, fault: fault.instead_of(it.board.tunnels, "look"),
    "dropped pointers": lambda it, fault: fault.instead_of(it.board.network, "flush"),
}


@pytest.mark.parametrize("of", OF_THE_WORKER)
def test_a_fault_of_the_worker_itself_ends_no_line(serves: Serving, fault: Fault, of: str) -> None:
    with fault.monkeypatch.context() as patch:
        fault.monkeypatch = patch
        OF_THE_WORKER[of](serves, fault)
        serves.board._next_look = 0.0
        serves.board.wake()
        fault.wait()
    for client in (serves.client, serves.other):
        assert client.search("#nothing") == []


def test_a_fault_in_what_another_thread_has_posted(serves: Serving) -> None:
    done = threading.Event()

    def wrong() -> None:
        raise ArithmeticError("a fault")

    serves.board.post(wrong)
    serves.board.post(done.set)
    assert done.wait(SECONDS)
    assert serves.client.search("#nothing") == []


def test_a_fault_as_somebody_calls(serves: Serving, fault: Fault) -> None:
    with fault.monkeypatch.context() as patch:
        fault.monkeypatch = patch
        fault.instead_of(serves.board.openings, "_accept")
        with pytest.raises((ClientError, OSError)):
            Client(str(serves.server.address))
    assert serves.client.search("#nothing") == []
    Client(str(serves.server.address)).close()


def test_a_fault_while_the_other_thread_reads(
    serves: Serving, fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That thread goes on too: it reads during the next operation that takes long."""
    monkeypatch.setattr(serving, "LONG", 0.01)
    respond, reads = serves.server.core.respond, threading.Event()

    def slow(*about: Any) -> Any:
        reads.wait(SECONDS)
        return respond(*about)

    monkeypatch.setattr(serves.server.core, "respond", slow)
    real = serves.board._tell_busy
    calls: list[int] = []

    def tell(running: Any) -> None:
        calls.append(1)
        if len(calls) > 2:
            reads.set()
            real(running)
        else:
            raise ArithmeticError("a fault")

    monkeypatch.setattr(serves.board, "_tell_busy", tell)
    assert serves.client.search("#nothing") == [] and len(calls) > 2


def test_an_end_of_a_tunnel_whose_socket_makes_trouble_ends_its_line(serves: Serving) -> None:
    class End:
        line = serves.line

        def __call__(self, event: int) -> None:
            raise ArithmeticError("a fault")

    with serves.server.owning():
        serves.board._on_event(End(), 1)
    assert serves.line.ended is not None and serves.other.search("#nothing") == []


def test_a_fault_while_a_worker_dials_gives_the_line_up(hook: sy.TorchHook) -> None:
    posted: list[Callable[[], None]] = []
    given_up: list[str] = []
    line = Line("alice", hook.local_worker.core.limits, odd=False)
    redialler = Redialler(
        posted.append, lambda *about: None, lambda line, reason: given_up.append(reason)
    )

    def dial(resume: Any, seconds: float) -> Any:
        raise ArithmeticError("a fault")

    redialler.keep(line, dial)
    redialler.start(line)
    redialler.close()
    (act,) = posted
    with pytest.raises(ArithmeticError):
        act()
    assert given_up == ["a fault of this worker"]
