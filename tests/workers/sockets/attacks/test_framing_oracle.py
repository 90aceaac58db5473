"""The framing against the ``websockets`` package: each end of ours talks to the other of theirs."""

from __future__ import annotations

import socket
import struct
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.exceptions import ProtocolError
from websockets.frames import Frame as TheirFrame
from websockets.frames import Opcode
from websockets.protocol import OPEN, Protocol, Side

from syft.exceptions import WireError
from syft.serde.frame import Frame, to_parts
from syft.serde.limits import Limits
from syft.workers.sockets.streams import PlainStream
from syft.workers.sockets.websocket import BINARY, CLOSE, PING, TEXT, WebSocket

_HEADERS = st.binary(min_size=1, max_size=300)
_SIZES = st.sampled_from([0, 1, 5, 125, 126, 1000, 16_300, 16_384, 16_400, 65_600, 150_000])


@st.composite
def messages(draw: Any) -> tuple[int, bytes]:
    """A message as users of the framing send it: opcode and bytes."""
    kind = draw(st.sampled_from([BINARY, BINARY, BINARY, TEXT, PING]))
    if kind == PING:
        return kind, draw(st.binary(max_size=125))
    if kind == TEXT:
        return kind, draw(st.text(max_size=200)).encode("utf-8", "replace")
    size = draw(_SIZES)
    buffers = [torch.arange(size, dtype=torch.int64).to(torch.uint8)] if size else []
    channel = draw(st.integers(0, 65_535))
    parts = to_parts(Frame(draw(_HEADERS), buffers), draw(st.booleans()), channel)
    return kind, b"".join(parts)


def theirs(is_client: bool) -> Protocol:
    """Their end of an open connection."""
    return Protocol(Side.CLIENT if is_client else Side.SERVER, state=OPEN)


def ours(is_client: bool) -> tuple[WebSocket, socket.socket]:
    """Our end of an open connection, and the socket at the other end."""
    end, other = socket.socketpair()
    for one in (end, other):
        one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
    return WebSocket(PlainStream(end), is_client, Limits()), other


def read_all(other: socket.socket) -> bytes:
    data = b""
    while True:
        try:
            data += other.recv(1 << 20, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return data


def joined(frames: list[Any]) -> list[tuple[int, bytes]]:
    """Their frames as messages."""
    found: list[tuple[int, bytes]] = []
    for frame in frames:
        if frame.opcode is Opcode.CONT:
            opcode, data = found.pop()
            found.append((opcode, data + bytes(frame.data)))
        else:
            found.append((int(frame.opcode), bytes(frame.data)))
    return found


@pytest.mark.parametrize("is_client", [False, True])
@given(sent=st.lists(messages(), max_size=6))
@settings(max_examples=40)
def test_they_read_what_we_write(is_client: bool, sent: list[tuple[int, bytes]]) -> None:
    end, other = ours(is_client)
    reader = theirs(not is_client)
    try:
        for opcode, data in sent:
            end.put([data[:7], data[7:]] if len(data) > 7 else [data], opcode)
            while not end.flush():
                reader.receive_data(read_all(other))
        reader.receive_data(read_all(other))
        assert joined(reader.events_received()) == sent
    finally:
        end.stream.close()
        other.close()


def written(writer: Protocol, sent: list[tuple[int, bytes]], data: st.DataObject) -> bytes:
    """What they write of messages, in one to four pieces each, with pings between them."""
    for opcode, payload in sent:
        if opcode == PING:
            writer.send_ping(payload)
            continue
        step = max(1, len(payload) // data.draw(st.integers(1, 4)))
        cuts = [payload[at : at + step] for at in range(0, len(payload), step)] or [b""]
        begin = writer.send_text if opcode == TEXT else writer.send_binary
        for index, piece in enumerate(cuts):
            (writer.send_continuation if index else begin)(piece, index == len(cuts) - 1)
            if data.draw(st.booleans()):
                writer.send_ping(b"between")
    return b"".join(writer.data_to_send())


@pytest.mark.parametrize("is_client", [False, True])
@given(sent=st.lists(messages(), max_size=6), data=st.data())
@settings(max_examples=60)
def test_we_read_what_they_write(
    is_client: bool, sent: list[tuple[int, bytes]], data: st.DataObject
) -> None:
    """In any pieces, with pings between them, and arriving in any portions."""
    wire = written(theirs(not is_client), sent, data)
    end, other = ours(is_client)
    try:
        while wire:
            size = data.draw(st.sampled_from([1, 2, 3, 9, 100, 20_000, 70_000, 1 << 30]))
            size = min(size if len(wire) < 3000 else max(size, 1000), 60_000)
            other.sendall(wire[:size])
            wire = wire[size:]
            end.receive()
        assert not end.receive()
        found = [
            (opcode, _octets(*value) if opcode == BINARY else value)
            for opcode, value in end.messages
        ]
        assert found == [
            (opcode, _parsed(payload) if opcode == BINARY else payload)
            for opcode, payload in sent
            if opcode != PING
        ]
    finally:
        end.stream.close()
        other.close()


def _octets(channel: int, frame: Frame) -> tuple[int, bytes, list[bytes]]:
    return channel, frame.header, [bytes(buffer.numpy()) for buffer in frame.buffers]


def _parsed(data: bytes) -> tuple[int, bytes, list[bytes]]:
    """The channel, header and buffers of a frame, read by hand."""
    import lz4.frame

    _, _, _, channel, count, size = struct.unpack_from("<4sBBHII", data)
    rows = [struct.unpack_from("<QQII", data, 16 + 24 * row) for row in range(count)]
    at = 16 + 24 * count
    header, at = data[at : at + size], at + size
    buffers = []
    for stored, _, kind, _ in rows:
        at += -at % 64
        raw = data[at : at + stored]
        buffers.append(lz4.frame.decompress(raw) if kind else raw)
        at += stored
    return channel, header, buffers


@pytest.mark.parametrize("is_client", [False, True])
@given(
    opcode=st.integers(0, 15),
    final=st.booleans(),
    reserved=st.integers(0, 7),
    payload=st.binary(max_size=140),
    mask=st.booleans(),
)
@settings(max_examples=200)
def test_both_refuse_the_same_frames(
    is_client: bool, opcode: int, final: bool, reserved: int, payload: bytes, mask: bool
) -> None:
    """A single frame of any kind: whether it breaks a rule of the RFC is the same to both."""
    flags = [bool(reserved & bit) for bit in (4, 2, 1)]
    head = bytes([final << 7 | flags[0] << 6 | flags[1] << 5 | flags[2] << 4 | opcode])
    size = len(payload)
    long = size > 125
    head += bytes([mask << 7 | (126 if long else size)]) + (struct.pack(">H", size) * long)
    wire = head + (bytes(4) if mask else b"") + payload
    their = theirs(is_client)
    their.receive_data(wire)
    refused = isinstance(their.parser_exc, ProtocolError | UnicodeDecodeError)
    end, other = ours(is_client)
    try:
        other.sendall(wire)
        try:
            end.receive()
            mine = False
        except WireError as error:
            # What is inside a message of syft is not the business of the framing.
            mine = type(error).__name__ == "BrokenFraming"
        if opcode == CLOSE and not refused and size > 1:
            assert not mine or int.from_bytes(payload[:2], "big") in range(1012, 5000)
        elif opcode != TEXT:
            assert mine is refused, their.parser_exc
    finally:
        end.stream.close()
        other.close()


def test_their_frames_are_ours() -> None:
    """The oracle itself: they know the opcodes by the same numbers."""
    assert [Opcode.TEXT, Opcode.BINARY, Opcode.CLOSE, Opcode.PING] == [TEXT, BINARY, CLOSE, PING]
    assert TheirFrame(Opcode.PING, b"x").serialize(mask=False) == b"\x89\x01x"
