"""Backward through pointers: forwarded, across workers, and against plain torch."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import nn

import syft as sy
from tests.chain.refusal import here, refusal, shown
from tests.shells.child import make_worker
from tests.shells.owner import inspect

pytestmark = pytest.mark.every_shell


def test_backward_runs_there(worker: sy.VirtualWorker) -> None:
    x = torch.tensor([1.0, 2.0], requires_grad=True).send(worker)
    loss = (x * x).sum()
    assert loss.requires_grad
    assert loss.backward() is None
    assert shown(x.grad) == "(Wrapper)>[PointerTensor | me:N -> worker:N]"
    assert x.grad.tolist() == [2.0, 4.0]
    assert (x.grad + x.grad).tolist() == [4.0, 8.0]
    assert x.grad.copy().get().tolist() == [2.0, 4.0]
    home = x.get()
    assert home.grad.tolist() == [2.0, 4.0]


def test_backward_with_a_gradient_and_twice(worker: sy.VirtualWorker) -> None:
    x = torch.tensor([1.0, 2.0], requires_grad=True).send(worker)
    y = x * x
    y.backward(torch.ones(2).send(worker), retain_graph=True)
    y.backward(gradient=torch.tensor([0.0, 1.0]).send(worker))
    assert x.grad.tolist() == [2.0, 8.0]


def test_backward_a_second_time_says_so(bob: sy.VirtualWorker) -> None:
    x = torch.tensor([1.0, 2.0], requires_grad=True).send(bob)
    y = (x * x).sum()
    y.backward()
    assert refusal(y.backward).startswith("RuntimeError: Trying to backward through the graph a")
    assert refusal((x * x).backward).startswith("RuntimeError: grad can be implicitly created")


def test_functions_of_autograd(worker: sy.VirtualWorker) -> None:
    x = torch.tensor([1.0, 2.0], requires_grad=True).send(worker)
    (first,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), [x])
    assert (first.tolist(), second.tolist()) == ([3.0, 12.0], [6.0, 12.0])
    torch.autograd.backward([(x * x).sum(), x.sum()])
    assert x.grad.tolist() == [3.0, 5.0]


def test_setting_the_gradient(bob: sy.VirtualWorker) -> None:
    x = torch.tensor([1.0, 2.0], requires_grad=True).send(bob)
    x.grad = torch.tensor([5.0, 6.0]).send(bob)
    x.grad.mul_(2)
    assert x.grad.tolist() == [10.0, 12.0]
    assert refusal(lambda: setattr(x, "grad", torch.ones(2))) == here(
        "torch.Tensor.grad.__set__", "bob", "me"
    )
    x.grad = None
    assert x.grad is None
    x.sum().backward()
    del x.grad
    assert x.grad is None


def test_where_the_graph_is_can_be_asked(bob: sy.VirtualWorker) -> None:
    x = torch.tensor([1.0], requires_grad=True).send(bob)
    assert (x.is_leaf, x.grad_fn) == (True, None)
    y = x * 2
    assert y.is_leaf is False
    assert repr(y.grad_fn) == "<grad_fn at bob>"
    assert y.detach().grad_fn is None
    y.retain_grad()
    y.backward()
    assert y.grad.tolist() == [1.0]


# ---------------------------------------------------------------------------------- across workers


@pytest.fixture(params=["immediate", "queued"])
def other(request: pytest.FixtureRequest, hook: sy.TorchHook) -> sy.VirtualWorker:
    return make_worker(hook, id="other", pipelined=request.param == "queued")


def test_split_learning(worker: sy.VirtualWorker, other: sy.VirtualWorker) -> None:
    torch.manual_seed(0)
    first, second, data = nn.Linear(3, 4), nn.Linear(4, 2), torch.randn(5, 3)
    plain = copy.deepcopy(nn.Sequential(first, nn.Tanh(), second))
    first.send(worker)
    second.send(other)
    x = data.send(worker)
    for _ in range(2):
        hidden = torch.tanh(first(x)).move(other, requires_grad=True)
        assert hidden.location is other
        second(hidden).pow(2).sum().backward()
        plain(data).pow(2).sum().backward()
    for mine, theirs in zip(
        [*first.parameters(), *second.parameters()], plain.parameters(), strict=True
    ):
        assert torch.allclose(mine.grad.copy().get(), theirs.grad, atol=1e-5)


def test_two_backward_passes_through_one_move(
    worker: sy.VirtualWorker, other: sy.VirtualWorker
) -> None:
    x = torch.tensor([1.0, 2.0], requires_grad=True).send(worker)
    moved = (x * x).move(other, requires_grad=True)
    moved.sum().backward()
    (moved * 3).sum().backward()
    assert moved.grad.tolist() == [4.0, 4.0]
    assert x.grad.tolist() == [8.0, 16.0]


def test_three_workers(hook: sy.TorchHook, bob: sy.VirtualWorker, alice: sy.VirtualWorker) -> None:
    carl = make_worker(hook, id="carl", pipelined=True)
    x = torch.tensor([2.0], requires_grad=True).send(bob)
    y = (x * 3).move(alice, requires_grad=True)
    z = (y * y).move(carl, requires_grad=True)
    (z * 2).sum().backward()
    assert (x.grad.item(), y.grad.item(), z.grad.item()) == (72.0, 24.0, 2.0)


def test_a_move_home_keeps_the_graph_too(worker: sy.VirtualWorker, me: sy.VirtualWorker) -> None:
    x = torch.tensor([2.0], requires_grad=True).send(worker)
    y = (x * 3).move(me, requires_grad=True)
    assert type(y) is torch.Tensor
    (y * y).sum().backward()
    assert (y.grad.item(), x.grad.item()) == (12.0, 36.0)


# Where a tensor goes on its way through three workers and, last, to this process.
HOME = 3
PATHS = {
    "there": (0, 1),
    "there and back": (0, 1, 0),
    "on": (0, 1, 2),
    "on and back": (0, 1, 2, 0),
    "through, at once": (0, 1, 1, 2),
    "back and forth": (0, 1, 0, 1),
    "home": (0, 1, HOME),
}


def leaves_along(path: tuple[int, ...], places: Sequence[Any] | None) -> list[torch.Tensor]:
    """The leaves of a loss that is computed on the way, after its backward pass; one for each stay.
    Without places plain torch computes it."""
    value = torch.tensor([1.0, 0.5], requires_grad=True)
    leaves = [value if places is None else value.send(places[path[0]])]
    value = leaves[0] * 2
    for stay, place in enumerate(path[1:]):
        weight = torch.tensor([3.0, stay + 2.0], requires_grad=True)
        if places is not None:
            value = value.move(places[place])
            weight = weight if place == HOME else weight.send(places[place])
        leaves.append(weight)
        value = torch.tanh(value * weight) + value
    value.sum().backward()
    return leaves


def check_gradients(path: tuple[int, ...], places: Sequence[Any]) -> None:
    """Compare with plain torch."""
    for leaf, plain in zip(leaves_along(path, places), leaves_along(path, None), strict=True):
        gradient = leaf.grad if leaf.location is None else leaf.grad.copy().get()
        assert torch.allclose(gradient, plain.grad)


def test_split_learning_needs_a_move_and_nothing_else(
    bob: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    torch.manual_seed(0)
    first, second, data = nn.Linear(3, 4), nn.Linear(4, 2), torch.randn(5, 3)
    plain = copy.deepcopy(nn.Sequential(first, second))
    plain(data).pow(2).sum().backward()
    first.send(bob)
    second.send(alice)
    second(first(data.send(bob)).move(alice)).pow(2).sum().backward()
    assert torch.allclose(first.weight.grad.copy().get(), plain[0].weight.grad, atol=1e-5)


def test_the_manual_way_of_the_tutorials(bob: sy.VirtualWorker, alice: sy.VirtualWorker) -> None:
    torch.manual_seed(0)
    first, second, data = nn.Linear(3, 4), nn.Linear(4, 2), torch.randn(5, 3)
    plain = copy.deepcopy(nn.Sequential(first, second))
    plain(data).pow(2).sum().backward()
    first.send(bob)
    second.send(alice)
    a = first(data.send(bob))
    remote = a.detach().move(alice, requires_grad=True)
    second(remote).pow(2).sum().backward()
    a.backward(remote.grad.copy().move(bob))
    assert torch.allclose(first.weight.grad.copy().get(), plain[0].weight.grad, atol=1e-5)
    assert torch.allclose(second.weight.grad.copy().get(), plain[1].weight.grad, atol=1e-5)


def test_integers_cannot_require_grad(bob: sy.VirtualWorker, alice: sy.VirtualWorker) -> None:
    x = torch.tensor([1]).send(bob)
    assert refusal(lambda: x.move(alice, requires_grad=True)).startswith(
        "RuntimeError: only Tensors of floating point"
    )
    assert x.tolist() == [1]
    assert inspect(alice).objects == {}


def test_a_move_to_the_same_place_may_set_requires_grad(bob: sy.VirtualWorker) -> None:
    x = torch.ones(1).send(bob)
    assert x.move(bob, requires_grad=True) is x
    assert x.requires_grad


COPIED: dict[str, Any] = {
    "leaf": lambda x: x,
    "parameter": lambda x: nn.Parameter(x.detach()),
    "result": lambda x: x * 2,
    "without gradients": lambda x: x.detach(),
}


@pytest.mark.parametrize("name", COPIED)
def test_a_shallow_copy_is_a_leaf_of_its_own_as_in_torch(bob: sy.VirtualWorker, name: str) -> None:
    def run(x: torch.Tensor) -> tuple[list[Any], list[torch.Tensor]]:
        original = COPIED[name](x.requires_grad_())
        duplicate = copy.copy(original)
        gradients = []
        if duplicate.requires_grad:
            (duplicate * 3).sum().backward()
            gradients = [duplicate.grad]
        with torch.no_grad():
            duplicate.mul_(2)  # the memory is one
        facts = [duplicate.is_leaf, isinstance(duplicate, nn.Parameter), x.grad is None]
        return facts, [*gradients, original.detach(), duplicate.detach()]

    (facts, expected), (found, pointers) = run(torch.ones(2)), run(torch.ones(2).send(bob))
    assert facts == found
    assert [one.tolist() for one in expected] == [one.copy().get().tolist() for one in pointers]
