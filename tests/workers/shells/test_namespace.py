"""Torch's functions at another worker, as attributes of the worker."""

from __future__ import annotations

import pytest
import torch

import syft as sy
from syft.exceptions import LocationMismatch, OperationRefused, UnknownOperation


def test_factories_make_tensors_there(worker: sy.VirtualWorker) -> None:
    zeros = worker.torch.zeros(2, 3)
    assert zeros.location is worker and zeros.shape == (2, 3)
    assert zeros.get().tolist() == [[0, 0, 0], [0, 0, 0]]
    random = worker.torch.randn(2, requires_grad=True)
    assert random.requires_grad
    assert random.get().shape == (2,)
    assert worker.torch.tensor([1, 2], dtype=torch.int8).get().dtype is torch.int8


def test_operations_on_pointers_run_there(worker: sy.VirtualWorker) -> None:
    x = torch.tensor([3.0, 1.0, 2.0]).send(worker)
    assert worker.torch.add(x, x, alpha=2).get().tolist() == [9, 3, 6]
    values, indices = worker.torch.sort(x)
    assert values.get().tolist() == [1, 2, 3]
    assert indices.get().tolist() == [1, 2, 0]
    assert worker.torch.nn.functional.relu(-x).get().tolist() == [0, 0, 0]
    assert worker.torch.equal(x, x) is True


def test_names_lead_somewhere_or_are_refused(bob: sy.VirtualWorker) -> None:
    assert repr(bob.torch.nn.functional) == "<torch.nn.functional at bob>"
    with pytest.raises(AttributeError, match="torch.nope is not an operation"):
        bob.torch.nope
    with pytest.raises(AttributeError, match="__wrapped__"):
        bob.torch.__wrapped__
    with pytest.raises(UnknownOperation, match="'torch.nn' is not in the op table"):
        bob.torch.nn()
    with pytest.raises(OperationRefused, match="'torch.save' cannot run on another worker"):
        bob.torch.save(torch.ones(1), "file")


def test_arguments_are_checked_as_those_of_any_call(
    bob: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    with pytest.raises(LocationMismatch, match="bob and alice"):
        bob.torch.relu(torch.ones(2).send(alice))
    with pytest.raises(LocationMismatch, match="bob and me"):
        bob.torch.relu(torch.ones(2))
