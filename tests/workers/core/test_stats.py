"""Counters of a worker agree with what a recording of the same messages shows."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

import syft as sy
from tests.chain.refusal import refusal


def failing(x: Any) -> Any:
    """An operation that fails, and its result."""
    return x.view(7, 7).get()


def test_counters_agree_with_a_recording(
    hook: sy.TorchHook, worker: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    worker.stats.reset()
    with hook.record() as log:
        x = torch.ones(5).send(worker)
        y = (x + 1) * 2
        del x
        assert y.sum().get() == 20
        z = y.copy().move(alice)
        assert "RuntimeError" in refusal(partial(failing, y))
        sy.synchronize()
        with worker.group():
            w = y + 1
        sy.synchronize()
    reached = [entry for entry in log.to(worker.id) if entry.sender == "me"]
    left = [entry for entry in log if entry.sender == worker.id]
    stats = worker.stats
    assert (stats.messages_in, stats.bytes_in) == (
        len(reached),
        sum(entry.nbytes for entry in reached),
    )
    own = [entry for entry in left if entry.receiver == "alice"]  # asked by the worker itself
    answers = [entry for entry in left if entry.receiver == "me"]
    assert stats.messages_out == len(answers) and len(own) == 1
    assert stats.bytes_out == sum(entry.nbytes for entry in answers)
    assert stats.cache_hits == 0
    stats.reset()
    assert repr(stats) == "<Stats messages in: 0 (0 bytes) out: 0 (0 bytes) cache hits: 0>"
    del log, reached, left, own, answers, y, z, w
