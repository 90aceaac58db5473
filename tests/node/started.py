"""Workers that the command ``syft worker`` serves in processes of their own.

They are forked: that ``python -m syft.node`` is the same command is shown in ``test_cli.py``.
"""

from __future__ import annotations

import os
import pty
import re
import select
import termios
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from syft.node.cli import main
from tests.shells.forked import ForkedProgram

PATIENCE = 60.0
"""Seconds in which a worker must have started, said something or ended."""


class StartedWorker:
    """A worker in a process; as a context manager it is gone at the end, whatever happens.

    ``terminal`` makes its error stream a terminal, whose text is in ``screen``; otherwise that goes
    to a file.
    """

    def __init__(self, folder: Path, *options: str, terminal: bool = False) -> None:
        command = ["worker", "--id", "bob"]
        if "--port" not in options and "--unix" not in options:
            command += ["--port", "0"]
        if not {"--audit", "--state"}.intersection(options):
            command += ["--audit", str(folder / f"audit-{time.monotonic_ns()}.log")]
        self.error_path = folder / f"errors-{time.monotonic_ns()}"
        self.screen = ""
        self._terminal: int | None = None
        errors: Any = None
        if terminal:
            self._terminal, errors = pty.openpty()
            termios.tcsetwinsize(errors, (24, 100))
        else:
            errors = os.open(self.error_path, os.O_WRONLY | os.O_CREAT)
        self.process = ForkedProgram(main, [*command, *options], error=errors)
        os.close(errors)
        self.printed = self._announcement()
        self.address = self.printed.split("serves at ")[1].split()[0] if self.printed else ""
        found = re.search(r"certificate: (sha256:\w+)", self.printed)
        self.fingerprint = found[1] if found else None

    def _announcement(self) -> str:
        """What it prints at its start, up to the last of the lines with which to connect."""
        lines: list[str] = []
        for line in self.process.stdout:
            lines.append(line)
            if "sy.connect(" in line:
                break
        return "".join(lines)

    @property
    def errors(self) -> str:
        """What is on its error stream so far."""
        return self.screen if self._terminal is not None else self.error_path.read_text()

    def wait_for(self, text: str) -> None:
        """Wait until something is said on the error stream."""
        until = time.monotonic() + PATIENCE
        while text not in self.errors:
            assert time.monotonic() < until, f"{text!r} is not in\n{self.errors}"
            if self._terminal is not None and select.select([self._terminal], [], [], 0.05)[0]:
                self.screen += os.read(self._terminal, 4096).decode()
            elif self._terminal is None:
                time.sleep(0.02)

    def ended(self) -> int:
        """Wait for its end; returns the exit status."""
        return self.process.wait(PATIENCE)

    def stop(self, signal: int) -> int:
        """Send a signal, and wait for its end; returns the exit status."""
        self.process.send_signal(signal)
        return self.ended()

    def __enter__(self) -> StartedWorker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.process.close()
        if self._terminal is not None:
            os.close(self._terminal)
