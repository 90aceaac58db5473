"""Where the tensors of a worker are found, and replaced, when they are moved to private memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import syft as sy
from syft.exceptions import PermissionDenied
from syft.workers.core.dataflow import Dataflow
from syft.workers.core.store import ObjectStore
from syft.workers.core.stored_tensors import StoredTensors
from syft.workers.execution.moved_memory import Moves, move_written
from syft.workers.labels.guards import Guard
from syft.workers.labels.holders import Holder
from syft.workers.labels.memory_labels import full_guard_of

ANN = Guard(frozenset({"ann"}))


class Box(Holder):
    """One tensor."""

    def __init__(self, tensor: torch.Tensor) -> None:
        super().__init__(set(), None)
        self.tensor = tensor

    def tensors(self) -> tuple[torch.Tensor]:
        return (self.tensor,)

    def exchange(self, successor: Any) -> None:
        self.tensor = successor(self.tensor)

    def duplicate(self) -> Any:
        raise NotImplementedError

    summary = admit = duplicate


@pytest.fixture
def store() -> ObjectStore:
    return ObjectStore("bob")


@pytest.fixture
def stored(store: ObjectStore) -> StoredTensors:
    return StoredTensors(store, Dataflow(store))


def test_every_object_in_the_memory_is_replaced(store: ObjectStore, stored: StoredTensors) -> None:
    base = torch.zeros(4)
    leaf = torch.ones(2, requires_grad=True)
    leaf.grad = base[2:]
    box, other = Box(base.view(2, 2)), Box(torch.ones(1))
    for id, value in enumerate((base, base[:2], leaf, box, other, "text"), 1):
        store.put(id, value)
    apart = other.tensor
    move_written([base], ANN, stored)
    store.objects[1].copy_(torch.arange(4.0))
    assert store.objects[2].tolist() == [0, 1] and box.tensor.tolist() == [[0, 1], [2, 3]]
    assert store.objects[3] is leaf and leaf.grad is not None and leaf.grad.tolist() == [2, 3]
    assert base.tolist() == [0] * 4 and full_guard_of(base) is None
    assert full_guard_of(leaf) is None and full_guard_of(leaf.grad) == ANN
    assert other.tensor is apart and store.objects[6] == "text"
    assert list(stored.shown()) == []


def test_what_a_parked_operation_holds_is_replaced(store: ObjectStore) -> None:
    dataflow = Dataflow(store)
    stored = StoredTensors(store, dataflow)
    x, seen = torch.zeros(2), []
    store.put(5, x)
    store.promise(6)
    dataflow.admit(seen.append, [5, 6], (7,))
    store.drop(5, "its pointer is gone")
    moves = move_written([x], ANN, stored)
    store.put(6, torch.ones(2))
    dataflow.settle([6])
    (held,) = seen
    assert held[5] is moves.of(x) and isinstance(moves, Moves)


def test_moved_memory_is_counted(store: ObjectStore, stored: StoredTensors) -> None:
    large = torch.zeros(10_000)
    store.put(5, large)
    (before,) = store.charges.charged[5].storages
    move_written([large], ANN, stored)
    (after,) = store.charges.charged[5].storages
    assert after == store.objects[5].untyped_storage()._cdata != before


# -------------------------------------------------------------------------------------- at a worker


def test_a_step_on_private_data_moves_the_parameters_once(
    hook: sy.TorchHook, bob: sy.VirtualWorker
) -> None:
    torch.manual_seed(0)
    data = torch.randn(4, 3)
    model = nn.Linear(3, 1)
    expected = nn.Linear(3, 1)
    expected.load_state_dict(model.state_dict())
    secret = data.private_tensor(allowed_users=["ann"]).send(bob, user="ann")
    model.send(bob)
    remote = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    local = torch.optim.SGD(expected.parameters(), lr=0.1, momentum=0.9)
    places = []
    for _ in range(3):
        for optimizer, run, x in ((remote, model, secret), (local, expected, data)):
            optimizer.zero_grad()
            run(x).pow(2).mean().backward()
            optimizer.step()
        places.append([_place(bob, parameter) for parameter in model.parameters()])
    assert places[0] == places[1] == places[2], "written in place from the second step on"
    for parameter, wanted in zip(model.parameters(), expected.parameters(), strict=True):
        with pytest.raises(PermissionDenied):
            parameter.copy().get()
        assert torch.allclose(parameter.copy().get(user="ann"), wanted)


def _place(worker: sy.VirtualWorker, parameter: Any) -> int:
    stored = worker._objects[parameter.id_at_location]
    return int(stored.untyped_storage()._cdata)


def test_what_the_owner_holds_keeps_its_values(hook: sy.TorchHook, bob: sy.VirtualWorker) -> None:
    secret = torch.ones(2).private_tensor(allowed_users=["ann"]).send(bob, user="ann")
    mine = torch.zeros(2)
    pointer = mine.send(bob)
    held = bob._objects[pointer.id_at_location]
    pointer.add_(secret)
    now = bob._objects[pointer.id_at_location]
    assert now is not held and held.tolist() == [0, 0] and now.tolist() == [1, 1]


def test_views_in_the_registers_of_a_program_move_along(
    hook: sy.TorchHook, bob: sy.VirtualWorker
) -> None:
    def write(x: torch.Tensor, secret: torch.Tensor) -> torch.Tensor:
        view, other = x[:2], x.view(-1)
        view.copy_(secret)
        return other * 2

    bob.core.allow_plans = True
    plan = sy.func2plan(args_shape=[(3,), (2,)])(write).send(bob)
    x = torch.zeros(3).send(bob)
    secret = torch.ones(2).private_tensor(allowed_users=["ann"]).send(bob, user="ann")
    made = plan(x, secret)
    assert made.get(user="ann").tolist() == [2, 2, 0]
    with pytest.raises(PermissionDenied):
        x.copy().get()
    assert x.get(user="ann").tolist() == [1, 1, 0]
