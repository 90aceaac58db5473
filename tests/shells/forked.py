"""A program in a process of its own that costs no import: forked from one that has syft already.

To start Python and import torch and syft takes seconds, and most programs that tests start do
little else.  The server that forks them is that of :mod:`tests.shells.processes`.  What a program
gets is what it would get from a shell: three streams, an environment, a folder; it ends by itself,
with an exit status, or is killed.  A test of how syft starts, or of how Python ends with it, needs
a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from multiprocessing import reduction
from typing import Any

import torch

from tests.shells.processes import PROCESSES


class _Streams:
    """Open files that go to another process: its standard input, output and error."""

    def __init__(self, *numbers: int) -> None:
        self.numbers = numbers

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, tuple(map(reduction.DupFd, self.numbers))


def _received(*streams: Any) -> _Streams:
    return _Streams(*(stream.detach() for stream in streams))


class ForkedProgram:
    """A function that runs as a program; what :class:`subprocess.Popen` has is called as there.

    ``run`` and what it is given travel to the process, so it stands in a module.  What it returns
    is the exit status, as of ``main``.
    """

    def __init__(
        self,
        run: Callable[..., object],
        *arguments: object,
        error: int,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        theirs, mine = os.pipe()
        read, write = os.pipe()
        self.stdin, self.stdout = os.fdopen(mine, "w"), os.fdopen(read)
        streams = _Streams(theirs, write, error)
        given = (streams, dict(environment or {}), run, arguments)
        self.process = PROCESSES.Process(target=_run, args=given)
        self.process.start()
        os.close(theirs)
        os.close(write)
        self.pid = self.process.pid

    def poll(self) -> int | None:
        """Its exit status, if it has ended."""
        return self.process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; returns the exit status."""
        self.process.join(timeout)
        code = self.process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired(self.process.name, timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        """Send it a signal."""
        assert self.pid is not None
        os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()

    def __enter__(self) -> ForkedProgram:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
        self.wait()

    def close(self) -> None:
        """Close this end of its streams."""
        self.stdin.close()
        self.stdout.close()


def _run(
    streams: _Streams,
    environment: dict[str, str],
    run: Callable[..., object],
    arguments: tuple[object, ...],
) -> None:
    """Be the program, in the process."""
    for number, stream in enumerate(streams.numbers):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin = open(0, closefd=False)
    sys.stdout = open(1, "w", buffering=1, closefd=False)
    sys.stderr = open(2, "w", buffering=1, closefd=False)
    os.environ.update(environment)
    torch.set_num_threads(1)
    sys.exit(run(*arguments))
