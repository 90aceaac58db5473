"""The calls that the fixtures ``ratio`` and ``amount`` hand to a benchmark."""

from __future__ import annotations

from collections.abc import Callable

from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.figures import Figure
from benchmarks.interleaved import Action, Pairs, measure

_ROUNDS = 5


class Ratio:
    """Measures one subject against one floor and notes the figure; the fixture ``ratio``."""

    def __init__(self, benchmark: BenchmarkFixture, figures: list[Figure]) -> None:
        self._benchmark = benchmark
        self._figures = figures

    def __call__(
        self,
        name: str,
        subject: Action,
        floor: Action,
        *,
        at_most: float,
        earlier: str,
        before_subject: Action | None = None,
        before_floor: Action | None = None,
        seconds: float = 2.0,
    ) -> Pairs:
        """Run both in turns, note the median of the pairs' ratios, and hand the pairs back."""
        pairs = measure(
            subject,
            floor,
            before_subject=before_subject,
            before_floor=before_floor,
            seconds=seconds,
        )
        self._figures.append(Figure(name, pairs.median, at_most, earlier, best=pairs.best))
        self._benchmark.extra_info.update(
            figure=name,
            ratio=pairs.median,
            best=pairs.best,
            at_most=at_most,
            pairs=len(pairs.floor),
        )
        # The subject's own time, for the table and the JSON file of pytest-benchmark.
        if before_subject is not None:
            before_subject()
        calls = max(1, round(0.001 / min(pairs.subject)))
        pedantic: Callable[..., object] = self._benchmark.pedantic
        pedantic(subject, rounds=_ROUNDS, iterations=calls, warmup_rounds=1)
        return pairs


class Amount:
    """Notes a figure that is no ratio: bytes left, objects left; the fixture ``amount``."""

    def __init__(self, figures: list[Figure]) -> None:
        self._figures = figures

    def __call__(
        self, name: str, measured: float, *, at_most: float, earlier: str, unit: str = ""
    ) -> None:
        """Note the figure."""
        self._figures.append(Figure(name, measured, at_most, earlier, unit))
