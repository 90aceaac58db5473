"""No call of torch's databases, as a worker makes it, shows what memory held before."""

from __future__ import annotations

import pytest
import torch

from syft.ops import table
from syft.ops.table import BY_NAME
from syft.workers.handlers.programs import FUNCTIONS
from tests.privacy.two_worlds.samples import Sample, Samples
from tests.torch_suite.two_contents import differing, is_filled

pytestmark = [
    pytest.mark.skipif(not is_filled(), reason="only glibc fills memory on request"),
    pytest.mark.filterwarnings("ignore"),  # torch's samples use much that is deprecated
]

DTYPES = torch.float32, torch.float64, torch.complex64, torch.int64, torch.bool, torch.bfloat16
GROUPS = 8
MOST = 8
"""Calls of each operation, with operands that require a gradient and with others."""


@pytest.fixture(scope="module")
def samples() -> Samples:
    """One set of samples for all tests of this file."""
    return Samples()


def calls_of(samples: Samples, names: list[str], dtype: torch.dtype) -> list[tuple[str, Sample]]:
    """The calls of some operations."""
    return [
        (name, sample)
        for name in names
        for grad in (False, True)
        for sample in samples.of(name, dtype, grad)[:MOST]
    ]


@pytest.mark.database(together="two contents of memory")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("group", range(GROUPS))
def test_no_call_shows_what_was_there(samples: Samples, group: int, dtype: torch.dtype) -> None:
    assert differing(calls_of(samples, samples.names[group::GROUPS], dtype), FUNCTIONS) == []


@pytest.mark.parametrize(
    "name",
    [
        "torch.nn.functional.mse_loss",
        "torch.nn.functional.smooth_l1_loss",
        "torch.empty_like",
        "torch.Tensor.new_empty_strided",
    ],
)
def test_a_call_without_its_wrapper_shows_it(samples: Samples, name: str) -> None:
    calls = calls_of(samples, [name], torch.float32)
    bare = list(FUNCTIONS)
    bare[BY_NAME[name]] = table.FUNCTIONS[BY_NAME[name]]
    assert differing(calls, FUNCTIONS) == []
    assert differing(calls, bare) == [f"{name} forward"]
