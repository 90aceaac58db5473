"""The example of a training plan, run as a user runs it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.outside import outside

ROOT = Path(__file__).parent.parent.parent


def test_both_ways_agree_and_one_is_cheaper() -> None:
    command = [sys.executable, "-W", "error", "examples/train_with_a_plan.py"]
    done = subprocess.run(
        command, cwd=ROOT, env=outside(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert "the same parameters, bit by bit: yes" in done.stdout
    trace, *ways = done.stdout.split("\n\n")[:3]

    (step,) = [line for line in trace.splitlines() if "Run" in line]
    assert int(step.split()[3]) <= 120, "bytes of a training step"
    assert trace.splitlines()[-1].startswith("2 messages")

    found = [re.search(r"([\d,]+) messages, ([\d,]+) bytes", way) for way in ways]
    messages, sizes = zip(*[[int(n.replace(",", "")) for n in match.groups()] for match in found])
    assert messages[0] < messages[1] / 9 and sizes[0] < sizes[1]
    for way in ways:
        accuracies = [float(number) for number in re.findall(r"([\d.]+)%", way)]
        assert len(accuracies) == 8 and accuracies[-1] > 93
