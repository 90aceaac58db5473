"""Every float operator of PyTorch's own database, in fixed precision against float64.

One test runs all operators of a kind: what runs around each test takes longer than an operator.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch.testing._internal import common_utils
from torch.testing._internal.opinfo import core as opinfo_core

from syft.exceptions import SyftError
from syft.tensors.fixed.precision import forbid_decoding
from tests.tensors.fixed.fixed_cases import OPS, Outcome, compare, compare_gradients
from tests.tensors.fixed.fixed_tables import (
    DEFAULT_GRADIENT_STEPS,
    DEFAULT_STEPS,
    GRADIENT_STEPS,
    NOT_IN_EVERY_TORCH,
    RANDOM,
    STEPS,
    UNDEFINED,
    UNSUPPORTED,
    UNSUPPORTED_GRADIENTS,
    WITHOUT_DECODING,
)

REFUSED = [name for names in UNSUPPORTED.values() for name in names]
SUPPORTED = [name for name in OPS if name not in REFUSED]

# The samples of torch itself say these.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


@pytest.fixture(autouse=True)
def small_operators_run_alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Samples are seeded one by one; for each absent device torch would keep a stack of that.

    They are small, too: one thread takes half the time.  And torch searches the stack for a test of
    its own, for each list of samples twice, which takes 30 times as long as the samples.
    """
    for module in (common_utils, opinfo_core):
        monkeypatch.setattr(module, "extract_test_fn", lambda: None)
    for module in (torch.cuda, torch.xpu, torch.mtia):
        monkeypatch.setattr(module, "manual_seed_all", lambda seed: None)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def reference_dtype(name: str) -> torch.dtype:
    """What an operator is compared with."""
    return torch.float32 if name in RANDOM else torch.float64


def failure(name: str, outcome: Outcome, bound: float) -> str | None:
    """What is wrong with an outcome, or None."""
    if outcome.problems:
        return f"{name}: {outcome.problems[0]}"
    if name not in UNDEFINED and not outcome.steps <= bound:
        return f"{name}: off by {outcome.steps:.2f} steps, bound {bound}"
    return None


def test_results_are_within_their_bounds() -> None:
    failures, compared = [], 0
    for name in SUPPORTED:
        outcome = compare(name, reference_dtype(name))
        failures.append(failure(name, outcome, STEPS.get(name, DEFAULT_STEPS)))
        compared += outcome.compared > 0
    assert [text for text in failures if text] == []
    assert compared >= 600


def test_integer_rules_do_not_decode() -> None:
    failures, compared = [], 0
    for name in WITHOUT_DECODING:
        outcome = compare(name, reference_dtype(name), around=forbid_decoding, count=3)
        failures.append(failure(name, outcome, STEPS.get(name, DEFAULT_STEPS)))
        compared += outcome.compared > 0
    assert [text for text in failures if text] == []
    assert compared == len(WITHOUT_DECODING) >= 320


def test_gradients_are_within_their_bounds() -> None:
    failures, compared = [], 0
    for name in SUPPORTED:
        if OPS[name].supports_autograd and name not in [
            *RANDOM,
            *UNSUPPORTED_GRADIENTS,
            "to_sparse",
        ]:
            outcome = compare_gradients(name)
            bound = GRADIENT_STEPS.get(name, DEFAULT_GRADIENT_STEPS)
            failures.append(failure(name, outcome, bound))
            compared += outcome.compared > 0
    assert [text for text in failures if text] == []
    assert compared >= 480


def works(name: str, gradients: bool) -> bool:
    """Whether a listed operator has come to work within its bound."""
    try:
        outcome = compare_gradients(name) if gradients else compare(name, reference_dtype(name))
    except (SyftError, RuntimeError):
        return False
    steps = GRADIENT_STEPS if gradients else STEPS
    return outcome.compared > 0 and failure(name, outcome, steps.get(name, 2.0)) is None


def test_what_is_listed_as_unsupported_does_not_work() -> None:
    assert [name for name in REFUSED if works(name, gradients=False)] == []
    assert [name for name in UNSUPPORTED_GRADIENTS if works(name, gradients=True)] == []


def test_every_listed_name_is_an_operator() -> None:
    tables = (STEPS, GRADIENT_STEPS, RANDOM, UNDEFINED, REFUSED, UNSUPPORTED_GRADIENTS)
    listed = {name for table in tables for name in table} | {*WITHOUT_DECODING}
    assert listed - {*NOT_IN_EVERY_TORCH} <= set(OPS)
