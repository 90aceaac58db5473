"""A server that is stopped while something runs."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
import torch

import syft as sy
from syft.exceptions import WorkerClosed, WorkerLost
from syft.workers.core.state_machine import WorkerCore
from syft.workers.sockets.line import LOST_AFTER

BEAT = 0.2


def test_heartbeats_are_answered_while_what_runs_ends(
    hook: sy.TorchHook, monkeypatch: pytest.MonkeyPatch
) -> None:
    respond, begun = WorkerCore.respond, threading.Event()

    def slow(*arguments: Any) -> Any:
        if not begun.is_set():
            begun.set()
            time.sleep(3 * LOST_AFTER * BEAT)
        return respond(*arguments)

    server = sy.WebsocketServerWorker(hook, port=0, id="dan")
    with server:
        there = sy.connect(str(server.address), heartbeat=BEAT)
        x = torch.ones(2).send(there)
        assert x.sum().item() == 2
        monkeypatch.setattr(WorkerCore, "respond", slow)
        wanted = x.child.start_get()
        there.connection().flush()
        assert begun.wait(10)
        time.sleep(BEAT)  # the other thread reads by now
        server.stop("enough for today")
        assert torch.equal(wanted.result(), torch.ones(2)), "it was not taken for dead meanwhile"
        with pytest.raises(WorkerClosed, match="enough for today"):
            for _ in range(1000):
                torch.ones(2).send(there).sum().item()
        there.close()


def test_who_writes_to_a_server_that_has_stopped_learns_why(hook: sy.TorchHook) -> None:
    with sy.WebsocketServerWorker(hook, port=0, id="dan") as server:
        there = sy.connect(str(server.address))
        x = torch.ones(2).send(there)
        sy.synchronize()
        server.stop("enough for today")
    with pytest.raises(WorkerClosed, match="enough for today"):
        x.get()  # the write fails before anything is read
    there.close()


def test_a_program_that_was_not_reading_is_told_why_the_worker_stopped(hook: sy.TorchHook) -> None:
    """What came before the connection broke counts, before another one is tried."""
    for index in range(10):
        with sy.WebsocketServerWorker(hook, port=0, id=f"dan{index}") as server:
            dan = sy.connect(str(server.address))
            x = torch.ones(2).send(dan)
            sy.synchronize()
            server.stop("the disk is being replaced")
        with pytest.raises(WorkerLost, match="the disk is being replaced"):
            x.get()
        assert not dan.board.has_come(dan.line), "it has no connection any more"
        dan.close()
