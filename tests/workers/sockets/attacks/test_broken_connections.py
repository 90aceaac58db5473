"""Connections are cut, or stall, and ends are killed: nothing is lost, and nothing done twice."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import syft as sy
from syft.exceptions import WorkerLost
from syft.workers.wire import messages
from syft.workers.wire.messages import Put
from tests.workers.sockets.attacks.proxy import Proxy
from tests.workers.sockets.attacks.stranger import BINARY, Stranger, frame, syft_frame
from tests.workers.sockets.attacks.victim import Victim


@pytest.fixture
def server(hook: sy.TorchHook) -> Iterator[sy.WebsocketServerWorker]:
    with sy.WebsocketServerWorker(hook, port=0, id="bob", heartbeat=0.2, lease=30.0) as server:
        yield server


def persist(act: Callable[[], Any], tries: int = 60) -> Any:
    """Do something, and go on with the line as often as its connection is lost."""
    for _ in range(tries):
        try:
            return act()
        except WorkerLost:
            time.sleep(0.01)
    raise AssertionError("the line did not come back")


@pytest.mark.parametrize("run", range(3))
def test_each_operation_is_done_once_however_the_connection_is_cut(
    hook: sy.TorchHook, server: sy.WebsocketServerWorker, run: int
) -> None:
    """In-place additions count themselves; the connection is cut after random numbers of bytes."""
    cuts = [random.randrange(700, 6000) for _ in range(12)]
    cuts[0] += 2000  # the first connection is made
    with Proxy(server.port, cuts) as proxy:
        bob = sy.WebsocketClientWorker(hook, port=proxy.port, heartbeat=0.2)
        total = torch.zeros(3).send(bob)
        for index in range(400):
            total += 1  # promised: no reply is waited for
            if index % 40 == 39:
                persist(lambda: bob.network.local.connection_to(bob).synchronize())
        assert persist(lambda there=total: there.copy().get()).tolist() == [400.0] * 3
        assert proxy.done >= 3, "it was cut"
        del total
        bob.close()


def test_a_worker_that_falls_silent_is_lost_and_found(
    hook: sy.TorchHook, server: sy.WebsocketServerWorker
) -> None:
    with Proxy(server.port) as proxy:
        bob = sy.WebsocketClientWorker(hook, port=proxy.port, heartbeat=0.2)
        total = torch.zeros(2).send(bob)
        total += 1
        assert total.copy().get().tolist() == [1.0, 1.0]
        proxy.stalls.set()
        began = time.monotonic()
        with pytest.raises(WorkerLost):
            total += 1
            total.copy().get()
        silent = time.monotonic() - began
        print(f"lost after {silent:.2f} s of silence; three heartbeats are 0.6 s")
        assert silent < 20
        proxy.stalls.clear()
        total += 1
        assert persist(total.copy().get).tolist() == [3.0, 3.0]
        del total
        bob.close()


def test_a_client_notices_that_its_worker_was_killed(hook: sy.TorchHook) -> None:
    with Victim() as victim:
        bob = sy.WebsocketClientWorker(hook, port=victim.port)
        x = torch.ones(500, 500).send(bob)
        killed: list[float] = []

        def kill() -> None:
            killed.append(time.monotonic())
            victim.kill()

        timer = threading.Timer(0.2, kill)
        timer.start()
        with pytest.raises(WorkerLost):
            for _ in range(100_000):
                x = (x @ x).clamp(0, 1)
                x.sum().get()
        noticed = time.monotonic() - killed[0]
        timer.join()
        print(f"noticed after {noticed * 1000:.0f} ms")
        assert noticed < 10
        bob.close()


def test_who_awaits_what_a_killed_worker_was_to_make_is_told(hook: sy.TorchHook) -> None:
    """A coroutine that polls finds the connection lost, too."""

    async def awaited(handle: Any) -> Any:
        return await asyncio.wait_for(_waiting(handle), 20)

    async def _waiting(handle: Any) -> Any:
        return await handle

    with Victim() as victim:
        bob = sy.WebsocketClientWorker(hook, port=victim.port)
        x = torch.ones(900, 900).send(bob)
        for _ in range(30):
            x = (x @ x).clamp(0, 1)
        victim.kill()
        with pytest.raises(WorkerLost):
            asyncio.run(awaited(x.child.handle))
        del x
        bob.close()


def test_what_a_killed_client_had_sent_halfway_is_freed() -> None:
    """A client dies in the middle of 40 MB; what it had there is freed after the lease."""
    with Victim(lease=0.5, heartbeat=0.2) as victim, Stranger(victim.port) as honest:
        honest.greet()
        before = victim.memory
        strangers = [Stranger(victim.port) for _ in range(3)]
        for index, stranger in enumerate(strangers):
            stranger.greet()
            tensor = (32, 0, (10_000_000,), None, 0)
            put = messages.encode(Put(1, 1000 + index, tensor))
            head = syft_frame(put)[:8] + (1).to_bytes(4, "little") + len(put).to_bytes(4, "little")
            row = (40_000_000).to_bytes(8, "little") * 2 + bytes(8)
            data = head + row + put
            data += bytes(-len(data) % 64)
            stranger.send(frame(BINARY, data, size=len(data) + 40_000_000, key=bytes(4)))
            stranger.send(b"\x01" * 20_000_000)
            assert honest.is_served()
        middle = victim.memory
        for stranger in strangers:
            stranger.socket.close()
        victim.await_count("guests", 1)
        assert honest.is_served()
        print(f"{middle - before:.0f} MB on the way, {victim.memory - before:.0f} MB afterwards")
        assert victim.memory - before < 30
        assert victim.ask("objects") == 0


def test_what_a_vanished_client_had_is_freed_after_the_lease() -> None:
    with Victim(lease=0.5, heartbeat=0.2) as victim:
        with Stranger(victim.port) as stranger:
            stranger.greet()
            for id in range(1000, 1010):
                stranger.ask(messages.Promise(id, (id,)))
        victim.await_count("guests", 0)
        assert victim.ask("objects") == 0
