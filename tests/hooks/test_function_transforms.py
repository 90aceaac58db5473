"""``torch.func`` on pointers and in plans: derivatives of autograd, and rows one by one.

What it computes is compared with torch's own in ``tests/programs``.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import nn

import syft as sy
from syft.exceptions import UnsupportedOperation
from syft.torch_private import function_transforms

X = torch.tensor([[1.0, 2.0], [3.0, -4.0]])


def cubes(x: Any) -> Any:
    return x.pow(3).sum()


def test_torchs_own_come_back(hook: sy.TorchHook) -> None:
    ours = [vars(module)[name] for module, name in function_transforms()]
    hook.close()
    theirs = [vars(module)[name] for module, name in function_transforms()]
    assert all(one is not other for one, other in zip(ours, theirs, strict=True))
    assert theirs == [one.__wrapped__ for one in ours]


def test_tensors_that_are_here_are_left_to_torch(hook: sy.TorchHook) -> None:
    levels = []

    def seen(x: torch.Tensor) -> torch.Tensor:
        levels.append(torch._C._functorch.maybe_current_level())
        return cubes(x)

    torch.func.grad(seen)(X)
    assert levels == [1]


def test_a_gradient_has_a_graph_if_what_it_is_computed_from_has_one(bob: sy.VirtualWorker) -> None:
    x, scale = X.clone().send(bob), torch.ones(2).send(bob).requires_grad_()
    assert not torch.func.grad(cubes)(x).requires_grad
    assert torch.func.grad(lambda v: cubes(v * scale))(x).requires_grad
    assert torch.func.grad(cubes)(x.clone().requires_grad_()).requires_grad
    with torch.no_grad():
        assert not torch.func.grad(lambda v: cubes(v * scale))(x).requires_grad


def test_values_beside_a_gradient_have_a_graph_in_the_same_cases(bob: sy.VirtualWorker) -> None:
    x = X.clone().send(bob)
    gradient, (value, kept) = torch.func.grad_and_value(lambda v: (cubes(v), v * 2), has_aux=True)(
        x
    )
    assert not (gradient.requires_grad or value.requires_grad or kept.requires_grad)
    assert x.grad is None


def test_a_tensor_is_asked_once_whether_it_has_a_graph(bob: sy.VirtualWorker) -> None:
    x = torch.ones(20, 2).send(bob)
    weight = torch.ones(2).send(bob)
    asked: list[int] = []

    def loss(weight: Any, row: Any) -> Any:
        asked.append(bob.stats.messages_in)
        return (weight * row).sum()

    torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(weight, x)
    steps = [later - earlier for earlier, later in zip(asked[1:], asked[2:], strict=False)]
    assert set(steps) == {6}  # a leaf of the weight (2), the loss (2), its value, the gradient


DRAWING: dict[str, Any] = {
    "noise": lambda row: row + torch.rand_like(row),
    "dropout": lambda row: nn.functional.dropout(row, 0.5),
    "a sample": lambda row: torch.bernoulli(row.sigmoid()),
}
NOT_DRAWING: dict[str, Any] = {
    "dropout in evaluation": lambda row: nn.functional.dropout(row, 0.5, False),
    "dropout of nothing": lambda row: nn.functional.dropout(row, p=0.0),
    "attention": lambda row: nn.functional.scaled_dot_product_attention(*[row.view(1, 1, -1)] * 3),
}


@pytest.mark.parametrize("name", DRAWING)
def test_rows_draw_only_where_torch_is_told_that_they_may(bob: sy.VirtualWorker, name: str) -> None:
    function, x = DRAWING[name], torch.ones(4, 3)
    with pytest.raises(RuntimeError, match="random"):
        torch.func.vmap(function)(x)
    with pytest.raises(UnsupportedOperation, match="randomness='different'"):
        torch.func.vmap(function)(x.send(bob))
    found = torch.func.vmap(function, randomness="different")(x.send(bob))
    assert found.get().shape == (4, 3)


@pytest.mark.parametrize("name", NOT_DRAWING)
def test_what_may_draw_and_does_not_runs(bob: sy.VirtualWorker, name: str) -> None:
    function, x = NOT_DRAWING[name], torch.rand(4, 3)
    expected = torch.func.vmap(function)(x)
    torch.testing.assert_close(torch.func.vmap(function)(x.send(bob)).get(), expected)


SAME: dict[str, Any] = {
    "like a row": lambda row: row + torch.rand_like(row) * torch.randn_like(row),
    "of a size": lambda row: row * torch.randn(3) + torch.randint(0, 9, (3,)),
    "written to": lambda row: row + torch.rand_like(row).mul_(2).add_(torch.rand(3)),
}


@pytest.mark.parametrize("name", SAME)
def test_all_rows_are_given_the_same_numbers(bob: sy.VirtualWorker, name: str) -> None:
    x = torch.arange(12.0).view(4, 3)
    mapped = torch.func.vmap(SAME[name], randomness="same")
    plan = sy.func2plan()(mapped)
    plan.build(x)

    def drawn(run: Any, *args: Any) -> Any:
        torch.manual_seed(5)
        with sy.at(bob):
            return run(*args)

    torch.manual_seed(5)
    want = mapped(x)
    torch.testing.assert_close(drawn(mapped, x.send(bob)).get(), want)
    for _ in range(2):
        torch.manual_seed(5)
        torch.testing.assert_close(plan(x), want)
    torch.testing.assert_close(drawn(plan.send(bob), x.send(bob)).get(), want)


def test_draws_that_a_row_decides_are_refused(bob: sy.VirtualWorker) -> None:
    x = X.clone().send(bob)
    with pytest.raises(UnsupportedOperation, match="draw by torch.rand_like"):
        torch.func.vmap(lambda row: torch.bernoulli(row.sigmoid()), randomness="same")(x)
    with pytest.raises(UnsupportedOperation, match="return it of one row"):
        torch.func.vmap(lambda row: row, out_dims=None)(x)
    with pytest.raises(ValueError, match="nothing but tensors"):
        torch.func.vmap(lambda row: 3)(x)


ROWS_APART: dict[str, Any] = {
    "more": lambda row, turn: sum(torch.rand_like(row) for _ in range(turn + 1)),
    "others": lambda row, turn: (torch.randn_like if turn else torch.rand_like)(row),
}


@pytest.mark.parametrize("name", ROWS_APART)
def test_rows_that_draw_otherwise_are_refused(bob: sy.VirtualWorker, name: str) -> None:
    turns, x = itertools.count(), X.clone().send(bob)
    with pytest.raises(UnsupportedOperation, match="draw what the first one does"):
        torch.func.vmap(lambda row: ROWS_APART[name](row, next(turns)), randomness="same")(x)


def test_a_plan_of_rows_is_for_a_number_of_rows(hook: sy.TorchHook) -> None:
    plan = sy.func2plan()(lambda x: torch.func.vmap(torch.func.grad(cubes))(x))
    plan.build(X)
    assert torch.equal(plan(X * 2), 3 * (X * 2) ** 2)
    more = torch.ones(5, 2)
    assert torch.equal(plan(more), 3 * more**2)
