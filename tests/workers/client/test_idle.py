"""What a caller drops goes to an idle worker by itself."""

from __future__ import annotations

import torch

import syft as sy
from syft.workers.wire.messages import Drop


def stored(worker: sy.VirtualWorker) -> int:
    """How many objects there are, without asking the worker or anybody to do anything."""
    return len(worker.core.store.objects)


def test_an_idle_queued_worker_is_told_at_once(hook: sy.TorchHook) -> None:
    worker = sy.VirtualWorker(hook, id="worker", pipelined=True)
    x = torch.ones(2).send(worker)
    sy.synchronize()
    assert stored(worker) == 1
    with hook.record() as log:
        del x
    assert stored(worker) == 0
    assert [type(entry.message) for entry in log] == [Drop]


def test_a_queued_worker_with_messages_is_told_with_the_next_one(hook: sy.TorchHook) -> None:
    worker = sy.VirtualWorker(hook, id="worker", pipelined=True)
    x = torch.ones(2).send(worker)
    sy.synchronize()
    y = x + 1
    with hook.record() as log:
        del x
    assert not log and stored(worker) == 1, "the sum has not run"
    z = y + 1
    sy.synchronize()
    assert stored(worker) == 2
    del y, z


def test_what_a_group_holds_keeps_its_inputs(hook: sy.TorchHook) -> None:
    worker = sy.VirtualWorker(hook, id="worker", pipelined=True)
    x = torch.ones(2).send(worker)
    sy.synchronize()
    with worker.group():
        y = x + 1
        del x
        assert stored(worker) == 1
    assert y.get().tolist() == [2, 2]


def test_a_pointer_that_dies_while_the_worker_works_waits(hook: sy.TorchHook) -> None:
    """The worker is in the middle of a message: nothing else is handled meanwhile."""
    worker = sy.VirtualWorker(hook, id="worker", pipelined=True)
    x, y = torch.ones(2).send(worker), torch.ones(2).send(worker)
    sy.synchronize()
    pointers = [x]
    del x

    def drop(sender: str, receiver: str, frame: object) -> None:
        if receiver == "worker" and pointers:
            worker.busy, before = True, worker.busy
            pointers.clear()
            worker.busy = before

    worker.network.observers.append(drop)
    z = y + 1
    sy.synchronize()
    worker.network.observers.clear()
    assert stored(worker) == 3, "the drop goes with the next request"
    assert z.get().tolist() == [2, 2]
    assert stored(worker) == 1
