"""A line that ends while an operation runs: the thread that reads meanwhile fails nothing.

It holds the sockets while it reads, and the operation holds the worker.  To fail what the worker
does together with another one takes both.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import syft as sy
from syft.exceptions import RemoteFailure, WorkerLost
from syft.serde.frame import Frame
from syft.workers.core.peer import Peer
from syft.workers.core.state_machine import WorkerCore
from syft.workers.sockets import serving, sparse_log
from syft.workers.sockets.serving import described
from syft.workers.sockets.line import Line
from syft.workers.sockets.sparse_log import SparseLog
from tests.workers.sockets.attacks.test_lines_between_servers import comes_true, cut

SECONDS = 10
"""How long a worker is waited for that may hang."""


class Slow:
    """An operation, ``torch.cos``, that has begun when ``begun`` is set, and ends on ``end``."""

    def __init__(self) -> None:
        self.begun, self.end = threading.Event(), threading.Event()
        self._respond = WorkerCore.respond

    def __call__(self, core: WorkerCore, frame: Frame, peer: Peer) -> Frame | None:
        if described(frame) == "torch.Tensor.cos":
            self.begun.set()
            self.end.wait(3 * SECONDS)
        return self._respond(core, frame, peer)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slow]:
    slow = Slow()
    monkeypatch.setattr(WorkerCore, "respond", lambda *args: slow(*args))
    yield slow
    slow.end.set()


class Scene:
    """Two workers that serve, and this program's connections to them; dan dials eve."""

    def __init__(self, hook: sy.TorchHook) -> None:
        self.dan = sy.WebsocketServerWorker(hook, port=0, id="dan", heartbeat=0.3)
        self.eve = sy.WebsocketServerWorker(hook, port=0, id="eve", heartbeat=0.3)
        for server in (self.dan, self.eve):
            server.__enter__()
        self.at_dan = sy.connect(str(self.dan.address))
        self.at_eve = sy.connect(str(self.eve.address))

    def line(self) -> Line:
        """The line that dan has dialled."""
        (line,) = [line for line in self.dan.board.lines if self.dan.board.comes_back(line)]
        return line

    def close(self) -> None:
        self.at_dan.close()
        self.at_eve.close()
        for server in (self.dan, self.eve):
            closing = threading.Thread(target=server.close, daemon=True)  # it may hang
            closing.start()
            closing.join(SECONDS)
            assert not closing.is_alive(), f"{server.id} hangs"


@pytest.fixture
def scene(hook: sy.TorchHook) -> Iterator[Scene]:
    scene = Scene(hook)
    yield scene
    scene.close()


def remove(scene: Scene, line: Line) -> None:
    """Somebody asks the worker to give a line up."""
    scene.dan.board.post(lambda: scene.dan.board.remove(line, "it was cut"))


def leave(scene: Scene, line: Line) -> None:
    """The other worker says that it leaves; and before, that its part has failed."""
    scene.eve.close()


def break_for_ever(scene: Scene, line: Line) -> None:
    """The connection breaks, and nobody is there to dial."""

    def refuse(resume: Any, seconds: float) -> Any:
        raise ConnectionRefusedError("it was cut")

    scene.dan.board.redialler.keep(line, refuse)
    cut(line)


@pytest.mark.parametrize("end", [remove, leave, break_for_ever])
def test_a_worker_that_is_lost_meanwhile_is_the_cause_afterwards(
    scene: Scene,
    slow: Slow,
    end: Callable[[Scene, Line], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = torch.tensor([1]).send(scene.at_dan)
    promise = scene.at_eve.promise()
    totals = sy.sum_private(x, promise)
    sy.synchronize()
    assert len(scene.dan.core.sessions) == 1
    line, board, by = scene.line(), scene.dan.board, []
    network_lose = scene.dan.network.lose

    def lose(name: str, reason: str) -> None:
        by.append(threading.current_thread().name)
        network_lose(name, reason)

    monkeypatch.setattr(scene.dan.network, "lose", lose)
    y = torch.zeros(2).send(scene.at_dan).cos()
    scene.at_dan.connection().flush()
    assert slow.begun.wait(SECONDS)
    end(scene, line)
    assert comes_true(lambda: line not in board.lines, SECONDS), "the other thread reads"
    assert not by and scene.dan.core.sessions, "and fails nothing"
    slow.end.set()
    with scene.at_dan.within(SECONDS):
        with pytest.raises((WorkerLost, RemoteFailure), match="eve"):
            totals[0].child.handle.wait()
        assert y.get().tolist() == [1, 1] and (x + 1).get().tolist() == [2]
    assert comes_true(lambda: by == ["syft worker dan"], SECONDS)
    assert not scene.dan.core.sessions
    del x, y, promise, totals


@pytest.mark.parametrize("meanwhile", [False, True])
def test_a_fault_that_a_loss_brings_about_does_not_end_a_worker(
    scene: Scene,
    slow: Slow,
    meanwhile: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(name: str, reason: str) -> None:
        raise KeyError("a fault of ours")

    monkeypatch.setattr(serving, "STRANGERS", SparseLog(sparse_log.LOG))  # no line was just written
    monkeypatch.setattr(scene.dan.network, "lose", fail)
    moved = torch.ones(2).send(scene.at_dan).move(scene.at_eve)
    assert moved.get().tolist() == [1, 1]
    if meanwhile:
        y = torch.zeros(2).send(scene.at_dan).cos()
        scene.at_dan.connection().flush()
        assert slow.begun.wait(SECONDS)
    line = scene.line()
    remove(scene, line)
    assert comes_true(lambda: line not in scene.dan.board.lines, SECONDS)
    slow.end.set()
    with scene.at_dan.within(SECONDS):
        if meanwhile:
            assert y.get().tolist() == [1, 1]
        assert (torch.ones(2).send(scene.at_dan) + 1).get().tolist() == [2, 2]
    assert comes_true(lambda: caplog.records, SECONDS)
    (record,) = [one for one in caplog.records if one.levelno == logging.WARNING]
    assert record.name == "syft.worker"
    assert record.getMessage() == (
        "a fault of this worker, as eve was lost: KeyError('a fault of ours')"
    )
    monkeypatch.undo()
