"""Where the workers of an attack through the public interface are."""

from __future__ import annotations

from typing import Any

import pytest

from tests.privacy.fresh_world import PLACES
from tests.sampling import rank

ONE_IN = 4
"""Of how many attacks over sockets that a sample draws one runs: each world takes a third of a
second, of several processes."""


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The settings of a :class:`~tests.privacy.fresh_world.World` for each of ``PLACES``."""
    if request.param == "socket":
        option = request.config.option
        if option.sample < 1 and rank(option.seed, f"attack {request.node.nodeid}")[0] % ONE_IN:
            pytest.skip("one in four of those that are drawn")
        return {"served": request.getfixturevalue("servers")}
    return {"queued": request.param == "queued"}
