"""Tensors that are sent to a worker, and change before they have been written."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import syft as sy
from syft.serde.frame import Frame
from syft.serde.packer import Packer
from syft.serde.registry import pack
from syft.workers.sockets import line_transport
from syft.workers.sockets.line import LARGE
from syft.workers.wire.messages import Exchange, encode


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


def _letter(number: int, lasting: bool) -> Frame:
    """A letter of an execution that never starts."""
    packer = Packer()
    values = (pack(torch.ones(2 * line_transport._COPIED, dtype=torch.uint8), packer),)
    header = encode(Exchange(1 << 40, number, 0, values))
    return Frame(header, packer.buffers, private=True, lasting=lasting)


@pytest.mark.parametrize("dan", [False], indirect=True)
@pytest.mark.parametrize("lasting", [False, True])
def test_what_nobody_writes_to_is_not_waited_for(
    hook: sy.TorchHook, dan: sy.WebsocketClientWorker, lasting: bool
) -> None:
    transport = hook.local_worker.connection_to(dan).transport
    stream: Any = dan.line.websocket.stream  # type: ignore[union-attr]
    write = stream.write
    stream.write = lambda pieces: 0
    back = threading.Timer(0.2, setattr, (stream, "write", write))
    back.start()
    transport.deliver(_letter(0, lasting))
    assert (dan.line.kept_bytes > line_transport._COPIED) is lasting
    back.join()
    dan.board.wait_until_arrived(dan.line)
    assert dan.line.kept_bytes == 0


@pytest.mark.parametrize("dan", [False], indirect=True)
def test_what_nobody_writes_to_is_waited_for_when_it_is_much(
    hook: sy.TorchHook, dan: sy.WebsocketClientWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_transport, "_MOST_LASTING", 4 * line_transport._COPIED)
    transport = hook.local_worker.connection_to(dan).transport
    for number in range(20):
        transport.deliver(_letter(number, True))
        assert dan.line.kept_bytes < 7 * line_transport._COPIED


@pytest.mark.parametrize("dan", [False], indirect=True)
def test_workers_are_asked_what_is_under_way_only_when_nothing_comes(
    hook: sy.TorchHook, dan: sy.WebsocketClientWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them asks others: while an answer is on its way, nobody is kept from work."""
    x: Any = torch.ones(3)
    pointer = x.send(dan)
    connection = hook.local_worker.connection_to(dan)
    sy.synchronize()
    asked: list[Any] = []

    def settle(lines: Any) -> bool:
        asked.append(lines)
        return False

    monkeypatch.setattr(dan.board, "settle", settle)
    another = pointer + 1
    while connection.replies.pending:
        assert connection.transport.advance()
        connection.replies.read()
    assert not asked and another is not None
    assert not connection.transport.advance()
    assert asked


@pytest.mark.parametrize("dan", [False], indirect=True)
def test_a_line_that_another_thread_reads_is_not_waited_for(
    dan: sy.WebsocketClientWorker,
) -> None:
    board: Any = dan.board
    board._reading.add(dan.line)
    began = time.monotonic()
    assert not board.glance(5.0)
    assert time.monotonic() - began < 5.0
    board._reading.discard(dan.line)


@pytest.mark.parametrize("dan", [False], indirect=True)
def test_a_server_that_waits_a_little_serves_others(
    dan: sy.WebsocketClientWorker, server: sy.WebsocketServerWorker
) -> None:
    found: list[bool] = []
    began, ended = threading.Event(), threading.Event()

    def wait() -> None:
        began.set()
        found.append(server.board.glance(30.0))
        ended.set()

    server.board.post(wait)
    assert began.wait(30.0)
    x: Any = torch.ones(3)
    assert x.send(dan).get().equal(torch.ones(3))
    assert ended.wait(30.0)
    assert found == [True]
