"""The line that shows how far a fit is."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from syft.federated.fitting import FitProgress, TrainingBar
from tests.terminal import Terminal


def run(times: list[float]) -> None:
    """Take a step at each time; the first is the beginning."""
    clock = iter(times)
    show = TrainingBar(lambda: next(clock))
    progress = FitProgress("bob", batches=len(times) - 1, epochs=2)
    for batch in range(1, len(times)):
        loss = torch.tensor(0.25) if batch > 2 else None
        show(replace(progress, batch=batch, epoch=1 + (batch > 2), loss=loss))


def test_what_takes_long_is_shown_ten_times_a_second(terminal: Terminal) -> None:
    run([10.0, 11.5, 11.55, 12.0, 14.0])
    assert terminal.texts() == [
        "bob: epoch 1 of 2 [######..................] 25 %, 4 s left",
        "bob: epoch 2 of 2 [##################......] 75 %, loss 0.25, 1 s left",
        "bob: epoch 2 of 2 [########################] 100 %, loss 0.25",
    ]
    assert terminal.getvalue().endswith("\n")


def test_what_is_short_shows_nothing(terminal: Terminal) -> None:
    run([0.0, 0.1, 0.2, 0.9])
    assert terminal.getvalue() == ""


def test_nobody_is_shown_what_nobody_wants(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SYFT_PROGRESS", "0")
    run([0.0, 5.0, 10.0])
    assert terminal.getvalue() == ""
