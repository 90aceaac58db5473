"""Whoever sent private data lets others read a copy; what was computed before stays as it was."""

from __future__ import annotations

import pytest
import torch

import syft as sy
from syft.ids import new_id
from syft.workers.wire.messages import Allow
from tests.chain.refusal import refusal
from tests.shells.child import make_worker
from tests.shells.owner import inspect

pytestmark = pytest.mark.every_shell


def private(worker: sy.VirtualWorker, *values: float) -> torch.Tensor:
    """Private data of ann's at a worker."""
    tensor = torch.tensor(values or (1.0, 2.0), requires_grad=True)
    return tensor.private_tensor(["ann"]).tag("#ages").send(worker, user="ann")


def test_a_copy_is_for_more_users(worker: sy.VirtualWorker) -> None:
    x = private(worker)
    before = x * 2
    wider = x.allow("bea", "carl")
    after = wider * 2
    for user in ("ann", "bea", "carl"):
        assert wider.copy().get(user=user).tolist() == [1, 2]
        assert (after + 1).get(user=user).tolist() == [3, 5]
    for pointer in (x, before):
        assert refusal(lambda pointer=pointer: pointer.get(user="bea")).startswith(
            "PermissionDenied: get"
        )
    assert refusal(lambda: wider.get(user="zoe")).startswith("PermissionDenied: get")
    assert refusal(lambda: (wider + x).get(user="bea")).startswith("PermissionDenied: get")
    assert before.get(user="ann").tolist() == [2, 4]


def test_it_has_memory_of_its_own_and_no_gradient(worker: sy.VirtualWorker) -> None:
    x = private(worker)
    (x * 3).sum().backward()
    wider = x.allow("bea")
    with torch.no_grad():
        wider.add_(1)
    assert x.get(user="ann").tolist() == [1, 2]
    leaf = wider.get(user="bea")
    assert leaf.requires_grad and leaf.is_leaf and leaf.grad is None
    assert leaf.tolist() == [2, 3] and leaf.tags == {"#ages"}
    del x


def test_a_result_is_released_and_its_graph_stays(worker: sy.VirtualWorker) -> None:
    x = private(worker)
    total = (x * x).sum()
    released = total.allow("bea")
    assert released.get(user="bea").item() == 5
    total.backward()
    assert refusal(lambda: x.grad.get(user="bea")).startswith("PermissionDenied: get")
    assert x.grad.get(user="ann").tolist() == [2, 4]


def test_another_worker_may_be_named_later(
    worker: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    x = private(worker)
    assert refusal(lambda: x.copy().move(alice)).startswith("PermissionDenied: move")
    moved = x.allow(destinations=[alice]).move(alice)
    assert refusal(lambda: moved.copy().get(user="bea")).startswith("PermissionDenied: get")
    there = moved.allow("bea")  # whose it is, goes along
    assert there.get(user="bea").tolist() == [1, 2]


def test_nobody_owns_what_he_has_moved(
    hook: sy.TorchHook, worker: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    """Eve may have a result moved to where it may go; she may not release it there either."""
    me = hook.local_worker
    x = torch.ones(2).private_tensor(["ann"], allow_destinations=["alice"])
    x = x.send(worker, user="ann")
    me.user = "eve"
    try:
        computed = x * 2
        assert refusal(lambda: computed.allow("eve")).startswith("PermissionDenied: allow: object")
        moved = computed.move(alice)
        assert refusal(lambda: moved.allow("eve")).startswith("PermissionDenied: allow: object")
        assert refusal(lambda: moved.get()).startswith("PermissionDenied: get")
    finally:
        me.user = None
    assert moved.get(user="ann").tolist() == [2, 2]


def test_data_of_two_is_released_by_neither(hook: sy.TorchHook, worker: sy.VirtualWorker) -> None:
    me = hook.local_worker
    pointers = {}
    for user in ("ann", "bea"):
        me.user = user
        pointers[user] = torch.ones(2).private_tensor(["ann", "bea"]).send(worker)
    total = pointers["ann"] + pointers["bea"]
    for user in ("ann", "bea"):
        me.user = user
        assert refusal(lambda: total.allow("eve")).startswith("PermissionDenied: allow: object")
        assert total.copy().get().tolist() == [2, 2]
        assert pointers[user].allow("eve").get(user="eve").tolist() == [1, 1]
    me.user = None
    for pointer in (total, *pointers.values()):
        pointer.child.garbage_collect_data = False
    worker.clear_objects()


def test_public_data_is_copied(worker: sy.VirtualWorker) -> None:
    assert torch.ones(2).send(worker).allow("bea").get().tolist() == [1, 1]


def test_a_promise_is_allowed_when_it_has_come(worker: sy.VirtualWorker) -> None:
    promise = worker.promise()
    wider = promise.allow("bea")
    assert refusal(lambda: wider.get(user="bea")).startswith("ObjectNotReady")
    x = torch.ones(2).private_tensor(["ann"])
    kept = x.send(worker, id=promise.id_at_location, user="ann")
    assert wider.get(user="bea").tolist() == [1, 1]
    del kept


def test_several_workers(
    hook: sy.TorchHook, worker: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    x = torch.ones(2).private_tensor(["ann"]).send(worker, alice, user="ann")
    assert [part.tolist() for part in x.allow("bea").get(user="bea")] == [[1, 1], [1, 1]]


def test_layouts_and_chains(worker: sy.VirtualWorker) -> None:
    sparse = torch.eye(2).to_sparse().private_tensor(["ann"]).send(worker, user="ann")
    assert sparse.allow("bea").get(user="bea").to_dense().tolist() == [[1, 0], [0, 1]]
    fixed = torch.ones(2).fix_precision().private_tensor(["ann"]).send(worker, user="ann")
    assert fixed.allow("bea").get(user="bea").float_precision().tolist() == [1, 1]
    assert refusal(lambda: fixed.get(user="bea")).startswith("PermissionDenied: get")


def test_what_is_refused(hook: sy.TorchHook, bob: sy.VirtualWorker) -> None:
    carl = make_worker(hook, id="carl")
    assert refusal(lambda: torch.ones(2).allow("bea")).startswith("NothingToGet: allow()")
    through = private(bob).send(carl)
    assert refusal(lambda: through.allow("bea")).startswith(
        "UnsupportedOperation: a pointer to a pointer has no rule for allow"
    )
    inner = sy.LoggingTensor().on(torch.ones(2)).send(bob)
    assert refusal(lambda: inner.child.child.allow(("bea",))).startswith("UnsupportedOperation")
    plan = sy.func2plan(args_shape=[(2,)])(lambda x: x * 2).send(bob)
    fields = (plan.id_at_location, ("bea",), new_id())
    assert refusal(lambda: bob.connection().ask(Allow, *fields)) == (
        "UnsupportedOperation: a plan has no rule for allow: send it again with a state of wider "
        "guards."
    )
    assert len(inspect(carl)) == 1
