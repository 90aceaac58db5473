"""Gradients cross workers: the graph stays, the gradient travels back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import syft as sy
from syft.ids import new_id
from syft.workers.handlers import gradient_return as gradients
from syft.workers.labels.origin import ObjectOrigin
from syft.workers.wire.messages import Move
from tests.chain.refusal import refusal
from tests.shells.child import make_worker
from tests.shells.owner import inspect
from tests.tensors.test_pointer_autograd import PATHS, check_gradients

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


def penalized(
    x: torch.Tensor, take: Callable[[torch.Tensor], torch.Tensor]
) -> tuple[torch.Tensor, Any]:
    """The gradient of a result that is taken elsewhere, and what a loss of it leaves in ``x``."""
    h = take(x * 2)
    (gradient,) = torch.autograd.grad((h * h * h).sum(), [h], create_graph=True)
    returned = gradient.detach()
    assert x.grad is None
    (gradient * gradient).sum().backward()
    return returned, x.grad


@pytest.mark.parametrize("place", ["alice", "me"])
def test_a_gradient_that_is_returned_is_not_added_to_that_of_the_source(
    worker: Any, alice: Any, place: str
) -> None:
    """As torch.autograd.grad adds to none: a penalty on gradients is not counted twice."""
    values = torch.tensor([1.0, 3.0])
    returned, found = penalized(
        values.clone().requires_grad_().send(worker), lambda h: h.move(place)
    )
    expected = penalized(values.clone().requires_grad_(), lambda h: h)
    assert (returned if place == "me" else returned.get()).tolist() == expected[0].tolist()
    assert found.copy().get().tolist() == expected[1].tolist() == [576, 15552]


@pytest.mark.filterwarnings("ignore:Using backward.. with create_graph:UserWarning")
@pytest.mark.parametrize("what", ["leaf", "result"])
def test_a_gradient_with_a_graph_is_not_sent_without_it(worker: Any, alice: Any, what: str) -> None:
    x = torch.tensor([1.0, 3.0], requires_grad=True).send(worker)
    if what == "leaf":
        loss = (x * x).sum()
        moved = x.move(alice)
    else:
        moved = (x * 2).move(alice)
        loss = (moved * moved).sum()
    text = "UnsupportedOperation: A leaf that was moved has no rule for create_graph=True"
    assert refusal(lambda: loss.backward(create_graph=True)).startswith(text)
    assert x.grad is None if what == "result" else moved.grad is None


@pytest.mark.parametrize("path", ["there and back", "on", "home"])
def test_gradients_are_those_of_torch(
    me: sy.VirtualWorker,
    worker: sy.VirtualWorker,
    alice: sy.VirtualWorker,
    carl: sy.VirtualWorker,
    path: str,
) -> None:
    check_gradients(PATHS[path], [worker, alice, carl, me])


def test_a_copy_of_a_result_stays_in_its_graph(
    worker: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    x = torch.ones(2, requires_grad=True).send(worker)
    here = (x * 2).tag("#h").copy()
    moved = (x * 2).move(alice).copy()
    ((here * 3).sum()).backward()
    ((moved * 5).sum()).backward()
    assert x.grad.get().tolist() == [16, 16]
    assert x.copy().is_leaf and here.tags == {"#h"}
    plain = torch.ones(2, requires_grad=True)
    ((plain * 2).copy() * 3).sum().backward()
    assert plain.grad is not None and plain.grad.tolist() == [6, 6]


def test_nothing_follows_what_has_no_graph(
    worker: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    x = torch.ones(2, requires_grad=True).send(worker)
    with torch.no_grad():
        unrecorded, here = (x * 2).move(alice), (x * 2).copy()
    detached, parameter = (x * 2).detach().move(alice), torch.nn.Parameter(torch.ones(2))
    recorded = x * 2
    with torch.no_grad():
        moved = recorded.move(alice)
    assert not any(one.requires_grad for one in (unrecorded, detached, moved, here))
    at_alice = parameter.send(worker).move(alice)
    assert at_alice.is_leaf and isinstance(at_alice.get(), torch.nn.Parameter)
    assert set(inspect(worker).objects) == {x.id_at_location, here.id_at_location}


def test_a_graph_that_would_be_lost_is_refused(
    worker: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    x = torch.ones(2, requires_grad=True).send(worker)
    with pytest.raises(sy.exceptions.NotALeaf, match="MulBackward0.*Send x.detach()"):
        (x * 2).remote_send(alice)
    moved = (x * 2).move(alice)
    with pytest.raises(sy.exceptions.NotALeaf, match="(a move)"):
        moved.remote_send(worker)
    outer = x.send(alice)
    with pytest.raises(sy.exceptions.NotALeaf, match="MulBackward0"):
        (outer * 2).remote_get()
    assert (x * 2).detach().remote_send(alice).get().tolist() == [2, 2]
    assert (outer * 2).detach().remote_get().get().tolist() == [2, 2]


def test_what_is_moved_before_it_is_there_is_followed_from_the_first(
    worker: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    """The backward pass waits at the destination, and runs as soon as the tensor is there."""
    x = torch.ones(2, requires_grad=True).send(worker)
    factor = worker.promise()
    moved = (x * factor).move(alice)
    loss = (moved * 3).sum()
    with pytest.raises(sy.exceptions.ObjectNotReady):
        loss.backward()  # it may go on to the worker, which nobody could wait for
    moved.child.connection.crossed = False  # as for a caller that has not moved it
    loss.backward()
    torch.tensor([5.0, 7.0]).send(worker, id=factor.id_at_location)
    assert moved.child.handle.wait() is None
    assert x.grad.copy().get().tolist() == [15, 21]


def test_a_module_that_is_moved_has_leaves(
    worker: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    model = torch.nn.Linear(2, 1).send(worker)
    model(torch.ones(2).send(worker)).sum().backward()
    model.move(alice)
    assert model.weight.is_leaf and model.weight.grad.location is alice
    model.zero_grad()
    model(torch.ones(2).send(alice)).sum().backward()
    assert model.bias.grad.get().tolist() == [1] and not inspect(worker).objects


@pytest.mark.virtual_only("has the worker move a tensor without a request")
def test_a_leaf_that_cannot_be_followed_is_not_stored(
    me: sy.VirtualWorker, bob: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    connection, origin = bob.connection_to(alice), ObjectOrigin("me", "me")
    taken = torch.ones(1).send(alice)
    about = taken.id_at_location, torch.ones(1), None, origin, "alice"
    with pytest.raises(sy.exceptions.ObjectIdTaken):
        gradients.send_followed(bob.core, connection, *about)
    assert not inspect(bob).objects
    for value in (torch.ones(2), torch.ones(2).send(bob)):
        with pytest.raises(sy.exceptions.SyftError, match="source"):
            me.connection_to(alice).put(value, new_id(), source=5)
    assert list(inspect(alice).objects) == [taken.id_at_location]


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


def test_a_private_gradient_that_is_returned_goes_nowhere(
    bob: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    for destinations in ((), ("alice",)):
        secret = private_at(bob, "ann", destinations=destinations)
        source = torch.ones(2, requires_grad=True).send(alice)
        moved = (source * 2).move(bob)
        (gradient,) = torch.autograd.grad((moved * secret).sum(), [moved])
        assert gradient.get(user="ann").tolist() == [7, 8]
        assert source.grad is moved.grad is None
        del secret, source, moved, gradient


@pytest.mark.parametrize("private", [False, True])
def test_what_comes_to_an_input_of_a_limited_pass_goes_nowhere(
    worker: Any, alice: Any, private: bool
) -> None:
    """In torch, nothing is added to the gradients of other leaves."""
    factor = private_at(worker, "ann") if private else torch.tensor([7.0, 8.0]).send(worker)
    source = torch.ones(2, requires_grad=True).send(alice)
    moved = (source * 2).move(worker, requires_grad=True)
    other = torch.ones(2, requires_grad=True).send(worker)
    for inputs in [moved], [other, moved]:
        (moved * other * factor).sum().backward(inputs=inputs)
    assert moved.grad.get(user="ann").tolist() == [14, 16]
    assert other.grad.get(user="ann").tolist() == [14, 16]
    assert source.grad is None
    (moved * 3).sum().backward()
    assert source.grad.copy().get().tolist() == [6, 6], "it is followed again"


LIMITED: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "backward": lambda loss, leaf: loss.backward(inputs=[leaf]),
    "autograd.backward": lambda loss, leaf: torch.autograd.backward([loss], inputs=[leaf]),
    "autograd.grad": lambda loss, leaf: torch.autograd.grad(loss, [leaf]),
}


@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize("limited", LIMITED.values(), ids=LIMITED)
def test_a_limited_pass_is_refused_that_may_lead_to_an_input_by_way_of_another_worker(
    worker: Any, alice: Any, limited: Callable[..., Any], private: bool
) -> None:
    """The gradient would be 1 and is 7."""
    leaf = torch.ones(2, requires_grad=True).send(worker)
    loss = (leaf + ((leaf * 2).move(alice) * 3).move(worker)).sum()
    loss = loss * private_at(worker, "ann").sum() if private else loss
    assert refusal(lambda: limited(loss, leaf)).startswith(
        "UnsupportedOperation: A graph that goes on at 'alice' has no rule for torch."
    )
    assert leaf.grad is None


@pytest.mark.parametrize("limited", LIMITED.values(), ids=LIMITED)
def test_a_limited_pass_is_refused_whose_input_has_come_from_where_the_graph_goes_on(
    worker: Any, alice: Any, limited: Callable[..., Any]
) -> None:
    leaf = torch.ones(2, requires_grad=True).send(worker)
    result = leaf * 2
    leaf = leaf.move(alice)
    loss = result.move(alice).sum()
    assert "goes on at 'worker'" in refusal(lambda: limited(loss, leaf))
    loss.backward()
    assert leaf.grad.copy().get().tolist() == [2, 2]


def test_a_limited_pass_is_not_refused_that_leads_to_no_input_elsewhere(
    worker: Any, alice: Any
) -> None:
    moved = (torch.ones(2, requires_grad=True).send(worker) * 2).move(alice)
    weight = torch.ones(2, requires_grad=True).send(alice)
    away = (weight * 5).detach().requires_grad_()
    loss = (moved * weight * away).sum()
    (gradient,) = torch.autograd.grad(loss, [weight], retain_graph=True)
    assert gradient.get().tolist() == [10, 10]
    loss.backward(inputs=[weight, moved])
    assert weight.grad.copy().get().tolist() == [10, 10]


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


# ------------------------------------------------------------------------------- leaves that move


WAYS: dict[str, tuple[str, ...]] = {
    "once": ("alice",),
    "twice": ("alice", "carl"),
    "and back": ("alice", "worker"),
    "round": ("alice", "carl", "worker", "alice"),
    "home": ("me",),
    "on and home": ("alice", "me"),
}


def trained(leaf: torch.Tensor, take: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The gradient of a leaf that is taken elsewhere while several graphs end at it."""
    used, kept, view = (leaf * 2).sum(), (leaf * leaf * leaf).sum(), leaf.view(2, 1)
    used.backward(retain_graph=True)
    moved = take(leaf)
    used.backward(retain_graph=True)
    kept.backward()
    (moved * 5).sum().backward()
    (view * 7).sum().backward()
    with torch.no_grad():
        moved -= moved.grad
    used.backward()
    return moved.grad


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_the_gradients_of_old_graphs_go_after_a_leaf(
    shell: str, worker: Any, alice: Any, carl: Any, way: str, requires_grad: bool
) -> None:
    """As if nothing had been moved."""
    if (shell, way) == ("child", "round"):
        pytest.skip("this shell cannot have workers ask each other in a circle")

    def take(leaf: torch.Tensor) -> torch.Tensor:
        for place in WAYS[way]:
            leaf = leaf.move(place, requires_grad=requires_grad)
        assert leaf.is_leaf and leaf.requires_grad
        return leaf

    values = torch.tensor([1.0, 3.0])
    found = trained(values.clone().requires_grad_().send(worker), take)
    other = values.clone().requires_grad_()
    expected = trained(other, lambda leaf: leaf)
    assert expected.tolist() == [2 + 2 + 3 + 5 + 7 + 2, 2 + 2 + 27 + 5 + 7 + 2]
    assert (found if way.endswith("home") else found.copy().get()).tolist() == expected.tolist()
    carl.network.local.collect()


def test_a_module_that_is_moved_gets_the_gradients_of_what_it_has_computed(
    worker: Any, alice: Any
) -> None:
    model, plain = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
    plain.load_state_dict(model.state_dict())
    data = torch.tensor([[1.0, 2.0]])
    model.send(worker)
    loss, other = model(data.send(worker)).sum(), plain(data).sum()
    model.move(alice)
    loss.backward()
    other.backward()
    optimizers = [torch.optim.SGD(one.parameters(), 0.5) for one in (model, plain)]
    for optimizer in optimizers:
        optimizer.step()
    assert torch.equal(model.weight.copy().get(), plain.weight)
    assert torch.equal(model.bias.copy().get(), plain.bias)
    model.get()


def test_a_leaf_at_which_no_graph_ends_leaves_nothing_behind(worker: Any, alice: Any) -> None:
    leaf = torch.ones(2, requires_grad=True).send(worker)
    (leaf * 2).sum().backward()
    moved = leaf.move(alice)
    assert not inspect(worker).objects and len(inspect(alice).objects) == 1
    assert moved.grad.copy().get().tolist() == [2, 2]


def test_the_view_of_a_moved_leaf_goes_with_the_graphs(worker: Any, alice: Any) -> None:
    leaf = torch.ones(2, requires_grad=True).send(worker)
    loss = (leaf * 2).sum()
    moved = leaf.move(alice)
    assert len(inspect(alice).objects) == 2
    del loss
    inspect(worker)  # which drops it, and tells
    torch.ones(1).send(worker).move(alice)  # takes the id along
    assert list(inspect(alice).objects) == [moved.id_at_location]


def test_under_no_grad_a_move_leaves_the_graphs_behind(worker: Any, alice: Any) -> None:
    leaf = torch.ones(2, requires_grad=True).send(worker)
    loss = (leaf * 2).sum()
    with torch.no_grad():
        moved = leaf.move(alice)
    loss.backward()
    assert moved.grad is None and len(inspect(alice).objects) == 1


def doubled(leaf: torch.Tensor) -> None:
    with torch.no_grad():
        leaf.mul_(2)


def given_gradient(leaf: torch.Tensor) -> None:
    leaf.grad = leaf.detach().clone()


CHANGED: dict[str, Callable[[torch.Tensor], Any]] = {
    "as it was": lambda leaf: None,
    "frozen": lambda leaf: leaf.requires_grad_(False),
    "with a gradient": given_gradient,
    "without the gradient": lambda leaf: setattr(leaf, "grad", None),
    "tagged": lambda leaf: leaf.tag("#w"),
}


@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize("change", CHANGED.values(), ids=CHANGED)
def test_a_leaf_that_comes_back_is_the_one_that_left(
    worker: Any, alice: Any, change: Any, private: bool
) -> None:
    """As if nothing had been moved: also in passes that are limited to it."""
    values = torch.tensor([1.0, 3.0])
    sent = values.private_tensor(["ann"]) if private else values.clone()
    leaf, plain = sent.requires_grad_().send(worker, user="ann"), values.requires_grad_()
    first, second = [(one * one).sum() for one in (leaf, plain)]
    for one in first, second:
        one.backward(retain_graph=True)
    leaf = leaf.move(alice, user="ann")
    change(leaf)
    leaf = leaf.move(worker, user="ann")
    change(plain)
    assert leaf.requires_grad == plain.requires_grad
    for tensor, loss in (leaf, first), (plain, second):
        tensor.requires_grad_()
        loss.backward(inputs=[tensor], retain_graph=True)
        (gradient,) = torch.autograd.grad(loss, [tensor])
        assert torch.equal(gradient.get(user="ann") if tensor is leaf else gradient, 2 * values)
    assert torch.equal(leaf.grad.copy().get(user="ann"), plain.grad)
    torch.ones(1).send(worker).move(alice)  # what the worker drops goes with the next request
    assert len(inspect(alice).objects) == 0


def test_a_leaf_that_comes_back_another_way_is_followed(
    shell: str, worker: Any, alice: Any, carl: Any
) -> None:
    """The worker does not know whether it is from whoever had it, so a limited pass is refused."""
    if shell == "child":
        pytest.skip("this shell cannot have workers ask each other in a circle")
    leaf = torch.ones(2, requires_grad=True).send(worker)
    loss = (leaf * 2).sum()
    leaf = leaf.move(alice).move(carl).move(worker)
    assert "goes on at" in refusal(lambda: loss.backward(inputs=[leaf]))
    loss.backward()
    assert leaf.grad.copy().get().tolist() == [2, 2]


def test_nobody_else_takes_the_place_of_a_leaf_that_has_left(
    bob: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    """With its own id, and with leave to write for everybody who is named."""
    leaf = torch.ones(2, requires_grad=True).send(bob.as_user("ann"))
    loss = (leaf * leaf).sum()
    moved = leaf.move(alice)
    other = torch.zeros(2, requires_grad=True)
    taken = other.send(bob.as_user("eve"), id=moved.id_at_location, allow_writes=["ann", "eve"])
    loss.backward()
    assert moved.grad.copy().get().tolist() == [2, 2]
    assert taken.grad is None


def test_a_pass_is_refused_that_needs_the_values_which_a_leaf_had_before_it_left(
    worker: Any, alice: Any
) -> None:
    """As torch does where nothing is moved."""
    leaf = torch.ones(2, requires_grad=True).send(worker)
    loss, linear = (leaf * leaf).sum(), (leaf * 3).sum()
    leaf = leaf.move(alice)
    doubled(leaf)
    leaf = leaf.move(worker)
    assert leaf.copy().get().tolist() == [2, 2]
    assert "modified by an inplace operation" in refusal(loss.backward)
    linear.backward()
    assert leaf.grad.copy().get().tolist() == [3, 3]


def test_a_leaf_that_comes_back_as_another_is_followed(worker: Any, alice: Any) -> None:
    leaf = torch.ones(2, requires_grad=True).send(worker)
    loss = (leaf * 3).sum()
    leaf = leaf.move(alice)
    leaf.requires_grad_(False).resize_(2, 1).requires_grad_()
    leaf = leaf.move(worker)
    assert leaf.shape == (2, 1)
    assert "goes on at" in refusal(lambda: loss.backward(inputs=[leaf]))


def test_old_graphs_give_a_leaf_that_was_frozen_when_it_moved_its_gradients(
    worker: Any, alice: Any
) -> None:
    """As in torch, which asks whether a leaf is frozen when a gradient comes."""
    leaf = torch.ones(2, requires_grad=True).send(worker)
    loss = (leaf * 2).sum()
    leaf = leaf.requires_grad_(False).move(alice)
    assert not leaf.requires_grad and leaf.is_leaf
    loss.backward(retain_graph=True)
    assert leaf.grad is None
    leaf.requires_grad_()
    loss.backward()
    assert leaf.grad.copy().get().tolist() == [2, 2]


def test_what_was_never_a_leaf_of_a_graph_moves_alone(worker: Any, alice: Any) -> None:
    factor = torch.ones(2).send(worker)
    loss = (torch.ones(2, requires_grad=True).send(worker) * factor).sum()  # which saves it
    factor.move(alice)
    assert len(inspect(alice).objects) == 0
    loss.backward()


FETCHED: dict[str, Callable[[torch.Tensor, Any], Any]] = {
    "get": lambda leaf, alice: leaf.get(),
    "frozen": lambda leaf, alice: leaf.requires_grad_(False).get().requires_grad_(),
    "get_all": lambda leaf, alice: sy.get_all([leaf]),
    "remote_get": lambda leaf, alice: leaf.send(alice).remote_get(),
}


def passed(loss: torch.Tensor) -> None:
    """Run a pass, and wait for it."""
    loss.backward()
    sy.synchronize()


LOST = "UnsupportedOperation: A leaf that was fetched has no rule for backward"


@pytest.mark.parametrize("way", FETCHED)
def test_a_pass_does_not_lose_the_gradient_of_a_leaf_that_was_fetched(
    worker: Any, alice: Any, way: str
) -> None:
    leaf = leaf_of(worker)
    used, loss = (leaf * 2).sum(), (leaf * 3).sum()
    used.backward()
    fetched = FETCHED[way](leaf, alice)
    assert refusal(lambda: passed(loss)).startswith(LOST)
    del fetched


def test_a_pass_does_not_lose_the_gradients_of_a_module_that_was_fetched(worker: Any) -> None:
    for fetch in (lambda model: model.get(), lambda model: model.move("me")):
        model = torch.nn.Linear(2, 1).send(worker)
        loss = model(torch.ones(2).send(worker)).sum()
        fetch(model)
        assert refusal(lambda loss=loss: passed(loss)).startswith(LOST)
        assert model.weight.grad is None


def test_what_is_read_and_stays_gets_its_gradients(worker: Any, alice: Any) -> None:
    """Also where it is moved afterwards, or has another id."""
    leaf, moving, gone = leaf_of(worker), leaf_of(worker), leaf_of(worker)
    losses = [(each * each).sum() for each in (leaf, moving, gone)]
    duplicate = gone.contiguous()
    for _ in range(2):
        sy.get_all([leaf, moving, gone], keep=True)
    leaf.copy().get()
    moved = moving.move(alice)
    gone.get()
    for loss in losses:
        loss.backward()
    for each in (leaf, moved, duplicate):
        assert each.grad.copy().get().tolist() == [2, 2]


def test_a_leaf_that_waits_is_followed_too(worker: Any, alice: Any) -> None:
    promise = worker.promise()
    leaf = torch.ones(2, requires_grad=True).send(worker)
    loss = (leaf * 3).sum()
    with torch.no_grad():
        leaf.mul_(promise)
    moved = leaf.move(alice)
    refused = refusal(loss.backward)
    assert refused.startswith("ObjectNotReady"), "it may go on to where nobody could wait for it"
    kept = torch.tensor([5.0, 7.0]).send(worker, id=promise.id_at_location)
    assert moved.copy().get().tolist() == [5, 7]
    loss.backward()
    assert moved.grad.copy().get().tolist() == [3, 3]
    del kept


def test_what_is_no_leaf_has_passes_wait_only_while_it_is_on_its_way(
    worker: Any, alice: Any
) -> None:
    promise = worker.promise()
    leaf = torch.ones(2, requires_grad=True).send(worker)
    moved = (leaf * promise).move(alice)
    kept = torch.ones(2).send(worker, id=promise.id_at_location)
    moved.child.handle.wait()
    later = worker.promise()
    (leaf * later).sum().backward()  # waits
    brought = torch.ones(2).send(worker, id=later.id_at_location)
    assert leaf.grad.copy().get().tolist() == [1, 1]
    del kept, brought


def test_passes_at_the_destination_wait_again_when_no_graph_goes_on_from_what_came(
    worker: Any, alice: Any
) -> None:
    promise = worker.promise()
    plain = (promise + 1).move(alice)
    kept = torch.ones(2).send(worker, id=promise.id_at_location)
    assert plain.copy().get().tolist() == [2, 2]
    leaf, later = leaf_of(alice), alice.promise()
    (leaf * later).sum().backward()
    brought = torch.ones(2).send(alice, id=later.id_at_location)
    assert leaf.grad.copy().get().tolist() == [1, 1]
    del kept, brought


def test_a_private_leaf_that_is_followed(worker: Any, alice: Any) -> None:
    """Its memory is new since graphs have known it: these send to what it was before."""
    for destinations in ((), ("alice",)):
        secret = private_at(worker, "ann", destinations=destinations)
        leaf = torch.ones(2, requires_grad=True).send(worker)
        loss = (leaf * 2).sum()
        with torch.no_grad():
            leaf.mul_(secret)
        moved = leaf.move(alice, user="ann")
        loss.backward()
        assert moved.grad.get(user="ann").tolist() == [2, 2]
        del secret, leaf, loss, moved


def leaf_of(worker: Any) -> torch.Tensor:
    return torch.ones(2, requires_grad=True).send(worker)


def test_a_private_gradient_does_not_go_after_a_leaf_where_it_may_not_be(
    worker: Any, alice: Any
) -> None:
    for destinations, goes in (((), False), (("alice",), True)):
        secret = private_at(worker, "ann", destinations=destinations)
        leaf = leaf_of(worker)
        loss = (leaf * secret).sum()
        moved = leaf.move(alice)
        if goes:
            loss.backward()
            assert moved.grad.get(user="ann").tolist() == [7, 8]
        else:
            text = "PermissionDenied: backward: this value on 'worker' may not go to 'alice'"
            assert refusal(loss.backward).startswith(text)
            assert moved.grad is None
        del secret, leaf, loss, moved


def test_a_sparse_leaf_is_followed(worker: Any, alice: Any) -> None:
    def sparse() -> torch.Tensor:
        made = torch.sparse_coo_tensor([[1]], [2.0], (3,), check_invariants=True)
        return made.requires_grad_()

    leaf, plain = sparse().send(worker), sparse()
    loss, other = leaf.to_dense().sum(), plain.to_dense().sum()
    moved = leaf.move(alice)
    loss.backward()
    other.backward()
    assert torch.equal(moved.grad.to_dense().get(), plain.grad.to_dense())
