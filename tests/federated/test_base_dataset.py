"""Data sets at one worker, compared with the same data set here."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

import syft as sy
from syft.exceptions import LocationMismatch, NothingToGet, PermissionDenied, UnusableSetting
from tests.shells.owner import inspect

DATA, TARGETS = torch.arange(12.0).view(6, 2), torch.tensor([0, 1, 2, 0, 1, 2])
INDICES = [
    0,
    -1,
    slice(1, 4),
    slice(None, None, 2),
    [3, 0],
    torch.tensor([5, 5, 1]),
    torch.tensor([True, False, False, True, False, True]),
    torch.tensor([], dtype=torch.int64),
]


def here() -> sy.BaseDataset:
    return sy.BaseDataset(DATA, TARGETS)


@pytest.mark.every_shell
@pytest.mark.parametrize("index", INDICES, ids=str)
def test_rows_are_those_of_the_tensors(bob: sy.VirtualWorker, index: Any) -> None:
    there = here().send(bob)
    for dataset, value in ((here(), lambda x: x), (there, lambda x: x.get())):
        data, targets = dataset[index]
        assert torch.equal(value(data), DATA[index])
        assert torch.equal(value(targets), TARGETS[index])


@pytest.mark.every_shell
def test_it_is_sent_in_one_message_and_fetched_in_one(
    hook: sy.TorchHook, bob: sy.VirtualWorker
) -> None:
    with hook.record() as log:
        there = here().send(bob)
        assert there.location is bob and there.data.location is bob
        assert len(there) == 6, "which is known"
        back = there.get()
    assert sum(entry.receiver == "bob" for entry in log) == 2
    assert torch.equal(back.data, DATA) and torch.equal(back.targets, TARGETS)
    assert back.location is None and inspect(bob).objects == {}


def test_index_tensors_may_lie_at_the_worker(bob: sy.VirtualWorker) -> None:
    there = here().send(bob)
    assert there[torch.tensor([4, 2]).send(bob)][1].get().tolist() == [1, 2]


def test_the_length_of_pointers_is_asked_once(hook: sy.TorchHook, bob: sy.VirtualWorker) -> None:
    bob.hold(DATA.clone().tag("#X"), TARGETS.clone().tag("#Y"), TARGETS[:5].clone().tag("#Z"))
    (data,), (targets,), (others,) = (bob.search(tag) for tag in ("#X", "#Y", "#Z"))
    there = sy.BaseDataset(data, targets)
    with hook.record() as log:
        assert len(there) == len(there) == 6
    assert len(log) == 4, "two questions, two answers"
    encoded = there.fix_precision()
    with hook.record() as log:
        assert len(encoded) == 6, "as many as it was made of"
    assert len(log) == 0
    del encoded
    wrong = sy.BaseDataset(data, others)
    with pytest.raises(UnusableSetting, match="targets must be as many as the data: 6, got 5"):
        assert len(wrong)
    bob.clear_objects()


def test_a_transform_is_applied_where_the_data_is(bob: sy.VirtualWorker) -> None:
    local = sy.BaseDataset(DATA, TARGETS, transform=lambda x: x * 2)
    assert torch.equal(local[1][0], DATA[1] * 2)
    there = local.send(bob)
    assert torch.equal(there[:3][0].get(), DATA[:3] * 2)
    assert torch.equal(there.get().data, DATA), "it is applied when rows are read"


def test_it_is_a_data_set_of_torch(hook: sy.TorchHook) -> None:
    batches = list(DataLoader(here(), batch_size=4))
    assert torch.equal(torch.cat([targets for _, targets in batches]), TARGETS)


def test_what_does_not_fit_is_refused(bob: sy.VirtualWorker, alice: sy.VirtualWorker) -> None:
    with pytest.raises(UnusableSetting, match="targets must be as many as the data: 6, got 5"):
        sy.BaseDataset(DATA, TARGETS[:5])
    with pytest.raises(UnusableSetting, match="targets must be a tensor, got a list"):
        sy.BaseDataset(DATA, [1, 2])
    with pytest.raises(LocationMismatch, match="bob and alice"):
        sy.BaseDataset(DATA.send(bob), TARGETS.send(alice))
    with pytest.raises(LocationMismatch, match="me and alice"):
        sy.BaseDataset(DATA, TARGETS.send(alice))
    both = DATA.send(bob, alice)
    with pytest.raises(UnusableSetting, match="at one worker, got a tensor at bob, alice"):
        sy.BaseDataset(both, both)
    with pytest.raises(NothingToGet):
        here().get()
    with pytest.raises(TypeError):
        sy.BaseDataset(torch.tensor(1.0), torch.tensor(1.0))


def test_private_rows_stay_private(bob: sy.VirtualWorker) -> None:
    private = sy.BaseDataset(DATA.private_tensor(["ann"]), TARGETS.private_tensor(["ann"]))
    there = private.send(bob, user="ann")
    for data, targets in (there[:2], there[torch.tensor([0, 1])]):
        assert data.shape == (2, 2), "shapes are public"
        for part in (data, targets):
            with pytest.raises(PermissionDenied):
                part.get()
        assert targets.get(user="ann").tolist() == [0, 1]
    rows = private[:2][0].send(bob, user="ann")  # rows that are read here are as private
    with pytest.raises(PermissionDenied):
        rows.get()
    with pytest.raises(PermissionDenied):
        there.get()
    assert torch.equal(there.get(user="ann").data, DATA)


def test_who_may_write_to_the_whole_may_write_to_rows(
    hook: sy.TorchHook, bob: sy.VirtualWorker
) -> None:
    open_to_all = DATA.private_tensor(["ann"], allow_writes=["me"])
    (held,) = bob.hold(sy.BaseDataset(open_to_all, TARGETS)[:2][0].tag("#rows"))
    (found,) = bob.search("#rows")
    found.add_(1)
    assert torch.equal(bob._objects[held], DATA[:2] + 1)
    bob.clear_objects()


def test_fixed_precision_and_shares(
    bob: sy.VirtualWorker, alice: sy.VirtualWorker, hook: sy.TorchHook
) -> None:
    encoded = sy.BaseDataset(DATA / 4, TARGETS).fix_precision(precision_fractional=3, base=10)
    assert encoded.data.child.grid.scale == 1000 and encoded.targets is TARGETS
    assert torch.equal(encoded.float_precision().data, DATA / 4)
    shared = encoded.share(alice, bob)
    assert shared.location is None and len(shared) == 6
    data, targets = shared[torch.tensor([3, 1])]
    assert torch.equal(data.get().float_precision(), DATA[[3, 1]] / 4)
    assert targets.get().tolist() == [0, 1]
    back = shared.get().float_precision()
    assert torch.equal(back.data, DATA / 4) and torch.equal(back.targets, TARGETS)
    there = sy.BaseDataset(DATA / 4, DATA[:, 0]).send(bob).fix_prec()
    decoded = there.float_prec().get()
    assert torch.equal(decoded.data, DATA / 4) and torch.equal(decoded.targets, DATA[:, 0])


def test_garbage_collection_can_be_left_out(bob: sy.VirtualWorker) -> None:
    there = here().send(bob, garbage_collect_data=False)
    del there
    assert len(inspect(bob)) == 2
    bob.clear_objects()


def test_it_shows_its_tensors(bob: sy.VirtualWorker) -> None:
    shown = repr(sy.BaseDataset(torch.ones(1), torch.zeros(1)))
    assert shown == "BaseDataset\n\tData: float32 (1,)\n\ttargets: float32 (1,)"
    assert "-> bob:" in repr(here().send(bob))


def test_rows_keep_the_device(hook: sy.TorchHook, device: torch.device) -> None:
    dataset = sy.BaseDataset(DATA.to(device), TARGETS.to(device))
    for index in (torch.tensor([1, 0]), torch.tensor([1, 0], device=device)):
        data, targets = dataset[index]
        assert data.device == targets.device == dataset.data.device
        assert torch.equal(data.cpu(), DATA[[1, 0]])
