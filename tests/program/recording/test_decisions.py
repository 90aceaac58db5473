"""Decisions by values are warned of at the line that makes them; optimizers may make none."""

from __future__ import annotations

import warnings

import pytest

from syft.exceptions import CannotRecord, FrozenPath
from syft.program.recording.decisions import DecisionLog, warn_frozen


def test_a_warning_stands_at_the_line_it_names() -> None:
    with pytest.warns(FrozenPath, match="train.py:12: a branch decides") as caught:
        warn_frozen("train.py:12", "a branch")
    assert (caught[0].filename, caught[0].lineno) == ("train.py", 12)


def test_a_line_is_warned_of_once_and_never_in_a_rerun() -> None:
    log = DecisionLog()
    with pytest.warns(FrozenPath) as caught:
        for _ in range(2):
            log.add("a branch")
    assert len(caught) == len(log.warned_lines) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DecisionLog(rerun=True).add("a branch")


def test_an_optimizer_may_not_decide() -> None:
    log = DecisionLog()
    log.optimizers.append("torch.optim.LBFGS")
    with pytest.raises(CannotRecord, match="torch.optim.LBFGS"):
        log.add("a branch")
