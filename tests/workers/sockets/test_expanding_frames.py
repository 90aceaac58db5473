"""Frames that become far larger than they are: no read lasts longer for them than for others."""

from __future__ import annotations

import socket

import pytest
import torch

from syft.exceptions import MalformedMessage
from syft.serde.frame import Frame, to_parts
from syft.serde.limits import Limits
from syft.workers.sockets.arriving import FrameAssembly
from syft.workers.sockets.streams import PlainStream
from syft.workers.sockets.websocket import BINARY, WebSocket

MEGABYTES = 100


def test_a_read_ends_before_all_is_decompressed() -> None:
    here, there = socket.socketpair()
    writer = WebSocket(PlainStream(here), True, Limits())
    reader = WebSocket(PlainStream(there), False, Limits())
    ones = torch.ones(MEGABYTES << 20, dtype=torch.uint8)
    writer.put(to_parts(Frame(b"\xc0", [ones])), BINARY)
    assert writer.queued < ones.nbytes / 200
    reads = 0
    while not reader.messages:
        writer.flush()
        reads += reader.receive()
    ((_, (_, frame)),) = reader.messages
    assert torch.equal(frame.buffers[0], ones)
    assert reads >= MEGABYTES / 32, "16 MB, and what the last piece became, are the most of one"
    here.close()
    there.close()


@pytest.mark.parametrize("step", [1, 7, 1 << 14, 1 << 20])
def test_it_comes_in_pieces_of_any_size(step: int) -> None:
    tensors = [torch.arange(20_000), torch.zeros(300_000), torch.ones(0), torch.ones(9000)]
    sent = Frame(b"\xc0", [tensor.view(torch.uint8) for tensor in tensors])
    data = b"".join(to_parts(sent))
    assembly = FrameAssembly(Limits())
    at = 0
    while at < len(data):
        space = assembly.space()
        count = min(len(space), step)
        space[:count] = data[at : at + count]
        assembly.filled(min(count, len(data) - at))
        at += count
    for got, buffer in zip(assembly.frame().buffers, sent.buffers, strict=True):
        assert torch.equal(got, buffer)
    assert assembly.expanded > 1_000_000


def take(data: bytearray) -> Frame:
    """The frame that comes in these bytes."""
    assembly = FrameAssembly(Limits())
    while data:
        space = assembly.space()
        count = min(len(space), len(data))
        space[:count] = data[:count]
        del data[:count]
        assembly.filled(count)
    return assembly.frame()


@pytest.mark.parametrize("change", [-1, 1])
def test_another_size_than_it_says_is_refused(change: int) -> None:
    data = bytearray(b"".join(to_parts(Frame(b"\xc0", [torch.zeros(5000, dtype=torch.uint8)]))))
    data[24] += change  # the low byte of the size once decompressed
    with pytest.raises(MalformedMessage, match="one LZ4 frame of"):
        take(data)


def test_more_than_it_says_is_refused_while_it_comes() -> None:
    numbers = torch.randint(0, 256, (10_000, 6), dtype=torch.uint8).repeat(1, 5).flatten()
    data = bytearray(b"".join(to_parts(Frame(b"\xc0", [numbers]))))
    assert 4 << 14 < len(data) < 200_000 < len(numbers), "several pieces"
    data[24:28] = (200_000).to_bytes(4, "little")  # the size once decompressed
    with pytest.raises(MalformedMessage, match="200000 bytes, and more"):
        take(data)
