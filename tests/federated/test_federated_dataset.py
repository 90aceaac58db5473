"""The parts of a data set by worker, sent there or found there."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import syft as sy
from syft.exceptions import UnusableSetting
from syft.workers.wire.messages import Search, Value
from tests.shells.owner import inspect


def part(count: int) -> sy.BaseDataset:
    return sy.BaseDataset(torch.ones(count, 2), torch.zeros(count))


@pytest.mark.every_shell
def test_parts_are_found_by_worker_and_by_name(
    bob: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    parts = [part(2).send(bob), part(3).send(alice)]
    federated = sy.FederatedDataset(parts)
    assert federated.workers == ["bob", "alice"] and list(federated) == parts
    assert federated["bob"] is federated[bob] is parts[0]
    assert federated["alice"] is federated[alice] is parts[1]
    assert len(federated) == 5
    assert repr(federated) == (
        "FederatedDataset\n    Distributed across: bob (2), alice (3)\n"
        "    Number of datapoints: 5"
    )
    with pytest.raises(UnusableSetting, match="got 0: FederatedDataLoader goes through the rows"):
        federated[0]
    with pytest.raises(UnusableSetting, match=r"holds a part \(bob, alice\), got 'carol'\.$"):
        federated["carol"]


def test_parts_are_at_different_workers(bob: sy.VirtualWorker) -> None:
    with pytest.raises(UnusableSetting, match="data sets at workers, got one that is here"):
        sy.FederatedDataset([part(2)])
    with pytest.raises(UnusableSetting, match="one for each worker, got two at bob"):
        sy.FederatedDataset([part(2).send(bob), part(2).send(bob)])
    assert repr(sy.FederatedDataset([])).endswith("nobody\n    Number of datapoints: 0")


@pytest.mark.every_shell
def test_what_workers_hold_does_not_pass_the_client(
    hook: sy.TorchHook, bob: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    numbers = {"bob": 2, "alice": 3}
    for worker in (bob, alice):
        count = numbers[worker.id]
        data = torch.full((count, 2), 7.5).tag("#X", "#train")
        worker.hold(data, torch.arange(count).tag("#Y", "#train"), torch.ones(9).tag("#X"))
    with hook.record() as log:
        federated = sy.FederatedDataset.from_search([alice, bob], ["#X", "#train"], "#Y")
        batches = list(sy.FederatedDataLoader(federated, batch_size=2, shuffle=True))
        del batches
    home = [entry for entry in log if entry.receiver == "me"]
    assert all(not entry.buffers for entry in home)
    answers = [entry.message for entry in home if type(entry.message) is Value]
    assert len(answers) == 2 * 2 + 2 * 2, "searches and lengths"
    assert sum(type(entry.message) is Search for entry in log) == 4
    assert federated.workers == ["alice", "bob"] and len(federated) == 5
    assert sorted(federated["alice"].get().targets.tolist()) == [0, 1, 2], "a copy"
    del federated
    for worker in (bob, alice):
        assert len(inspect(worker)) == 3, "what is held stays"
        worker.clear_objects()


def test_a_worker_that_is_lost_between_the_searches_is_left_out(
    bob: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    class Unlucky(sy.PrivateGridNetwork):
        def search(self, *query: str) -> dict[str, list[Any]]:
            found = super().search(*query)
            bob.close()
            return found

    for worker in (bob, alice):
        worker.hold(torch.ones(2).tag("#X"), torch.ones(2).tag("#Y"))
    with pytest.warns(UserWarning, match="Worker 'bob' is closed"):
        found = sy.FederatedDataset.from_search(Unlucky(bob, alice), "#X", "#Y")
    assert found.workers == ["alice"]
    alice.clear_objects()


def test_tags_must_name_one_pair(bob: sy.VirtualWorker, alice: sy.VirtualWorker) -> None:
    bob.hold(torch.ones(2).tag("#X"), torch.ones(2).tag("#Y"), torch.ones(2).tag("#Y", "#Z"))
    grid = sy.PrivateGridNetwork(alice, bob)
    with pytest.raises(UnusableSetting, match="tags must be .*, got 1 and 2 at bob"):
        sy.FederatedDataset.from_search(grid, "#X", "#Y")
    with pytest.raises(UnusableSetting, match="tags must be .*, got 0 and 1 at bob"):
        sy.FederatedDataset.from_search(grid, "#A", "#Z")
    assert sy.FederatedDataset.from_search(grid, "#A", "#B").workers == []
    double = sy.FederatedDataset.from_search([bob], "#X", "#X", transform=lambda x: x * 2)
    assert double["bob"][0][0].get() == 2
    bob.clear_objects()
