"""A worker's connections: to a worker of its network, and back to whoever calls it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

import syft as sy
from syft.exceptions import UnknownWorker, WorkerClosed, WorkerIdTaken
from syft.workers.core.peer import Peer


def test_a_gradient_goes_back_to_the_caller_and_not_to_its_namesake(
    hook: sy.TorchHook, me: sy.VirtualWorker, bob: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    """An id that a namesake holds too would receive the gradient if it went by the name."""
    boss = sy.VirtualWorker(None, id="boss")
    namesake = sy.VirtualWorker(SimpleNamespace(local_worker=boss), id="alice")
    boss.add_worker(bob)
    leaf = torch.ones(2, requires_grad=True)
    (source,) = namesake.hold(leaf, allow_writes=("boss",))
    theirs = boss.connection_to(namesake).pointer(source, garbage_collect_data=False)
    moved = (theirs * 2).move("bob", requires_grad=True)
    ours = (torch.ones(2, requires_grad=True).send(alice) * 1).move(bob, requires_grad=True)
    (moved * 3).sum().backward()
    (ours * 5).sum().backward()
    assert namesake.core.store.objects[source].grad.tolist() == [6, 6]
    assert [to.location for to in bob.connections()] == [namesake, alice]
    assert bob.connection_to("alice").location is alice
    del theirs, moved, ours
    boss.collect()
    bob.collect()
    assert list(namesake.core.store.objects) == [source]
    for worker in (namesake, boss):
        worker.close()


def test_a_name_leads_to_the_worker_of_the_network(
    me: sy.VirtualWorker, bob: sy.VirtualWorker
) -> None:
    namesake = sy.VirtualWorker(None, id="bob")
    with pytest.raises(WorkerIdTaken, match="There is a worker 'bob' already"):
        torch.ones(2).send(namesake)
    with pytest.raises(UnknownWorker, match="'me' knows no worker 'dan'"):
        me.connection_to(sy.VirtualWorker(None, id="dan"))
    assert me.connection_to("bob") is me.connection_to(bob)
    assert not me.connections()[1:]


def test_a_new_worker_takes_the_place_of_a_closed_one(
    hook: sy.TorchHook, me: sy.VirtualWorker, bob: sy.VirtualWorker
) -> None:
    me.connection_to(bob)
    bob.close()
    with pytest.raises(WorkerClosed):
        me.connection_to(bob)
    second = sy.VirtualWorker(hook, id="bob")
    assert me.connection_to("bob").location is second
    assert [to.location for to in me.connections()] == [second]


def test_a_caller_that_left_is_not_called_back(bob: sy.VirtualWorker) -> None:
    """Also if another worker has its name by then."""
    with pytest.raises(WorkerClosed, match="Worker 'me' is closed"):
        bob.core.connect(Peer("me"))
