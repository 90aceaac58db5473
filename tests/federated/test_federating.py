"""Dividing data sets among workers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, StackDataset, Subset, TensorDataset

import syft as sy
from syft.exceptions import HookError, PermissionDenied, UnknownWorker, UnusableSetting

DATA, TARGETS = torch.rand(7, 2), torch.arange(7)


class Squares(Dataset[Any]):
    """Samples that are made when they are asked for: a tensor and a number."""

    def __init__(self, count: int = 7) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.tensor([float(index) ** 2]), index


def held(federated: sy.FederatedDataset) -> dict[str, list[int]]:
    """The targets by worker."""
    return {part.location.id: part.get().targets.tolist() for part in federated}


SOURCES = {
    "tensors": TensorDataset(DATA, TARGETS),
    "base": sy.BaseDataset(DATA, TARGETS),
    "made": Squares(),
    "subset": Subset(TensorDataset(DATA, TARGETS), range(7)),
    "stack": StackDataset(DATA, TARGETS),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_every_worker_gets_its_share(
    bob: sy.VirtualWorker, alice: sy.VirtualWorker, kind: str
) -> None:
    source: Any = SOURCES[kind]
    federated = source.federate((bob, "alice"))
    expected = torch.stack([source[row][0] for row in range(4)])
    assert torch.equal(federated["bob"].data.copy().get(), expected)
    assert held(federated) == {"bob": [0, 1, 2, 3], "alice": [4, 5, 6]}


@pytest.mark.parametrize("kind", ["tensors", "made"])
def test_a_partition_says_who_gets_what(
    bob: sy.VirtualWorker, alice: sy.VirtualWorker, kind: str
) -> None:
    parts = [torch.tensor([6, 0]), torch.tensor([], dtype=torch.int64)]
    federated = sy.dataset_federate(SOURCES[kind], (bob, alice), parts)
    assert [tuple(part.data.shape)[1:] for part in federated] == [SOURCES[kind][0][0].shape] * 2
    assert held(federated) == {"bob": [6, 0], "alice": []}
    with pytest.raises(UnusableSetting, match="partition must be 1 parts, got 2"):
        sy.dataset_federate(SOURCES[kind], [bob], parts)


def test_tags_and_the_transform_go_along(bob: sy.VirtualWorker, alice: sy.VirtualWorker) -> None:
    tagged = DATA.clone().tag("#X").describe("numbers")
    whole: Any = sy.BaseDataset(tagged, TARGETS.clone().tag("#Y"), transform=lambda x: x + 1)
    federated = whole.federate((bob, alice))
    (found,) = alice.search("#X")
    assert [len(found) for found in bob.search("#Y")] == [4]
    assert found.description == "numbers" and found.shape == (3, 2)
    assert torch.equal(federated["alice"][:][0].get(), DATA[4:] + 1), "applied once"


def test_private_parts_are_private(bob: sy.VirtualWorker, alice: sy.VirtualWorker) -> None:
    for kind in (sy.BaseDataset, TensorDataset):
        data: Any = kind(DATA.private_tensor(["ann"]), TARGETS)
        with pytest.raises(PermissionDenied):
            data.federate((bob, alice))
        for part in data.federate((bob, alice), user="ann"):
            with pytest.raises(PermissionDenied):
                part.data.get()
            part.targets.get()


def test_what_cannot_be_divided_is_refused(bob: sy.VirtualWorker) -> None:
    class Stream(IterableDataset[Any]):
        def __len__(self) -> int:
            return 3

        def __iter__(self) -> Any:
            return iter(())

    class Endless(Dataset[Any]):
        pass

    source: Any = SOURCES["tensors"]
    with pytest.raises(UnusableSetting, match="workers must be .*, got nobody"):
        source.federate(())
    with pytest.raises(UnusableSetting, match="workers must be .*, got bob, bob"):
        source.federate((bob, "bob"))
    with pytest.raises(UnknownWorker):
        source.federate(("nobody",))
    for wrong in (Stream(), Endless()):
        with pytest.raises(UnusableSetting, match="a data set with a length"):
            sy.dataset_federate(wrong, [bob])
    with pytest.raises(UnusableSetting, match=r"one of pairs \(x, y\), got samples of 3 parts"):
        sy.dataset_federate(TensorDataset(DATA, DATA, TARGETS), [bob])
    with pytest.raises(UnusableSetting, match="here, got one at bob: get"):
        sy.dataset_federate(sy.BaseDataset(DATA, TARGETS).send(bob), [bob])


def test_the_hook_adds_the_method_and_takes_it_back(hook: sy.TorchHook) -> None:
    assert vars(Dataset)["federate"] is sy.dataset_federate
    hook.close()
    assert not hasattr(Dataset, "federate")


def test_a_method_of_that_name_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Dataset, "federate", 5, raising=False)
    with pytest.raises(HookError, match="Dataset.federate exists already"):
        sy.TorchHook(torch)
    assert not hasattr(torch.Tensor, "send")
