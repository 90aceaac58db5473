"""What the hooks of leaves send after a pass over private values: the same, whatever came."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import syft as sy

from syft.exceptions import PermissionDenied
from syft.workers.execution.backward_passes import run_private_pass
from syft.workers.execution.followed_leaves import FollowedLeaves
from syft.workers.execution.moved_memory import NoHoldings
from syft.workers.labels.crossings import Follower
from syft.workers.labels.guards import Guard
from syft.workers.labels.memory_labels import full_guard_of, protect
from syft.workers.labels.reached_graph import reached_graph

GUARD = Guard(frozenset({"ann"}), destinations=frozenset({"alice"}))

Sent = list[tuple[torch.Tensor, Guard | None]]


class Noting(Follower):
    """A hook that notes what it would send, and perhaps fails then."""

    def __init__(self, fails: bool = False) -> None:
        super().__init__("alice")
        self.sent: Sent = []
        self.fails = fails

    def came(self, gradient: torch.Tensor, guard: Guard | None) -> None:
        self.send(gradient, guard)

    def send(self, gradient: torch.Tensor, guard: Guard | None) -> None:
        self.sent.append((gradient, guard))
        if self.fails:
            raise PermissionDenied("backward", "alice", None, to="eve")

    def numbers(self) -> list[Any]:
        return [gradient.tolist() for gradient, _ in self.sent]


def followed(leaf: torch.Tensor, hook: Noting | None = None) -> Noting:
    hook = hook or Noting()
    leaf.register_hook(hook)
    return hook


def leaf(*shape: int) -> torch.Tensor:
    return torch.ones(shape or (3,), requires_grad=True)


class Failing(torch.autograd.Function):
    """The same value; a backward pass through it fails."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        raise ValueError("not with 7")


def failing(x: torch.Tensor) -> torch.Tensor:
    made: torch.Tensor = Failing.apply(x)  # type: ignore[no-untyped-call]
    return made


def run(loss: torch.Tensor, function: Any = torch.Tensor.backward, *args: Any, **named: Any) -> Any:
    """A private pass of a stranger."""
    protect(loss, GUARD)
    return run_private_pass(function, [loss, *args], named, GUARD, NoHoldings(), "bob", "eve")


def test_a_hook_outside_a_private_pass_sends_at_once_what_comes() -> None:
    x = leaf()
    hook = followed(x)
    (x * 2).sum().backward()
    assert hook.numbers() == [[2, 2, 2]] and hook.sent[0][1] is None
    gradient = torch.ones(3)
    protect(gradient, GUARD)
    hook(gradient)
    assert hook.sent[1] == (gradient, GUARD)


def test_what_came_is_sent_after_the_pass() -> None:
    x = leaf()
    hook, order = followed(x), list[int]()
    x.register_post_accumulate_grad_hook(lambda _: order.append(len(hook.sent)))
    run((x * torch.tensor([1.0, -2, 3])).sum())
    assert order == [0] and hook.numbers() == [[1, -2, 3]]
    assert hook.sent[0][1] == GUARD and hook.kept is None


def test_gradients_that_are_returned_are_not_sent() -> None:
    x, y = leaf(), leaf(2, 2)
    hooks = followed(x), followed(y)
    run(failing(x).sum() + (y * 2).sum(), torch.autograd.grad, [x, y])
    run((y * 2).sum(), torch.autograd.grad, [y])
    assert hooks[0].sent == hooks[1].sent == []


def test_zeros_and_the_error_are_sent_where_nothing_came() -> None:
    x, y = leaf(), leaf(2, 2)
    hooks = followed(x), followed(y)
    loss = failing(x).sum() + (y * 2).sum()
    run(loss)
    for hook, shape in zip(hooks, ((3,), (2, 2)), strict=True):
        ((gradient, guard),) = hook.sent
        assert gradient.shape == shape and guard == GUARD
        assert guard is not None and str(guard.error) == "not with 7"
    assert hooks[0].numbers() == [[0, 0, 0]]


def test_leaves_that_the_pass_does_not_reach_or_that_are_not_named_send_nothing() -> None:
    x, y, z = leaf(), leaf(), leaf()
    hooks = followed(x), followed(y), followed(z)
    run((x * y).sum(), inputs=[x])
    assert [len(hook.sent) for hook in hooks] == [1, 0, 0]


def test_a_gradient_is_sent_as_a_plain_tensor() -> None:
    """Torch gives an expanded one for a sum, and a sparse one for an embedding."""
    x, table = leaf(2, 3), leaf(4, 2)
    hooks = followed(x), followed(table)
    row = torch.nn.functional.embedding(torch.tensor([1]), table, sparse=True)
    run(x.sum() + row.sum())
    for hook, like in zip(hooks, (x, table), strict=True):
        ((gradient, _),) = hook.sent
        assert gradient.stride() == like.stride() and gradient.layout is torch.strided
        assert not gradient.requires_grad
    assert hooks[1].numbers() == [[[0, 0], [1, 1], [0, 0], [0, 0]]]


def test_leaves_that_share_a_hook_send_the_sum() -> None:
    """A leaf has got new memory, and a graph leads to both."""
    x, y = leaf(), leaf()
    hook = followed(y, followed(x))
    run((x * 2 + y * 3).sum())
    assert hook.numbers() == [[5, 5, 5]]


def test_ends_of_several_sizes_send_one_gradient_each() -> None:
    x = leaf()
    hook = followed(x)
    before = (x * 2).sum()
    x.data = torch.ones(2, dtype=torch.float64)
    graph = reached_graph([before + (x * 3).sum()])
    leaves = FollowedLeaves(graph, graph.leaves)
    with leaves.silent():
        hook(torch.tensor([2.0, 2, 2]))
    leaves.send(GUARD)
    assert sorted(map(len, hook.numbers())) == [2, 3]
    assert [2, 2, 2] in hook.numbers() and [0, 0] in hook.numbers()


def test_a_root_that_is_a_leaf_sends_what_the_pass_starts_from() -> None:
    x = leaf()
    hook = followed(x)
    run(x, torch.Tensor.backward, torch.tensor([1.0, 2, 3]))
    assert hook.numbers() == [[1, 2, 3]]


def test_a_leaf_of_another_layout_is_refused() -> None:
    table = torch.eye(2).to_sparse().requires_grad_()
    hook = followed(table)
    with pytest.raises(PermissionDenied, match="another layout"):
        run(torch.sparse.sum(table), torch.Tensor.backward)
    assert hook.sent == []


def test_the_hook_of_a_chain_sends_at_once(bob: sy.VirtualWorker) -> None:
    """What it brings has no prediction."""
    x = torch.ones(3).fix_prec().requires_grad_()
    hook = followed(x)
    loss = (x * 2).sum()
    leaves = FollowedLeaves(reached_graph([loss]), [x])
    with leaves.silent():
        loss.backward()
    assert leaves.leaves == [] and leaves.has_chains and len(hook.sent) == 1


def test_a_pass_to_a_chain_that_was_moved_is_for_those_who_may_see(bob: sy.VirtualWorker) -> None:
    x = torch.ones(3).fix_prec().requires_grad_()
    hook = followed(x)
    with pytest.raises(PermissionDenied, match="to a chain that was moved"):
        run((x * 2).sum())
    assert hook.sent == [] and x.grad is None


def test_that_another_worker_cannot_go_on_is_sealed() -> None:
    x = leaf()
    followed(x, Noting(fails=True))
    run((x * 2).sum())
    guard = full_guard_of(x.grad)
    assert guard is not None
    assert isinstance(guard.error, PermissionDenied) and guard.users == {"ann"}
