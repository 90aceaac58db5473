"""For every test and doctest of the tree: torch is left as it was found.

The stricter fixture, which also looks for objects and threads, is in ``tests/conftest.py``; the
seed of a run is settled in ``tests/sampling.py``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import hypothesis
import pytest
import torch

import syft as sy

pytest_plugins = ["tests.sampling", "tests.doctest_names"]

# The first optimizer of a process makes torch import its compiler, which keeps the frames of that
# moment, and every tensor in them, alive.  Here that does no harm.
torch.optim.SGD([torch.zeros(1)]).zero_grad()

# pytest gives a handler to each logger that keeps its records to itself, and takes it away, six
# times a test.  torch has fifty such loggers, and that was a third of what a small test costs.
for _name, _logger in list(logging.root.manager.loggerDict.items()):
    if _name.startswith("torch") and isinstance(_logger, logging.Logger):
        _logger.propagate = True

# With what hypothesis prints, an example that failed is run again on any machine.  No example has a
# deadline: on a busy machine any test may take long.
hypothesis.settings.register_profile(
    "syft", hypothesis.settings.default, print_blob=True, deadline=None
)
hypothesis.settings.load_profile("syft")


@pytest.fixture(autouse=True)
def hook_closed() -> Iterator[None]:
    """Close the hook that an example left open, and start each test with the same random numbers.

    Otherwise what a test draws would depend on the tests before it in the same process.
    """
    torch.default_generator.manual_seed(0)
    yield
    if sy.TorchHook._current is not None:
        sy.TorchHook._current.close()
