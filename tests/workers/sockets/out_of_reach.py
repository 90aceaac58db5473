"""Servers that cannot reach each other, though their caller reaches both."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import syft as sy
from syft.serde.frame import Frame
from syft.workers.sockets.address import Address
from syft.workers.sockets.line import Line
from syft.workers.sockets.tunnels import Relays

_SERVERS_DIAL_IN = ("syft dial", "syft redial")


@pytest.fixture
def out_of_reach(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No server reaches any address."""
    dial = Address.dial

    def fail(address: Address, seconds: float) -> socket.socket:
        if threading.current_thread().name in _SERVERS_DIAL_IN:
            raise ConnectionRefusedError(111, "out of reach")
        return dial(address, seconds)

    monkeypatch.setattr(Address, "dial", fail)
    yield


class Tap:
    """What a client sees of the tunnels that it passes on, and may change."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[tuple[str, bytes]] = []
        self.change: Callable[[Relays, Line, Frame], list[tuple[Line, Frame]]] | None = None
        tap, passed = self, Relays.passed

        def watch(relays: Relays, line: Line, frame: Frame) -> None:
            tap.seen.append((line.name, bytes(frame.buffers[0].numpy())))
            frames = [(line, frame)] if tap.change is None else tap.change(relays, line, frame)
            for one, changed in frames:
                passed(relays, one, changed)

        monkeypatch.setattr(Relays, "passed", watch)

    def size(self, sender: str) -> int:
        """Bytes that one end has sent."""
        return sum(len(data) for name, data in self.seen if name == sender)

    def all(self) -> bytes:
        """All that was seen."""
        return b"".join(data for _, data in self.seen)


def comes_true(condition: Callable[[], Any], seconds: float = 20) -> bool:
    """Whether something happens by itself."""
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.005)
    return bool(condition())


def move_something(bob: Any, alice: Any) -> None:
    """Have bob send alice something, and see that it came."""
    x = torch.ones(2).send(bob)
    moved = x.move(alice)
    assert (moved + 1).get().tolist() == [2, 2]
    sy.synchronize()
