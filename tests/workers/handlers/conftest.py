"""For tests that drive a bare core with frames, and for those of workers that hold shares."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import syft as sy
from syft.workers.core.state_machine import WorkerCore
from tests.shells.child import make_worker
from tests.workers.core.peers import lonely, put
from tests.workers.handlers.sharing_client import ALIVE, Client


@pytest.fixture
def core() -> WorkerCore:
    """A core that holds one tensor, under 5."""
    core = lonely()
    put(core, 5, torch.tensor([1.0, 2.0]))
    return core


@pytest.fixture(autouse=True)
def drop_what_clients_made() -> Iterator[None]:
    """Nothing that the clients of a test have made at workers outlives it."""
    yield
    for client in ALIVE:
        client.close()
    ALIVE.clear()


@pytest.fixture
def pair(hook: sy.TorchHook) -> Client:
    """A session of alice and bob, for which dealer deals; it is nobody's who may read."""
    alice, bob, dealer = (make_worker(hook, id=name) for name in ("alice", "bob", "dealer"))
    client = Client(hook.local_worker, [alice, bob], dealer)
    client.open()
    return client
