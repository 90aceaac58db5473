"""The import of syft and Python's cycle collector."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

from syft.collector_pause import CollectorPause

ROOT = Path(__file__).parent.parent

IMPORT = """
import gc, sys, torch
passes = []
gc.callbacks.append(lambda phase, info: passes.append(phase) if phase == "start" else None)
{before}
gc.collect(0)
passes.clear()
try:
    import syft
except ValueError as error:
    print(error)
print(len(passes), gc.isenabled())
"""


def imported(before: str = "") -> list[str]:
    """What a fresh process says that imports syft."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", IMPORT.format(before=before)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_no_pass_during_an_import_and_the_collector_is_on_again() -> None:
    passes, enabled = imported()
    assert int(passes) <= 1, "one may follow the pause"
    assert enabled == "True"


def test_a_collector_that_is_off_stays_off() -> None:
    assert imported("gc.disable()") == ["0", "False"]


FAILING = """
class Failing:
    def find_spec(self, name, path, target=None):
        if name == "syft.hooks.torch_hook":
            raise ValueError("refused")
sys.meta_path.insert(0, Failing())
"""


def test_an_import_that_fails_leaves_the_collector_on() -> None:
    text, _, enabled = imported(FAILING)
    assert (text, enabled) == ("refused", "True")


@pytest.mark.parametrize("on", [True, False])
def test_a_pause_ends_with_its_last_reference(on: bool) -> None:
    was_on = gc.isenabled()
    (gc.enable if on else gc.disable)()
    try:
        pause = CollectorPause()
        also = pause
        del pause
        assert not gc.isenabled()
        del also
        assert gc.isenabled() is on
    finally:
        (gc.enable if was_on else gc.disable)()
