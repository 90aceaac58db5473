"""A real Jupyter kernel as a client: its loop is running while a cell is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import syft as sy
from syft.callers import SYFT
from syft.serde.frame import Frame
from syft.workers.core.peer import Peer
from syft.workers.core.state_machine import WorkerCore
from syft.workers.sockets.serving import described

manager = pytest.importorskip("jupyter_client.manager")
pytest.importorskip("ipykernel")

# What these packages warn of is no business of ours.
pytestmark = pytest.mark.filterwarnings("ignore")

PATIENCE = 60


class Kernel:
    """A kernel, and the cells that are run in it."""

    def __init__(self) -> None:
        self.manager, self.client = manager.start_new_kernel(startup_timeout=PATIENCE)

    def run(self, cell: str) -> dict[str, Any]:
        """Run a cell; returns what it shows: by MIME type its value, its texts as ``stream``, and
        the name of what it raised as ``error``, with its ``traceback``."""
        shown: dict[str, Any] = {"stream": "", "error": None, "traceback": ""}

        def collect(message: dict[str, Any]) -> None:
            content = message["content"]
            if message["msg_type"] == "execute_result":
                shown.update(content["data"])
            elif message["msg_type"] == "stream":
                shown["stream"] += content["text"]
            elif message["msg_type"] == "error":
                shown["traceback"] = "\n".join(content["traceback"])

        reply = self.client.execute_interactive(cell, timeout=PATIENCE, output_hook=collect)
        if reply["content"]["status"] == "error":
            shown["error"] = reply["content"]["ename"]
        return shown

    def value(self, cell: str) -> str:
        """Run a cell that raises nothing; returns its value as text."""
        shown = self.run(cell)
        assert shown["error"] is None, shown
        return str(shown.get("text/plain", ""))

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[threading.Event, threading.Event]]:
    """``torch.cos`` has begun when the first event is set, and ends when the second one is."""
    begun, may_end = threading.Event(), threading.Event()
    respond = WorkerCore.respond

    def wait(core: WorkerCore, frame: Frame, peer: Peer) -> Frame | None:
        if described(frame) == "torch.Tensor.cos":
            begun.set()
            may_end.wait(PATIENCE)
        return respond(core, frame, peer)

    monkeypatch.setattr(WorkerCore, "respond", wait)
    yield begun, may_end
    may_end.set()


@pytest.fixture
def server(hook: sy.TorchHook, tmp_path: Path) -> Iterator[sy.WebsocketServerWorker]:
    """A worker, which is in another process than the kernel."""
    data = [torch.arange(4.0).tag("#held")]
    with sy.WebsocketServerWorker(
        hook, unix=tmp_path / "bob.sock", id="bob", data=data, lease=1.0
    ) as server:
        yield server


@pytest.fixture
def kernel(server: sy.WebsocketServerWorker) -> Iterator[Kernel]:
    kernel = Kernel()
    try:
        yield kernel
    finally:
        kernel.close()


def _until(holds: Callable[[], bool]) -> bool:
    until = time.monotonic() + PATIENCE
    while not holds() and time.monotonic() < until:
        time.sleep(0.05)
    return holds()


def test_a_notebook(
    kernel: Kernel,
    server: sy.WebsocketServerWorker,
    slow: tuple[threading.Event, threading.Event],
) -> None:
    begun, may_end = slow
    connect = f"""
import asyncio, torch
import syft as sy
hook = sy.TorchHook(torch)
bob = sy.connect("{server.address}")
"""
    assert kernel.value(connect) == ""
    # Calls that wait, while the loop of the kernel is running.
    compute = "x = torch.ones(2).send(bob)\n(x + 1).get()"
    assert kernel.value(compute) == "tensor([2., 2.])"
    assert kernel.value(compute) == "tensor([2., 2.])", "a cell that is run again"
    assert kernel.value(f"before = bob\n{connect}\nbob is before") == "True", "this one too"
    assert kernel.value(compute) == "tensor([2., 2.])", "and disturbs nothing"
    assert kernel.value("bob.search('#held')[0].sum().item()") == "6.0"
    # await at the top level, while others go on.
    cell = """
turns = 0
async def others():
    global turns
    while turns < 3:
        await asyncio.sleep(0)
        turns += 1
y, z, _ = await asyncio.gather((x * 2).child.handle, x.copy().get(wait=False), others())
y.get(), z, turns
"""
    assert kernel.value(cell) == "(tensor([2., 2.]), tensor([1., 1.]), 3)"
    assert kernel.value("(await (x + 5).child.handle).get()") == "tensor([6., 6.])"
    # What a notebook shows.
    assert "<b>bob</b>" in kernel.run("bob")["text/html"]
    pointer = kernel.run("x")
    assert "→ <b>bob</b> · float32 (2,)" in pointer["text/html"]
    assert pointer["text/plain"].startswith("(Wrapper)>[PointerTensor | me:")
    assert "text/html" not in kernel.run("torch.ones(2)"), "plain tensors look as ever"
    assert kernel.value("from syft import status_line\nstatus_line.is_wanted()") == "True"
    # An error names its cell, and the next one is not disturbed.
    failed = kernel.run("(x @ torch.ones(3, 3).send(bob)).get()")
    assert failed["error"] == "RuntimeError" and "frames inside syft" in failed["traceback"]
    assert "Raised on worker" in failed["traceback"] and SYFT not in failed["traceback"]
    whole = kernel.run("%env SYFT_DEBUG=1\n(x @ torch.ones(3, 3).send(bob)).get()")
    assert f"{SYFT}workers" in whole["traceback"] and "left out" not in whole["traceback"]
    kernel.run("%env SYFT_DEBUG=0")
    assert kernel.value("x.sum().get()") == "tensor(2.)"
    # The button that interrupts, during a long wait.
    interrupter = threading.Thread(target=lambda: begun.wait(PATIENCE) and _interrupt(kernel))
    interrupter.start()
    assert kernel.run("y = x.cos()\nz = x + 1\ny.get()")["error"] == "KeyboardInterrupt"
    interrupter.join()
    assert int(kernel.value("bob.cancel()")) >= 1
    may_end.set()
    assert kernel.value("y.get()") == "tensor([0.5403, 0.5403])", "nothing is lost"
    assert kernel.run("z.get()")["error"] == "ObjectNotFound"
    assert kernel.value("x.get()") == "tensor([1., 1.])"


def _interrupt(kernel: Kernel) -> None:
    time.sleep(0.5)  # it waits by now
    kernel.manager.interrupt_kernel()


def test_a_kernel_that_is_started_anew(kernel: Kernel, server: sy.WebsocketServerWorker) -> None:
    cell = f"""
import torch
import syft as sy
hook = sy.TorchHook(torch)
bob = sy.connect("{server.address}")
x = [torch.ones(2).send(bob) for _ in range(5)]
sy.synchronize()
"""
    assert kernel.value(cell) == ""
    assert server.objects_count() == 6
    kernel.manager.restart_kernel(now=True)
    kernel.client.wait_for_ready(timeout=PATIENCE)
    assert _until(lambda: server.objects_count() == 1), "what belonged to it is freed"
    assert _until(lambda: not server.reception.guests)
    assert kernel.value(cell + "len(bob.search('#held'))") == "1"
    assert server.objects_count() == 6
