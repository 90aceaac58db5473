"""The environment of programs that a test starts and that are no part of this run.

A process that a test starts is measured too, which costs it a third of its time.  Where a program
runs no line of ``syft/`` that the tests of this process do not run, that time is saved; and a
pytest inside a test must not take itself for a process of this run.
"""

from __future__ import annotations

import os
import re

_OF_THIS_RUN = re.compile("XDIST|COV")


def outside(**more: str) -> dict[str, str]:
    """Copy this environment without what pytest-xdist and coverage put there.

    >>> "COVERAGE_PROCESS_CONFIG" in outside(), outside(PATH="/bin")["PATH"]
    (False, '/bin')
    """
    kept = {name: text for name, text in os.environ.items() if not _OF_THIS_RUN.search(name)}
    return {**kept, **more}
