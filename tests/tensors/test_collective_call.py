"""Starting collective operations from pointers."""

from __future__ import annotations

import pytest
import torch

import syft as sy
from syft.codes import CollectiveCode
from syft.tensors.collective_call import run_collective
from tests.chain.refusal import here, refusal
from tests.shells.child import make_worker
from tests.shells.owner import inspect

pytestmark = pytest.mark.every_shell


@pytest.fixture(params=["immediate", "queued", "mixed"])
def parties(request: pytest.FixtureRequest, hook: sy.TorchHook) -> list[sy.VirtualWorker]:
    queued = {"immediate": (), "queued": (0, 1, 2), "mixed": (1,)}[request.param]
    return [make_worker(hook, id=f"p{i}", pipelined=i in queued) for i in range(3)]


def test_three_workers_sum(parties: list[sy.VirtualWorker]) -> None:
    inputs = [torch.tensor([i, 10 * i]).send(worker) for i, worker in enumerate(parties, 1)]
    sums = sy.sum_private(*inputs)
    assert [pointer.location for pointer in sums] == parties
    assert [pointer.get().tolist() for pointer in sums] == [[6, 60]] * 3


def test_results_are_ordinary_pointers(parties: list[sy.VirtualWorker]) -> None:
    sums = sy.sum_private(*(torch.tensor([1]).send(worker) for worker in parties))
    assert [(pointer * 2).get().item() for pointer in sums] == [6, 6, 6]


def test_each_party_is_one_worker(bob: sy.VirtualWorker, alice: sy.VirtualWorker) -> None:
    x, y = torch.ones(1).send(bob), torch.ones(1).send(alice)
    assert refusal(lambda: sy.sum_private(x, x)) == here(
        "collective SUM: one worker for each party", "bob", "bob"
    )
    assert refusal(lambda: sy.sum_private(x, torch.ones(1))) == here(
        "a collective operation", "another worker", "here"
    )
    assert refusal(lambda: run_collective(CollectiveCode.SUM, [[x, y]])) == here(
        "the inputs of one party", "bob", "alice"
    )
    assert (len(inspect(bob)), len(inspect(alice))) == (1, 1)
