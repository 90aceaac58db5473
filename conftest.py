"""For every test and doctest of the tree: torch is left as it was found.

The stricter fixture, which also looks for objects and threads, is in ``tests/conftest.py``.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import syft as sy

pytest_plugins = ["tests.doctest_names"]

# The first optimizer of a process makes torch import its compiler, which keeps the frames of that
# moment, and every tensor in them, alive.  Here that does no harm.
torch.optim.SGD([torch.zeros(1)]).zero_grad()


@pytest.fixture(autouse=True)
def hook_closed() -> Iterator[None]:
    """Close the hook that an example left open."""
    yield
    if sy.TorchHook._current is not None:
        sy.TorchHook._current.close()
