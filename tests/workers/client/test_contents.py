"""Constants are sent once, and what was sent is never taken for something else."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import syft as sy
from syft.exceptions import NotSendable
from syft.ids import content, digest
from syft.workers.wire.messages import Holds, Put
from tests.workers.core.peers import ask, lonely, put, value_in
from syft.workers.core.peer import Peer

pytestmark = pytest.mark.every_shell


def sent(hook: sy.TorchHook, worker: sy.VirtualWorker, tensor: Any, **how: Any) -> tuple[Any, int]:
    """A pointer to a tensor that was sent by its content, and how many times data travelled."""
    with hook.record() as log:
        pointer = tensor.send(worker, id=sy.ids.content, **how)
    return pointer, sum(type(entry.message) is Put for entry in log.to(worker.id))


def test_an_equal_tensor_is_not_sent_again(hook: sy.TorchHook, bob: sy.VirtualWorker) -> None:
    x = torch.randn(50)
    first, count = sent(hook, bob, x)
    second, again = sent(hook, bob, x.clone())
    assert (count, again) == (1, 0)
    assert first.id_at_location == second.id_at_location and bob.objects_count() == 1
    del first
    assert bob.objects_count() == 1
    third, again = sent(hook, bob, x)
    assert again == 0
    del second
    assert torch.equal((third + 0).get(), x)
    del third
    assert bob.objects_count() == 0
    fourth, count = sent(hook, bob, x)
    assert count == 1 and torch.equal(fourth.get(), x)


@pytest.mark.parametrize("how", ["written", "fetched"])
def test_what_was_changed_is_sent_anew(hook: sy.TorchHook, bob: sy.VirtualWorker, how: str) -> None:
    x = torch.randn(50)
    first, _ = sent(hook, bob, x)
    if how == "written":
        first.data.add_(1)  # raises no version counter
    else:
        first.get()
    second, count = sent(hook, bob, x)
    third, none = sent(hook, bob, x)
    assert (count, none) == (1, 0)
    assert torch.equal(second.copy().get(), x)


@pytest.mark.parametrize("how", ["fetched", "moved"])
def test_the_id_of_a_constant_that_left_may_be_taken(
    hook: sy.TorchHook, bob: sy.VirtualWorker, alice: sy.VirtualWorker, how: str
) -> None:
    """The pointers that were counted for the constant are not those of the other tensor."""
    first, _ = sent(hook, bob, torch.ones(2))
    id = first.id_at_location
    left = first.get() if how == "fetched" else first.move(alice)
    other = torch.zeros(3).send(bob, id=id)
    again, count = sent(hook, bob, torch.ones(2))
    assert count == 1 and again.id_at_location != id
    assert (other + 1).get().tolist() == [1, 1, 1]
    del other, again
    assert bob.objects_count() == 0, "nothing stays behind"
    connection = bob.connection()
    assert not connection.garbage.owners, "and nothing is counted for ever"
    del left


def test_a_promise_that_was_fetched_is_counted_no_more(bob: sy.VirtualWorker) -> None:
    promise = bob.promise()
    kept = torch.ones(2).send(bob, id=promise.id_at_location)
    assert promise.get().tolist() == [1, 1]
    other = torch.zeros(2).send(bob, id=kept.id_at_location)
    assert other.get().tolist() == [0, 0] and not bob.connection().garbage.owners
    del kept


@pytest.mark.virtual_only("exchanges an object in the worker's store")
def test_what_was_exchanged_is_sent_anew(hook: sy.TorchHook, bob: sy.VirtualWorker) -> None:
    x = torch.randn(50)
    first, _ = sent(hook, bob, x)
    bob.core.store.objects[first.id_at_location] = torch.randn(50)
    second, count = sent(hook, bob, x)
    third, none = sent(hook, bob, x)
    assert (count, none) == (1, 0)
    assert torch.equal(second.copy().get(), x)


def test_a_fetch_leaves_it_to_the_other_pointers(hook: sy.TorchHook, bob: sy.VirtualWorker) -> None:
    x = torch.randn(50)
    first, _ = sent(hook, bob, x)
    second, _ = sent(hook, bob, x)
    assert torch.equal(first.get(), x) and bob.objects_count() == 1
    del first
    assert torch.equal((second + 0).get(), x)
    assert torch.equal(second.get(), x) and bob.objects_count() == 0
    assert sent(hook, bob, x)[1] == 1


def test_pointers_to_one_constant_see_what_is_written(
    hook: sy.TorchHook, bob: sy.VirtualWorker
) -> None:
    first, _ = sent(hook, bob, torch.ones(2))
    second, _ = sent(hook, bob, torch.ones(2))
    second.mul_(0)
    assert torch.equal((first + 0).get(), torch.zeros(2))


def test_who_never_collects_keeps_it(hook: sy.TorchHook, bob: sy.VirtualWorker) -> None:
    x = torch.ones(3)
    first, _ = sent(hook, bob, x, garbage_collect_data=False)
    second, count = sent(hook, bob, x)
    assert count == 0
    del first, second
    assert bob.objects_count() == 1
    bob.clear_objects()


def test_private_and_special_tensors_are_not_shared(
    hook: sy.TorchHook, bob: sy.VirtualWorker
) -> None:
    private = torch.ones(3).private_tensor(["ann"])
    cases: list[tuple[Any, dict[str, Any]]] = [
        (private, {"user": "ann"}),
        (torch.ones(3, requires_grad=True), {}),
        (torch.eye(3).to_sparse(), {}),
        (torch.ones(3).tag("#a"), {}),
        (torch.ones(3).describe("three"), {}),
    ]
    for tensor, how in cases:
        (one, first), (two, second) = (sent(hook, bob, tensor, **how) for _ in range(2))
        assert first == second == 1 and one.id_at_location != two.id_at_location
    with pytest.raises(NotSendable, match="that works for plain tensors"):
        content(torch.eye(2).to_sparse())
    del one, two


def test_workers_do_not_share_what_they_sent(
    hook: sy.TorchHook, bob: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    x = torch.ones(4)
    mine, _ = sent(hook, bob, x)
    there, _ = sent(hook, alice, x)
    assert mine.id_at_location != there.id_at_location


def test_many_contents_are_not_remembered_forever(
    bob: sy.VirtualWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("syft.workers.client.contents._MOST", 4)
    kept: Any = torch.tensor([0.5]).send(bob, id=sy.ids.content)  # type: ignore[attr-defined]
    for number in range(20):
        torch.tensor([number]).send(bob, id=sy.ids.content)  # type: ignore[attr-defined]
    bob.collect()
    assert len(kept.child.connection.contents) <= 5
    assert content(torch.tensor([0.5])) in kept.child.connection.contents


def test_the_answer_about_private_objects_is_no() -> None:
    core = lonely()
    put(core, 5, torch.ones(2))
    put(core, 6, torch.ones(2), users=("ann",))
    core.hold(7, torch.eye(2).to_sparse())
    one, eve = digest(torch.ones(2)), Peer("eve", "eve")
    assert value_in(core, Holds(1, 5, one), peer=eve) is True
    assert value_in(core, Holds(1, 5, one[:-1] + b"?"), peer=eve) is False
    assert value_in(core, Holds(1, 6, one), peer=eve) is False
    assert value_in(core, Holds(1, 6, one), peer=Peer("ann", "ann")) is True
    assert value_in(core, Holds(1, 7, one)) is value_in(core, Holds(1, 8, one)) is False
    ask(core, Holds(1, 5, one, drop=(6,)))
    assert sorted(core.store.objects) == [5, 7]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool, torch.complex64])
def test_contents_tell_tensors_apart(dtype: torch.dtype) -> None:
    x = torch.tensor([[0, 1, 2], [3, 0, 5]]).to(dtype)
    assert content(x) == content(x.t().contiguous().t()) == content(x.clone())
    other = torch.int16 if not dtype.is_complex else torch.complex128
    others = [x.t(), x.flatten(), x.to(other), x[:1], x.new_zeros(()), x.roll(1, 1)]
    numbers = {content(other) for other in [x, *others]}
    assert len(numbers) == len(others) + 1
    assert all(0 <= number < 2**63 for number in numbers)
    if dtype.is_complex:
        assert content(x.conj()) == content(x.conj().resolve_conj())
