"""A tensor from outside is put back as it was: values, memory, gradient, version, requires_grad."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from syft.program.recording.environment.snapshot import Snapshot, storage_of, version_of
from syft.program.recording.environment.source_line import SourceLine

LINE = SourceLine("train.py", 1)


def exchange_memory(x: Any) -> None:
    x.data = torch.zeros(5)


def write_and_exchange(x: Any) -> None:
    x.data.add_(1)
    x.data = torch.zeros(2, 2)


def exchange_gradient(x: Any) -> None:
    x.grad.add_(1)
    x.grad = torch.zeros(3)


CHANGES: dict[str, Callable[[Any], Any]] = {
    "values": lambda x: x.detach().add_(1),
    "memory": exchange_memory,
    "values_and_memory": write_and_exchange,
    "shape": lambda x: x.detach().resize_(0),
    "requires_grad": lambda x: x.requires_grad_(False),
    "gradient": lambda x: x.grad.mul_(2),
    "another_gradient": exchange_gradient,
    "no_gradient": lambda x: setattr(x, "grad", None),
    "nothing": lambda x: None,
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_leaf_is_put_back(name: str) -> None:
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    grad = x.grad = torch.tensor([4.0, 5.0, 6.0])
    memory, version, grad_version = x.data_ptr(), x._version, grad._version
    before = Snapshot(x, LINE)
    before.is_written = True
    CHANGES[name](x)
    before.restore()
    assert x.tolist() == [1, 2, 3] and x.requires_grad
    assert (x.data_ptr(), x._version) == (memory, version)
    assert x.grad is grad and grad.tolist() == [4, 5, 6] and grad._version == grad_version


def test_a_gradient_that_was_not_there_goes_again() -> None:
    x = torch.ones(2, requires_grad=True)
    before = Snapshot(x, LINE)
    (x * 2).sum().backward()
    before.restore()
    assert x.grad is None


def test_a_graph_recorded_before_still_runs_backward() -> None:
    x = torch.ones(2)
    w = torch.ones(2, requires_grad=True)
    loss = (w * x).sum()  # keeps x, and looks at its version
    before = Snapshot(x, LINE)
    before.is_written = True
    x.add_(1)
    before.restore()
    loss.backward()
    assert w.grad is not None and w.grad.tolist() == [1, 1]


def test_a_write_that_was_not_announced_shows() -> None:
    x = torch.ones(2)
    before = Snapshot(x, LINE)
    assert not before.changed_unseen
    x.add_(1)
    assert before.changed_unseen
    before.is_written = True
    assert not before.changed_unseen


def test_a_constant_is_the_copy_with_its_notes() -> None:
    x = torch.ones(2)
    x.note = "private"
    constant = Snapshot(x, LINE).as_constant()
    assert constant is not x and constant.note == "private"
    x.add_(1)
    assert constant.tolist() == [1, 1]


def test_memory_is_told_apart() -> None:
    x = torch.ones(3)
    assert storage_of(x) == storage_of(x[1:]) == storage_of(x.detach())
    assert storage_of(x) != storage_of(x.clone())
    empty, other = torch.ones(0), torch.ones(0)
    assert storage_of(empty) != storage_of(other)
    sparse = x.to_sparse()
    assert storage_of(sparse) == id(sparse)
    with torch.inference_mode():
        assert version_of(torch.ones(1)) == 0
