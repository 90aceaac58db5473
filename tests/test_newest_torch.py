"""Which torch the build server tries beside the pinned one."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from tools import newest_torch

PINNED = "# a comment\ntorch==2.13.0\nnumpy==2.4.6\n"


def listing(*versions: str) -> str:
    """What pip prints."""
    text = f"Available versions: {', '.join(versions)}\n  INSTALLED: 2.13.0+cpu\n"
    return f"torch ({versions[0]})\n{text}"


@pytest.mark.parametrize(
    "versions, expected",
    [
        (["2.15.0", "2.14.1+cpu", "2.14.0+cpu", "2.13.0+cpu"], "2.14.1+cpu"),
        (["2.15.0", "2.14.1", "2.13.0+cpu", "2.13.0"], ""),
        (["2.9.1+cpu"], ""),
        (["2.100.0+cpu", "2.14.0+cpu"], "2.100.0+cpu"),
        (["2.14.0+cu130"], ""),
    ],
)
def test_the_newest_build_for_cpus(versions: list[str], expected: str) -> None:
    assert newest_torch.newest(listing(*versions), PINNED) == expected


def test_an_index_that_does_not_answer_offers_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(command: list[str], **settings: Any) -> subprocess.CompletedProcess[str]:
        assert command[1:] == ["-m", "pip", "index", "versions", "torch"]
        return subprocess.CompletedProcess(command, 1, "", "ERROR: No matching distribution found")

    monkeypatch.setattr(newest_torch.subprocess, "run", fails)
    assert newest_torch.main() == ""
