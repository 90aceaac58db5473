"""A guard that lets a value go to worker alice means the alice of its owner, and no other."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import pytest
import torch

import syft as sy
from syft.exceptions import PermissionDenied
from syft.workers.wire.messages import Failure, Fetch
from tests.workers.sockets.attacks.stranger import Stranger

SECRET = [3.0, 5.0, 7.0]


@contextlib.contextmanager
def serving(
    hook: sy.TorchHook, id: str, known: Mapping[str, str] | None = None
) -> Iterator[sy.WebsocketServerWorker]:
    with sy.WebsocketServerWorker(hook, port=0, id=id, destinations=known) as worker:
        yield worker


def hold_secret(worker: sy.WebsocketServerWorker) -> int:
    """Have the worker hold a tensor that may go to alice on behalf of anybody."""
    secret = torch.tensor(SECRET).private_tensor(["ann"], allow_destinations=["alice"])
    with worker.board.monitor:
        (id,) = worker.hold(secret.tag("#secret"), allow_writes=["me"])
    return id


def objects(worker: sy.WebsocketServerWorker) -> int:
    with worker.board.monitor:
        return len(worker.core.store.objects)


def test_a_caller_called_as_a_destination_gets_nothing(hook: sy.TorchHook) -> None:
    with serving(hook, "bob") as worker, Stranger(worker.port) as eve:
        id = hold_secret(worker)
        assert eve.greet(name="alice")["name"] == "alice"
        assert type(eve.ask(Fetch(1, id, keep=True, guarded=True))) is Failure
        eve.tell({"kind": "open", "channel": 8, "source": "alice", "target": "bob"})
        assert type(eve.ask(Fetch(1, id, keep=True, guarded=True), 8)) is Failure


@pytest.mark.parametrize("way", ["move", "remote_send"])
@pytest.mark.parametrize("known", [{}, {"alice": "ws://127.0.0.1:1"}])
def test_a_worker_that_a_caller_calls_alice_gets_nothing(
    hook: sy.TorchHook, way: str, known: dict[str, str]
) -> None:
    with serving(hook, "bob", known) as worker, serving(hook, "evil") as evil:
        hold_secret(worker)
        bob = sy.WebsocketClientWorker(hook, port=worker.port, blocking=True)
        alice = sy.WebsocketClientWorker(hook, port=evil.port, id="alice", blocking=True)
        (found,) = bob.search("#secret")
        for pointer in (found, found * 2):
            with pytest.raises(PermissionDenied):
                getattr(pointer, way)(alice)
        del found, pointer
        assert objects(evil) == 0
        bob.close()
        alice.close()


def test_the_alice_of_the_owner_gets_it(hook: sy.TorchHook) -> None:
    with (
        serving(hook, "alice") as place,
        serving(hook, "bob", {"alice": str(place.address)}) as (worker),
    ):
        hold_secret(worker)
        bob = sy.WebsocketClientWorker(hook, port=worker.port, blocking=True)
        alice = sy.WebsocketClientWorker(hook, port=place.port, blocking=True)
        (found,) = bob.search("#secret")
        moved = (found * 2).move(alice)
        assert objects(place) == 1
        with pytest.raises(PermissionDenied):
            moved.get()
        del found, moved
        bob.close()
        alice.close()
