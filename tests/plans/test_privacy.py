"""Plans and private values: what a plan computes from them, and its state, is as private."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import syft as sy
from syft.exceptions import PermissionDenied
from tests.chain.refusal import refusal

pytestmark = pytest.mark.every_shell

X = torch.tensor([1.0, -2.0])


def secret_at(bob: sy.VirtualWorker) -> Any:
    """A pointer to a tensor that only ann may read."""
    return X.private_tensor(allowed_users=["ann"]).send(bob, user="ann")


@pytest.fixture
def counter() -> sy.Plan:
    """A plan that writes to its state, and has a constant."""

    @sy.func2plan(args_shape=[(2,)], state=(torch.zeros(2),))
    def count(x: torch.Tensor, state: sy.State) -> torch.Tensor:
        return state.read()[0].add_(x) * torch.tensor([1.0, 1.0])

    return count


def test_results_and_state_become_private(bob: sy.VirtualWorker, counter: sy.Plan) -> None:
    secret = secret_at(bob)
    pointer = counter.send(bob)
    result = pointer(secret)
    assert "PermissionDenied" in refusal(result.get)
    assert "PermissionDenied" in refusal(pointer.get)
    assert "PermissionDenied" in refusal(lambda: pointer.move("me"))
    assert "PermissionDenied" in refusal(lambda: pointer.get(user="eve"))
    (state,) = pointer.state_dict().values()
    assert "PermissionDenied" in refusal(state.get)
    assert "PermissionDenied" in refusal(pointer(X.send(bob)).get)  # from the state
    duplicate = pointer.copy()
    assert "PermissionDenied" in refusal(duplicate.get)
    assert torch.equal(result.get(user="ann"), X)
    back = pointer.get(user="ann")
    assert torch.equal(back.state_dict()["state.0"], X * 2)


def test_a_plan_that_only_saw_private_data_may_be_read(bob: sy.VirtualWorker) -> None:
    secret = secret_at(bob)
    plan = sy.func2plan(args_shape=[(2,)], state=(torch.ones(2),))(
        lambda x, state: x + state.read()[0]
    )
    pointer = plan.send(bob)
    result = pointer(secret)
    assert "PermissionDenied" in refusal(result.get)
    assert torch.equal(pointer.get().state_dict()["state.0"], torch.ones(2))


def test_gradients_of_private_data_are_private(bob: sy.VirtualWorker) -> None:
    secret = secret_at(bob)
    model = nn.Linear(2, 1)

    @sy.func2plan(args_shape=[(2,)])
    def gradient(x: torch.Tensor) -> torch.Tensor:
        loss = model(x).sum()
        loss.backward()
        return loss.detach()

    pointer = gradient.send(bob)
    pointer(secret)
    weight = next(pointer.parameters())
    assert "PermissionDenied" in refusal(lambda: weight.grad.get())
    assert "PermissionDenied" in refusal(pointer.get)


def test_private_state_is_sent_by_those_who_may(
    hook: sy.TorchHook, bob: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    private = X.private_tensor(allowed_users=["ann"])
    plan = sy.func2plan(args_shape=[(2,)], state=(private,))(lambda x, state: x + state.read()[0])
    with pytest.raises(PermissionDenied):
        plan.send(bob)
    pointer = plan.send(bob, user="ann")
    result = pointer(torch.ones(2).send(bob))
    assert "PermissionDenied" in refusal(result.get)
    assert torch.equal(result.get(user="ann"), X + 1)
    assert "PermissionDenied" in refusal(lambda: pointer.move(alice))
    moved = pointer.move(alice, user="ann")
    assert "PermissionDenied" in refusal(moved.get)
    assert "PermissionDenied" in refusal(moved(torch.ones(2).send(alice)).get)


def test_a_private_constant_is_as_private(bob: sy.VirtualWorker) -> None:
    private = X.private_tensor(allowed_users=["ann"])
    plan = sy.func2plan(args_shape=[(2,)])(lambda x: x * private)
    assert plan.program.constants
    with pytest.raises(PermissionDenied):
        plan.send(bob)
    pointer = plan.send(bob, user="ann")
    assert "PermissionDenied" in refusal(pointer(torch.ones(2).send(bob)).get)
    assert "PermissionDenied" in refusal(pointer.get)


def test_errors_about_private_data_say_nothing(bob: sy.VirtualWorker) -> None:
    secret = secret_at(bob)
    plan = sy.func2plan(args_shape=[(2,), (2,)])(lambda x, y: x + y)
    pointer = plan.send(bob)
    with pytest.raises(RuntimeError) as caught:
        pointer(secret, torch.ones(3).send(bob))
    assert "size of tensor" not in str(caught.value) + "".join(caught.value.__notes__)
    del caught


def test_a_value_of_private_data_is_refused(bob: sy.VirtualWorker) -> None:
    secret = secret_at(bob)
    plan = sy.func2plan(args_shape=[(2,)])(lambda x: x.sum().item())
    pointer = plan.send(bob)
    assert pointer(X.send(bob)) == -1
    assert "PermissionDenied" in refusal(lambda: pointer(secret))


def test_search_shows_how_a_plan_is_called_and_no_more(
    bob: sy.VirtualWorker, counter: sy.Plan
) -> None:
    secret = secret_at(bob)
    pointer = counter.tag("#count").send(bob)
    pointer(secret)
    (found,) = bob.search("#count")
    assert found.interface == counter._record.built.blueprint.interface
    assert found.tags == {"#count"}


def test_a_branch_that_may_write_what_cannot_be_moved_is_refused(bob: sy.VirtualWorker) -> None:
    """Otherwise it would tell others what was decided: whether that is private."""

    @sy.func2plan()
    def branch(x: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        written, left = lambda it: it.mul_(2), lambda it: it
        return sy.cond(x.sum() > 2, written, left, counts)

    branch.build(torch.ones(4), torch.eye(2))
    ann = bob.as_user("ann")
    there = branch.send(ann)
    ours = torch.eye(2).to_sparse().send(ann)
    private = torch.ones(4).private_tensor(["ann"]).send(ann)
    with pytest.raises(PermissionDenied, match="what cannot be moved"):
        there(private, ours)
    there(torch.ones(4).send(ann), ours)
    assert torch.equal(ours.copy().get().to_dense(), 2 * torch.eye(2))
