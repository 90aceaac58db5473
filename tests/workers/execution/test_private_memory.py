"""What shares memory with a private tensor of this process leaves it as private as that."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

import syft as sy
from syft.exceptions import LocationMismatch, PermissionDenied
from syft.workers.execution.private_memory import make_private
from syft.workers.labels.guards import Guard
from syft.workers.labels.memory_labels import full_guard_of

ANN = ["ann"]

VIEWS: dict[str, Callable[[Any], torch.Tensor]] = {
    "itself": lambda x: x,
    "as it is": lambda x: x[:],
    "rows": lambda x: x[0:2],
    "transposed": lambda x: x.t(),
    "detached": lambda x: x.detach(),
    "data": lambda x: x.data,
    "flat": lambda x: x.view(-1),
    "an element": lambda x: x[1, 1],
    "a view of a view": lambda x: x.t()[1:].unsqueeze(0),
    "a parameter": lambda x: torch.nn.Parameter(x),
    "the other bits": lambda x: x.view(torch.int32),
    "what numpy shares": lambda x: x.as_strided((2,), (1,), 0),
    "a view that requires grad": lambda x: x.detach().requires_grad_(),
}


def data() -> torch.Tensor:
    return torch.arange(12.0).view(4, 3)


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_is_as_private(bob: sy.VirtualWorker, view: str) -> None:
    private = data().private_tensor(allowed_users=ANN)  # type: ignore[attr-defined]
    part: Any = VIEWS[view](private)
    with pytest.raises(PermissionDenied):
        part.send(bob)
    pointer = part.send(bob, user="ann")
    with pytest.raises(PermissionDenied):
        (pointer * 1).get()
    assert torch.equal((pointer * 1).get(user="ann"), part * 1)


def test_so_is_what_has_a_view_for_its_gradient(bob: sy.VirtualWorker) -> None:
    y: Any = torch.ones(4, 3, requires_grad=True)
    y.grad = data().private_tensor(allowed_users=ANN).detach()  # type: ignore[attr-defined]
    with pytest.raises(PermissionDenied):
        y.send(bob)


def test_what_it_was_made_of_and_what_is_computed_are_not(bob: sy.VirtualWorker) -> None:
    x: Any = data()
    private = x[:2].private_tensor(allowed_users=ANN)
    assert torch.equal(x.send(bob).get(), data())
    assert torch.equal(private.clone().send(bob).get(), data()[:2])


def test_it_shares_the_data_with_what_it_was_made_of(hook: sy.TorchHook) -> None:
    for x in (data(), data()[:, ::2], data()[3:1], torch.ones(()), torch.ones(1, 3).t(), odd()):
        private: Any = x.private_tensor(allowed_users=ANN)  # type: ignore[attr-defined]
        assert private.shape == x.shape and private.stride() == x.stride()
        assert torch.equal(private, x) and private.dtype == x.dtype and private.device == x.device
        x.zero_()
        assert not private.any()


def encoded() -> torch.Tensor:
    """A tensor on a grid."""
    return data().fix_precision()  # type: ignore[attr-defined, no-any-return]


def odd() -> torch.Tensor:
    """A conjugated tensor, which torch does not export."""
    return torch.tensor([1 + 2j, 3j]).conj()


@pytest.mark.parametrize("view", VIEWS)
def test_a_worker_holds_it_as_private(bob: sy.VirtualWorker, view: str) -> None:
    private: Any = data().private_tensor(allowed_users=ANN)  # type: ignore[attr-defined]
    held: Any = VIEWS[view](private)
    (id,) = bob.hold(held)
    assert held.untyped_storage().resizable()
    for part in (held.data, private[1:]):
        with pytest.raises(PermissionDenied):
            part.send(bob)
    with pytest.raises(PermissionDenied):
        bob.search(id)[0].get()
    assert torch.equal(bob.search(id)[0].copy().get(user="ann"), VIEWS[view](data()))
    bob.clear_objects()


def test_a_view_of_it_is_made_more_private_only(bob: sy.VirtualWorker) -> None:
    x: Any = data()
    for user in ("ann", "bea"):
        private = x.private_tensor(allowed_users=[user])
        assert torch.equal(private.send(bob, user=user).get(user=user), x)
    again = private[1:].private_tensor(allowed_users=["ann", "bea"])
    with pytest.raises(PermissionDenied):
        again.send(bob, user="ann")
    assert torch.equal(again.send(bob, user="bea").get(user="bea"), x[1:])


@pytest.mark.parametrize("kind", ["sparse", "conjugated", "encoded"])
def test_what_torch_does_not_export(bob: sy.VirtualWorker, kind: str) -> None:
    make: Any = {
        "sparse": lambda: (torch.eye(3).to_sparse(), lambda x: x._values()[1:]),
        "conjugated": lambda: (odd(), lambda x: x[1:]),
        "encoded": lambda: (encoded(), lambda x: x.detach()),
    }[kind]
    x, view = make()
    with pytest.raises(PermissionDenied):
        view(x.private_tensor(allowed_users=ANN)).send(bob)


def test_every_other_way_out(
    hook: sy.TorchHook, bob: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    private: Any = data().private_tensor(allowed_users=ANN)  # type: ignore[attr-defined]
    view, index = private[1:], torch.arange(3).private_tensor(ANN)[1:]  # type: ignore[attr-defined]
    there = torch.arange(3.0).send(bob)  # type: ignore[attr-defined]
    plan = sy.func2plan(args_shape=[(3,)], state=[view[0]])(lambda x, state: x + state.read()[0])
    model: Any = torch.nn.Linear(3, 4)
    model.weight = torch.nn.Parameter(private.data)
    for leave in (
        lambda: view.send(bob, alice),
        lambda: view.send(bob, id=sy.ids.content),
        lambda: view.fix_precision().send(bob),
        lambda: view.detach().fix_precision_().send(bob),
        lambda: view.fix_precision().share(alice, bob),
        lambda: plan.send(bob),
        lambda: model.send(bob),
        lambda: sy.send_all(private.unbind(), bob),
        lambda: sy.BaseDataset(private.t(), torch.arange(3))[0][0].send(bob),
    ):
        with pytest.raises(PermissionDenied):
            leave()
    with pytest.raises(LocationMismatch):
        there[index]


def test_it_ends_with_the_memory() -> None:
    x = torch.ones(4)
    private = x.detach()
    make_private(private, Guard(frozenset()))
    storages = [weakref.ref(tensor.untyped_storage()) for tensor in (x, private)]
    del x, private
    gc.collect()
    assert [storage() for storage in storages] == [None, None]
    assert full_guard_of(torch.ones(4)) is None
