"""Child processes, each of which serves one worker after another.

To start a process and to measure the coverage of its code costs more than most tests do.  So when a
worker is closed, its process stays for the next one.  Between the two it forgets: the process cuts
its side of the link, which wakes whatever still waits; it collects cycles and restores the state of
torch's random numbers; then it says that it has left.  A process that was killed is not used again,
nor one where a worker changed a mode of torch, and then the test fails too.
"""

from __future__ import annotations

import gc
import multiprocessing
import socket
from collections.abc import Callable

import torch

from tests.shells.link import Link, Note

PROCESSES = multiprocessing.get_context("forkserver")
"""Has one server for a process of pytest: it has imported torch and syft, and forks.

So it has torch's compiler, which torch imports in the first call of many of its functions: that of
a wrapper, an optimizer's, one on the meta device.  Each process would spend a second and a half.
"""
PROCESSES.set_forkserver_preload(["tests.shells.child", "torch._dynamo"])

Serve = Callable[[Link], None]
"""What serves one worker, until the link is closed."""


class ChildProcess:
    """A process, and the link to the worker that it serves."""

    def __init__(self, serve: Serve) -> None:
        end, there = socket.socketpair()
        self.link = Link(end)
        self.process = PROCESSES.Process(target=serve_workers, args=(there, serve), daemon=True)
        self.process.start()
        there.close()

    def leave(self) -> bool:
        """Have the process forget its worker; whether it can serve another one."""
        self.link.send("leave", "", "", None, b"")
        note: Note | None = None
        while not self.link.closed:
            note = self.link.take()
            if note is None:
                self.link.wait()
            elif note[0] == "left":
                break
        changed = note is not None and note[1]
        if self.link.closed or changed:
            self.stop()
            assert not changed, f"a worker left torch changed: {changed}"
            return False
        self.link.closed = True
        self.link = Link(self.link.end)
        return True

    def stop(self) -> None:
        """End the process."""
        self.link.end.close()
        self.process.join()
        self.process.close()


class ChildProcesses:
    """The children of one process of pytest; those without a worker wait for one."""

    def __init__(self, serve: Serve) -> None:
        self.serve = serve
        self.idle: list[ChildProcess] = []

    def take(self) -> ChildProcess:
        """A process without a worker."""
        return self.idle.pop() if self.idle else ChildProcess(self.serve)

    def give_back(self, child: ChildProcess) -> None:
        """Keep a process whose worker is closed, if it can serve another one."""
        if child.leave():
            self.idle.append(child)

    def close(self) -> None:
        """End the processes that wait."""
        while self.idle:
            self.idle.pop().stop()


def serve_workers(end: socket.socket, serve: Serve) -> None:
    """The child process: serve workers until the socket is closed."""
    torch.set_num_threads(1)
    gc.freeze()
    modes, drawn = _modes(), torch.get_rng_state()
    link = Link(end)
    while True:
        serve(link)
        if not link.left:
            return
        gc.collect()
        torch.set_rng_state(drawn)
        changed = "" if _modes() == modes else f"{modes} became {_modes()}"
        link = Link(end)
        link.send("left", changed, "", None, b"")


def _modes() -> dict[str, object]:
    return {
        "grad": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "dtype": torch.get_default_dtype(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }
