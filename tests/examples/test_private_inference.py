"""Private inference, run as a user runs it, on few images; and that broken claims are named."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import torch

import syft as sy
from examples import private_inference as demo
from tests.outside import outside

ROOT = Path(__file__).parent.parent.parent


def test_three_processes_read_as_the_plain_model_does() -> None:
    command = [sys.executable, "examples/private_inference.py", "--images", "24", "--batch", "12"]
    done = subprocess.run(
        command, cwd=ROOT, env=outside(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == "", "no warning, no broken claim"
    lines = {line[:38].strip(): line[38:].strip() for line in done.stdout.splitlines()[1:]}
    plain, shared = (lines[f"digits read rightly, {way}"] for way in ("plain", "shared"))
    assert plain == shared and float(plain.rstrip("%")) > 85
    assert lines["rounds a batch"] == "20"
    # Two convolutions and a layer: what meets weights is masked, 8 bytes a number; of each sum the
    # sign is found and 16 bits are dropped.  Pooling is three comparisons for each four numbers.
    masked, sums, compared, scores = 64 + 36 * 16 + 128, 36 * 16 + 16 * 32, 3 * 128, 10
    sent = 8 * masked + 12.25 * (sums + compared) + 8 * scores
    assert abs(int(lines["bytes a party sends an image"].replace(",", "")) - sent) < 8


def test_claims_that_do_not_hold_are_named() -> None:
    right = torch.eye(10)
    cost = sy.Cost(0, 0, 0, 0, 0)
    good = demo.Outcome(right, right, torch.arange(10), 1.0, cost, 10)
    assert good.problems() == []
    bad = demo.Outcome(right.roll(1, 0), right, torch.arange(10), 1.0, cost, 10)
    assert [problem.split(" (")[0] for problem in bad.problems()] == [
        "the accuracies are within 0.2 points",
        "no score is off by more than 0.01",
    ]
