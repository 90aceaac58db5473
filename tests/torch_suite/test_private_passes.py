"""What a private backward pass leaves looks the same for every differentiable operator, whether the
pass succeeded or failed."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from syft.exceptions import PermissionDenied
from syft.ops.evaluate import _look
from syft.ops.nested import leaves, replace
from syft.ops.nested import tensors_in
from syft.workers.execution.backward_passes import run_private_pass
from syft.workers.execution.moved_memory import NoHoldings
from syft.workers.labels.guards import Guard
from syft.workers.labels.memory_labels import full_guard_of, protect
from tests.torch_suite.cases import GRADIENT_CASES, Case
from tests.torch_suite.known_failures import parameters
from tests.torch_suite.test_predictions import own

pytestmark = [
    # Torch's cases call what is deprecated or slow on purpose, and torch says so, once a process.
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

SAMPLES = 3
CASES = [(case.name, case) for case in GRADIENT_CASES]


def refuse(gradient: torch.Tensor) -> None:
    raise ValueError("this pass is to fail")


def loss_of(result: Any) -> torch.Tensor | None:
    """A sum over all that has a graph, which gives other gradients to each element."""
    found = []
    for leaf in leaves(result):
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
            weights = torch.arange(leaf.numel()).reshape(leaf.shape).to(leaf.dtype)
            found.append((leaf * weights).sum())
    total = sum(found) if found else None
    return total.real if isinstance(total, torch.Tensor) and total.is_complex() else total


def gradients(case: Case, sample: Any, fails: bool) -> list[Any]:
    """How the gradients look that a pass leaves."""
    args, kwargs = replace(((sample.input, *sample.args), dict(sample.kwargs)), own)
    inputs = [each for each in tensors_in(args, kwargs) if each.requires_grad]
    try:
        loss = loss_of(case.op.op(*args, **kwargs))
    except Exception:
        return []  # some samples lie in memory of a certain size, which the copies do not
    if loss is None:
        return []
    if fails:
        loss.register_hook(refuse)
    guard = Guard(frozenset())
    protect(loss, guard)
    try:
        run_private_pass(torch.Tensor.backward, (loss,), {}, guard, NoHoldings(), "bob", None)
    except PermissionDenied as error:
        return [str(error)]  # through a sparse tensor
    found, memories = [], dict[int, int]()
    for each in inputs:
        if each.grad is not None:
            left = full_guard_of(each.grad)
            assert left is not None and (left.error is not None or not fails)
        found.append(None if each.grad is None else _look(each.grad, memories))
    return found


@pytest.mark.parametrize("case", parameters("private-pass", CASES))
def test_gradients_look_the_same_whether_a_pass_failed(case: Case) -> None:
    for sample in case.samples("cpu", requires_grad=True, most=SAMPLES):
        assert gradients(case, sample, False) == gradients(case, sample, True)
