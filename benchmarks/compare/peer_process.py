"""A library of the comparison, seen from the runner: its script, started in its own environment.

A library that is not installed, ends, or takes too long is a line of the table, not the end of the
run: each case is asked of whatever answers.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path

from benchmarks.compare.parties import ONE_THREAD, Answer

ROOT = Path(__file__).parent.parent.parent

PATIENCE = 300.0
"""Seconds that a library may take for one answer: ResNet-18 is compiled and shared in less."""


class PeerFailed(Exception):
    """A library gives no figure; the text says why, in a few words."""


@dataclass(frozen=True)
class Library:
    """What is started: ``environment/bin/python -m module *arguments``."""

    name: str
    environment: str
    module: str
    arguments: tuple[str, ...] = ()
    pools: bool = False
    """Whether it runs those cases alone that take maxima of windows."""

    @property
    def command(self) -> list[str]:
        """The command; raises :class:`PeerFailed` where the environment is not complete."""
        environment = ROOT / self.environment
        if not list(environment.glob("installed*")):
            raise PeerFailed("not installed")
        return [str(environment / "bin" / "python"), "-m", self.module, *self.arguments]


class PeerProcess:
    """The coordinator of a library, started when it is first asked, and again if it has ended."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self.process: subprocess.Popen[str] | None = None

    def ask(self, case: str) -> Answer:
        """Have it run a case; the first answer for a case holds the error, the next ones times.

        Raises :class:`PeerFailed`; the process has ended then.
        """
        process = self._started() if self.process is None else self.process
        assert process.stdin is not None
        try:
            process.stdin.write(f"{case}\n")
            process.stdin.flush()
        except BrokenPipeError:
            pass
        return self._answer(process)

    def _started(self) -> subprocess.Popen[str]:
        command = self.library.command
        with self._log().open("w") as log:
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, **ONE_THREAD, "PYTHONPATH": str(ROOT)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                # So that its ranks can be ended with it.
                start_new_session=True,
            )
        self._answer(self.process)
        return self.process

    def _log(self) -> Path:
        folder = ROOT / ".benchmarks"
        folder.mkdir(exist_ok=True)
        return folder / f"{self.library.name.replace(' ', '-')}.log"

    def _answer(self, process: subprocess.Popen[str]) -> Answer:
        assert process.stdout is not None
        limit = threading.Timer(PATIENCE, self._kill)
        limit.start()
        try:
            line = process.stdout.readline()
        finally:
            limit.cancel()
            limit.join()
        if not line:
            self.close()
            raise PeerFailed(f"failed, see {self._log().relative_to(ROOT)}")
        answer: Answer = json.loads(line)
        return answer

    def _kill(self) -> None:
        if self.process is not None:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                # Everything of it has ended already.
                return

    def close(self) -> None:
        """End it and its ranks."""
        self._kill()
        if self.process is not None:
            with self.process:
                self.process.wait()
        self.process = None
