"""What is on its way between the workers of one process."""

from __future__ import annotations

from threading import get_ident
from typing import Any

import pytest
import torch

import syft as sy
from syft.exceptions import WorkerClosed
from syft.serde.frame import Frame
from syft.workers.client.transport import Owner, Transport
from syft.workers.shells.worker import Worker
from syft.workers.wire.messages import Abort, encode

ABORT = Frame(encode(Abort(1, 0, "party me failed")), [])


def test_what_is_for_a_worker_that_left_is_lost(hook: sy.TorchHook, bob: sy.VirtualWorker) -> None:
    me = hook.local_worker
    me.connection_to(bob)
    bob.close()
    me.network.carry([("bob", ABORT), ("nobody", ABORT)], me)
    assert not me.network.step()


def test_what_follows_from_a_frame_is_carried_too(hook: sy.TorchHook) -> None:
    """Each of three parties sends to the other two in each round."""
    parties = [sy.VirtualWorker(hook, id=name) for name in "abc"]
    sums = sy.sum_private(*(torch.tensor([1]).send(worker) for worker in parties))
    assert [pointer.get().item() for pointer in sums] == [3, 3, 3]
    assert not hook.local_worker.network.step()


def test_who_waits_in_the_middle_lets_the_rest_go_on(
    hook: sy.TorchHook, bob: sy.VirtualWorker
) -> None:
    me = hook.local_worker
    moved = []
    me.network.observers.append(lambda *message: moved.append(me.network.step()))
    me.network.carry([("bob", ABORT), ("bob", ABORT)], me)
    me.network.observers.clear()
    assert moved == [False, True], "the second frame went on while the first was delivered"


def test_a_transport_to_a_closed_worker_says_so(hook: sy.TorchHook, bob: sy.VirtualWorker) -> None:
    transport = bob.transport_for(hook.local_worker)
    bob.close()
    assert transport.closed
    exchange: Any = transport.exchange
    for carry in (transport.deliver, exchange):
        with pytest.raises(WorkerClosed):
            carry(ABORT)


def test_a_worker_elsewhere_has_no_work_here(hook: sy.TorchHook) -> None:
    class Elsewhere(Worker):
        """A worker that no process has."""

        id = "elsewhere"
        network = hook.local_worker.network

        def transport_for(self, caller: Owner) -> Transport:
            raise WorkerClosed(self.id)

        def close(self) -> None:
            """Nothing is open."""

    hook.local_worker.add_worker(Elsewhere())
    assert not hook.local_worker.network.step()
    with pytest.raises(WorkerClosed):
        torch.ones(2).send("elsewhere")
    del hook.local_worker.network.workers["elsewhere"]


def test_only_workers_with_messages_are_asked_to_work(
    hook: sy.TorchHook, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    work = sy.VirtualWorker.work

    def counted(worker: sy.VirtualWorker, most: int = 1) -> bool:
        asked.append(worker.id)
        return work(worker, most)

    monkeypatch.setattr(sy.VirtualWorker, "work", counted)
    names = [f"worker {number}" for number in range(50)]
    workers = [sy.VirtualWorker(hook, id=name, pipelined=True) for name in names]
    network = hook.local_worker.network
    assert not network.step() and asked == []
    x: Any = torch.ones(2)
    first, last = x.send(workers[7]), x.send(workers[3])
    assert list(network.mail) == [workers[7], workers[3]]
    sy.synchronize()
    assert asked == ["worker 7", "worker 3"] and not network.mail
    y = first + 1
    assert list(network.mail) == [workers[7]]
    workers[7].close()
    assert not network.mail and not network.step()
    del y, last


def test_a_busy_worker_keeps_its_mail(hook: sy.TorchHook) -> None:
    dan = sy.VirtualWorker(hook, id="dan", pipelined=True)
    network = hook.local_worker.network
    x: Any = torch.ones(2)
    pointer = x.send(dan)
    dan.busy, dan._before = get_ident(), len(dan.inbox)
    assert not network.step() and list(network.mail) == [dan]
    dan.busy = 0
    assert network.step() and not network.mail and not network.step()
    assert pointer.tolist() == [1, 1]


def test_a_worker_is_served_by_every_network_that_knows_it(
    hook: sy.TorchHook, bob: sy.VirtualWorker
) -> None:
    dan = sy.VirtualWorker(None, id="dan", pipelined=True)
    x: Any = torch.ones(2)
    dan.connection_to(dan).put(x, 5)
    bob.add_worker(dan).add_worker(dan)
    assert list(bob.network.mail) == list(dan.network.mail) == [dan]
    assert bob.network.step() and list(dan.core.store.objects) == [5]
    assert not dan.network.step() and not dan.network.mail
    dan.connection_to(dan).put(x, 6)
    bob.network.run()
    assert list(dan.core.store.objects) == [5, 6]
    dan.close()
    assert not bob.network.mail


def test_workers_that_announce_nothing_are_asked(hook: sy.TorchHook) -> None:
    class Polled(Worker):
        """A worker that has one thing to do."""

        id = "polled"
        network = hook.local_worker.network
        left = 1

        def transport_for(self, caller: Owner) -> Transport:
            raise WorkerClosed(self.id)

        def close(self) -> None:
            """Nothing is open."""

        def work(self, most: int = 1) -> bool:
            self.left -= 1
            return self.left == 0

    network = hook.local_worker.network
    assert not network.step()
    hook.local_worker.add_worker(Polled())
    assert network.step() and not network.step()
    del network.workers["polled"]
    assert network.workers.asked_for_work() == [] and not network.step()
