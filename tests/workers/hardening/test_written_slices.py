"""A gradient through a write to a view is computed from what was written.

That torch computes it from freed memory is seen in ``test_unwritten.py``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
import torch

import syft as sy
from syft.workers.hardening import unwritten

Reach = Callable[[torch.Tensor], torch.Tensor]

REACHING: dict[str, Reach] = {
    "as_strided": lambda holes: holes.as_strided((5,), (1,)),
    "as_strided_": lambda holes: holes[:1].as_strided_((5,), (1,)),
    "resize_": lambda holes: holes[:1].resize_(5),
    "set_": lambda holes: holes[:1].set_(holes[:1], 0, (5,), (1,)),
}


@pytest.fixture(autouse=True)
def no_holes_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unwritten, "_HOLES_FOUND", threading.Event())


@pytest.fixture
def bob(hook: sy.TorchHook) -> Iterator[sy.VirtualWorker]:
    worker = sy.VirtualWorker(hook, id="slices")
    yield worker
    worker.close()


@pytest.mark.parametrize("beside", [False, True], ids=["public", "beside private data"])
@pytest.mark.parametrize("backward", [False, True], ids=["grad", "backward"])
@pytest.mark.parametrize("name", REACHING)
def test_holes_are_zeros(bob: sy.VirtualWorker, name: str, backward: bool, beside: bool) -> None:
    if beside:
        bob.hold(torch.ones(2).private_tensor(allowed_users=["ann"]))
    holes = torch.ones(6).send(bob)[::2].detach()
    factor = torch.full((5,), 3.0, requires_grad=True).send(bob)
    view = REACHING[name](holes).fill_(2)
    view.mul_(factor)
    freed = [torch.full((5,), 7.0) for _ in range(500)]
    del freed
    if backward:
        holes.sum().backward()
        gradient = factor.grad
    else:
        (gradient,) = torch.autograd.grad(holes.sum(), factor)
    assert gradient is not None and gradient.get().tolist() == [2, 0, 2, 0, 2]


def test_a_tensor_that_gets_holes_behind_its_view(bob: sy.VirtualWorker) -> None:
    behind = torch.ones(6).send(bob)
    view, factor = behind[:5], torch.full((5,), 3.0, requires_grad=True).send(bob)
    behind.as_strided_((3,), (2,))
    view.fill_(2).mul_(factor)
    (gradient,) = torch.autograd.grad(behind.sum(), factor)
    assert gradient.get().tolist() == [2, 0, 2, 0, 2]


def test_windows_of_whole_memory_and_other_layouts_have_no_holes(bob: sy.VirtualWorker) -> None:
    x = torch.arange(6.0, requires_grad=True).send(bob)
    y = x * 1
    y.as_strided((2, 2), (3, 2))[0] = 5.0
    y.sum().backward()
    assert x.grad is not None and x.grad.get().tolist() == [0, 1, 0, 1, 1, 1]
    sparse = torch.eye(2).to_sparse().send(bob)
    sparse.data = torch.ones(2, 2).to_sparse().send(bob)
    assert not unwritten._HOLES_FOUND.is_set()


def test_in_a_plan_and_twice(bob: sy.VirtualWorker) -> None:
    @sy.func2plan(args_shape=[(3,)])
    def squares(x: torch.Tensor) -> torch.Tensor:
        rows = torch.zeros(2, 3)
        rows[1] = x * x * x
        return rows.sum()

    x = torch.arange(3.0, requires_grad=True).send(bob)
    (first,) = torch.autograd.grad(squares.send(bob)(x), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert first.get().tolist() == [0, 3, 12] and second.get().tolist() == [0, 6, 12]
