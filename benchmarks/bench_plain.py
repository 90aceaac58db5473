"""What syft costs those who do not use it: plain tensors after the hook, and the import.

The hook replaces nothing in torch, so a plain tensor must not notice it.  Both sides run in one
process, in turns: before each sample the hook is put in, or taken out, untimed.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

import syft as sy
from benchmarks.interleaved import Action
from benchmarks.recording import Amount, Ratio

BEYOND_TORCH = """
import torch, time
start = time.process_time()
import syft
syft.TorchHook(torch)
print(time.process_time() - start)
"""


def hook() -> None:
    """Hook torch."""
    sy.TorchHook(torch)


def unhook() -> None:
    """Leave torch as it was."""
    sy.TorchHook(torch).close()


def bench_plain_add(ratio: Ratio) -> None:
    """An operation as short as they come."""
    x, y = torch.ones(2), torch.ones(2)
    ratio(
        "plain x + y, hooked / unhooked",
        subject=lambda: x + y,
        floor=lambda: x + y,
        before_subject=hook,
        before_floor=unhook,
        at_most=1.02,
        earlier="1.4-4.3",
    )


def bench_plain_function(ratio: Ratio) -> None:
    """The same as a function of the torch module, the worst case of the earlier library."""
    x, y = torch.ones(2), torch.ones(2)
    ratio(
        "plain torch.add(x, y), hooked / unhooked",
        subject=lambda: torch.add(x, y),
        floor=lambda: torch.add(x, y),
        before_subject=hook,
        before_floor=unhook,
        at_most=1.02,
        earlier="1.4-4.3",
    )


def bench_plain_training_step(ratio: Ratio, one_thread: None) -> None:
    """A whole training step of a small network, on one thread: syft has no say in the others."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x, y = torch.randn(16, 64), torch.randint(10, (16,))

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    # Both sides come from the same work, and from a few steps that fill the caches again.
    def ready(*changes: Action) -> Action:
        def change_and_warm_up() -> None:
            for action in (*changes, step, step, step, step, step):
                action()

        return change_and_warm_up

    ratio(
        "plain MLP training step, hooked / unhooked",
        subject=step,
        floor=step,
        before_subject=ready(hook, unhook, hook),
        before_floor=ready(unhook, hook, unhook),
        at_most=1.02,
        earlier="1.7",
        seconds=4,
    )


def bench_import(amount: Amount, tmp_path: Path) -> None:
    """What a program computes besides importing torch; a first run fills the caches, compiled
    modules among them."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(tmp_path)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    seconds = []
    for _ in range(10):
        command = [sys.executable, "-c", BEYOND_TORCH]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        seconds.append(float(done.stdout))
    amount(
        "import syft + TorchHook, beyond import torch",
        1000 * statistics.median(seconds[1:]),
        at_most=150,
        earlier="320 ms",
        unit="ms",
    )
