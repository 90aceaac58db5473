"""Tensors that are sent to a worker, and change before they have been written."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import syft as sy
from syft.workers.sockets import line_transport
from syft.workers.sockets.line import LARGE


@pytest.fixture(params=[False, True], ids=["pipelined", "blocking"])
def dan(
    hook: sy.TorchHook, server: sy.WebsocketServerWorker, request: pytest.FixtureRequest
) -> Iterator[sy.WebsocketClientWorker]:
    worker = sy.connect(str(server.address), blocking=request.param)
    yield worker
    worker.close()


SIZES = [10, LARGE // 4, line_transport._COPIED // 4 - 1, line_transport._COPIED // 4, 1 << 20]


@pytest.mark.parametrize("size", SIZES)
def test_what_was_sent_is_what_it_was(dan: sy.WebsocketClientWorker, size: int) -> None:
    """Nothing can be written for a while: what need not wait for that is a copy."""
    stream: Any = dan.line.websocket.stream  # type: ignore[union-attr]
    write = stream.write
    stream.write = lambda pieces: 0
    back = threading.Timer(0.1, setattr, (stream, "write", write))
    back.start()
    x: Any = torch.arange(size, dtype=torch.float32)
    began = time.monotonic()
    pointer = x.send(dan)
    waited = time.monotonic() - began > 0.05
    x.zero_()
    assert pointer.get().equal(torch.arange(size, dtype=torch.float32))
    assert waited or not dan.blocking and 4 * size < line_transport._COPIED
    back.join()


@pytest.mark.parametrize("dan", [False], indirect=True)
def test_copies_are_few(dan: sy.WebsocketClientWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_transport, "_MOST_COPIED", 1 << 16)
    pointers = []
    for _ in range(20):
        x: Any = torch.ones(LARGE // 2)
        pointers.append(x.send(dan))
        assert dan.line.kept_bytes < 3 << 16
    assert all(pointer.get().sum() == LARGE // 2 for pointer in pointers)
    sy.synchronize()
    dan.board.wait_until_arrived(dan.line)
    assert dan.line.kept_bytes == 0
