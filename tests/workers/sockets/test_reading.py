"""A connection that one thread reads while others use it, or give it up."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from syft.serde.limits import Limits
from syft.workers.sockets import websocket as module
from syft.workers.sockets.monitor import Monitor
from syft.workers.sockets.streams import PlainStream
from syft.workers.sockets.websocket import BINARY, TEXT, WebSocket


class Busy(PlainStream):
    """A stream on which something happens while a thread is inside a read."""

    websocket: WebSocket
    gives_up = False

    def read(self, memory: memoryview, wait: bool = False) -> int | None:
        count = super().read(memory, wait)
        if wait:
            assert not self.websocket.receive(), "nothing is there for a second reader"
            if self.gives_up:
                self.websocket.abandon()
        return count


@pytest.fixture
def ends() -> Iterator[tuple[Busy, WebSocket, WebSocket]]:
    end, other = socket.socketpair()
    stream = Busy(end)
    stream.websocket = WebSocket(stream, False, Limits())
    writer = WebSocket(PlainStream(other), True, Limits())
    yield stream, stream.websocket, writer
    stream.websocket.abandon()
    writer.abandon()


def test_a_second_reader_takes_nothing_from_the_first(
    ends: tuple[Busy, WebSocket, WebSocket],
) -> None:
    _, reader, writer = ends
    writer.put([b"one"], TEXT)
    writer.flush()
    with Monitor() as monitor:
        assert reader.receive(monitor)
    assert list(reader.messages) == [(TEXT, b"one")]
    assert not reader.receive()


@pytest.mark.parametrize("size", [3, module._LARGE])
def test_what_comes_for_a_connection_that_was_given_up_is_dropped(
    ends: tuple[Busy, WebSocket, WebSocket], size: int
) -> None:
    """The memory that the first thread reads into is nobody else's meanwhile."""
    stream, reader, writer = ends
    writer.put([bytes(size)], BINARY)
    whole = b"".join(writer._out)
    if size > 3:  # the frame has begun when it is given up
        writer.stream.write([whole[:10]])
        reader.receive()
    stream.gives_up = True
    writer.stream.write([whole[10 if size > 3 else 0 :]])
    pooled = len(module._memories)
    with Monitor() as monitor, pytest.raises(ConnectionResetError, match="given up meanwhile"):
        reader.receive(monitor)
    assert len(module._memories) <= pooled, "and it is not given to others"
    assert not reader.messages
