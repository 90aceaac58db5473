"""What an operation reads and makes is found without running it on anybody's values."""

from __future__ import annotations

import pytest
import torch

import syft as sy
from syft.exceptions import LimitExceeded
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


@pytest.mark.parametrize("private", [False, True])
def test_what_has_a_form_is_measured_by_it(private: bool, hook: sy.TorchHook) -> None:
    """Also where the result is far larger than the operands, and whatever the values are."""
    limits = PeerLimits(objects=20, bytes=1 << 24, elements=1 << 12)
    dan = sy.VirtualWorker(hook, id="dan", peer_limits=limits)
    for value in (0, 7):
        x = torch.full((100, 1), float(value))
        given, row, labels = (x, x.T.contiguous(), x[:, 0].long())
        if private:
            given, row, labels = (it.private_tensor(["ann"]) for it in (given, row, labels))
        given, row, labels = (it.send(dan, user="ann") for it in (given, row, labels))
        assert given.T.cov().shape == () and labels.bincount(minlength=9).shape == (9,)
        for ask in (
            given.cov,
            given.corrcoef,
            lambda row=row: torch.linalg.lstsq(row, row),
            lambda labels=labels: labels.bincount(minlength=10**5),
            lambda row=row: row.flatten().histogram(10**5),
        ):
            with pytest.raises(LimitExceeded):
                ask()
