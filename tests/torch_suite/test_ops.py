"""Every operator of torch's own database, on pointers against native torch."""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import Any

import pytest
import torch

import syft as sy
from tests.torch_suite.agreement import (
    check_forward,
    outcome,
)
from tests.torch_suite.carriers import (
    PointerCarrier,
)
from tests.torch_suite.cases import (
    Case,
    DEVICES,
    OP_CASES,
    UNDEFINED,
)
from tests.torch_suite.known_failures import MOST_ROWS, REASONS, TABLES, parameters, share_passing

pytestmark = [
    # Torch's cases call what is deprecated or slow on purpose, and torch says so, once a process.
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.parametrize("device", DEVICES),
]

FLOATS = [case for case in OP_CASES if case.dtype is torch.float32]
SOME = 3
"""How many samples of each operator are tried in its other forms."""


@pytest.mark.parametrize("case", parameters("pointer", ((case.name, case) for case in OP_CASES)))
def test_pointer(case: Case, device: str, bob: sy.VirtualWorker) -> None:
    samples = case.samples(device)
    assert samples, "an operator without samples counts as a failure"
    for sample in samples:
        check_forward(case, sample, PointerCarrier(bob))


@pytest.mark.parametrize("case", parameters("strided", ((case.name, case) for case in OP_CASES)))
def test_strided(case: Case, device: str, bob: sy.VirtualWorker) -> None:
    """Columns before rows: the order of numbers in memory travels with them."""
    for sample in case.samples(device, most=SOME):
        turned = sample.transform(columns_first)
        check_forward(case, turned, PointerCarrier(bob))


def columns_first(value: Any) -> Any:
    """A matrix (or more) with its last dimension first in memory."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided or value.dim() < 2:
        return value
    return value.movedim(-1, 0).contiguous().movedim(0, -1)


@pytest.mark.parametrize(
    "case",
    parameters("inplace", ((case.name, case) for case in FLOATS if case.op.inplace_variant)),
)
def test_in_place(case: Case, device: str, bob: sy.VirtualWorker) -> None:
    def call(target: torch.Tensor, *args: object, **kwargs: object) -> torch.Tensor:
        result = case.op.inplace_variant(target, *args, **kwargs)
        assert result is target
        return result

    for sample in case.samples(device, most=SOME):
        check_forward(case, sample, PointerCarrier(bob), call=call)


@pytest.mark.parametrize(
    "case", parameters("method", ((case.name, case) for case in FLOATS if case.op.method_variant))
)
def test_method(case: Case, device: str, bob: sy.VirtualWorker) -> None:
    for sample in case.samples(device, most=SOME):
        if isinstance(sample.input, torch.Tensor):
            check_forward(case, sample, PointerCarrier(bob), call=case.op.method_variant)


@pytest.mark.parametrize(
    "case", parameters("out", ((case.name, case) for case in FLOATS if case.op.supports_out))
)
def test_out(case: Case, device: str, bob: sy.VirtualWorker) -> None:
    def call(*args: object, **kwargs: object) -> torch.Tensor:
        result = case.op(*args, **kwargs)
        assert result is kwargs["out"]
        return result

    for sample in case.samples(device, most=SOME):
        result = outcome(partial(case.op, sample.input, *sample.args, **sample.kwargs))
        if isinstance(result, torch.Tensor):
            sample.kwargs["out"] = torch.zeros_like(result)
            check_forward(case, sample, PointerCarrier(bob), call=call)


def test_share_of_operators(device: str) -> None:
    operators = defaultdict(set)
    for case in OP_CASES:
        operators[case.op.formatted_name].add(case.name)
    assert len(operators) >= 690
    assert share_passing("pointer", operators) >= 0.99


def test_undefined_operators_are_in_the_database(device: str) -> None:
    assert {case.op.name for case in OP_CASES} >= UNDEFINED


def test_the_tables_only_shrink(device: str) -> None:
    assert all(len(TABLES[table]) <= most for table, most in MOST_ROWS.items())
    assert all(len(reason) > 20 for reason in REASONS.values())
