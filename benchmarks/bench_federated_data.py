"""What it costs to iterate over data of ten workers, beside torch's loader over the same data here.

A figure under 2 is at least half as many batches a second.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import syft as sy
from benchmarks.recording import Amount, Ratio

WORKERS, ROWS, BATCH = 10, 2000, 8


@pytest.fixture
def data() -> TensorDataset:
    """Images of digits, as it were."""
    return TensorDataset(torch.randn(ROWS, 64), torch.randint(10, (ROWS,)))


def gone_through(loader: Any) -> None:
    """One epoch, in which nothing is done with the batches."""
    for _ in loader:
        pass


@pytest.mark.parametrize("shuffle", [False, True], ids=["in order", "shuffled"])
def bench_batches(
    ratio: Ratio, hook: sy.TorchHook, one_thread: None, data: TensorDataset, shuffle: bool
) -> None:
    """An epoch over ten virtual workers."""
    workers = [sy.VirtualWorker(hook, id=f"worker {number}") for number in range(WORKERS)]
    there = sy.FederatedDataLoader(sy.dataset_federate(data, workers), BATCH, shuffle)
    here = DataLoader(data, BATCH, shuffle)
    name = f"batches of {BATCH} over {WORKERS} workers / of a DataLoader here"
    ratio(
        f"{name}{', shuffled' if shuffle else ''}",
        subject=lambda: gone_through(there),
        floor=lambda: gone_through(here),
        at_most=2,
        earlier="-",
    )


def bench_messages(amount: Amount, hook: sy.TorchHook, data: TensorDataset) -> None:
    """What an epoch sends: two operations a batch, and the chosen rows now and then."""
    workers = [sy.VirtualWorker(hook, id=f"worker {number}") for number in range(WORKERS)]
    loader = sy.FederatedDataLoader(sy.dataset_federate(data, workers), BATCH, shuffle=True)
    with sy.trace() as trace:
        gone_through(loader)
    sent = sum(line.sender == "me" for line in trace)
    amount("messages for a batch", sent / len(loader), at_most=2.1, earlier="-")
