"""Freed memory, as the kernel counts what is asked of it."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource, sys, torch
from syft.federated.kept_pages import keep_pages

if sys.argv[1] == "keep":
    keep_pages()

def step():
    several = [torch.ones(5 << 18) for _ in range(5)]

step()
step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(4):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> int:
    """Pages that four steps with 25 MB each ask for, in a process of their own."""
    environment = {"OMP_NUM_THREADS": "1", "PYTHONPATH": ":".join(filter(None, sys.path))}
    made = subprocess.run(
        [sys.executable, "-c", FAULTS, how],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return int(made.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is glibc that learns")
def test_pages_of_a_step_serve_the_next() -> None:
    given_back, kept = faults("give back"), faults("keep")
    assert kept * 4 < given_back
