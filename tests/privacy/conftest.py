"""Where the workers of an attack through the public interface are."""

from __future__ import annotations

from typing import Any

import pytest

from tests.privacy.fresh_world import PLACES


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The settings of a :class:`~tests.privacy.fresh_world.World` for each of ``PLACES``."""
    if request.param == "socket":
        return {"served": request.getfixturevalue("servers")}
    return {"queued": request.param == "queued"}
