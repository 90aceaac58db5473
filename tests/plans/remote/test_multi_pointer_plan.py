"""One plan at several workers."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

import syft as sy
from tests.chain.refusal import refusal
from tests.shells.child import make_worker

pytestmark = pytest.mark.every_shell

X = torch.tensor([1.0, -2.0])


@pytest.fixture
def plan() -> sy.Plan:
    """Several results, one of them a number."""

    @sy.func2plan()
    def both(x: torch.Tensor, lr: float = 2.0) -> Any:
        return {"scaled": x * lr, "rest": (x, [x + 1]), "rows": x.shape[0]}

    both.build(X)
    return both


def test_it_shows_every_place(bob: sy.VirtualWorker, alice: sy.VirtualWorker, plan: Any) -> None:
    pointer = plan.send(bob, alice)
    text = re.sub(r"\d{11,}", "N", repr(pointer))
    assert text == "[PointerPlan | me:N\n\t -> bob:N\n\t -> alice:N\n]"
    assert pointer.location == [bob, alice] and pointer.owner.id == "me"


def test_it_runs_at_every_place(bob: sy.VirtualWorker, alice: sy.VirtualWorker, plan: Any) -> None:
    pointer, x = plan.send(bob, alice), X.send(alice, bob)
    result = pointer(x, lr=3.0)
    for got, expected in [
        (result["scaled"], X * 3),
        (result["rest"][0], X),
        (result["rest"][1][0], X + 1),
    ]:
        assert all(torch.equal(value, expected) for value in got.get())
    assert result["rows"] == 2 and type(result["rest"]) is tuple
    three = torch.ones(3)
    mixed = sy.combine_pointers(X.send(bob), three.send(alice))
    assert pointer(mixed)["rows"] == [2, 3]


def test_it_runs_where_the_arguments_are(
    bob: sy.VirtualWorker, alice: sy.VirtualWorker, plan: Any
) -> None:
    pointer = plan.send(bob, alice)
    assert pointer(X.send(alice))["scaled"].location is alice
    assert pointer(X.send(bob))["scaled"].location is bob


def test_arguments_elsewhere_are_refused(
    hook: sy.TorchHook, bob: sy.VirtualWorker, alice: sy.VirtualWorker, plan: Any
) -> None:
    carol = make_worker(hook, id="carol")
    pointer = plan.send(bob, alice)
    for argument, places in [
        (X.send(carol), "bob+alice and carol"),
        (X, "bob+alice and here"),
        (X.send(bob, carol), "bob+alice and bob+carol"),
    ]:
        text = refusal(lambda argument=argument: pointer(argument))
        assert "LocationMismatch" in text and places in text
    assert "one plan for each worker" in refusal(lambda: plan.send(bob, bob))


def test_every_copy_comes_back_with_its_state(
    bob: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    total = torch.zeros(2)

    @sy.func2plan(args_shape=[(2,)], state=(total,))
    def count(x: torch.Tensor, state: sy.State) -> torch.Tensor:
        return state.read()[0].add_(x) * 1

    pointer = count.send(bob, alice)
    pointer(X.send(bob))
    states = [plan.state_dict()["state.0"] for plan in pointer.get()]
    assert torch.equal(states[0], X) and torch.equal(states[1], total)
    assert bob.objects_count() == alice.objects_count() == 0
