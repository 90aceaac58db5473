"""``torch.cond`` and ``torch.while_loop`` in plans give what torch gives."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import syft as sy
from syft.exceptions import PermissionDenied


def branches(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    def small(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.cond(y.sum() > 0, lambda x, y: x * y, lambda x, y: x - y, (x, y))

    found: torch.Tensor = torch.cond(x.sum() > 1, torch.add, small, (x, y))
    return found


def halvings(x: torch.Tensor, count: torch.Tensor) -> Any:
    return torch.while_loop(
        lambda x, count: x.abs().sum() > 1, lambda x, count: (x / 2, count + 1), (x, count)
    )


CASES = [
    (branches, [torch.tensor([2.0, 1.0]), torch.tensor([3.0, -4.0])]),
    (branches, [torch.tensor([-2.0, 1.0]), torch.tensor([3.0, -1.0])]),
    (branches, [torch.tensor([-2.0, 1.0]), torch.tensor([-3.0, 1.0])]),
    (halvings, [torch.tensor([9.0, 4.0]), torch.tensor(0)]),
    (halvings, [torch.tensor([0.25, 0.25]), torch.tensor(0)]),
]


def listed(found: Any) -> list[Any]:
    return [one.tolist() for one in (found if isinstance(found, tuple | list) else (found,))]


@pytest.mark.parametrize(("function", "args"), CASES)
def test_a_plan_keeps_both_ways(function: Any, args: list[torch.Tensor]) -> None:
    expected = listed(function(*args))  # torch alone: no hook is there
    hook = sy.TorchHook(torch)
    bob = sy.VirtualWorker(hook, id="bob")
    assert listed(function(*args)) == expected, "outside of plans torch's own"
    plan = sy.func2plan()(function)
    plan.build(*CASES[0][1] if function is branches else CASES[3][1])
    assert listed(plan(*args)) == expected
    there = plan(*[one.send(bob) for one in args])
    found = [one.get() for one in (there if isinstance(there, tuple | list) else (there,))]
    assert listed(tuple(found)) == expected
    hook.close()


def test_on_pointers_the_program_decides(hook: sy.TorchHook) -> None:
    bob = sy.VirtualWorker(hook, id="bob")
    x, y = (one.send(bob) for one in CASES[0][1])
    assert branches(x, y).get().tolist() == [5, -3]
    private = torch.tensor([2.0, 1.0]).private_tensor(["ann"]).send(bob, user="ann")
    with pytest.raises(PermissionDenied):
        branches(private, y)


def test_it_is_torchs_own_again_after_the_hook() -> None:
    before = torch.cond, torch.while_loop
    sy.TorchHook(torch).close()
    assert (torch.cond, torch.while_loop) == before
