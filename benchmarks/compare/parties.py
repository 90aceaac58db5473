"""The processes of one library, and what is said to them.

A script of the comparison is a coordinator: it starts itself once more for each rank, reads the
names of cases from its standard input, has all ranks run the case at the same time, and prints one
line of JSON for each: milliseconds, the processor time and the bytes sent of all ranks together,
and by how much the result differs from plain torch or jax.  The first line for a case is the one
with the error, and has no time.  So a library is measured by hand:
``yes "relu 1e4" | head -6 | python -m benchmarks.compare.spu_peer aby3``.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

ONE_THREAD = {
    name: "1" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NPROC")
} | {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"}
"""The environment of each process; three of them share what cores there are."""

COUNT = "count"
"""What is said instead of a case to be told what a process has used so far."""

Answer: TypeAlias = dict[str, float]

_BYTES_SENT = 200
"""Where tcpi_bytes_sent lies in Linux's struct tcp_info (Linux 4.19)."""


def free_port() -> int:
    """Return a port of loopback that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def bytes_sent() -> int:
    """Count what this process has sent over its TCP connections, whichever library opened them.

    The kernel is asked (Linux): so all libraries are counted alike, framing included.
    """
    total = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            connection = socket.socket(fileno=int(name))
        except OSError:
            # Closed since the folder was listed.
            continue
        try:
            told = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
            total += struct.unpack_from("=Q", told, _BYTES_SENT)[0]
        except OSError:
            # A socket of another kind.
            continue
        finally:
            # It belongs to the library.
            connection.detach()
    return total


# --------------------------------------------------------------------------------------- one rank


@dataclass
class Prepared:
    """A case whose operands are shared: what is timed, and what is wrong with its result."""

    run: Callable[[], Any]
    """Computes; returns when this party has its share of the result."""
    error: Callable[[Any], float]
    """Reveals what ``run`` returned, and returns the largest difference from the plain result."""


class Rank:
    """One party: it prepares a case the first time its name is said, and runs it from then on."""

    def __init__(self, prepare: Callable[[str], Prepared], barrier: Callable[[], None]) -> None:
        self.prepare = prepare
        self.barrier = barrier
        self.name = ""
        self.prepared: Prepared | None = None

    def serve(self) -> None:
        """Answer each line of the standard input, until it is closed."""
        for line in sys.stdin:
            name = line.strip()
            say(used() if name == COUNT else self.answer(name))

    def answer(self, name: str) -> Answer:
        """Prepare and check the case, or run and time it."""
        if name != self.name or self.prepared is None:
            # One case at a time: ResNet-18 alone has hundreds of megabytes of shares.
            self.prepared = None
            self.prepared, self.name = self.prepare(name), name
            return {"error": self.prepared.error(self.prepared.run())}
        self.barrier()
        began = time.perf_counter()
        # Held until the clock has stopped: to free it is no part of the operation.
        result = self.prepared.run()
        took = time.perf_counter() - began
        del result
        return {"ms": took * 1000}


def used() -> Answer:
    """Say what this process has used so far."""
    return {"cpu_ms": time.process_time() * 1000, "bytes": bytes_sent()}


def say(answer: dict[str, Any]) -> None:
    """Write one line of JSON."""
    print(json.dumps(answer), flush=True)


# ---------------------------------------------------------------------------------- the coordinator


class Ranks:
    """The processes, one for each rank, as their coordinator sees them.

    Each is ``python -m module *arguments rank``.  They are started afresh, never forked: a library
    with threads of its own hangs in a forked process.  When one of them ends, all are ended: the
    others would wait for it.
    """

    def __init__(self, module: str, count: int, *arguments: str) -> None:
        self.processes = [
            subprocess.Popen(
                [sys.executable, "-m", module, *arguments, str(rank)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, **ONE_THREAD},
                text=True,
            )
            for rank in range(count)
        ]
        for process in self.processes:
            threading.Thread(target=self._end_with, args=(process,), daemon=True).start()

    def _end_with(self, process: subprocess.Popen[str]) -> None:
        process.wait()
        self.close()

    def ask(self, what: str) -> list[dict[str, Any]]:
        """Say it to all of them, then wait for the answers."""
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.write(f"{what}\n")
            process.stdin.flush()
        return [self._answer(process) for process in self.processes]

    @staticmethod
    def _answer(process: subprocess.Popen[str]) -> dict[str, Any]:
        assert process.stdout is not None
        for line in process.stdout:
            # A library may print something of its own.
            if line.startswith("{"):
                answer: dict[str, Any] = json.loads(line)
                return answer
        raise RuntimeError("a rank has ended")

    def run(self, name: str) -> Answer:
        """Run a case at all ranks; what the slowest says counts."""
        told = self.ask(name)
        keys = {key for answer in told for key in answer}
        return {key: max(answer[key] for answer in told if key in answer) for key in keys}

    def used(self) -> Answer:
        """Say what all ranks have used so far."""
        told = self.ask(COUNT)
        return {key: sum(answer[key] for answer in told) for key in told[0]}

    def close(self) -> None:
        """End the processes."""
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()


def coordinate(
    run: Callable[[str], Answer],
    used_so_far: Callable[[], Answer],
    names: Iterable[str],
    make_ready: Callable[[], None] = lambda: None,
) -> None:
    """Run each case that is named, and print what it took and what was used meanwhile.

    ``make_ready`` is called before each, and what it does is not counted.
    """
    used_so_far()
    say({"ready": True})
    for name in names:
        make_ready()
        before = used_so_far()
        answer = run(name.strip())
        after = used_so_far()
        say(answer | {key: after[key] - before[key] for key in after})
