"""Gradients of intermediate results: as private as the loss, wherever the result is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import syft as sy
from syft.exceptions import PermissionDenied
from syft.ops.table import BY_NAME
from syft.workers.core.peer import Peer
from syft.workers.hardening.precautions import RUNNABLE
from syft.workers.labels.memory_labels import full_guard_of
from syft.workers.labels.reached_graph import retain_grad, retaining
from syft.workers.labels.walk import recorded_of
from syft.workers.wire.messages import Done, Drop, Fetch
from tests.workers.core.peers import ask, command, error_in, lonely, put, ref, sent

EVE = Peer("eve", "eve")


def test_it_does_what_torch_does() -> None:
    assert RUNNABLE[BY_NAME["torch.Tensor.retain_grad"]] is retain_grad
    x = torch.ones(2, requires_grad=True)
    y = x * 2
    for _ in range(2):
        retain_grad(y)
    (y * 3).sum().backward()
    assert y.grad is not None and y.grad.tolist() == [3, 3]
    assert [tensor for tensor in retaining() if tensor is y]


def test_it_is_forgotten_with_the_tensor() -> None:
    y = torch.ones(2, requires_grad=True) * 2
    retain_grad(y)
    known = len(retaining())
    del y
    assert len(retaining()) == known - 1


def test_a_tensor_in_no_store_is_found() -> None:
    core = lonely()
    put(core, 1, torch.tensor([3.25, -1.0]), users=("ann",))
    put(core, 2, torch.ones(2, requires_grad=True), peer=EVE)
    for message in (
        command("torch.Tensor.mul", ref(2), 1.0, out=10),
        command("torch.Tensor.retain_grad", ref(10)),
        command("torch.Tensor.mul", ref(10), ref(1), out=11),
        command("torch.Tensor.sum", ref(11), out=12),
    ):
        assert ask(core, message, peer=EVE) == Done(1)
    kept = core.store.open(10)
    ask(core, Drop(1, (10,)), peer=EVE)
    sent(core, command("torch.Tensor.backward", ref(12)), peer=EVE)  # a notice to others, too
    assert kept.grad.tolist() == [3.25, -1.0]
    assert full_guard_of(kept.grad) == full_guard_of(core.store.open(1))
    core.hold(20, kept)
    ask(core, command("torch.Tensor.grad.__get__", ref(20), out=21), peer=EVE)
    assert isinstance(error_in(ask(core, Fetch(1, 21), peer=EVE)), PermissionDenied)


def held(bob: sy.VirtualWorker) -> torch.Tensor:
    """A result that the owner computed and holds."""
    y = torch.ones(2, requires_grad=True) * 2
    bob.hold(y, allow_writes=("me",))
    return y


def looked_at(bob: sy.VirtualWorker) -> torch.Tensor:
    """A result of a caller's that the owner has looked at."""
    leaf: Any = torch.ones(2, requires_grad=True)
    kept = leaf.send(bob) * 2
    (found,) = (value for value in bob._objects.values() if value.grad_fn is not None)
    bob.core.own(kept.id_at_location, ("me",))  # it stays
    return found


@pytest.mark.parametrize("owners", [held, looked_at])
@pytest.mark.parametrize("in_a_program", [False, True])
def test_what_the_owner_retains_is_guarded(
    hook: sy.TorchHook, owners: Callable[[sy.VirtualWorker], torch.Tensor], in_a_program: bool
) -> None:
    """The owner's own program calls retain_grad, of which its worker does not learn."""
    bob = sy.VirtualWorker(hook, id="bob")
    secret: Any = torch.tensor([3.25, -1.0])
    secret = secret.private_tensor(["ann"]).send(bob, user="ann")
    y = owners(bob)
    (id,) = (id for id, value in bob.core.store.objects.items() if value is y)
    y.retain_grad()
    (pointer,) = bob.search(str(id))
    loss = (pointer * secret).sum()
    if in_a_program:
        with bob.group():
            loss.backward(retain_graph=True)
    else:
        loss.backward(retain_graph=True)
    assert y.grad is not None and y.grad.tolist() == [3.25, -1.0]
    assert full_guard_of(y.grad) is not None
    with pytest.raises(PermissionDenied):
        pointer.grad.get()
    pointer.sum().backward()  # a public loss adds to it
    with pytest.raises(PermissionDenied):
        pointer.grad.get()
    assert pointer.grad.get(user="ann").tolist() == [4.25, 0.0]
    bob.clear_objects()


def test_objects_that_have_nothing_to_do_with_a_loss_are_not_looked_at(hook: sy.TorchHook) -> None:
    bob = sy.VirtualWorker(hook, id="bob")
    plain: list[Any] = [torch.ones(2), torch.ones(2, requires_grad=True)]
    bob.hold(*plain)
    y: Any = torch.ones(2, requires_grad=True)
    kept = y.send(bob) * 2
    assert bob.core.store.graphs_of_owner() == []
    assert len(bob._objects) == 3 and len(bob.core.store.graphs_of_owner()) == 1
    del kept
    bob.collect()
    assert bob.core.store.graphs_of_owner() == []
    bob.clear_objects()


def test_what_was_retained_while_nothing_was_private_is_found_later(hook: sy.TorchHook) -> None:
    bob = sy.VirtualWorker(hook, id="bob")
    weight: Any = torch.ones(2, requires_grad=True)
    weight = weight.send(bob)
    with bob.group():
        hidden = weight * 1
        hidden.retain_grad()
    secret: Any = torch.tensor([3.25, -1.0])
    secret = secret.private_tensor(["ann"]).send(bob, user="ann")
    (hidden * secret).sum().backward()
    for gradient in (hidden.grad, weight.grad):
        with pytest.raises(PermissionDenied):
            gradient.get()


def test_a_result_that_the_local_worker_offers(hook: sy.TorchHook) -> None:
    me = hook.local_worker
    me.is_client_worker = False
    y: Any = torch.ones(2, requires_grad=True) * 2
    y.tag("#result")
    assert me.core.store.graphs_of_owner() == [y]
    me.clear_objects()


def test_what_a_chain_stands_before_is_meant(hook: sy.TorchHook) -> None:
    y = torch.ones(2, requires_grad=True) * 2
    logged = sy.LoggingTensor().on(y)
    assert recorded_of(logged) is y
    retain_grad(logged)
    assert [tensor for tensor in retaining() if tensor is y]
    bob = sy.VirtualWorker(hook, id="bob")
    away = torch.ones(2).send(bob)  # type: ignore[attr-defined]
    assert recorded_of(away) is None
