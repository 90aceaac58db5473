"""Back-propagation through every differentiable operator of torch's own database, on pointers."""

from __future__ import annotations

from collections import defaultdict

import pytest

import syft as sy
from tests.torch_suite.agreement import (
    check_backward,
)
from tests.torch_suite.carriers import (
    PointerCarrier,
)
from tests.torch_suite.cases import (
    Case,
    DEVICES,
    GRADIENT_CASES,
)
from tests.torch_suite.known_failures import parameters, share_passing

pytestmark = [
    # Torch's cases call what is deprecated or slow on purpose, and torch says so, once a process.
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.parametrize("device", DEVICES),
]


@pytest.mark.parametrize(
    "case", parameters("gradient", ((case.name, case) for case in GRADIENT_CASES))
)
def test_gradients(case: Case, device: str, bob: sy.VirtualWorker) -> None:
    samples = case.samples(device, requires_grad=True)
    assert samples, "an operator without samples counts as a failure"
    for sample in samples:
        check_backward(case, sample, PointerCarrier(bob))


def test_share_of_operators(device: str) -> None:
    operators = defaultdict(set)
    for case in GRADIENT_CASES:
        operators[case.op.formatted_name].add(case.name)
    assert len(operators) >= 540
    assert share_passing("gradient", operators) >= 0.97
