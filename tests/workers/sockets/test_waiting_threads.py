"""Threads that wait for one worker of another process: each gets the reply to its own request.

Whatever goes wrong, a test ends: it fails when a thread has waited for a minute.
"""

from __future__ import annotations

import gc
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import syft as sy
from syft.exceptions import RequestWithdrawn, WorkerLost, WorkerTimeout
from syft.serde.frame import Frame
from syft.workers.core.peer import Peer
from syft.workers.core.state_machine import WorkerCore
from syft.workers.sockets.serving import described
from syft.workers.sockets.dialling import Target
from tests.shells.child import make_worker
from tests.workers.shells.test_threads import Program, at_once, brisk_switches

__all__ = ["brisk_switches"]


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """An operation, ``torch.cos``, that takes until the event is set."""
    opened, respond = threading.Event(), WorkerCore.respond

    def wait(core: WorkerCore, frame: Frame, peer: Peer) -> Frame | None:
        if described(frame) == "torch.Tensor.cos":
            opened.wait(60)
        return respond(core, frame, peer)

    monkeypatch.setattr(WorkerCore, "respond", wait)
    yield opened
    opened.set()


@pytest.fixture(params=[True, False], ids=["blocking", "not blocking"])
def worker(
    request: pytest.FixtureRequest, hook: sy.TorchHook, server: sy.WebsocketServerWorker
) -> Iterator[sy.WebsocketClientWorker]:
    """The server, as this program calls it."""
    worker = sy.connect(str(server.address), id="dan", blocking=request.param, heartbeat=0.5)
    yield worker
    worker.close()


def error_of(act: Callable[[], Any]) -> Callable[[], BaseException | None]:
    """What calls this, and returns what it raises."""

    def call() -> BaseException | None:
        try:
            act()
        except BaseException as error:  # noqa: B036  # whatever it is
            error.__traceback__ = None  # of pointers
            return error
        return None

    return call


def numbers(worker: Any, start: float) -> list[float]:
    """What thirty operations make of a number, some of them asked for on the way."""
    x = torch.full((2,), start).send(worker)
    seen = []
    for step in range(30):
        x = x + 1
        if not step % 7:
            seen.append(float(x.sum().get()))
            assert x.dim() == 1 and x.shape == (2,)
    return [*seen, float(x.get()[0])]


def test_each_thread_gets_its_own_replies(worker: sy.WebsocketClientWorker) -> None:
    found = at_once(*(lambda n=n: numbers(worker, 100.0 * n) for n in range(6)))
    expected = [[2.0 * (100 * n + s + 1) for s in range(0, 30, 7)] for n in range(6)]
    assert found == [[*sums, 100.0 * n + 30] for n, sums in enumerate(expected)]


@pytest.mark.parametrize("seed", [0, 8, 16])
def test_threads_compute_what_torch_does(worker: sy.WebsocketClientWorker, seed: int) -> None:
    seeds = range(seed, seed + 4)
    found = at_once(*(Program(number, [worker]).run for number in seeds))
    for number, there in zip(seeds, found, strict=True):
        program = Program(number, [worker])
        program.at = None
        torch.testing.assert_close(there, program.run())


def test_a_thread_that_has_waited_for_too_long_is_told(
    worker: sy.WebsocketClientWorker, gate: threading.Event
) -> None:
    x = torch.zeros(2).send(worker)

    def impatient() -> None:
        with worker.within(0.3):
            x.cos().get()

    def patient() -> list[float]:
        return (x.cos() + 1).get().tolist()

    def opens() -> None:
        time.sleep(0.6)
        gate.set()

    first, second, third, _ = at_once(error_of(impatient), patient, error_of(impatient), opens)
    assert type(first) is type(third) is WorkerTimeout
    assert second == [2, 2]


def test_every_thread_is_told_that_the_worker_is_lost(
    worker: sy.WebsocketClientWorker, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.zeros(2).send(worker)

    def wait() -> None:
        x.cos().get()

    def leave() -> None:
        time.sleep(0.3)
        monkeypatch.setattr(WorkerCore, "respond", fail)
        gate.set()

    def fail(core: WorkerCore, frame: Frame, peer: Peer) -> Frame | None:
        raise MemoryError("a fault of the worker")

    *errors, _ = at_once(*[error_of(wait)] * 4, leave)
    assert {type(error) for error in errors} == {WorkerLost}


def test_every_thread_is_told_that_its_request_was_withdrawn(
    worker: sy.WebsocketClientWorker, gate: threading.Event
) -> None:
    x = torch.zeros(2).send(worker)
    sy.synchronize()
    held = threading.Thread(target=error_of(lambda: x.cos().child.handle.wait()))
    held.start()
    assert comes_true(lambda: worker.connection().transport.line.sent > 1)
    time.sleep(0.2)

    def cancel() -> None:
        time.sleep(0.3)
        assert worker.cancel() >= 3
        gate.set()

    *errors, _ = at_once(*[error_of(lambda: (x + 1).child.handle.wait())] * 3, cancel)
    held.join(60)
    assert not held.is_alive()
    assert {type(error) for error in errors} == {RequestWithdrawn}
    assert (x + 1).get().tolist() == [1, 1]


@pytest.mark.skipif(
    sys.gettrace() is not None,
    reason="an interrupt may fall into a lock of what measures, which then waits for ever",
)
def test_an_interrupt_ends_the_wait_of_the_first_thread_alone(
    worker: sy.WebsocketClientWorker, gate: threading.Event
) -> None:
    x, found = torch.zeros(2).send(worker), []
    other = threading.Thread(target=lambda: found.append((x.cos() + 1).get().tolist()))
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    other.start()
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(KeyboardInterrupt):
            x.cos().get()
    finally:
        signal.signal(signal.SIGALRM, before)
    gate.set()
    other.join(60)
    assert found == [[2, 2]]
    assert (x + 1).get().tolist() == [1, 1]


def test_threads_at_a_worker_in_a_child_process(request: pytest.FixtureRequest) -> None:
    from tests.shells.child import hook_with_hub

    hook = hook_with_hub(request.getfixturevalue("processes"))
    request.getfixturevalue("nothing_left_behind")
    bob = make_worker(hook, "bob")
    found = at_once(*(lambda n=n: numbers(bob, 100.0 * n) for n in range(4)))
    assert [seen[-1] for seen in found] == [100.0 * n + 30 for n in range(4)]


def test_threads_that_connect_at_once_get_one_connection(
    hook: sy.TorchHook, server: sy.WebsocketServerWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    both, dial = threading.Barrier(2), Target.dial

    def meanwhile(*args: Any) -> Any:
        both.wait(20)
        found = dial(*args)
        both.wait(20)
        return found

    monkeypatch.setattr(Target, "dial", meanwhile)
    one, other = at_once(*[lambda: sy.connect(str(server.address))] * 2)
    assert one is other and one.board.lines == [one.line]
    x = torch.ones(2).send(one)
    assert (x + 1).tolist() == [2, 2]
    del x
    one.close()


def test_a_network_that_was_connected_goes_with_its_hook(server: sy.WebsocketServerWorker) -> None:
    local = sy.VirtualWorker(None, id="ann")
    network = weakref.ref(local.network)
    dan = sy.WebsocketClientWorker(SimpleNamespace(local_worker=local), address=server.address)
    connection = local.connection_to(dan)
    connection.put(torch.ones(2), 5)
    connection.synchronize()
    dan.close()
    local.close()
    del connection, dan, local
    gc.collect()
    assert network() is None


def test_heartbeats_go_out_while_a_virtual_worker_is_at_work(
    hook: sy.TorchHook, bob: sy.VirtualWorker, gate: threading.Event
) -> None:
    """That is done inside the monitor, which is free again when the operation is done."""
    with sy.WebsocketServerWorker(hook, port=0, id="dan", heartbeat=0.1) as server:
        dan = sy.connect(str(server.address), heartbeat=0.1)
        x = torch.ones(2).send(dan)
        assert x.shape == (2,)
        (line,) = server.board.lines
        websocket: Any = line.websocket
        there, heard = torch.zeros(2).send(bob), {websocket.heard}

        def watch() -> None:
            def has_shown_signs() -> bool:
                heard.add(websocket.heard)
                return len(heard) > 5 or line.websocket is not websocket

            comes_true(has_shown_signs)
            gate.set()

        _, result = at_once(watch, lambda: there.cos().tolist())
        assert result == [1, 1] and len(heard) > 5
        assert line.websocket is websocket and (x + 1).tolist() == [2, 2]
        del x
        dan.close()


def comes_true(what: Callable[[], bool]) -> bool:
    """Whether something is so within a minute."""
    end = time.monotonic() + 60
    while not what() and time.monotonic() < end:
        time.sleep(0.01)
    return what()
