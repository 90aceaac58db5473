"""Random programs in two worlds: the same bytes reach the observer, whatever the secret is.

``python -m tests.privacy.two_worlds`` runs more of them, and says which operations they tried.
"""

from __future__ import annotations

import pytest

from tests.privacy.two_worlds.attacks import Learned
from tests.privacy.two_worlds.report import Report
from tests.privacy.two_worlds.runner import run_apart, run_program
from tests.privacy.two_worlds.samples import Samples
from tests.privacy.two_worlds.unreachable_rows import why_never

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's samples use much that is deprecated

COMMANDS = 2000
"""Those of a test run, others each time: the seed is that of the run, which prints it."""
MANY, PARTS = 200_000, 8
"""Those of ``make test-all``, which draws no sample, and the parts in which they run."""


def check(report: Report) -> None:
    """Raise if the worlds differ; assert that the commands were of the kinds that matter."""
    if report.differences:
        raise Learned(str(report))
    assert not report.ended
    assert report.private > report.commands / 2
    assert report.succeeded > report.commands / 2, "at least half of the commands succeed"
    assert report.sealed > report.private / 20, "at least a twentieth end sealed"


def test_a_stranger_sees_the_same_in_both_worlds(request: pytest.FixtureRequest) -> None:
    samples, total, number = Samples(), Report(), 0
    while total.commands < COMMANDS and not total.differences:
        total.add(run_program(samples, f"{request.config.option.seed}/{number}"))
        number += 1
    check(total)


@pytest.mark.parametrize("part", range(PARTS))
def test_a_stranger_sees_the_same_in_many_commands(
    part: int, request: pytest.FixtureRequest
) -> None:
    if request.config.option.sample < 1:
        pytest.skip("the many are for `make test-all`")
    seed = request.config.option.seed + part
    check(run_apart(Samples(), seed, MANY // PARTS))


def test_every_operation_is_tried_in_every_place(request: pytest.FixtureRequest) -> None:
    """The table of coverage, printed: each operation, with a private operand in each place, once in
    success and once in failure.  A row is missing if and only if there is a reason."""
    if request.config.option.sample < 1:
        pytest.skip("the whole table is for `make test-all`")
    samples = Samples()
    report = run_apart(samples, request.config.option.seed, 0, whole_table=True)
    print(report.table(samples.expected()))
    if report.differences:
        raise Learned(str(report))
    missing = [row for row in report.missing(samples.expected()) if why_never(row) is None]
    assert not missing and not report.ended
    assert [row for row in report.reached(samples.expected()) if why_never(row)] == []
