"""The measuring behind `make bench`, run against a clock that these tests turn by hand."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.interleaved import measure
from tests.outside import outside

ROOT = Path(__file__).parent.parent


class Clock:
    """A clock that stands still but for what the measured actions cost."""

    def __init__(self) -> None:
        self.now = 0.0
        self.log: list[str] = []

    def __call__(self) -> float:
        return self.now

    def action(self, name: str, cost: float) -> None:
        """Take so many seconds."""
        self.log.append(name)
        self.now += cost


def test_sides_take_turns_and_the_ratio_is_theirs() -> None:
    clock = Clock()
    pairs = measure(
        lambda: clock.action("A", 0.003), lambda: clock.action("B", 0.001), seconds=0.1, clock=clock
    )
    assert pairs.median == pytest.approx(3.0)
    assert pairs.best == pytest.approx(3.0)
    assert len(pairs.subject) == 25
    assert "".join(clock.log) == "AA" + "BB" + "AB" * 25


def test_short_actions_are_sampled_many_calls_at_a_time() -> None:
    clock = Clock()
    pairs = measure(
        lambda: clock.action("A", 0.0005), lambda: clock.action("B", 1e-5), seconds=0, clock=clock
    )
    assert pairs.median == pytest.approx(50.0)
    assert len(pairs.floor) == 15
    assert "".join(clock.log[-130:]) == "AA" + "B" * 128


def test_one_disturbed_pair_does_not_move_the_figure() -> None:
    clock = Clock()
    costs = iter([0.002] * 8 + [1.0] + [0.002] * 100)
    pairs = measure(
        lambda: clock.action("A", next(costs)),
        lambda: clock.action("B", 0.002),
        seconds=0,
        clock=clock,
    )
    assert max(pairs.ratios) == pytest.approx(500.0)
    assert pairs.median == pytest.approx(1.0)


def test_what_comes_before_a_sample_is_not_timed() -> None:
    clock = Clock()
    pairs = measure(
        lambda: clock.action("A", 0.002),
        lambda: clock.action("B", 0.001),
        before_subject=lambda: clock.action("a", 5.0),
        before_floor=lambda: clock.action("b", 7.0),
        seconds=0,
        clock=clock,
    )
    assert pairs.median == pytest.approx(2.0)
    assert "".join(clock.log).endswith("aAbB" * 15)


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_off_meanwhile_and_left_as_it_was(enabled: bool) -> None:
    clock = Clock()
    seen: list[bool] = []

    def subject() -> None:
        seen.append(gc.isenabled())
        clock.action("A", 0.002)

    was_on = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        measure(subject, lambda: clock.action("B", 0.002), seconds=0, clock=clock)
        assert gc.isenabled() is enabled
        assert set(seen) == {False}
    finally:
        (gc.enable if was_on else gc.disable)()


SAMPLE = """
import time

def bench_over(ratio):
    ratio("slow / fast", lambda: time.sleep(0.004), lambda: time.sleep(0.001),
          at_most=1.1, earlier="9", seconds=0)

def bench_amount(amount):
    amount("objects left", 0, at_most=0, earlier="5")
"""


def test_a_run_prints_and_writes_the_table_and_never_fails_on_a_figure(tmp_path: Path) -> None:
    (tmp_path / "bench_sample.py").write_text(SAMPLE)
    written = tmp_path / "figures.md"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "-p"]
        + ["benchmarks.conftest", "-p", "no:cacheprovider", f"--figures={written}", str(tmp_path)],
        cwd=ROOT,
        # Inside a process of pytest-xdist pytest-benchmark measures nothing.
        env=outside(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "over their bar: slow / fast" in done.stdout
    rows = [[cell.strip() for cell in row.split("|")] for row in written.read_text().splitlines()]
    assert rows[0][1:-1] == ["figure", "at most", "measured", "best", "PySyft 0.2.9", ""]
    assert [rows[2][at] for at in (1, 2, 5, 6)] == ["slow / fast", "1.1", "9", "OVER"]
    assert rows[3][1:-1] == ["objects left", "0", "0", "", "5", "ok"]
    assert written.read_text().strip() in done.stdout
