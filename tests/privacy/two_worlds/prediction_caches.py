"""Predictions of one world that the other one does not see.

Workers keep predictions by process.  If both worlds used the same ones, a prediction that depended
on a secret would be made in the first world and found in the second one, and the difference would
not show.  So each world has its own, kept from one program to the next.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Any, cast

from syft.ops import evaluate
from syft.workers.execution import private_results

_FAST = cast(Any, private_results)
_ALL = cast(Any, evaluate)
_LIMITED = _ALL, _FAST
MOST_KEPT = 40_000
"""The predictions that a world keeps: more than a worker, since it goes through the whole table."""


class PredictionCaches:
    """What workers have kept: predictions, and what the fast way knows of commands."""

    def __init__(self) -> None:
        self.predictions: OrderedDict[Hashable, Any] = OrderedDict()
        self.made: dict[Hashable, Any] = {}
        self.most = MOST_KEPT

    @classmethod
    def present(cls) -> PredictionCaches:
        """Those that workers use now."""
        found = cls()
        found.predictions, found.made = _ALL._KEPT, _FAST._KEPT
        found.most = _FAST._MOST_KEPT
        return found

    def use(self) -> None:
        """Have workers use these."""
        _ALL._KEPT, _FAST._KEPT = self.predictions, self.made
        for module in _LIMITED:
            module._MOST_KEPT = self.most


OF_WORLDS = PredictionCaches(), PredictionCaches()
"""Those of the first and of the second world of every program of this process."""
