"""Memory as a floor and as a figure: what a copy costs, and how much a process holds."""

from __future__ import annotations

from pathlib import Path

import torch

from benchmarks.interleaved import Action

FORTY_MEGABYTES = 10_000_000
"""In float32 numbers."""


def memcpy(source: torch.Tensor) -> Action:
    """Copy the tensor's bytes, on one thread, into memory that the process has touched before.

    Nothing is faster.  Whoever makes a tensor of the result pays for fresh memory as well.
    """
    target = torch.empty_like(source).copy_(source)
    to, of = memoryview(target.numpy()), memoryview(source.numpy())  # type: ignore[arg-type]

    def copy() -> None:
        to[:] = of

    return copy


def resident(process: int | str = "self") -> int:
    """Count the bytes of a process, by default this one, that are in memory (Linux)."""
    fields = Path(f"/proc/{process}/smaps_rollup").read_text().split()
    return int(fields[fields.index("Rss:") + 1]) * 1024
