"""The formats as a user asks a plan for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn
from tqdm import tqdm

import syft as sy
from syft.exceptions import NotBuilt, UnsupportedOperation


@pytest.fixture(autouse=True)
def no_monitor(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's interpreter makes a progress bar, and its package starts a thread to watch it."""
    monkeypatch.setattr(tqdm, "monitor_interval", 0)


class Net(sy.Plan):
    """A small class plan."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 3)
        self.scale = nn.Parameter(torch.full((3,), 2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Class scores."""
        return torch.relu(self.fc(x)) * self.scale


@pytest.fixture
def net() -> Net:
    torch.manual_seed(0)
    made = Net()
    made.build(torch.randn(2, 4))
    return made


def test_a_class_plan_in_every_format(hook: Any, net: Net, tmp_path: Path) -> None:
    module, exported = net.to_fx(), net.export().module()
    assert {"fc.weight", "fc.bias", "scale"} == set(module.state_dict())
    net.to_onnx(tmp_path / "net.onnx")
    with pytest.warns(DeprecationWarning, match="torch has deprecated TorchScript") as caught:
        script = net.torchscript
    assert caught[0].filename == __file__
    runtime = onnxruntime.InferenceSession(
        str(tmp_path / "net.onnx"), providers=["CPUExecutionProvider"]
    )
    for size in (1, 2, 5):
        x = torch.randn(size, 4)
        expected = net(x)
        for form in (module, exported, script):
            assert torch.equal(form(x), expected)
        (got,) = runtime.run(None, {"x": x.numpy()})
        np.testing.assert_allclose(got, expected.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_a_module_of_a_plan_shares_its_state(hook: Any, net: Net) -> None:
    module = net.to_fx()
    with torch.no_grad():
        net.scale.mul_(3)
    assert torch.equal(module(torch.ones(2, 4)), net(torch.ones(2, 4)))


def test_nested_arguments_and_results(hook: Any) -> None:
    @sy.func2plan()
    def mix(pair: Any, factor: float = 0.5) -> Any:
        first, second = pair["a"], pair["b"]
        return {"sum": first + second * factor, "size": first.shape[0]}

    a, b = torch.randn(3, 2), torch.randn(3, 2)
    mix.build({"a": a, "b": b})
    got = mix.to_fx()({"a": torch.ones(5, 2), "b": torch.ones(5, 2)}, 2.0)
    assert torch.equal(got["sum"], torch.full((5, 2), 3.0)) and got["size"] == 5
    with pytest.raises(UnsupportedOperation, match="'factor'"):
        mix.export()


def test_a_plan_that_was_never_built(hook: Any) -> None:
    plan = sy.func2plan()(lambda x: x + x)
    for form in (plan.to_fx, plan.export, lambda: plan.torchscript):
        with pytest.raises(NotBuilt):
            form()


def test_a_training_plan_is_refused_by_name(hook: Any) -> None:
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    @sy.func2plan(state=(model, optimizer))
    def step(x: torch.Tensor, y: torch.Tensor, state: Any) -> torch.Tensor:
        model, optimizer = state.read()
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step.build(torch.ones(4, 3), torch.ones(4, 1))
    with pytest.raises(UnsupportedOperation, match="a training step cannot be exported"):
        step.export()


def test_both_paths_of_a_condition_are_exported(hook: Any) -> None:
    @sy.func2plan()
    def absolute(x: torch.Tensor) -> torch.Tensor:
        return sy.cond(x.sum() > 0, lambda x: x * 1, lambda x: -x, x)

    absolute.build(torch.ones(3))
    exported = absolute.export().module()
    for value in (2.0, -2.0):
        assert torch.equal(exported(torch.full((4,), value)), torch.full((4,), 2.0))
