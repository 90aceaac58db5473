"""LoggingTensor: it says what is computed, and computes it."""

from __future__ import annotations

import logging

import pytest
import torch
from torch import nn

import syft as sy
from tests.shells.owner import inspect

pytestmark = pytest.mark.every_shell


def test_it_names_each_operation(caplog: pytest.LogCaptureFixture) -> None:
    x = sy.LoggingTensor().on(torch.tensor([-1.0, 2.0]))
    with caplog.at_level(logging.INFO, logger="syft.tensors.logging"):
        y = torch.relu(x) + x
        y.shape
        torch.div(y, 2)
    assert caplog.messages == [
        "torch.relu",
        "torch.Tensor.add",
        "torch.Tensor.shape.__get__",
        "torch.div",
    ]
    assert repr(y) == "(Wrapper)>LoggingTensor>tensor([-1.,  4.])"
    assert repr(sy.LoggingTensor()) == "LoggingTensor>None"


def test_a_module_runs_on_it_unmodified(caplog: pytest.LogCaptureFixture) -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(2, 3), nn.ReLU()), torch.randn(4, 2)
    with caplog.at_level(logging.INFO, logger="syft.tensors.logging"):
        y = model(sy.LoggingTensor().on(x))
    assert torch.equal(y.child.child, model(x))
    assert "torch.nn.functional.linear" in caplog.messages
    y.sum().backward()
    assert model[0].weight.grad is not None


def test_a_logging_tensor_that_is_sent_logs_there_and_comes_back(
    worker: sy.VirtualWorker, caplog: pytest.LogCaptureFixture, shell: str
) -> None:
    pointer = sy.LoggingTensor().on(torch.tensor([1.0, 2.0])).send(worker)
    assert (
        repr(list(inspect(worker).objects.values())) == "[(Wrapper)>LoggingTensor>tensor([1., 2.])]"
    )
    with caplog.at_level(logging.INFO, logger="syft.tensors.logging"):
        caplog.clear()
        doubled = pointer * 2
        sy.synchronize()
    here = ["torch.Tensor.mul"] if shell == "virtual" else []  # a child has a log of its own
    assert caplog.messages == here
    assert repr(doubled.get()) == "(Wrapper)>LoggingTensor>tensor([2., 4.])"
