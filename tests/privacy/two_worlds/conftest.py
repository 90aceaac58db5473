"""What several of the tests with two worlds use."""

from __future__ import annotations

import pytest

from tests.privacy.two_worlds.samples import Samples


@pytest.fixture(scope="module")
def samples() -> Samples:
    """One set of samples for all tests of a file."""
    return Samples()
