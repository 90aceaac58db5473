"""What people do in notebooks and scripts: interrupt, set time limits, use threads, fork, await."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

import syft as sy
from syft.exceptions import (
    HookError,
    ObjectNotFound,
    UnsupportedOperation,
    WorkerClosed,
    WorkerIdTaken,
    WorkerLost,
    WorkerRefused,
    WorkerTimeout,
    WrongAddress,
)
from syft.serde.frame import Frame
from syft.trust.tokens import TokenBook
from syft.workers.core.peer import Peer
from syft.workers.core.state_machine import WorkerCore
from syft.workers.sockets.serving import described


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """An operation, ``torch.cos``, that takes until the event is set."""
    done = threading.Event()
    respond = WorkerCore.respond

    def wait(core: WorkerCore, frame: Frame, peer: Peer) -> Frame | None:
        if described(frame) == "torch.Tensor.cos":
            done.wait(20)
        return respond(core, frame, peer)

    monkeypatch.setattr(WorkerCore, "respond", wait)
    return done


def test_a_wait_ends_when_its_time_is_over(
    dan: sy.WebsocketClientWorker, slow: threading.Event
) -> None:
    x = torch.zeros(2).send(dan)
    y = x.cos()
    for _ in range(2):
        with dan.within(0.3), pytest.raises(WorkerTimeout, match="within 0.3 s: it"):
            y.get()
    slow.set()
    assert (x + 1).get().tolist() == [1, 1], "the connection goes on"
    assert y.get().tolist() == [1, 1], "and nothing is lost"


def test_the_error_says_what_the_worker_does(
    dan: sy.WebsocketClientWorker, slow: threading.Event
) -> None:
    x = torch.zeros(2).send(dan)
    y = x.cos()
    with dan.within(2.0), pytest.raises(WorkerTimeout, match="it runs torch.Tensor.cos since"):
        y.shape  # noqa: B018
    slow.set()
    assert y.get().tolist() == [1, 1]


def test_a_blocking_worker_has_time_limits_too(
    hook: sy.TorchHook, server: sy.WebsocketServerWorker, slow: threading.Event
) -> None:
    dan = sy.connect(str(server.address), blocking=True, timeout=0.3)
    x = torch.zeros(2).send(dan)
    with pytest.raises(WorkerTimeout):
        x.cos()
    slow.set()
    assert (x + 1).get().tolist() == [1, 1]
    del x
    dan.close()


def test_an_interrupt_leaves_the_connection_usable(
    dan: sy.WebsocketClientWorker, slow: threading.Event
) -> None:
    x = torch.zeros(2).send(dan)
    y = x.cos()
    interrupt = signal.default_int_handler
    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(KeyboardInterrupt):
            y.get()
    finally:
        signal.signal(signal.SIGALRM, before)
    slow.set()
    assert (x + 1).get().tolist() == [1, 1]
    assert y.get().tolist() == [1, 1]


def test_threads_get_their_own_answers(dan: sy.WebsocketClientWorker) -> None:
    def compute(number: int) -> list[float]:
        x = torch.full((2,), float(number)).send(dan)
        for _ in range(10):
            x = x + 1
        return [float(value) for value in x.get()]

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(compute, range(40))) == [[n + 10.0] * 2 for n in range(40)]


def test_one_thread_waits_while_another_works(
    hook: sy.TorchHook, dan: sy.WebsocketClientWorker, slow: threading.Event
) -> None:
    with sy.WebsocketServerWorker(hook, port=0, id="eve") as server:
        eve = sy.connect(str(server.address))
        y = torch.zeros(2).send(dan).cos()
        answers: list[torch.Tensor] = []
        waiting = threading.Thread(target=lambda: answers.append(y.get()))
        waiting.start()
        x = torch.ones(2).send(eve)
        assert (x + 1).get().tolist() == [2, 2], "a question to one never waits for another"
        assert not answers
        slow.set()
        waiting.join()
        assert answers[0].tolist() == [1, 1]
        del x
        eve.close()


def test_a_forked_process_has_no_connection(dan: sy.WebsocketClientWorker) -> None:
    x = torch.ones(2).send(dan)
    sy.synchronize()
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            x.get()
        except WorkerLost as error:
            os.write(write, str(error).encode())
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    assert b"forked from the one that connected" in os.read(read, 1000)
    assert x.get().tolist() == [1, 1], "the parent goes on"
    os.close(read)


def test_a_process_that_is_forked_while_the_keeper_writes_has_no_connection(
    dan: sy.WebsocketClientWorker,
) -> None:
    websocket: Any = dan.line.websocket
    writes, forked = threading.Event(), threading.Event()

    def write() -> None:
        with websocket._writing:
            writes.set()
            forked.wait(20)

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    writes.wait(20)
    child = os.fork()
    if not child:
        os._exit(0 if dan.line.ended is not None else 1)
    forked.set()
    thread.join(20)
    end = time.monotonic() + 20
    while (gone := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < end:
        time.sleep(0.01)
    if gone == (0, 0):  # it waits for a thread that it has not
        os.kill(child, signal.SIGKILL)
        gone = os.waitpid(child, 0)
    assert gone == (child, 0)


def test_an_awaited_operation_lets_others_run(
    dan: sy.WebsocketClientWorker, slow: threading.Event
) -> None:
    x = torch.zeros(2).send(dan)
    turns = 0

    async def count() -> None:
        nonlocal turns
        for _ in range(20):
            turns += 1
            await asyncio.sleep(0.01)
        slow.set()

    async def both() -> list[float]:
        handle = x.cos().child.handle
        _, result = await asyncio.gather(count(), _awaited(handle))
        return [float(value) for value in result.get()]

    assert asyncio.run(both()) == [1, 1]
    assert turns == 20


def test_a_loop_that_is_not_asyncios_awaits_too(
    dan: sy.WebsocketClientWorker, slow: threading.Event
) -> None:
    awaiting = torch.zeros(2).send(dan).cos().child.handle.__await__()
    for _ in range(100):
        assert next(awaiting) is None, "a bare yield: whoever runs this looks again"
    slow.set()
    with pytest.raises(StopIteration) as stopped:
        while True:
            next(awaiting)
    assert stopped.value.value.get().tolist() == [1, 1]


async def _awaited(handle: sy.workers.client.handles.Handle) -> torch.Tensor:
    return await handle


def test_it_works_inside_a_running_loop(dan: sy.WebsocketClientWorker) -> None:
    async def cell() -> list[float]:
        return [float(value) for value in (torch.ones(2).send(dan) + 1).get()]

    assert asyncio.run(cell()) == [2, 2]


def test_what_is_left_is_sent_while_the_program_is_idle(
    dan: sy.WebsocketClientWorker, server: sy.WebsocketServerWorker
) -> None:
    x = torch.ones(2).send(dan)
    kept = [x + number for number in range(3)]
    assert comes_true(lambda: server.objects_count() == 4), "requests that were collected"
    del kept
    assert comes_true(lambda: server.objects_count() == 1), "and the ids of dropped pointers"


def comes_true(condition) -> bool:  # type: ignore[no-untyped-def]
    """Whether something happens by itself."""
    end = time.monotonic() + 10
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return bool(condition())


def test_remote_objects_can_be_listed_and_cleared(
    hook: sy.TorchHook, dan: sy.WebsocketClientWorker, server: sy.WebsocketServerWorker
) -> None:
    (held,) = server.hold(torch.ones(3).tag("#held"))
    x = torch.ones(2).send(dan)
    other = sy.connect(str(server.address), id="same")
    theirs = torch.ones(4).send(other)
    sy.synchronize()
    assert sorted(dan.list_objects_remote()) == sorted([held, x.id_at_location])
    assert sorted(dan.list_objects()) == sorted([held, x.id_at_location])
    assert other.objects_count_remote() == other.objects_count() == 2
    dan.clear_objects_remote()
    with pytest.raises(ObjectNotFound):
        x.get()
    assert theirs.get().tolist() == [1, 1, 1, 1]
    assert server.list_objects() == [held]
    other.close()
    server.clear_objects()


def test_blocking_by_the_environment(
    hook: sy.TorchHook, server: sy.WebsocketServerWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SYFT_BLOCKING", "1")
    dan = sy.connect(str(server.address))
    x = torch.ones(2).send(dan)
    with pytest.raises(RuntimeError, match="shape"):
        x.view(7)
    del x
    dan.close()


def test_an_error_of_a_pipelined_operation_names_its_line(dan: sy.WebsocketClientWorker) -> None:
    x = torch.ones(2).send(dan)
    wrong = x.view(7)
    with pytest.raises(RuntimeError) as caught:
        wrong.get()
    assert f"asked for at {__file__}" in caught.value.__notes__[0]


def test_a_worker_that_stops_says_so(hook: sy.TorchHook) -> None:
    server = sy.WebsocketServerWorker(hook, port=0, id="dan").__enter__()
    dan = sy.connect(str(server.address))
    x = torch.ones(2).send(dan)
    sy.synchronize()
    server.stop("the owner goes home")
    with pytest.raises(WorkerClosed, match="the owner goes home"):
        while True:
            (x + 1).get()
    server.close()
    assert "closed" in repr(dan)
    del x
    dan.close()
    dan.close()


def test_what_a_notebook_shows(dan: sy.WebsocketClientWorker) -> None:
    assert repr(dan) == f"<WebsocketClientWorker id:dan at {dan.address}>"
    shown = dan._repr_html_()
    assert "<b>dan</b>" in shown and str(dan.address) in shown and "nobody" in shown
    assert shown.startswith("<table>") and "closed" not in shown
    dan.close()
    assert "· closed</td>" in dan._repr_html_()


def test_whoever_asks_for_the_same_again_gets_the_same(
    hook: sy.TorchHook, dan: sy.WebsocketClientWorker, server: sy.WebsocketServerWorker
) -> None:
    """A cell of a notebook that is run again."""
    address = str(server.address)
    x = torch.ones(2).send(dan)
    assert sy.connect(address) is dan and sy.connect(address, id="dan") is dan
    assert sy.connect(address, tokens={}, blocking=dan.blocking, verbose=True) is dan
    assert sy.WebsocketClientWorker(hook, "127.0.0.1", server.port) is dan
    assert len(server.reception.guests) == 1
    assert (x + 1).get().tolist() == [2, 2], "what is there is in use as before"
    other = sy.connect(address, id="dan again")
    assert other is not dan and (torch.ones(2).send(other) + 1).get().tolist() == [2, 2]
    assert sy.connect(address, id="dan again") is other
    other.close()
    dan.close()
    anew = sy.connect(address)
    assert anew is not dan and (torch.ones(2).send(anew) + 1).get().tolist() == [2, 2]
    anew.close()
    del x


def test_a_name_is_given_once(
    hook: sy.TorchHook, dan: sy.WebsocketClientWorker, server: sy.WebsocketServerWorker
) -> None:
    """What is different is named; what tokens are is not."""
    address = str(server.address)
    with sy.WebsocketServerWorker(hook, port=0, id="dan") as elsewhere:
        for id in ("dan", None):
            with pytest.raises(WorkerIdTaken, match="'dan' already, with another address. Use it"):
                sy.connect(str(elsewhere.address), id=id)
    settings: dict[str, Any]
    for settings, differs in (
        ({"tokens": {"ann": "syft_1"}}, ("tokens",)),
        ({"heartbeat": 9.0, "blocking": True}, ("heartbeat", "blocking")),
        ({"id": "dan", "token": "syft_1", "timeout": 5.0}, ("token", "timeout")),
    ):
        with pytest.raises(WorkerIdTaken) as caught:
            sy.connect(address, **settings)
        assert caught.value.differs == differs and "syft_1" not in str(caught.value)
    sy.VirtualWorker(hook, id="eve")
    with pytest.raises(WorkerIdTaken, match="'eve' already. Use it"):
        sy.connect(address, id="eve")
    assert comes_true(lambda: len(server.reception.guests) == 1), "nobody else has stayed"
    assert (torch.ones(2).send(dan) + 1).get().tolist() == [2, 2]


def test_another_local_worker_has_a_connection_of_its_own(
    hook: sy.TorchHook, dan: sy.WebsocketClientWorker, server: sy.WebsocketServerWorker
) -> None:
    class Other:
        local_worker = sy.VirtualWorker(hook, id="other")

    with pytest.raises(WorkerIdTaken, match="with another local worker. Use it"):
        sy.WebsocketClientWorker(Other(), port=server.port, id="dan")


def test_a_lost_connection_makes_room_for_another_one(hook: sy.TorchHook, tmp_path: Path) -> None:
    """A cell that is run again after the worker was started anew."""
    address = f"unix://{tmp_path / 'dan.sock'}"
    with sy.WebsocketServerWorker(hook, unix=tmp_path / "dan.sock", id="dan"):
        dan = sy.connect(address)
        x = torch.ones(2).send(dan)
        assert x.shape == (2,)
    assert comes_true(lambda: dan.line.ended is not None)
    with sy.WebsocketServerWorker(hook, unix=tmp_path / "dan.sock", id="dan"):
        anew = sy.connect(address)
        assert anew is not dan and dan.closed
        assert hook.local_worker.get_worker("dan") is anew
        assert (torch.ones(2).send(anew) + 1).get().tolist() == [2, 2]
        with pytest.raises(WorkerClosed):
            x.get()
        del x
        anew.close()


def test_a_worker_has_a_host_and_a_port_unless_it_is_at_a_unix_socket(
    hook: sy.TorchHook,
    dan: sy.WebsocketClientWorker,
    server: sy.WebsocketServerWorker,
    tmp_path: Path,
) -> None:
    assert (dan.host, dan.port) == ("127.0.0.1", server.port)
    again = sy.WebsocketClientWorker(hook, dan.host, dan.port)
    assert again is dan
    with sy.WebsocketServerWorker(hook, unix=tmp_path / "eve.sock", id="eve"):
        eve = sy.connect(f"unix://{tmp_path / 'eve.sock'}")
        assert (eve.host, eve.port) == (None, None)
        eve.close()


def late(*about: Any) -> None:
    raise TimeoutError("timed out")


def test_addresses_that_are_none(hook: sy.TorchHook, monkeypatch: pytest.MonkeyPatch) -> None:
    for address in ("", "dan", "ws://dan", "http://dan:80", "ws://dan:x", "wss://dan:1/a b"):
        with pytest.raises(WrongAddress):
            sy.connect(address)
    with pytest.raises(ConnectionRefusedError, match="answers at ws://127.0.0.1:1.*syft doctor"):
        sy.connect("ws://127.0.0.1:1")
    with pytest.raises(FileNotFoundError, match="answers at unix:///nowhere.*syft doctor"):
        sy.connect("unix:///nowhere")
    with monkeypatch.context() as patched:
        patched.setattr("socket.create_connection", late)
        with pytest.raises(
            TimeoutError, match=r"timed out \(no worker answers at ws://127.0.0.1:1"
        ):
            sy.connect("ws://127.0.0.1:1")
    hook.close()
    with pytest.raises(HookError):
        sy.connect("ws://127.0.0.1:1")


def test_a_unix_socket(hook: sy.TorchHook, tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "dan.sock"
    for _ in range(2):
        with sy.WebsocketServerWorker(hook, unix=path, id="dan") as server:
            dan = sy.connect(str(server.address))
            assert (torch.ones(2).send(dan) + 1).get().tolist() == [2, 2]
            assert path.stat().st_mode & 0o077 == 0, "its owner alone connects"
            with pytest.raises(OSError):
                sy.WebsocketServerWorker(hook, unix=path, id="eve")
            dan.close()
        assert not path.exists()


def test_who_gives_tokens_of_others_alone_is_told_what_is_missing(hook: sy.TorchHook) -> None:
    book = TokenBook(None)
    ann = book.make("ann", time.time())
    with sy.WebsocketServerWorker(hook, port=0, id="dan", tokens=book) as server:
        with pytest.raises(WorkerRefused, match=r"no token was given \(tokens= are for other"):
            sy.connect(str(server.address), tokens={"ann": ann})
        with pytest.raises(WorkerRefused, match=r"no token was given\.$"):
            sy.connect(str(server.address))


def test_a_revoked_token_ends_what_it_began(hook: sy.TorchHook) -> None:
    book = TokenBook(None)
    token, other = book.make("ann", time.time()), book.make("bea", time.time())
    with sy.WebsocketServerWorker(hook, port=0, id="dan", tokens=book) as server:
        dan = sy.connect(str(server.address), token, tokens={"bea": other})
        x = torch.ones(2).send(dan)
        assert (x + 1).get(user="bea").tolist() == [2, 2]
        book.revoke(next(row.key_id for row in book.rows() if row.user == "bea"))
        assert comes_true(lambda: not server.reception.guests)
        with pytest.raises(WorkerClosed, match="revoked"):
            while True:
                x.get()
        del x
        dan.close()


@pytest.mark.parametrize("blocking", [False, True])
def test_a_value_whose_answer_was_lost_on_the_way_comes_when_it_is_asked_for_again(
    hook: sy.TorchHook,
    server: sy.WebsocketServerWorker,
    monkeypatch: pytest.MonkeyPatch,
    blocking: bool,
) -> None:
    """The worker has given the only copy away when the connection breaks, and cannot be reached at
    once; the line goes on later."""
    dan = sy.connect(str(server.address), blocking=blocking)
    pointer = torch.ones(3).send(dan)
    assert pointer.shape == (3,)
    dial, line = dan.board._dials[dan.line], dan.line

    def nobody_answers(*arguments: object) -> None:
        raise ConnectionRefusedError("nobody answers")

    monkeypatch.setitem(dan.board._dials, line, nobody_answers)
    monkeypatch.setattr(line.websocket.stream, "read", lambda memory, wait=False: 0)
    with pytest.raises(WorkerLost):
        pointer.get()
    monkeypatch.setitem(dan.board._dials, line, dial)
    assert pointer.get().tolist() == [1.0, 1.0, 1.0]
    dan.close()


@pytest.mark.filterwarnings("ignore:.*torch.jit.trace:DeprecationWarning")
def test_a_trace_of_a_model_that_is_there_is_refused_before_it_reads_a_value(
    dan: sy.WebsocketClientWorker,
) -> None:
    model, x = torch.nn.Linear(2, 1).send(dan), torch.ones(1, 2).send(dan)
    with pytest.raises(UnsupportedOperation, match=r"for torch\.jit\.trace: ") as caught:
        torch.jit.trace(model, x)
    assert "tensor(" not in str(caught.value)
    assert model(x).get().shape == (1, 1)
