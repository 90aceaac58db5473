"""What is on its way between the workers of one process."""

from __future__ import annotations

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
