"""No operation that a worker runs ends its process, whatever it is given."""

from __future__ import annotations

import pytest

from syft.ops.table import FUNCTIONS, NAMES
from tests.torch_suite.hostile_calls import GuardedMemory, deaths

CALLS = 4
"""Calls of each operation in a run; the seed of the run draws them."""
_GROUPS = 8
_NAMES = [name for number, name in enumerate(NAMES) if FUNCTIONS[number] is not None]


@pytest.mark.database
@pytest.mark.parametrize("group", range(_GROUPS))
def test_no_call_ends_the_process(group: int, pytestconfig: pytest.Config) -> None:
    seed = pytestconfig.getoption("seed") or 0
    found = deaths(_NAMES[group::_GROUPS], seed, CALLS)
    # What takes too long would be refused by the limits of a peer: see test_peer_limits.py.
    assert [str(death) for death in found if death.signal != "SIGALRM"] == []


def test_a_call_that_ends_the_process_is_found() -> None:
    """Those of torch itself, in the place of what a worker runs, still end it."""
    found, *_ = deaths(["torch.linalg.eigvals"], 11, 40, bare=True)
    assert found.signal == "SIGSEGV" and "torch.linalg.eigvals(" in str(found)


def test_a_call_that_leaves_a_tensor_larger_than_its_memory_is_found() -> None:
    found, *_ = deaths(["torch.Tensor.resize_"], 5, 30, bare=True)
    assert found.signal == "SIGABRT" and "torch.Tensor.resize_(" in str(found)


def test_guarded_memory_holds_the_values() -> None:
    import torch

    memory = GuardedMemory(2)
    x = torch.arange(6.0).reshape(2, 3)
    assert torch.equal(memory.hold(x), x) and memory.hold(torch.ones(10**6)).numel() == 10**6
