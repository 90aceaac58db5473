"""What the lines of a session do when a party knows of nothing that could bring its share."""

from __future__ import annotations

import pytest
import torch

import syft as sy
from syft.exceptions import ObjectNotReady, WorkerLost
from syft.tensors.shared import worker_lines
from syft.tensors.shared.worker_lines import WorkerLines
from syft.workers.client.connection import Connection


class Waiting:
    """Lines whose first answers are that a share is not ready."""

    def __init__(self, times: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = self.asked = times
        self.fetched = WorkerLines._fetched
        monkeypatch.setattr(WorkerLines, "_fetched", lambda *args: self(*args))

    def __call__(self, *args):
        self.asked += 1
        if self.left:
            self.left -= 1
            raise ObjectNotReady("alice")
        return self.fetched(*args)


def share(alice, bob):
    return torch.tensor([1, 2]).share(alice, bob)


def test_it_asks_again(alice, bob, monkeypatch):
    shared = share(alice, bob)
    waiting = Waiting(3, monkeypatch)
    assert shared.get().tolist() == [1, 2] and waiting.left == 0


def test_it_does_not_ask_for_ever(alice, bob, monkeypatch):
    shared = share(alice, bob)
    waiting = Waiting(1000, monkeypatch)
    with pytest.raises(ObjectNotReady):
        shared.get()
    assert waiting.left == 1000 - worker_lines._MOST_TRIES - 1


def test_what_failed_before_over_a_line_is_raised_first(hook):
    alice, bob = (sy.VirtualWorker(hook, id=name, pipelined=True) for name in ("alice", "bob"))
    shared = share(alice, bob)
    assert shared.get().tolist() == [1, 2]
    wrong = torch.ones(2).send(alice) @ torch.ones(3).send(alice)
    alice.connection().flush()
    alice.network.run()
    with pytest.raises(RuntimeError, match="size"):
        shared.get()
    assert shared.get().tolist() == [1, 2], "and that was all"
    del wrong


def test_who_is_gone_is_told_instead(alice, bob, monkeypatch):
    shared = share(alice, bob)
    Waiting(1, monkeypatch)
    monkeypatch.setattr(Connection, "ask", lost)
    with pytest.raises(WorkerLost, match="bob"):
        shared.get()
    monkeypatch.undo()


def lost(*_):
    raise WorkerLost("bob", "gone")
