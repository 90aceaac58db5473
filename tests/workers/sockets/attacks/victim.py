"""A worker in a process of its own, which strangers attack.

It prints its port, and obeys its owner, who writes lines to its
standard input.  Its log goes to its standard error.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.shells.forked import ForkedProgram

ROOT = Path(__file__).parents[4]
FAILED_REQUEST = re.compile(
    r"^INFO a request failed, reference .*?(?=^(?:DEBUG|INFO|WARNING|ERROR) |\Z)", re.M | re.S
)
"""What the owner is told of an operation that failed: its traceback, which no caller gets."""


def serve(settings: dict[str, Any]) -> None:
    """Serve until the owner has left."""
    import torch

    import syft as sy
    from syft.serde.limits import Limits
    from syft.workers.labels.origin import set_writers

    level = settings.pop("log", "INFO")
    logging.basicConfig(level=level, stream=sys.stderr, format="%(levelname)s %(message)s")
    files = settings.pop("files", None)
    if files is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    torch.set_num_threads(1)
    sy.TorchHook(torch)
    tensors = []
    for held in settings.pop("hold", ()):
        tensor = torch.tensor(held["values"])
        if "users" in held:
            places = held.get("destinations", ())
            tensor = tensor.private_tensor(held["users"], allow_destinations=places)
        set_writers(tensor, held.get("writers", ()))
        tensors.append(tensor.tag(*held.get("tags", ())).describe(held.get("description", "")))
    if "limits" in settings:
        settings["limits"] = Limits(**settings["limits"])
    worker = sy.WebsocketServerWorker(port=0, data=tensors, **settings)
    with worker:
        print(json.dumps([worker.port, os.getpid()]), flush=True)
        for line in sys.stdin:
            answer = _ACTIONS[line.strip()](worker)
            print(json.dumps(answer), flush=True)


def _objects(worker: Any) -> int:
    with worker.board.monitor:
        return len(worker.core.store.objects)


def _letters(worker: Any) -> int:
    parties = [session.party for session in list(worker.core.sessions.values())]
    return sum(sum(party.due.values()) for party in parties if party is not None)


_ACTIONS: dict[str, Any] = {
    "letters": _letters,
    "lines": lambda worker: len(worker.board.lines),
    "objects": _objects,
    "executions": lambda worker: len(worker.core.sessions) + len(worker.core.store.promised),
    "guests": lambda worker: len(worker.reception.guests),
    "openings": lambda worker: len(worker.board.openings),
    "threads": lambda worker: sorted(thread.name for thread in threading.enumerate()),
}


class Victim:
    """The process of such a worker, as its owner sees it.

    ``settings`` are those of :class:`syft.WebsocketServerWorker`, besides ``hold`` (tensors, as
    dictionaries), ``files`` (how many may be open), ``log`` (a level), and ``limits`` (as a
    dictionary).
    """

    def __init__(self, **settings: Any) -> None:
        self._log = tempfile.TemporaryFile("w+")
        settings.setdefault("id", "bob")
        self.process = ForkedProgram(serve, settings, error=self._log.fileno())
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            self.process.close()
            log = self.log()
            self._log.close()
            raise AssertionError(log)
        self.port, self.pid = json.loads(line)

    def __enter__(self) -> Victim:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End it; an attack that has ended it fails the test."""
        process = self.process
        died = process.poll()
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        try:
            code = process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        process.close()
        log = self.log()
        self._log.close()
        if kind is None and died != -signal.SIGKILL:
            assert code == 0 and died is None, f"the worker ended with {code}:\n{log[-4000:]}"
            unexpected = FAILED_REQUEST.sub("", log)
            assert "Traceback" not in unexpected and "a fault of" not in log, log[-4000:]

    def ask(self, what: str) -> Any:
        """What the owner is told: how many ``objects``, ``guests`` or ``openings`` there are,
        ``executions`` and promises, ``letters`` that roles have read, or ``lines`` to others."""
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, self.log()[-4000:]
        return json.loads(line)

    def await_count(self, what: str, count: int, seconds: float = 30) -> None:
        """Wait until there are so many."""
        until = time.monotonic() + seconds
        while (found := self.ask(what)) != count:
            assert time.monotonic() < until, f"{found} {what} are left, not {count}"
            time.sleep(0.02)

    def kill(self) -> None:
        """End it at once, as ``kill -9`` does."""
        os.kill(self.pid, signal.SIGKILL)
        self.process.wait()

    @property
    def memory(self) -> float:
        """Resident memory in MB."""
        return self._status("VmRSS")

    @property
    def peak(self) -> float:
        """The most that it has ever been, in MB, or since :meth:`forget_peak`."""
        return self._status("VmHWM")

    def forget_peak(self) -> None:
        """Measure the peak from now on."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def _status(self, name: str) -> float:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1]) / 1024
        raise AssertionError(f"the system does not tell {name}")

    def log(self) -> str:
        """What it has logged."""
        self._log.seek(0)
        return self._log.read()


@contextlib.contextmanager
def honest_client(victim: Victim, **settings: Any) -> Iterator[Any]:
    """A client with a hook of its own, as a program that uses the worker has it."""
    import torch

    import syft as sy

    hook = sy.TorchHook._current or sy.TorchHook(torch)
    client = sy.WebsocketClientWorker(hook, port=victim.port, **settings)
    try:
        yield client
    finally:
        client.close()
