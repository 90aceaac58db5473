"""Lazy tensors that go to a device of a worker, and operations that do nothing but check values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import syft as sy
from syft.exceptions import NotSendable


@pytest.mark.parametrize(
    "go",
    [
        lambda x, device: x.to(device),
        lambda x, device: torch.ones_like(x, device=device),
        lambda x, device: x.new_ones(2, device=device),
    ],
    ids=["to", "ones_like", "new_ones"],
)
def test_a_lazy_tensor_goes_to_a_device_computed(
    go: Callable[..., Any], bob: sy.VirtualWorker
) -> None:
    device = sy.device(bob)
    there = go(torch.zeros(2).to_lazy() + 1, device)
    assert there.device == device and there.location is bob
    assert (there + torch.ones(2, device=device)).cpu().tolist() == [2, 2]


def test_no_gradient_is_lost_on_the_way_to_a_device(bob: sy.VirtualWorker) -> None:
    w = torch.ones(2).to_lazy().requires_grad_()
    with pytest.raises(NotSendable, match="its gradient would not come back"):
        (w * 2).to(sy.device(bob))
    with torch.no_grad():
        assert (w * 2).to(sy.device(bob)).cpu().tolist() == [2, 2]


def test_a_module_made_lazy_goes_to_a_device(bob: sy.VirtualWorker) -> None:
    model = torch.nn.Linear(2, 1)
    weight = model.weight.detach().clone()
    assert model.to_lazy().to(sy.device(bob)).weight.location is bob
    assert torch.equal(model.weight.detach().cpu(), weight)


def test_a_check_of_values_is_made_at_its_line(hook: sy.TorchHook) -> None:
    """It has no result that somebody could want, so it would never run."""
    x = (-torch.eye(2)).to_lazy()
    with pytest.raises(torch.linalg.LinAlgError, match="not positive-definite"):
        torch.linalg.cholesky(x)
    with pytest.raises(RuntimeError):
        torch._assert_async(torch.zeros(1).to_lazy())
