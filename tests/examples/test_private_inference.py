"""Private inference, run as a user runs it, on few images; and that broken claims are named."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import syft as sy
from examples import private_inference as demo

ROOT = Path(__file__).parent.parent.parent


def test_three_processes_read_as_the_plain_model_does() -> None:
    command = [sys.executable, "examples/private_inference.py", "--images", "24", "--batch", "12"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == "", "no warning, no broken claim"
    lines = {line[:38].strip(): line[38:].strip() for line in done.stdout.splitlines()[1:]}
    plain, shared = (lines[f"digits read rightly, {way}"] for way in ("plain", "shared"))
    assert plain == shared and float(plain.rstrip("%")) > 85
    assert lines["rounds a batch"] == "20"


def test_the_traffic_is_that_of_the_openings(hook: sy.TorchHook) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 32), torch.nn.ReLU())
    few, many = (demo.traffic_of(model, torch.rand(count, 1, 8, 8)) for count in (64, 128))
    assert few.rounds == many.rounds == 1 + 4
    # 64 pixels are masked, and 32 sums get their sign and lose 16 bits.
    assert many.sent - few.sent == pytest.approx(64 * (64 * 8 + 32 * 12.25), abs=64)
    assert many.dealt - few.dealt == pytest.approx(64 * 32 * (8 + 82.125), abs=64)


def test_claims_that_do_not_hold_are_named() -> None:
    right = torch.eye(10)
    traffic = demo.Traffic(0, 0, 0, 10)
    good = demo.Outcome(right, right, torch.arange(10), 1.0, traffic)
    assert good.problems() == []
    bad = demo.Outcome(right.roll(1, 0), right, torch.arange(10), 1.0, traffic)
    assert [problem.split(" (")[0] for problem in bad.problems()] == [
        "the accuracies are within 0.2 points",
        "no score is off by more than 0.01",
    ]
