"""Gradients cross workers: the graph stays, the gradient travels back."""

from __future__ import annotations

import pytest
import torch

import syft as sy
from syft.ids import new_id
from syft.workers import gradients
from syft.workers.core import WorkerCore
from syft.workers.messages import Follow, Move
from tests.workers.peers import ask, error_in, lonely, put


@pytest.fixture
def carl(request: pytest.FixtureRequest, hook: sy.TorchHook) -> sy.VirtualWorker:
    return sy.VirtualWorker(hook, id="carl")


def test_a_gradient_comes_back_through_two_workers(
    worker: sy.VirtualWorker, alice: sy.VirtualWorker, carl: sy.VirtualWorker
) -> None:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    a = x.send(worker)
    b = (a * 2).move(alice, requires_grad=True)
    c = (b * b).move(carl, requires_grad=True)
    (c * 3).sum().backward()
    assert a.grad.get().tolist() == [24, 48]
    assert b.grad.get().tolist() == [12, 24]
    assert c.grad.get().tolist() == [3, 3]


def test_several_passes_add_up(worker: sy.VirtualWorker, alice: sy.VirtualWorker) -> None:
    a = torch.ones(2, requires_grad=True).send(worker)
    b = (a * 2).move(alice, requires_grad=True)
    for _ in range(3):
        (b * 5).sum().backward()
    assert a.grad.get().tolist() == [30, 30]


def test_a_moved_leaf_without_a_graph_gives_no_gradient_back(
    worker: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    plain = torch.ones(2).send(worker).move(alice, requires_grad=True)
    plain.sum().backward()
    assert plain.grad.get().tolist() == [1, 1]
    assert not worker._objects


def test_the_source_dies_with_the_leaf(worker: sy.VirtualWorker, alice: sy.VirtualWorker) -> None:
    a = torch.ones(2, requires_grad=True).send(worker)
    b = (a * 2).move(alice, requires_grad=True)
    assert len(worker._objects) == 2
    del b
    assert not alice._objects
    assert len(worker._objects) == 1
    assert a.grad is None


def test_a_move_that_cannot_be_followed_leaves_no_hidden_source(
    bob: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    connection = bob.connection_to(alice)
    with pytest.raises(sy.exceptions.ObjectNotFound):
        gradients.follow(bob.core, connection, new_id(), torch.ones(1))
    assert not bob._objects


def test_a_leaf_that_needs_no_gradient_cannot_be_followed() -> None:
    core: WorkerCore = lonely()
    put(core, 5, torch.ones(2))
    for id in (5, 404):
        error = error_in(ask(core, Follow(3, id, 9)))
        assert isinstance(error, (sy.exceptions.SyftError, RuntimeError))
    assert list(core.store.objects) == [5]


def test_integers_cannot_require_a_gradient(bob: sy.VirtualWorker, alice: sy.VirtualWorker) -> None:
    whole = torch.tensor([1, 2]).send(bob)
    with pytest.raises(RuntimeError, match="floating point"):
        whole.move(alice, requires_grad=True)
    with pytest.raises(sy.exceptions.ObjectNotFound):
        whole.child.connection.ask(Move, new_id(), "alice")
    assert not alice._objects and whole.get().tolist() == [1, 2]
