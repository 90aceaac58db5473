"""For tests that drive a bare core with frames."""

from __future__ import annotations

import pytest
import torch

from syft.workers.core.state_machine import WorkerCore
from tests.workers.core.peers import lonely, put


@pytest.fixture
def core() -> WorkerCore:
    """A core that holds one tensor, under 5."""
    core = lonely()
    put(core, 5, torch.tensor([1.0, 2.0]))
    return core
