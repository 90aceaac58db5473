"""Large tensors over a slow link: the other end is not taken for dead meanwhile."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest
import torch

import syft as sy
from syft.serde.limits import Limits
from syft.workers.sockets.streams import PlainStream
from syft.workers.sockets.websocket import WebSocket

_PIECE = 1 << 18


def _pump(source: socket.socket, sink: socket.socket, pause: float) -> None:
    """Hand bytes on, a piece in each ``pause`` seconds."""
    with contextlib.suppress(OSError):
        while data := source.recv(_PIECE):
            sink.sendall(data)
            if len(data) > 1 << 14:
                time.sleep(pause)
    for end in (source, sink):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def slow_port(server: sy.WebsocketServerWorker) -> Iterator[int]:
    """A port that leads to the server over a slow link."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    ends: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def link() -> None:
        caller, _ = listener.accept()
        worker = socket.create_connection(("127.0.0.1", server.port))
        worker.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        ends.extend((caller, worker))
        for source, sink in ((caller, worker), (worker, caller)):
            thread = threading.Thread(target=_pump, args=(source, sink, 0.02))
            threads.append(thread)
            thread.start()

    first = threading.Thread(target=link)
    first.start()
    yield int(listener.getsockname()[1])
    first.join()
    for end in ends:
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
    for thread in threads:
        thread.join()
    for end in (listener, *ends):
        end.close()


@pytest.fixture
def server(hook: sy.TorchHook) -> Iterator[sy.WebsocketServerWorker]:
    with sy.WebsocketServerWorker(hook, port=0, id="dan", heartbeat=0.3) as server:
        yield server


def test_a_tensor_that_takes_longer_than_three_heartbeats(
    hook: sy.TorchHook, slow_port: int
) -> None:
    dan = sy.WebsocketClientWorker(hook, port=slow_port, heartbeat=0.3)
    before = dan.line.websocket
    tensor = torch.randn(2_000_000)
    pointer = tensor.send(dan)
    assert torch.equal(pointer.get(), tensor)
    assert dan.line.websocket is before, "over one connection"
    dan.close()


def test_only_what_is_taken_is_a_sign_of_life() -> None:
    one, other = socket.socketpair()
    websocket = WebSocket(PlainStream(one), True, Limits())
    websocket.put([bytes(1 << 24)])
    assert not websocket.flush()
    websocket.heard = 0.0
    other.recv(1 << 16)
    websocket.flush()
    assert websocket.is_taken(100.0) and websocket.heard == 100.0
    assert not websocket.is_taken(101.0) and websocket.heard == 100.0, "nothing since"
    while not websocket.is_taken(102.0):
        other.recv(1 << 20)
        websocket.flush()
    assert websocket.heard == 102.0
    one.close()
    assert websocket.stream.unsent() == 0
    other.close()


def test_a_short_message_proves_nothing() -> None:
    one, other = socket.socketpair()
    websocket = WebSocket(PlainStream(one), True, Limits())
    websocket.put([b"it lies in the kernel"])
    assert websocket.flush()
    assert 0 < websocket.stream.unsent() < 5000
    assert not websocket.is_taken(100.0)
    one.close()
    other.close()
