"""A program with many open files: sockets have numbers above 1,023, which select() refuses."""

from __future__ import annotations

import os
import socket

import pytest

from syft.workers.sockets.streams import PlainStream

HIGH = 1500


@pytest.fixture
def pair():
    end, other = socket.socketpair()
    os.dup2(other.fileno(), HIGH)
    high = socket.socket(fileno=HIGH)
    yield PlainStream(end), PlainStream(high)
    for one in (end, other, high):
        one.close()


def test_a_stream_with_a_high_number_waits_until_something_can_be_read(pair):
    end, high = pair
    high.wait(False, 0.01)
    assert high.read(memoryview(bytearray(4))) is None
    end.write([b"ab"])
    high.wait(False)
    assert high.read(memoryview(bytearray(4))) == 2


def test_it_waits_until_there_is_room_to_write(pair):
    end, high = pair
    piece = bytes(1 << 16)
    while high.write([piece]):
        pass
    while end.read(memoryview(bytearray(1 << 20))):
        pass
    high.wait(True)
    assert high.write([piece])


def test_nobody_waits_for_a_stream_that_is_closed(pair):
    _, high = pair
    high.close()
    high.wait(True)


def test_it_says_whether_there_is_more_to_read(pair):
    end, high = pair
    assert not high.has_more()
    end.write([b"ab"])
    high.wait(False)
    assert high.has_more() and high.has_more()
    assert high.read(memoryview(bytearray(4))) == 2
    assert not high.has_more()
    end.close()
    assert high.has_more(), "that the other end has closed is something to read"
