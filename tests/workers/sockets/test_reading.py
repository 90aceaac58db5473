"""A connection that one thread reads while others use it, or give it up."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import pytest
import torch

from syft.exceptions import BrokenFraming, MalformedMessage
from syft.serde.frame import Frame, to_bytes
from syft.serde.limits import Limits
from syft.workers.sockets import websocket as module
from syft.workers.sockets.arriving import FrameAssembly
from syft.workers.client.monitor import Monitor
from syft.workers.sockets.streams import PlainStream
from syft.workers.sockets.websocket import BINARY, CONTINUATION, TEXT, WebSocket


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


def piece(size: int, first: bool = False, last: bool = False) -> bytes:
    """A piece of a text as a client sends it, under a mask of zeros."""
    opcode = (0x80 if last else 0) | (TEXT if first else 0)
    length = bytes((0x80 | size,)) if size < 126 else struct.pack(">BH", 0x80 | 126, size)
    return bytes((opcode,)) + length + bytes(4) + b"x" * size


def test_a_text_in_pieces_has_the_limit_of_a_text(ends: tuple[Busy, WebSocket, WebSocket]) -> None:
    _, reader, _ = ends
    half = module.MAX_TEXT // 2
    reader.feed(piece(half, first=True) + piece(0) + piece(half, last=True))
    assert reader.messages.popleft() == (TEXT, b"x" * module.MAX_TEXT)
    for sizes in ((module.MAX_TEXT + 1,), (half, half + 1), (half, half, 1)):
        *most, last = sizes
        for number, size in enumerate(most):
            reader.feed(piece(size, first=not number))
        with pytest.raises(BrokenFraming, match=f"more than {module.MAX_TEXT} bytes") as refused:
            reader.feed(piece(last, first=not most, last=True))
        assert refused.value.code == module.TOO_BIG and not reader.messages
        reader._texts, reader._opcode, reader._start, reader._end = [], CONTINUATION, 0, 0


def test_a_text_has_a_limit_of_pieces(ends: tuple[Busy, WebSocket, WebSocket]) -> None:
    _, reader, _ = ends
    many = module._MOST_PIECES
    reader.feed(piece(1, first=True) + piece(0) * (many - 2) + piece(1, last=True))
    assert reader.messages.popleft() == (TEXT, b"xx")
    reader.feed(piece(1, first=True) + piece(0) * (many - 1))
    with pytest.raises(BrokenFraming, match=f"more than {many} pieces"):
        reader.feed(piece(0, last=True))


def test_a_large_frame_is_whole_or_none() -> None:
    buffers = [torch.arange(5, dtype=torch.uint8), torch.arange(3, dtype=torch.uint8)]
    data = to_bytes(Frame(b"\x80", buffers), compressed=False)

    def assembled(data: bytes) -> FrameAssembly:
        assembly, at = FrameAssembly(Limits()), 0
        while at < len(data):
            space = assembly.space()
            count = min(len(space), len(data) - at)
            space[:count] = data[at : at + count]
            assembly.filled(count)
            at += count
        return assembly

    found = assembled(data).frame()
    assert [buffer.tolist() for buffer in found.buffers] == [[0, 1, 2, 3, 4], [0, 1, 2]]
    for cut in (0, 10, len(data) - 1):
        with pytest.raises(MalformedMessage, match="bytes, got"):
            assembled(data[:cut]).frame()
    data[-4] = 1  # between the buffers
    with pytest.raises(MalformedMessage, match="padding of zeros"):
        assembled(data)
