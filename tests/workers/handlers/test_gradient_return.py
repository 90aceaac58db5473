"""Gradients cross workers: the graph stays, the gradient travels back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

import syft as sy
from syft.ids import new_id
from syft.workers.core.claim import Claim
from syft.workers.core.state_machine import WorkerCore
from syft.workers.execution.followed_leaves import Follower
from syft.workers.handlers import gradient_return as gradients
from syft.workers.wire.messages import Follow, Move
from tests.chain.refusal import refusal
from tests.shells.child import make_worker
from tests.shells.owner import inspect
from tests.workers.core.peers import ask, error_in, lonely, put

pytestmark = pytest.mark.every_shell


@pytest.fixture
def carl(request: pytest.FixtureRequest, hook: sy.TorchHook) -> sy.VirtualWorker:
    return make_worker(hook, id="carl")


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


@pytest.mark.virtual_only("calls the hook of a leaf of the worker on another thread")
def test_torch_may_bring_a_gradient_on_a_thread_of_a_device(
    bob: sy.VirtualWorker, alice: sy.VirtualWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the thread that serves the backward pass waits for it, inside the monitor."""
    here, threads = Follower.__call__, []

    def on_another_thread(hook: Follower, gradient: torch.Tensor) -> None:
        thread = threading.Thread(target=here, args=(hook, gradient), daemon=True)
        thread.start()
        thread.join(20)
        threads.append(thread.is_alive())

    monkeypatch.setattr(Follower, "__call__", on_another_thread)
    a = torch.tensor([1.0, 2.0], requires_grad=True).send(bob)
    b = (a * 2).move(alice, requires_grad=True)
    (b * b).sum().backward()
    assert a.grad.get().tolist() == [8, 16]
    assert threads == [False]


@pytest.mark.virtual_only("looks at what the worker has yet to send")
def test_what_came_before_a_pass_failed_is_sent(
    bob: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    """As torch leaves the gradients that came before in their leaves."""
    a = torch.tensor([1.0, 2.0], requires_grad=True).send(bob)
    b = (a * 2).move(alice, requires_grad=True)
    with pytest.raises(RuntimeError), alice.group():
        (b * b).sum().backward()
        torch.linalg.cholesky(b.detach().reshape(1, 2).T @ b.detach().reshape(1, 2) - 100)
    assert a.grad.get().tolist() == [8, 16]
    assert alice.core.to_return == []


def test_a_moved_leaf_without_a_graph_gives_no_gradient_back(
    worker: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    plain = torch.ones(2).send(worker).move(alice, requires_grad=True)
    plain.sum().backward()
    assert plain.grad.get().tolist() == [1, 1]
    assert not inspect(worker).objects


def test_the_source_dies_with_the_leaf(worker: sy.VirtualWorker, alice: sy.VirtualWorker) -> None:
    a = torch.ones(2, requires_grad=True).send(worker)
    b = (a * 2).move(alice, requires_grad=True)
    assert len(inspect(worker)) == 2
    del b
    assert not inspect(alice).objects
    assert len(inspect(worker)) == 1
    assert a.grad is None


@pytest.mark.virtual_only("has the worker move a tensor without a request")
def test_a_move_that_cannot_be_followed_leaves_no_hidden_source(
    bob: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    connection = bob.connection_to(alice)
    with pytest.raises(sy.exceptions.ObjectNotFound):
        source, origin = torch.ones(1), Claim("me", "me")
        gradients.return_gradients(bob.core, connection, new_id(), source, origin)
    assert not inspect(bob).objects


def test_a_leaf_that_needs_no_gradient_cannot_be_followed() -> None:
    core: WorkerCore = lonely()
    put(core, 5, torch.ones(2))
    for id in (5, 404):
        error = error_in(ask(core, Follow(3, id, 9)))
        assert isinstance(error, (sy.exceptions.SyftError, RuntimeError))
    assert list(core.store.objects) == [5]


def test_only_who_put_a_leaf_follows_its_gradients(
    hook: sy.TorchHook, me: sy.VirtualWorker, bob: sy.VirtualWorker
) -> None:
    carl = sy.VirtualWorker(hook, id="carl")
    weight = torch.ones(2, requires_grad=True).send(bob)
    hidden = torch.zeros(2).send(carl)
    connection, id = carl.connection_to(bob), weight.id_at_location
    refused = refusal(lambda: connection.ask(Follow, id, hidden.id_at_location))
    assert refused.startswith("PermissionDenied: follow gradients: this value on 'bob' is private")
    (weight * 3).sum().backward()
    assert hidden.grad is None
    assert me.connection_to(bob).ask(Follow, id, new_id()) is None, "its own is"
    (held,) = bob.hold(torch.ones(2, requires_grad=True))
    assert "PermissionDenied" in refusal(lambda: connection.ask(Follow, held, 5))
    bob.clear_objects()


def test_a_gradient_nobody_takes_does_not_end_the_pass(
    bob: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    source = torch.ones(2, requires_grad=True).send(alice)
    moved = (source * 2).move(bob, requires_grad=True)
    weight = torch.ones(2, requires_grad=True).send(bob)
    alice.close()
    (moved * weight * 3).sum().backward()
    assert weight.grad.get().tolist() == [6, 6]


def private_at(
    worker: sy.VirtualWorker, *users: str, destinations: tuple[str, ...] = ()
) -> torch.Tensor:
    """Private data at a worker, sent by its first user."""
    private = torch.tensor([7.0, 8.0]).private_tensor(users, allow_destinations=destinations)
    return private.send(worker, user=users[0])


def test_the_gradient_of_a_private_loss_arrives_private(
    bob: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    secret = private_at(bob, "ann", destinations=("alice",))
    source = torch.ones(2, requires_grad=True).send(alice)
    moved = (source * 2).move(bob, requires_grad=True)
    (moved * secret).sum().backward()
    assert "PermissionDenied" in refusal(lambda: source.grad.get())
    assert "PermissionDenied" in refusal(lambda: source.grad.get(user="eve"))
    assert source.grad.get(user="ann").tolist() == [14, 16]


BACKWARD: dict[str, Callable[[torch.Tensor, torch.Tensor, torch.Tensor], Any]] = {
    "backward": lambda loss, moved, other: loss.backward(),
    "autograd.backward": lambda loss, moved, other: torch.autograd.backward([loss]),
    "grad": lambda loss, moved, other: torch.autograd.grad(loss, [moved]),
    "inputs": lambda loss, moved, other: loss.backward(inputs=[moved]),
    "two inputs": lambda loss, moved, other: torch.autograd.grad(loss, [other, moved]),
}


@pytest.mark.parametrize("backward", BACKWARD.values(), ids=BACKWARD)
def test_a_private_gradient_stays_unless_it_may_go(
    bob: sy.VirtualWorker, alice: sy.VirtualWorker, backward: Callable[..., Any]
) -> None:
    secret = private_at(bob, "ann", destinations=("carl",))
    source = torch.ones(2, requires_grad=True).send(alice)
    moved = (source * 2).move(bob, requires_grad=True)
    other = torch.ones(2, requires_grad=True).send(bob)
    loss = (moved * other * secret).sum()
    assert refusal(lambda: backward(loss, moved, other)).startswith(
        "PermissionDenied: backward: this value on 'bob' may not go to 'alice': no user was named"
    )
    assert source.grad is moved.grad is other.grad is None, "nothing has changed"


def test_gradients_of_other_leaves_are_no_concern(
    bob: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    secret = private_at(bob, "ann")
    source = torch.ones(2, requires_grad=True).send(alice)
    moved = (source * 2).move(bob, requires_grad=True)
    other = torch.ones(2, requires_grad=True).send(bob)
    loss = (moved * other * secret).sum()
    (gradient,) = torch.autograd.grad(loss, [other], retain_graph=True)
    assert gradient.get(user="ann").tolist() == [14, 16]
    loss.backward(inputs=[other])
    assert other.grad.get(user="ann").tolist() == [14, 16]
    assert source.grad is None
    (moved * 3).sum().backward()
    assert source.grad.get().tolist() == [6, 6], "a public loss gives it a public gradient"


def test_whoever_may_read_a_gradient_may_have_it_sent(
    me: sy.VirtualWorker,
    bob: sy.VirtualWorker,
    alice: sy.VirtualWorker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(me, "user", "ann")
    secret = private_at(bob, "ann")
    source = torch.ones(2, requires_grad=True).send(alice)
    moved = (source * 2).move(bob, requires_grad=True)
    (moved * secret).sum().backward()
    assert source.grad.get().tolist() == [14, 16]
    del secret, source, moved


def test_integers_cannot_require_a_gradient(bob: sy.VirtualWorker, alice: sy.VirtualWorker) -> None:
    whole = torch.tensor([1, 2]).send(bob)
    with pytest.raises(RuntimeError, match="floating point"):
        whole.move(alice, requires_grad=True)
    with pytest.raises(sy.exceptions.ObjectNotFound):
        whole.child.connection.ask(Move, new_id(), "alice")
    assert not inspect(alice).objects and whole.get().tolist() == [1, 2]
