"""Data sets that an owner offers under a key."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

import syft as sy
from syft.exceptions import ObjectNotFound, PermissionDenied, UnusableSetting
from syft.workers.labels.origin import writers_of


def two(start: float = 0.0) -> sy.BaseDataset:
    return sy.BaseDataset(torch.tensor([start, 1.0]), torch.tensor([0, 1]))


def test_it_is_found_by_its_tags_and_shares_the_owners_memory(bob: sy.VirtualWorker) -> None:
    dataset = two()
    bob.add_dataset(dataset, key="#two")
    (found,) = bob.search("#two", "#data")
    dataset.data[0] = 7.0
    assert found.get().tolist() == [7.0, 1.0]
    assert dataset.data.tags == set(), "the tensor of the owner has the tags that it had"
    bob.clear_objects()


def test_another_one_under_the_key_takes_its_place(bob: sy.VirtualWorker) -> None:
    bob.add_dataset(two(), key="two")
    (before,) = bob.search("#two", "#data")
    bob.add_dataset(two(5.0), key="two")
    (found,) = bob.search("#two", "#data")
    assert found.copy().get().tolist() == [5.0, 1.0] and bob.objects_count() == 2
    with pytest.raises(ObjectNotFound, match="the data set 'two' was replaced"):
        before.get()
    bob.clear_objects()
    bob.add_dataset(two(), key="two")  # the former is gone already
    bob.clear_objects()


def test_what_is_private_stays_private_and_who_may_write_may(bob: sy.VirtualWorker) -> None:
    secret = torch.ones(2).private_tensor(["ann"], allow_writes=["bea"])
    bob.add_dataset(sy.BaseDataset(secret, torch.ones(2)), key="two")
    (found,) = bob.search("#two", "#data")
    with pytest.raises(PermissionDenied):
        found.get()
    assert found.copy().get(user="ann").tolist() == [1.0, 1.0]
    (held,) = [each for each in bob._objects.values() if "#data" in each._tags]
    assert writers_of(held) == writers_of(secret) != frozenset()
    bob.clear_objects()


@pytest.mark.parametrize("key", ["", "#", 3, None])
def test_a_key_is_a_text(key: Any, bob: sy.VirtualWorker) -> None:
    with pytest.raises(UnusableSetting, match="key must be a text"):
        bob.add_dataset(two(), key=key)


def test_a_transform_and_pointers_are_refused(bob: sy.VirtualWorker, me: sy.VirtualWorker) -> None:
    with pytest.raises(UnusableSetting, match="apply it to the data before"):
        bob.add_dataset(sy.BaseDataset(torch.ones(2), torch.ones(2), transform=abs), key="two")
    with pytest.raises(UnusableSetting, match=r"one at a worker: get\(\) it first"):
        bob.add_dataset(two().send(bob), key="two")
    assert bob.objects_count() == 0


def test_any_object_with_data_and_targets_will_do(bob: sy.VirtualWorker) -> None:
    bob.add_dataset(SimpleNamespace(data=torch.ones(2), targets=torch.zeros(2)), key="two")
    assert len(bob.search("#two")) == 2
    bob.clear_objects()


def test_a_server_offers_to_its_clients(hook: sy.TorchHook) -> None:
    with sy.WebsocketServerWorker(hook, port=0, id="dan") as server:
        server.add_dataset(two(), key="two")
        dan = sy.connect(str(server.address))
        (found,) = dan.search("#two", "#target")
        assert found.get().tolist() == [0, 1]
        del found
        dan.close()
        server.clear_objects()
