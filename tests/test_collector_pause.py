"""The import of syft and Python's cycle collector."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import pytest

from syft.collector_pause import CollectorPause
from tests.outside import outside

ROOT = Path(__file__).parent.parent

IMPORTS = """
import gc, os, sys, torch

class Failing:
    def find_spec(self, name, path, target=None):
        if name == "syft.hooks.torch_hook":
            raise ValueError("refused")

cases = {
    "plain": lambda: None,
    "off": gc.disable,
    "frozen": gc.freeze,
    "failing": lambda: sys.meta_path.insert(0, Failing()),
}
for name, prepare in cases.items():
    if os.fork():
        os.wait()
        continue
    passes = []
    gc.callbacks.append(lambda phase, info: passes.append(phase) if phase == "start" else None)
    prepare()
    gc.collect(0)
    passes.clear()
    said = "imported"
    try:
        import syft
    except ValueError as error:
        said = str(error)
    print(name, said, len(passes), gc.isenabled(), gc.get_freeze_count() > 0, flush=True)
    os._exit(0)
"""


@pytest.fixture(scope="module")
def imports() -> dict[str, list[str]]:
    """What processes say that import syft, forked from one that has torch and not syft."""
    command = [sys.executable, "-c", IMPORTS]
    environment = outside(PYTHONPATH=str(ROOT))
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return {name: rest for name, *rest in map(str.split, done.stdout.splitlines())}


def test_no_pass_during_an_import_and_the_collector_is_on_again(
    imports: dict[str, list[str]],
) -> None:
    """Nor right after it: what was made meanwhile counts as old, and nothing stays frozen."""
    assert imports["plain"] == ["imported", "0", "True", "False"]


def test_what_the_program_froze_stays_frozen(imports: dict[str, list[str]]) -> None:
    said, _, enabled, frozen = imports["frozen"]
    assert (said, enabled, frozen) == ("imported", "True", "True")


def test_a_collector_that_is_off_stays_off(imports: dict[str, list[str]]) -> None:
    assert imports["off"] == ["imported", "0", "False", "False"]


def test_an_import_that_fails_leaves_the_collector_on(imports: dict[str, list[str]]) -> None:
    said, _, enabled, _ = imports["failing"]
    assert (said, enabled) == ("refused", "True")


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
