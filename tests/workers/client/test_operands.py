"""What may go along in a command, and what must not."""

from __future__ import annotations

import pytest
import torch

import syft as sy
from syft.exceptions import LocationMismatch, NotSendable
from syft.workers.wire.messages import Command


def test_python_values_and_single_numbers_travel(worker: sy.VirtualWorker) -> None:
    x = torch.tensor([1.0, 2.0]).send(worker)
    assert (x + torch.tensor(5.0)).get().tolist() == [6, 7]
    assert torch.add(x, torch.tensor(5)).get().tolist() == [6, 7]
    assert x.to(dtype=torch.float64, copy=True).get().dtype is torch.float64
    assert (x * 2**40).get().tolist() == [2.0**40, 2.0**41]
    assert x[torch.tensor(1)].get() == 2
    assert x[torch.tensor(0) : torch.tensor(1)].get().tolist() == [1]


def test_the_source_of_a_copy_travels(worker: sy.VirtualWorker) -> None:
    x = torch.zeros(2, 2).send(worker)
    x.copy_(torch.tensor([1.0, 2.0]))
    assert x.get().tolist() == [[1, 2], [1, 2]]


@pytest.mark.parametrize(
    "act",
    [
        lambda x, y: x + y,
        lambda x, y: y + x,
        lambda x, y: torch.cat([x, y]),
        lambda x, y: torch.add(x, other=y),
        lambda x, y: x[y],
        lambda x, y: torch.stack((x, [y][0])),
        lambda x, y: x.add_(y),
        lambda x, y: torch.add(x, 1, out=y),
        lambda x, y: y.add_(x),
        lambda x, y: y.copy_(x),
    ],
)
def test_a_tensor_that_lies_elsewhere_is_refused_with_both_places(
    worker: sy.VirtualWorker, alice: sy.VirtualWorker, act: object
) -> None:
    x = torch.ones(2).send(worker)
    local = torch.ones(2)
    with pytest.raises(LocationMismatch, match="worker") as caught:
        act(x, local)
    assert {"worker", "me"} == set(caught.value.places)
    del caught
    assert local.tolist() == [1, 1]
    remote = torch.ones(2).send(alice)
    with pytest.raises(LocationMismatch) as caught:
        act(x, remote)
    assert {"worker", "alice"} == set(caught.value.places)
    del caught
    assert remote.get().tolist() == [1, 1] and x.get().tolist() == [1, 1]


def test_what_cannot_travel_is_refused_before_anything_is_sent(
    hook: sy.TorchHook, worker: sy.VirtualWorker
) -> None:
    x = torch.ones(2).send(worker)
    with hook.record() as log:
        for value in (print, object(), torch.nn.Linear(1, 1)):
            with pytest.raises(NotSendable):
                torch.nn.functional.relu(x, inplace=value)
    assert not [entry for entry in log if isinstance(entry.message, Command)]
    assert x.get().tolist() == [1, 1]


def test_a_pointer_to_ones_own_store(me: sy.VirtualWorker) -> None:
    x = torch.ones(2).send(me)
    with pytest.raises(LocationMismatch, match=r"lie at me and here \(not behind a pointer\)"):
        x + torch.ones(2)
    assert (x + x).get().tolist() == [2, 2] and x.get().tolist() == [1, 1]


def test_a_tensor_that_wants_its_gradient_back_does_not_travel(worker: sy.VirtualWorker) -> None:
    x = torch.ones(2).send(worker)
    scale = torch.tensor(2.0, requires_grad=True)
    with pytest.raises(LocationMismatch):
        x * scale
    with torch.no_grad():
        assert (x * scale).get().tolist() == [2, 2]
