"""Random programs in two worlds: the same bytes reach the observer, whatever the secret is.

``python -m tests.privacy.two_worlds`` runs more of them, and says which operations they tried.
"""

from __future__ import annotations

import pytest

from tests.privacy.two_worlds.attacks import Learned, leaks
from tests.privacy.two_worlds.report import Report
from tests.privacy.two_worlds.runner import run_program
from tests.privacy.two_worlds.samples import Samples

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's samples use much that is deprecated

COMMANDS = 2000
"""Those of a test run, others each time: the seed is that of the run."""


@leaks(5)
def test_a_stranger_sees_the_same_in_both_worlds(request: pytest.FixtureRequest) -> None:
    samples, total, number = Samples(), Report(), 0
    while total.commands < COMMANDS:
        total.add(run_program(samples, f"{request.config.option.seed}/{number}"))
        number += 1
        if total.differences:
            raise Learned(str(total))
    assert total.private > total.commands / 2
    assert total.succeeded > total.commands / 2, "at least half of the commands succeed"
