"""Freed memory, as the kernel counts what is asked of it."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource, torch
from syft.federated.stacked_memory import keep_pages

keep_pages()

def step():
    several = [torch.ones(5 << 18) for _ in range(5)]

for _ in range(4):  # by when every hole that an import has left is filled
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(4):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults() -> int:
    """Pages that four steps with 25 MB each ask for, in a process of their own."""
    environment = {"OMP_NUM_THREADS": "1", "PYTHONPATH": ":".join(filter(None, sys.path))}
    made = subprocess.run(
        [sys.executable, "-c", FAULTS],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return int(made.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is glibc that learns")
def test_pages_of_a_step_serve_the_next() -> None:
    assert faults() < 1000  # 25,000 where each step brings fresh ones, as it nearly always does
