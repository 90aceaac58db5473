"""What a caller drops goes to an idle worker by itself."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import syft as sy
from syft.workers.client.group import MessageGroup
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
            worker.busy, before = -1, worker.busy
            pointers.clear()
            worker.busy = before

    worker.network.observers.append(drop)
    z = y + 1
    sy.synchronize()
    worker.network.observers.clear()
    assert stored(worker) == 3, "the drop goes with the next request"
    assert z.get().tolist() == [2, 2]
    assert stored(worker) == 1


def test_a_timer_drops_nothing_that_a_group_is_about_to_name(
    monkeypatch: pytest.MonkeyPatch, hook: sy.TorchHook, bob: sy.VirtualWorker
) -> None:
    """Also while the group is sent, when it is not open any more."""
    x = torch.ones(2).send(bob)
    connection = bob.connection()
    send, found = MessageGroup._send, []

    def interrupted(*args: Any) -> None:
        found.append((list(connection.garbage.ids), connection.garbage.flush_idle()))
        send(*args)

    monkeypatch.setattr(MessageGroup, "_send", interrupted)
    id = x.id_at_location
    with bob.group():
        y = x + 1
        del x
        assert not connection.garbage.flush_idle()
    assert found == [([id], False)]
    assert y.get().tolist() == [2, 2]
    with pytest.raises(KeyError), bob.group():
        raise KeyError
    del y
    assert (
        connection.garbage.flush_idle() is False and not connection.garbage.ids
    ), "got: nothing is left"
    z = torch.ones(2).send(bob)
    del z
    assert connection.garbage.flush_idle() and not connection.garbage.flush_idle()
    assert stored(bob) == 0


def test_a_timer_leaves_alone_what_others_take(hook: sy.TorchHook, bob: sy.VirtualWorker) -> None:
    connection = bob.connection()
    assert not connection.garbage._take_one(5), "a request has it"
    promised = bob.promise()
    x = torch.ones(2).send(bob)
    del x
    assert not connection.garbage.flush_idle(), "pointers to a promise are counted by the requests"
    kept = torch.ones(2).send(bob, id=promised.id_at_location)
    del promised, kept
    connection.flush()
    bob.close()
    connection.garbage.append(5)
    assert not connection.garbage.flush_idle()
    hook.local_worker.network.flush_idle()


def test_another_thread_may_send_the_garbage_meanwhile(bob: sy.VirtualWorker) -> None:
    class Racing(list[int]):
        """One of its ids is taken by another thread after they were counted."""

        def __len__(self) -> int:
            return super().__len__() + 1

    connection = torch.ones(2).send(bob).child.connection
    usual, connection.garbage.ids = connection.garbage.ids, Racing([5, 6])
    assert sorted(connection.garbage.take()) == [5, 6]
    connection.garbage.ids = usual
