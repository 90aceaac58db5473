"""``plan(x, out=y)`` here: what torch's ``out=`` and a call at a worker do."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import syft as sy
from tests.chain.refusal import refusal

X = torch.tensor([1.0, -2.0])


def plan_of(function: Any, *args: Any) -> sy.Plan:
    plan = sy.func2plan()(function)
    plan.build(*(args or (X,)))
    return plan


@pytest.mark.parametrize("built", [True, False])
def test_the_result_lies_in_the_memory_that_was_there(built: bool) -> None:
    plan = plan_of(lambda x: x * 2) if built else sy.func2plan()(lambda x: x * 2)
    base = torch.zeros(4)
    out = base[1:3]
    for factor in (1, 3):
        assert plan(X * factor, out=out) is out
        assert torch.equal(out, torch.mul(X * factor, 2, out=torch.zeros(2)))
    assert base.tolist() == [0.0, 6.0, -12.0, 0.0]
    assert plan.is_built and plan(X, out=None).tolist() == [2.0, -4.0]


def test_an_empty_target_is_resized_and_numbers_may_be_wider() -> None:
    plan = plan_of(lambda x: x * 2)
    for target in (torch.zeros(0), torch.zeros(2, dtype=torch.float64)):
        expected = torch.mul(X, 2, out=target.clone())
        assert torch.equal(plan(X, out=target), expected) and target.dtype == expected.dtype


def test_several_results_are_nested_as_they_are_returned() -> None:
    plan = plan_of(lambda x, y: {"a": x + y, "b": (x - y, [y])}, X, X)
    x, y = X.clone(), torch.ones(2)
    out: Any = {"a": x, "b": (torch.zeros(2), [torch.zeros(2)])}
    assert plan(x, y, out=out) is out
    assert [out["a"].tolist(), out["b"][0].tolist(), out["b"][1][0].tolist()] == [
        [2.0, -1.0],
        [0.0, -3.0],
        [1.0, 1.0],
    ]


def test_a_target_may_be_an_argument_or_share_memory_with_a_result() -> None:
    x, y = X.clone(), torch.ones(2)
    plan_of(lambda x, y: (y, x), X, X)(x, y, out=(x, y))
    assert (x.tolist(), y.tolist()) == ([1.0, 1.0], [1.0, -2.0])
    assert plan_of(lambda x: x)(x, out=x) is x
    four = torch.arange(4.0)
    plan_of(lambda x: x[:3], torch.ones(4))(four, out=four[1:])
    assert four.tolist() == [0.0, 0.0, 1.0, 2.0]


def test_what_does_not_fit_is_refused_and_nothing_is_written(bob: sy.VirtualWorker) -> None:
    """In the words of a call at a worker."""
    plan = plan_of(lambda x: (x, x + 1))
    pointer, good = plan.send(bob), torch.zeros(2)
    for out in (
        (good, torch.zeros(3)),
        (good, torch.zeros(2).long()),
        (good,),
        good,
        (good, 3),
        (torch.zeros(2, requires_grad=True), good),
    ):
        there = tuple(each.send(bob) if torch.is_tensor(each) else each for each in out)
        here = refusal(lambda out=out: plan(X, out=out))
        if out is not good:
            assert here == refusal(lambda there=there: pointer(X.send(bob), out=there))
        assert here.startswith(("WrongArguments: Plan", "ProgramError: Plan"))
    assert not good.any()
    sizes = plan_of(lambda x: (x, x.shape[0]))
    assert refusal(lambda: sizes(X, out=(good, 2))) == (
        "WrongArguments: Plan '<lambda>' takes out= for tensors only, and got it for tensor, int."
    )


def test_there_is_no_graph() -> None:
    model = nn.Linear(2, 1)
    plan, out = plan_of(lambda x: model(x)), torch.zeros(1)
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        torch.mul(X, model.weight[0], out=torch.zeros(2))
    assert "what is written with out= has no graph" in refusal(lambda: plan(X, out=out))
    with torch.no_grad():
        assert torch.equal(plan(X, out=out), model(X))
    assert not out.requires_grad


def test_state_is_used_and_written_as_ever() -> None:
    class Counter(sy.Plan):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(2))

        def forward(self, x: torch.Tensor) -> Any:
            return self.total.add_(x)

    net, out = Counter(), torch.zeros(2)
    for count in (1, 2, 3):
        assert net(X, out=out) is out and torch.equal(out, count * X)
    assert torch.equal(net.total, 3 * X)
    with torch.no_grad():
        assert net(X, out=net.total) is net.total


def test_a_parameter_of_that_name_is_an_argument() -> None:
    def own(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        return torch.add(x, x, out=out) + 1

    def named(x: torch.Tensor, **rest: torch.Tensor) -> torch.Tensor:
        return x + rest["out"]

    for function, expected in ((own, X + X + 1), (named, X + 1)):
        for plan in (sy.func2plan()(function), sy.func2plan()(function)):
            for _ in range(2):
                out = torch.ones(2)
                result = plan(X, out=out)
                assert result is not out and torch.equal(result, expected)
    assert torch.equal(out, torch.ones(2))
    rest = plan_of(lambda x, **rest: x * 2)
    assert rest(X, out=torch.zeros(2)).tolist() == [2.0, -4.0]


def test_pointers_are_written_where_they_are(bob: sy.VirtualWorker) -> None:
    plan = plan_of(lambda x, y: (y, x * 2), X, X)
    x, y = X.send(bob), torch.ones(2).send(bob)
    plan(x, y, out=(x, y))
    assert (x.get().tolist(), y.get().tolist()) == ([1.0, 1.0], [2.0, -4.0])


def test_inside_another_plan() -> None:
    inner = plan_of(lambda x: x * 2)

    def outer(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return inner(x, out=y) + 1

    plan, out = plan_of(outer, X, torch.zeros(2)), torch.zeros(2)
    assert plan(X, out.clone()).tolist() == [3.0, -3.0]
    assert plan(X, out).tolist() == [3.0, -3.0] and out.tolist() == [2.0, -4.0]
    unbuilt = sy.func2plan()(lambda x: x * 2)
    assert "out= of a plan that is not built" in refusal(
        lambda: plan_of(lambda x, y: unbuilt(x, out=y), X, torch.zeros(2))
    )
    double = sy.func2plan(args_shape=[(2,)])(lambda x: x + x)
    fetched = double.copy()
    assert fetched(X, out=out).tolist() == [2.0, -4.0]


def test_a_plan_that_only_replays(bob: sy.VirtualWorker) -> None:
    fetched, out = plan_of(lambda x: x * 2).send(bob).get(), torch.zeros(2)
    assert fetched(X, out=out).tolist() == [2.0, -4.0]
    assert refusal(lambda: sy.Plan()(X, out=out)) == refusal(lambda: sy.Plan()(X))
