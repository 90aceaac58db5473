"""Every optimizer and option of torch's own database: a model at a worker against native torch."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing._internal import common_optimizers
from torch.testing._internal.common_optimizers import OptimizerInfo, optim_db

import syft as sy
from syft.ops.nested import replace
from syft.chain.wrapper import Wrapper
from tests.torch_suite.agreement import (
    check_equal,
)
from tests.torch_suite.carriers import DeviceCarrier, PointerCarrier
from tests.torch_suite.cases import (
    DEVICES,
    seed,
)
from tests.torch_suite.known_failures import REASONS, parameters
from tests.torch_suite.layouts import laid_out_anew

# ``differentiable`` is for optimizers whose parameters are not leaves, which no module has.
_options = common_optimizers._get_optim_inputs_including_global_cliquey_kwargs

STEPS = 3


def _cases() -> Iterator[tuple[str, tuple[str, OptimizerInfo, dict[str, Any]]]]:
    """Every optimizer with every set of options, foreach and fused ones included."""
    for device in DEVICES:
        for info in optim_db:
            for given in _options(device, torch.float32, info, skip=("differentiable",)):
                name = f"{info.name}-{given.desc}-{device}".replace(" ", "_")
                yield name, (device, info, given.kwargs)


@pytest.mark.parametrize("case", parameters("optimizer", _cases()))
@pytest.mark.parametrize("placed", [PointerCarrier, DeviceCarrier], ids=["send", "to"])
@pytest.mark.parametrize("sent", ["before_it_is_made", "after_it_is_made", "between_steps"])
# Torch says that its tensors of younger layouts may change, and which options are slow.
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_optimizer(
    case: tuple[str, OptimizerInfo, dict[str, Any]], sent: str, placed: Any, bob: sy.VirtualWorker
) -> None:
    device, info, options = case
    model, inputs, labels = problem(info, device)
    remote = copy.deepcopy(model)
    anew = laid_out_anew(copy.deepcopy(model))
    carrier = placed(bob)
    inputs_there, labels_there = carrier.send(inputs), carrier.send(labels)

    if sent == "before_it_is_made":
        carrier.place(remote)
    optimizer_there = info.optim_cls(remote.parameters(), **copy.deepcopy(options))
    if sent == "between_steps":
        losses_there = train(remote, optimizer_there, inputs, labels)
        remote.zero_grad()
        carrier.place(remote)
    else:
        if sent == "after_it_is_made":
            carrier.place(remote)
        losses_there = train(remote, optimizer_there, inputs_there, labels_there)
    losses_there += train(remote, optimizer_there, inputs_there, labels_there)
    got = (
        fetch(losses_there),
        fetch(state(optimizer_there)),
        dict(carrier.bring(remote).state_dict()),
    )

    def native(model: nn.Module) -> Any:
        optimizer = info.optim_cls(model.parameters(), **copy.deepcopy(options))
        losses = [
            *train(model, optimizer, inputs, labels),
            *train(model, optimizer, inputs, labels),
        ]
        return losses, state(optimizer), dict(model.state_dict())

    check_equal(native(model), got, again=partial(native, anew))


def problem(info: OptimizerInfo, device: str) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """A model whose parameters the optimizer can handle, inputs and labels."""
    seed()
    labels = torch.randint(3, (8,), device=device)
    if info.only_supports_sparse_grads:
        embedding = nn.Embedding(6, 3, sparse=True, device=device)
        return embedding, torch.randint(6, (8,), device=device), labels
    bias = info.name != "Muon"  # which takes matrices only
    layers = [nn.Linear(4, 5, bias=bias), nn.Tanh(), nn.Linear(5, 3, bias=bias)]
    return nn.Sequential(*layers).to(device), torch.randn(8, 4, device=device), labels


def train(
    model: nn.Module, optimizer: torch.optim.Optimizer, inputs: torch.Tensor, labels: torch.Tensor
) -> list[torch.Tensor]:
    """A few steps as torch's documentation writes them, with a closure for those that take one."""

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        return loss

    losses = [optimizer.step(closure).detach() for _ in range(STEPS)]
    optimizer.zero_grad()
    return losses


def state(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """What the optimizer remembers of each parameter."""
    groups = optimizer.param_groups
    return [dict(optimizer.state[weight]) for group in groups for weight in group["params"]]


def fetch(value: Any) -> Any:
    """``value`` with what its pointers point to in their place."""
    return replace(value, lambda leaf: leaf.get() if type(leaf) is Wrapper else leaf)


def test_every_optimizer_passes() -> None:
    assert len(optim_db) >= 15
    assert not [row for row in REASONS if row.startswith("optimizer/")]
