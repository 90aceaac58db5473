"""Compare a subject with a floor on a machine that is not quiet.

A time taken alone says little: the machine's clock, caches and neighbours move it by tens of
percent from one second to the next.  Two times taken right after each other share the same second.
So subject and floor run in turns (A B A B ...), each pair gives one ratio, and the median of the
ratios is the figure; a pair that something disturbed falls to the edge and is not counted.
Refused: timing one after the other and dividing the means, which measures the machine's mood, and
taking the lowest ratio, which a disturbed floor makes too good.

>>> ticks = iter(range(1000))
>>> clock = lambda: next(ticks) * 0.001
>>> measure(lambda: None, lambda: None, seconds=0.05, clock=clock).median
1.0
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import repeat

Action = Callable[[], object]
Clock = Callable[[], float]

_SHORTEST_SAMPLE = 0.001  # seconds; below, the clock's own cost would show
_FEWEST_PAIRS = 15


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two things compared: an action, and what readies the ground for it, untimed."""

    action: Action
    before: Action | None = None

    def sample(self, calls: int, clock: Clock) -> float:
        """Time so many calls in a row, in seconds."""
        if self.before is not None:
            self.before()
        action = self.action
        start = clock()
        for _ in repeat(None, calls):
            action()
        return clock() - start

    def calls(self, clock: Clock) -> int:
        """Find how many calls make a sample that is long enough; this warms the action up, too."""
        calls = 1
        self.sample(calls, clock)
        while self.sample(calls, clock) < _SHORTEST_SAMPLE:
            calls *= 2
        return calls


@dataclass(frozen=True, slots=True)
class Pairs:
    """What was measured: seconds per call of subject and floor, pair by pair.

    >>> pairs = Pairs((2.0, 4.0, 2.1), (1.0, 1.0, 1.0))
    >>> pairs.median, pairs.best
    (2.1, 2.0)
    """

    subject: tuple[float, ...]
    floor: tuple[float, ...]

    @property
    def ratios(self) -> list[float]:
        """The ratio of each pair."""
        return [subject / floor for subject, floor in zip(self.subject, self.floor, strict=True)]

    @property
    def median(self) -> float:
        """The figure: the median of the pairs' ratios."""
        return statistics.median(self.ratios)

    @property
    def best(self) -> float:
        """The fastest subject over the fastest floor: what an undisturbed machine would show."""
        return min(self.subject) / min(self.floor)


@contextmanager
def _collector_off() -> Iterator[None]:
    """Keep the cycle collector from running in the middle of a sample."""
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def measure(
    subject: Action,
    floor: Action,
    *,
    before_subject: Action | None = None,
    before_floor: Action | None = None,
    seconds: float = 2.0,
    clock: Clock = time.perf_counter,
) -> Pairs:
    """Run subject and floor in turns for about so many seconds, 15 pairs at least.

    ``before_subject`` and ``before_floor`` run untimed before each sample: to put a hook in and
    take it out again, say.  The cycle collector is off meanwhile.
    """
    above, below = Side(subject, before_subject), Side(floor, before_floor)
    with _collector_off():
        above_calls, below_calls = above.calls(clock), below.calls(clock)
        subjects: list[float] = []
        floors: list[float] = []
        end = clock() + seconds
        while len(subjects) < _FEWEST_PAIRS or clock() < end:
            subjects.append(above.sample(above_calls, clock) / above_calls)
            floors.append(below.sample(below_calls, clock) / below_calls)
    return Pairs(tuple(subjects), tuple(floors))
