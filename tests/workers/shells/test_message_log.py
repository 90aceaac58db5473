"""A recording shows every message of a network, as it was when it travelled."""

from __future__ import annotations

import torch

import syft as sy
from syft.workers.wire.messages import Command, Done, Fetch, Put, Value


def test_every_message_and_reply_is_recorded(hook: sy.TorchHook, worker: sy.VirtualWorker) -> None:
    x = torch.tensor([1.0, 2.0])
    with hook.record() as log:
        pointer = x.send(worker)
        pointer += 1
        pointer.get()
    kinds = [(entry.sender, type(entry.message)) for entry in log]
    assert kinds == [
        ("me", Put),
        ("worker", Done),
        ("me", Command),
        ("worker", Done),
        ("me", Fetch),
        ("worker", Value),
    ]
    assert len(log) == 6 and log[0].receiver == "worker"
    assert [type(entry.message) for entry in log.to("me")] == [Done, Done, Value]
    assert log[0].buffers[0].view(torch.float32).tolist() == [1.0, 2.0]
    assert log[5].buffers[0].view(torch.float32).tolist() == [2.0, 3.0]
    assert log[0].nbytes > 8 > log[1].nbytes


def test_what_a_recording_shows_does_not_change_later(
    hook: sy.TorchHook, bob: sy.VirtualWorker
) -> None:
    x = torch.zeros(2)
    with hook.record() as log:
        pointer = x.send(bob)
    x += 5
    assert log[0].buffers[0].view(torch.float32).tolist() == [0.0, 0.0]
    with hook.record() as outer, hook.record() as inner:
        pointer.get()
    assert len(outer) == len(inner) == 2 and len(log) == 2


def test_nothing_is_recorded_after_an_error(hook: sy.TorchHook, bob: sy.VirtualWorker) -> None:
    try:
        with hook.record() as log:
            raise ValueError("stop")
    except ValueError:
        pass
    torch.ones(1).send(bob).get()
    assert len(log) == 0
