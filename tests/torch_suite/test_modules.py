"""Every module of torch's own database, sent to a worker, and on the device that it is: forward
and backward as without syft.

Lazy modules are run once first: a parameter that has no shape yet cannot be sent.
"""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing._internal.common_modules import ModuleInfo, ModuleInput, module_db

import syft as sy
from syft.ops.nested import replace
from tests.torch_suite.agreement import (
    as_leaf,
    check_equal,
    go_back,
    gradients,
    gradients_there,
    outcome,
)
from tests.torch_suite.carriers import (
    DeviceCarrier,
    PointerCarrier,
    Travellers,
)
from tests.torch_suite.cases import (
    DEVICES,
    seed,
)
from tests.torch_suite.known_failures import REASONS, parameters
from tests.torch_suite.layouts import as_it_arrives, each_once, laid_out_anew

pytestmark = [
    # Torch's cases call what is deprecated or slow on purpose, and torch says so, once a process.
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("info", parameters("module", ((info.name, info) for info in module_db)))
@pytest.mark.parametrize("placed", [PointerCarrier, DeviceCarrier], ids=["sent", "to"])
def test_module(
    info: ModuleInfo, training: bool, device: str, placed: Any, bob: sy.VirtualWorker
) -> None:
    seed()
    inputs = info.module_inputs_func(
        info, device=device, dtype=torch.float32, requires_grad=True, training=training
    )
    assert inputs, "a module without inputs counts as a failure"
    for given in inputs:
        check_module(make(info, given, training, device), given.forward_input, placed(bob))


def make(info: ModuleInfo, given: ModuleInput, training: bool, device: str) -> nn.Module:
    """The module of one case, with its parameters initialised."""
    seed()
    made = given.constructor_input
    module = info.module_cls(*made.args, **made.kwargs).to(device).train(training)
    if info.is_lazy:
        with torch.no_grad():
            module(*given.forward_input.args, **given.forward_input.kwargs)
    return module


def check_module(module: nn.Module, given: Any, carrier: PointerCarrier) -> None:
    """Outputs, gradients of parameters and inputs, and buffers are as they are without syft."""
    remote = carrier.place(copy.deepcopy(module))
    anew = laid_out_anew(copy.deepcopy(module))
    want: dict[str, Any] = {}
    got: dict[str, Any] = {}
    operands: Any = ()
    if given is not None:
        operands = replace((given.args, given.kwargs), as_leaf)
        travellers = Travellers(carrier)
        there = travellers.send(operands)
        got["result"] = travellers.fetch(outcome(lambda: forward_and_back(remote, *there)))
        got["inputs"] = travellers.fetch(gradients_there(operands, there))
        got["parameters"] = travellers.fetch([weight.grad for weight in remote.parameters()])
        del travellers, there  # a graph would hold the parameters where they are
    got["state"] = dict(carrier.bring(remote).state_dict())
    operands_anew = each_once(operands, as_it_arrives)
    want = account(module, operands)
    check_equal(want, got, again=partial(account, anew, operands_anew))


def account(module: nn.Module, operands: Any) -> dict[str, Any]:
    """Everything that native torch makes of a module and its operands."""
    made: dict[str, Any] = {}
    if operands:
        made["result"] = outcome(lambda: forward_and_back(module, *operands))
        made["inputs"] = gradients(operands)
        made["parameters"] = [weight.grad for weight in module.parameters()]
    made["state"] = dict(module.state_dict())
    return made


def forward_and_back(module: nn.Module, args: Any, kwargs: Any) -> Any:
    """What the module returns; its gradients are computed on the way."""
    result = module(*args, **kwargs)
    go_back(result)
    return result


def test_every_module_passes() -> None:
    assert len(module_db) >= 114
    assert not [row for row in REASONS if row.startswith("module/")]
