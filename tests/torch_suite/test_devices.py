"""Operators of torch's own database on a device that is a worker: what they are given, and what
comes back, goes by ``to`` alone; those that are given no tensor run in ``with device:``."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import syft as sy
from syft.ops.nested import leaves
from tests.torch_suite.agreement import check_forward
from tests.torch_suite.carriers import DeviceCarrier
from tests.torch_suite.cases import OP_CASES, Case
from tests.torch_suite.known_failures import REASONS, parameters

pytestmark = [
    # Torch's cases call what is deprecated or slow on purpose, and torch says so, once a process.
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

FLOATS = [
    case
    for case in OP_CASES
    if case.dtype is torch.float32 and f"pointer/{case.name}" not in REASONS
]
"""Those that pass on pointers."""
SOME = 2
"""How many samples of each operator are tried."""


@pytest.mark.parametrize("case", parameters("device", ((case.name, case) for case in FLOATS)))
def test_device(case: Case, bob: sy.VirtualWorker) -> None:
    samples = case.samples("cpu", most=SOME)
    assert samples, "an operator without samples counts as a failure"
    for sample in samples:
        if not any(map(names_a_device, leaves((sample.args, sample.kwargs)))):
            check_forward(case, sample, DeviceCarrier(bob))


def names_a_device(value: Any) -> bool:
    """Whether it says that a result is to be here, where it is a plain tensor then."""
    return isinstance(value, torch.device) or value == "cpu"
