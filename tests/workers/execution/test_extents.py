"""What an operation reads and makes is found without running it on anybody's values."""

from __future__ import annotations

import pytest
import torch

import syft as sy
from syft.ops.table import BY_NAME
from syft.workers.core.peer_limits import PeerLimits
from syft.workers.execution.extents import extent_of


@pytest.mark.parametrize("name, many", [("mul_", 2), ("add_", 2), ("logical_not_", 1), ("neg_", 1)])
def test_an_operation_that_is_measured_writes_to_no_operand(name: str, many: int) -> None:
    """An integer of one element may be a size, so it is measured with its value: that of a copy."""
    x = torch.tensor(3)
    extent_of(BY_NAME[f"torch.Tensor.{name}"], getattr(torch.Tensor, name), [x] * many, {})
    assert x.item() == 3


def test_an_integer_that_is_written_under_limits_is_written_once(hook: sy.TorchHook) -> None:
    limits = PeerLimits(objects=20, bytes=1 << 20, elements=1 << 10)
    dan = sy.VirtualWorker(hook, id="dan", peer_limits=limits)
    large, x = torch.ones(1 << 9, 1).send(dan), torch.tensor(2).send(dan)
    for power in (4, 16, 256):
        x.mul_(x)
        assert x.copy().get().item() == power
    del large


def test_an_integer_that_is_no_size_hides_no_memory() -> None:
    """Torch has no operation of a number here and tensors without memory."""
    op = BY_NAME["torch.masked_fill"]
    x, mask = torch.ones(100), torch.ones(100, dtype=torch.bool)
    as_tensor = extent_of(op, torch.masked_fill, [x, mask, torch.tensor(3)], {})
    assert as_tensor.bytes == extent_of(op, torch.masked_fill, [x, mask, 3], {}).bytes == 400
