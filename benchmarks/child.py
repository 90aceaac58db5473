"""A process that a benchmark starts: it says in one line how it is reached, and ends with us."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).parent.parent


class Child:
    """A module of this folder, run as a program.

    Torch has one thread there, so that a figure does not depend on how many cores are left.
    """

    def __init__(self, module: str, *arguments: str) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(_ROOT)}
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )
        assert self.process.stdout is not None
        self.said = self.process.stdout.readline().split()
        """The words of its first line."""
        if not self.said:
            self.close()
            raise RuntimeError(f"{module} ended with status {self.process.returncode}")

    def close(self) -> None:
        """Close its standard input, which it takes as a sign to end, and wait for that."""
        with self.process:
            assert self.process.stdin is not None
            self.process.stdin.close()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
