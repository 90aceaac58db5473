"""A process that serves keeps memory which it has freed: counted in pages, not in seconds."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

from syft.node import freed_memory
from syft.node.freed_memory import keep_freed_memory

FAULTS = """
import resource
import torch
from syft.node.freed_memory import keep_freed_memory

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def count():
    for _ in range(20):
        counted.append(faults())
        tensors = [torch.ones(2_000_000) for _ in range(10)]
        del tensors

torch.set_num_threads(1)
keep_freed_memory({nbytes})
counted = []
count()
print(faults() - counted[10])
"""
"""Has 80 MB twenty times, and counts the pages that the last ten have brought."""


def _faults(nbytes: int) -> int:
    program = [sys.executable, "-c", FAULTS.format(nbytes=nbytes)]
    return int(subprocess.run(program, capture_output=True, check=True, text=True).stdout)


def _has_mallopt() -> bool:
    return hasattr(ctypes.CDLL(None), "mallopt")


@pytest.mark.skipif(not _has_mallopt(), reason="the C library is not glibc")
def test_what_was_freed_is_used_again() -> None:
    assert _faults(256 << 20) < 1000  # nearly always 195,000 if nothing is set


def test_a_c_library_without_the_setting_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(freed_memory.ctypes, "CDLL", lambda name: object())
    assert not keep_freed_memory()


@pytest.mark.skipif(not _has_mallopt(), reason="the C library is not glibc")
@pytest.mark.parametrize("nbytes", [0, 1 << 20, 1 << 40])
def test_what_is_asked_of_it(monkeypatch: pytest.MonkeyPatch, nbytes: int) -> None:
    asked = []

    class Library:
        @staticmethod
        def mallopt(setting: int, value: int) -> int:
            asked.append((setting, value))
            return 1

    monkeypatch.setattr(freed_memory.ctypes, "CDLL", lambda name: Library)
    assert keep_freed_memory(nbytes)
    assert asked == (
        [(-3, 32 << 20), (-1, min(nbytes, 2**31 - 1)), (-2, 64 << 20)] if nbytes else []
    )
