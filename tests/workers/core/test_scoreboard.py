"""The scoreboard and the queue of parked operations, where nothing or less is left to do."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import syft as sy
from syft.exceptions import ObjectNotReady
from syft.plans.remote.plan_call import PlanCall, prepare_call
from syft.workers.core.scoreboard import Scoreboard
from syft.workers.core.state_machine import HeldInputs
from syft.workers.labels import reached_graph
from syft.workers.wire.definitions import InputKind
from syft.workers.wire.messages import Done
from tests.workers.core.peers import ME, lonely


def test_keys_that_nobody_uses_are_merged_into_nothing() -> None:
    board = Scoreboard()
    board.merge({5, 6})
    assert board.blockers(reads={5, 6}, writes={5}, wide=True) == set()


def test_a_ready_operation_that_another_one_drops_does_not_run() -> None:
    core = lonely()
    core.store.promise(5)
    ran: list[int] = []

    def first(held: HeldInputs) -> Any:
        ran.append(1)
        core.forget((7,), ME)  # as by a message that is handled while this operation waits
        return Done(1)

    def second(held: HeldInputs) -> Any:
        ran.append(2)
        return Done(2)

    core.when_ready(1, ME, first, (5,), (6,))
    core.when_ready(2, ME, second, (5,), (7,))
    core.hold(5, torch.ones(2))
    assert ran == [1] and not core.dataflow.tasks


def test_a_plan_that_is_only_promised_cannot_be_called_yet() -> None:
    core = lonely()
    core.store.promise(5)
    with pytest.raises(ObjectNotReady):
        prepare_call(core, PlanCall(5, (InputKind.REFERENCE,)))


def test_the_graph_of_what_is_at_another_worker_is_there(
    hook: sy.TorchHook, bob: sy.VirtualWorker
) -> None:
    x = torch.ones(2, requires_grad=True).send(bob)
    assert (
        reached_graph.reached_graph([x]).elsewhere
        and not reached_graph.reached_graph([torch.ones(2)]).elsewhere
    )


def test_the_state_of_a_plan_is_read_while_something_waits(
    hook: sy.TorchHook, bob: sy.VirtualWorker
) -> None:
    class Net(sy.Plan):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.tensor([2.0, 3.0]))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.weight

    net = Net()
    net.build(torch.ones(2))
    promise = bob.promise()
    later = promise + 1
    there = net.send(bob)
    assert [value.tolist() for value in there.parameters()] == [[2, 3]]
    kept = torch.ones(2).send(bob, id=promise.id_at_location)
    assert later.get().tolist() == [2, 2]
    del kept, there
