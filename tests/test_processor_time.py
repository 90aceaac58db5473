"""The processor time of a run: that of the processes that it started and waited for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools import processor_time


def test_what_ended_processes_took_is_counted(tmp_path: Path) -> None:
    file, pid = str(tmp_path / "began"), str(os.getpid())
    assert processor_time.main(["begin", file, pid]) == ""
    noted = float(Path(file).read_text())
    subprocess.run([sys.executable, "-c", "sum(range(10**7))"], check=True)
    told = processor_time.taken(os.getpid())
    if told is not None:
        assert told > noted
    assert processor_time.main(["since", file, pid]).startswith("all checks passed")


def test_minutes_and_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor_time, "taken", lambda pid: 561.6)
    (tmp_path / "began").write_text("80.5\n")
    told = processor_time.main(["since", str(tmp_path / "began"), "1"])
    assert told == "all checks passed in 8 min 01 s of processor time (user + sys)"


def test_a_system_that_does_not_say(tmp_path: Path) -> None:
    file, nobody = str(tmp_path / "began"), str(2**40)
    assert processor_time.main(["begin", file, nobody]) == ""
    assert processor_time.main(["since", file, nobody]) == "all checks passed"
