"""Batches of data at several workers, compared with the rows that they should be."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

import syft as sy
from syft.exceptions import PermissionDenied, UnusableSetting
from syft.federated import federated_dataset
from tests.shells.child import make_worker
from tests.shells.owner import inspect


def federated(workers: dict[Any, int]) -> sy.FederatedDataset:
    """So many samples at each worker, numbered throughout; the data is ten times the target."""
    parts, at = [], 0
    for worker, count in workers.items():
        targets = torch.arange(at, at + count)
        parts.append(sy.BaseDataset(targets[:, None] * 10.0, targets).send(worker))
        at += count
    return sy.FederatedDataset(parts)


def rows(batch: Any) -> list[int]:
    """The numbers of the samples in a batch, whose data must be theirs."""
    data, targets = batch[0].get(), batch[1].get()
    assert torch.equal(data, targets[:, None] * 10.0)
    numbers: list[int] = targets.tolist()
    return numbers


@pytest.mark.every_shell
def test_in_order_every_sample_comes_once(bob: sy.VirtualWorker, alice: sy.VirtualWorker) -> None:
    loader = sy.FederatedDataLoader(federated({bob: 5, alice: 2}), batch_size=2)
    for _ in range(2):
        steps = [(data.location, rows((data, target))) for data, target in loader]
        assert steps == [(bob, [0, 1]), (bob, [2, 3]), (bob, [4]), (alice, [5, 6])]
    assert len(loader) == 4


@pytest.mark.every_shell
def test_shuffled_every_sample_comes_once_in_another_order(
    bob: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    loader = sy.FederatedDataLoader(federated({bob: 20, alice: 10}), batch_size=4, shuffle=True)
    torch.manual_seed(3)
    epochs = [[rows(batch) for batch in loader] for _ in range(2)]
    for epoch in epochs:
        assert [len(batch) for batch in epoch] == [4] * 5 + [4, 4, 2]
        assert sorted(sum(epoch[:5], [])) == list(range(20))
        assert sorted(sum(epoch[5:], [])) == list(range(20, 30))
    assert epochs[0] != epochs[1]
    torch.manual_seed(3)
    assert [rows(batch) for batch in loader] == epochs[0]


def test_a_generator_of_its_own(bob: sy.VirtualWorker) -> None:
    def epoch() -> list[list[int]]:
        generator = torch.Generator().manual_seed(5)
        dataset = federated({bob: 9})
        loader = sy.FederatedDataLoader(dataset, shuffle=True, generator=generator)
        return [rows(batch) for batch in loader]

    before = torch.random.get_rng_state()
    first = epoch()
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(99)
    assert epoch() == first


def test_two_iterations_at_once_do_not_disturb_each_other(bob: sy.VirtualWorker) -> None:
    loader = sy.FederatedDataLoader(federated({bob: 3}), batch_size=1)
    pairs = [(int(one[1]), int(other[1])) for one in loader for other in loader]
    assert pairs == [(one, other) for one in range(3) for other in range(3)]


@pytest.mark.every_shell
def test_a_batch_of_each_worker(bob: sy.VirtualWorker, alice: sy.VirtualWorker) -> None:
    dataset = federated({bob: 5, alice: 2})
    loader = sy.FederatedDataLoader(dataset, batch_size=2, iter_per_worker=True)
    steps = [{worker.id: rows(batch) for worker, batch in step.items()} for step in loader]
    assert steps == [{"bob": [0, 1], "alice": [5, 6]}, {"bob": [2, 3]}, {"bob": [4]}]
    assert len(loader) == 3


@settings(
    max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(
    counts=st.lists(st.integers(0, 7), min_size=1, max_size=4),
    batch_size=st.integers(1, 4),
    drop_last=st.booleans(),
    iterators=st.integers(1, 4),
)
def test_steps_are_as_many_as_announced(
    hook: sy.TorchHook, counts: list[int], batch_size: int, drop_last: bool, iterators: int
) -> None:
    workers = {sy.VirtualWorker(hook, id=f"w{at}"): count for at, count in enumerate(counts)}
    iterators = min(iterators, len(counts))
    loader = sy.FederatedDataLoader(
        federated(workers), batch_size, num_iterators=iterators, drop_last=drop_last
    )
    steps = list(loader)
    batches = [step.values() if iterators > 1 else [step] for step in steps]
    assert len(steps) == len(loader)
    assert all(1 <= len(step) <= iterators for step in batches)
    seen = [rows(batch) for step in batches for batch in step]
    used = [count - count % batch_size if drop_last else count for count in counts]
    assert sum(map(len, seen)) == len(set(sum(seen, []))) == sum(used)
    assert not drop_last or all(len(batch) == batch_size for batch in seen)
    for worker in workers:
        worker.close()


def test_rows_travel_in_one_message_for_many_batches(
    hook: sy.TorchHook, bob: sy.VirtualWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(federated_dataset, "_AHEAD", 3)
    loader = sy.FederatedDataLoader(federated({bob: 7}), batch_size=1)
    with hook.record() as log:
        batches = list(loader)
    sent = [type(entry.message).__name__ for entry in log if entry.receiver == "bob"]
    assert sent.count("PutAll") == 3 and sent.count("Command") == 14 and len(sent) == 17
    assert [rows(batch) for batch in batches] == [[number] for number in range(7)]


def test_a_batch_is_a_copy(bob: sy.VirtualWorker) -> None:
    dataset = federated({bob: 2})
    for data, _ in sy.FederatedDataLoader(dataset):
        data.add_(1)
    assert dataset["bob"].data.get().tolist() == [[0.0], [10.0]]


def test_nothing_is_left_of_an_epoch_that_was_broken_off(bob: sy.VirtualWorker) -> None:
    dataset = federated({bob: 9})
    for _ in sy.FederatedDataLoader(dataset, batch_size=1):
        break
    del _
    assert len(inspect(bob)) == 2


def test_samples_are_put_together_as_asked(bob: sy.VirtualWorker) -> None:
    def collate(samples: list[tuple[Any, Any]]) -> Any:
        return torch.stack([data for data, _ in reversed(samples)])

    loader = sy.FederatedDataLoader(federated({bob: 3}), batch_size=2, collate_fn=collate)
    assert [batch.get().flatten().tolist() for batch in loader] == [[10.0, 0.0], [20.0]]


def test_a_transform_runs_where_the_batch_is(bob: sy.VirtualWorker) -> None:
    part = sy.BaseDataset(torch.ones(2, 1), torch.zeros(2), transform=lambda x: x + 1)
    ((data, _),) = sy.FederatedDataLoader(sy.FederatedDataset([part.send(bob)]))
    assert data.get().tolist() == [[2.0], [2.0]]


def test_settings_that_make_no_sense_are_refused(bob: sy.VirtualWorker) -> None:
    dataset = federated({bob: 2})
    with pytest.raises(UnusableSetting, match="batch_size must be 1 or more, got 0"):
        sy.FederatedDataLoader(dataset, batch_size=0)
    with pytest.raises(UnusableSetting, match="num_iterators must be from 1 to 1, got 2"):
        sy.FederatedDataLoader(dataset, num_iterators=2)
    nobody = sy.FederatedDataLoader(sy.FederatedDataset([]), num_workers=1, pin_memory=True)
    assert list(nobody) == [] and len(nobody) == 0


@pytest.mark.every_shell
def test_private_batches_stay_private(bob: sy.VirtualWorker) -> None:
    data = torch.rand(6, 2).private_tensor(["ann"])
    targets = torch.arange(6).private_tensor(["ann"])
    bob.hold(data.tag("#X"), targets.tag("#Y"))
    dataset = sy.FederatedDataset.from_search([bob], "#X", "#Y")
    loader = sy.FederatedDataLoader(dataset, batch_size=4, shuffle=True)
    assert len(loader) == 2
    for data, targets in loader:
        assert data.shape == (len(targets), 2)
        for private in (data, targets, data.sum(), targets + 1):
            with pytest.raises(PermissionDenied):
                private.get()
    del data, targets, private
    assert len(inspect(bob)) == 2
    bob.clear_objects()


def test_training_on_it_is_training_on_the_rows(
    hook: sy.TorchHook, bob: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    x, y = torch.rand(12, 3), torch.randint(2, (12,))
    dataset: Any = torch.utils.data.TensorDataset(x, y)
    models: list[Any] = [torch.nn.Linear(3, 2) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())

    def step(model: Any, data: Any, target: Any) -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        optimizer.zero_grad()
        F.cross_entropy(model(data), target).backward()
        optimizer.step()

    for data, target in sy.FederatedDataLoader(dataset.federate((bob, alice)), batch_size=4):
        models[0].send(data.location)
        step(models[0], data, target)
        models[0].get()
    for rows_used in ([0, 1, 2, 3], [4, 5], [6, 7, 8, 9], [10, 11]):
        step(models[1], x[rows_used], y[rows_used])
    assert torch.equal(models[0].weight, models[1].weight)


def test_queued_workers_too(hook: sy.TorchHook) -> None:
    slow = make_worker(hook, "slow", pipelined=True)
    loader = sy.FederatedDataLoader(federated({slow: 5}), batch_size=2)
    assert [rows(batch) for batch in loader] == [[0, 1], [2, 3], [4]]


def test_how_many_rows_a_worker_says_takes_no_memory_here(bob: sy.VirtualWorker) -> None:
    """A row that is repeated without end stands for a worker that lies."""
    rows = 1 << 30
    bob.hold(torch.ones(1).expand(rows).tag("#X"), torch.arange(1).expand(rows).tag("#Y"))
    found = sy.FederatedDataset.from_search([bob], "#X", "#Y")
    assert f"{rows}" in repr(found)
    loader = sy.FederatedDataLoader(found, batch_size=2, shuffle=True)
    assert len(loader) == rows // 2
    text = f"the rows to shuffle must be at most 134,217,728, got {rows:,}, as 'bob' says"
    with pytest.raises(UnusableSetting, match=text):
        next(iter(loader))
    data, targets = next(iter(sy.FederatedDataLoader(found, batch_size=2)))
    assert data.get().tolist() == [1, 1] and targets.get().tolist() == [0, 0]
    bob.clear_objects()
