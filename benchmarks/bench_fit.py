"""What ``worker.fit`` costs, beside the same loop in plain torch here.

The loop chooses the rows of each batch from the same order, and adds up its losses, as the plan at
the worker does.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import syft as sy
from benchmarks.bench_federated_rounds import small_cnn
from benchmarks.recording import Ratio
from benchmarks.server_process import ServerProcess
from benchmarks.training import Tensor, mlp, step

ROWS, BATCH = 640, 64

Data = tuple[Tensor, Tensor]
Worker = sy.VirtualWorker | sy.WebsocketClientWorker


def task(name: str) -> tuple[nn.Module, Data]:
    """A model, and a data set of noise for it."""
    torch.manual_seed(0)
    if name == "CNN":
        return small_cnn(), (torch.randn(ROWS, 1, 8, 8), torch.randint(10, (ROWS,)))
    model, x, y = mlp(batch=ROWS)
    return model, (x, y)


def plain_epoch(model: nn.Module, optimizer: torch.optim.Optimizer, data: Data) -> None:
    """An epoch of torch's own."""
    x, y = data
    total, order = torch.zeros(()), torch.randperm(ROWS)
    for rows in torch.split(order, BATCH):
        total += step(model, optimizer, x[rows], y[rows]).detach() * len(rows)
    total.item()


def _measure(ratio: Ratio, worker: Worker, name: str, what: str, at_most: float) -> None:
    model, (x, y) = task(name)
    settings = {"lr": 0.01}
    config = sy.TrainConfig(model, F.cross_entropy, BATCH, optimizer_args=settings).send(worker)
    there = x.tag("#noise", "#data").send(worker), y.tag("#noise", "#target").send(worker)
    here, data = task(name)
    optimizer = torch.optim.SGD(here.parameters(), lr=0.01)
    ratio(
        f"fit, an epoch of {ROWS // BATCH} steps, {name}, {what} / the loop here",
        subject=lambda: worker.fit(dataset_key="noise"),
        floor=lambda: plain_epoch(here, optimizer, data),
        at_most=at_most,
        earlier="-",
        seconds=4,
    )
    del config, there


@pytest.mark.parametrize("name, at_most", [("MLP", 1.5), ("CNN", 1.5)])
def bench_fit_here(
    ratio: Ratio, bob: sy.VirtualWorker, one_thread: None, name: str, at_most: float
) -> None:
    """At a worker of this process."""
    _measure(ratio, bob, name, "a VirtualWorker", at_most)


@pytest.mark.parametrize("name, at_most", [("MLP", 2.0), ("CNN", 2.0)])
def bench_fit_in_another_process(
    ratio: Ratio, hook: sy.TorchHook, one_thread: None, name: str, at_most: float
) -> None:
    """At a worker of another process of this machine, over TCP."""
    server = ServerProcess("bob")
    try:
        worker = server.client()
        _measure(ratio, worker, name, "another process", at_most)
        worker.close()
    finally:
        server.close()
