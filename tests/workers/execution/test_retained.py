"""Gradients of intermediate results: as private as the loss, wherever the result is kept."""

from __future__ import annotations

import torch

import syft as sy
from syft.exceptions import PermissionDenied
from syft.ops.table import BY_NAME
from syft.workers.core.peer import Peer
from syft.workers.execution.permissions import full_guard_of
from syft.workers.execution.precautions import RUNNABLE
from syft.workers.execution.retained import recorded_of, retain_grad, retaining
from syft.workers.wire.messages import Done, Drop, Fetch
from tests.workers.core.peers import ask, command, error_in, lonely, put, ref

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
    core.hold(2, torch.ones(2, requires_grad=True))
    for message in (
        command("torch.Tensor.mul", ref(2), 1.0, out=10),
        command("torch.Tensor.retain_grad", ref(10)),
        command("torch.Tensor.mul", ref(10), ref(1), out=11),
        command("torch.Tensor.sum", ref(11), out=12),
    ):
        assert ask(core, message, peer=EVE) == Done(1)
    kept = core.store.read(10)
    ask(core, Drop(1, (10,)), peer=EVE)
    ask(core, command("torch.Tensor.backward", ref(12)), peer=EVE)
    assert kept.grad.tolist() == [3.25, -1.0]
    assert full_guard_of(kept.grad) == full_guard_of(core.store.read(1))
    core.hold(20, kept)
    ask(core, command("torch.Tensor.grad.__get__", ref(20), out=21), peer=EVE)
    assert isinstance(error_in(ask(core, Fetch(1, 21), peer=EVE)), PermissionDenied)


def test_what_a_chain_stands_before_is_meant(hook: sy.TorchHook) -> None:
    y = torch.ones(2, requires_grad=True) * 2
    logged = sy.LoggingTensor().on(y)
    assert recorded_of(logged) is y
    retain_grad(logged)
    assert [tensor for tensor in retaining() if tensor is y]
    bob = sy.VirtualWorker(hook, id="bob")
    away = torch.ones(2).send(bob)  # type: ignore[attr-defined]
    assert recorded_of(away) is None
