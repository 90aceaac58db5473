"""Many tensors over several connections of this process, and over one that refuses them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import syft as sy
from syft.exceptions import WorkerClosed
from syft.workers.client.connection import Connection
from syft.workers.wire.messages import PutAll
from tests.shells.child import make_worker
from tests.shells.owner import inspect


def test_pointers_of_another_worker_go_over_its_connection(
    hook: sy.TorchHook, bob: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    dan = make_worker(hook, "dan")
    ids = dan.hold(torch.ones(2).tag("#a"), torch.zeros(2).tag("#a"))
    hers = alice.request_search("#a", location=dan)
    mine = torch.ones(2).send(dan)
    with hook.record() as log:
        there = sy.send_all([hers[0], mine, torch.ones(1), hers[1]], bob)
    put = [entry.sender for entry in log if type(entry.message) is PutAll]
    assert put == ["me", "alice"]
    sy.get_all(there)
    dan.clear_objects()
    assert ids


def test_a_second_message_that_fails_takes_back_the_first(
    hook: sy.TorchHook,
    bob: sy.VirtualWorker,
    alice: sy.VirtualWorker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dan = make_worker(hook, "dan")
    dan.hold(torch.zeros(2).tag("#a"))
    (hers,) = alice.request_search("#a", location=dan)
    mine = torch.ones(2).send(dan)
    put_all = Connection.put_all

    def cut(self: Connection, *args: Any) -> Any:
        if self.owner is alice:
            raise WorkerClosed("bob")
        return put_all(self, *args)

    monkeypatch.setattr(Connection, "put_all", cut)
    with pytest.raises(WorkerClosed):
        sy.send_all([torch.ones(1), mine, hers], bob)
    assert inspect(bob).objects == {}
    assert mine.get().tolist() == [1, 1], "bob's pointer to it is gone, and did not drop it"
    dan.clear_objects()


def test_a_failed_send_to_a_queued_worker_is_told_of(hook: sy.TorchHook) -> None:
    limits = sy.serde.Limits(max_items=1)
    dan = sy.VirtualWorker(hook, id="dan", pipelined=True, limits=limits)
    pointers = sy.send_all([torch.ones(2), torch.zeros(2)], dan)
    y = pointers[0] + 1
    with pytest.raises(sy.exceptions.LimitExceeded, match="max_items is 1, got 2"):
        y.get()
