"""What seldom happens to devices: too many, none any more, and what torch does below them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import syft as sy
from syft.exceptions import HookError, UnknownDevice
from syft.ops.table import BY_NAME
from syft.tensors import device_tensor
from syft.tensors.device_tensor import KERNELS, NewTensor, device_meant
from syft.workers.wire.references import REF


@pytest.fixture
def device(hook: sy.TorchHook, bob: sy.VirtualWorker) -> torch.device:
    return sy.device(bob)


def test_there_are_as_many_devices_as_torch_can_number(
    monkeypatch: pytest.MonkeyPatch, device: torch.device, alice: sy.VirtualWorker
) -> None:
    monkeypatch.setattr(device_tensor, "_MOST", 1)
    with pytest.raises(UnknownDevice, match="torch numbers 1 of them"):
        sy.device(alice)
    assert sy.device("bob") == device


def test_the_last_number_is_one_that_torch_has() -> None:
    assert torch.device(device_tensor.KIND, device_tensor._MOST).index == device_tensor._MOST


def test_no_name_is_a_worker_without_a_hook() -> None:
    hook = sy.TorchHook(torch)
    bob = sy.VirtualWorker(hook, id="bob")
    sy.device(bob)
    hook.close()
    with pytest.raises(HookError, match="no worker is a device"):
        device_meant("bob")


def test_a_name_of_a_worker_is_enough_for_a_module(hook: sy.TorchHook) -> None:
    bob = sy.VirtualWorker(hook, id="first by name")
    model: Any = torch.nn.Linear(2, 1).to("first by name")
    assert model.weight.location is bob
    there = torch.nn.Linear(2, 1).double().to(model.weight)
    assert there.weight.location is bob and there.weight.dtype is torch.float32  # type: ignore


@pytest.mark.parametrize("place", [torch.device("cuda"), torch.device("vulkan"), 0])
def test_what_torch_refuses_is_refused_as_by_torch(
    device: torch.device, place: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if torch.cuda.is_available():
        pytest.skip("torch takes it")
    with pytest.raises((RuntimeError, AssertionError, UnknownDevice)):
        torch.ones(2).to(place)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises((RuntimeError, AssertionError)):
        torch.ones(2).to(place)


def test_torch_asks_the_module_of_the_devices(device: torch.device) -> None:
    module: Any = torch.get_device_module(device)
    assert module.is_initialized() and not module.is_available()
    assert module.current_device() == 0 and module.device_count() == 0


def test_other_layouts_are_refused_by_torch(device: torch.device) -> None:
    with pytest.raises(NotImplementedError):
        torch.zeros(2, 3, layout=torch.sparse_coo, device=device)


def test_what_torch_does_with_a_tensor_that_it_makes(device: torch.device) -> None:
    made: Any = torch.empty(4, device=device)
    link = made.child
    assert type(link) is NewTensor
    view = link.below(torch.ops.aten.as_strided.default, (made, (2,), (1,)), {})
    assert view.shape == (2,) and view.device == device
    with pytest.raises(AttributeError):
        link.nothing  # noqa: B018
    with pytest.raises(HookError, match="reaches below"):
        KERNELS["_copy_from"](torch.ones(2), torch.ones(2))
    alone: Any = torch.empty(4, device=device).child
    assert alone.settled().connection is link.connection


def test_a_question_about_the_device_is_answered_here(device: torch.device) -> None:
    link: Any = torch.ones(2, device=device).child.settled()
    operations = link.connection.operations
    asked = BY_NAME["torch.get_device"]
    assert operations.command(asked, [(REF, link.id_at_location)], None, 0, []) == device.index
