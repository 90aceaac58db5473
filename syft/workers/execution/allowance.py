"""What one operation may use, checked before it runs.

``x.expand(2**50).sum()`` takes a few bytes to ask for and years to run, and
``zeros(10**7).split(1)`` makes ten million tensors.  So what a caller may ask for is bounded: the
elements that an operation reads and makes (repeated ones of an expanded tensor included), the
memory that it allocates, and the number of its results.

Where a bound from the sizes of the operands is small
(:mod:`~syft.workers.execution.size_bounds`), nothing else is looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from syft.workers.execution.extents import extent_of
from syft.workers.execution.size_rules import COUNTED

FREE: Final = 1 << 24
"""Elements that are not looked at."""

Function = Callable[..., Any]
Refusal = Callable[[str, int], Exception]


@dataclass(frozen=True, slots=True)
class Allowance:
    """What an operation may use; ``exceeded`` makes the error, from the limit's name and the
    figure.

    >>> from syft.ops.table import BY_NAME
    >>> allowance = Allowance(100, 1000, 10, lambda limit, got: ValueError(f"{limit}: {got}"))
    >>> allowance.check(BY_NAME["torch.zeros"], torch.zeros, [(2, 3)], {})
    >>> allowance.check(BY_NAME["torch.zeros"], torch.zeros, [10**12], {})
    Traceback (most recent call last):
    ...
    ValueError: elements: 1000000000000
    """

    elements: int
    bytes: int
    results: int
    exceeded: Refusal

    def check(self, op: int, function: Function, args: Any, kwargs: dict[str, Any]) -> None:
        """Raise if an operation would use more."""
        count = COUNTED.get(op)
        if count is not None:
            self._compare("results", count(args, kwargs))
        extent = extent_of(op, function, args, kwargs)
        self._compare("elements", extent.elements)
        self._compare("bytes", extent.bytes)
        self._compare("results", extent.results)

    def _compare(self, limit: str, got: int) -> None:
        if got > getattr(self, limit):
            raise self.exceeded(limit, got)
