"""Running one operation: under the caller's modes, and without freed memory showing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch

import syft as sy
from syft.exceptions import NoSuchDevice, UnsupportedOperation
from syft.workers.execution.operation import run_in_mode, without_device
from syft.workers.hardening.unwritten import Clearing, KeepingSizes
from syft.workers.wire.messages import GRAD_MODE, INFERENCE_MODE


def test_modes_are_those_of_the_caller_and_end_with_the_call() -> None:
    modes = (torch.is_grad_enabled, torch.is_inference_mode_enabled)
    assert [run_in_mode(mode, (), {}, GRAD_MODE, ()) for mode in modes] == [True, False]
    assert [run_in_mode(mode, (), {}, INFERENCE_MODE, ()) for mode in modes] == [False, True]
    assert [mode() for mode in modes] == [True, False]
    with torch.no_grad():
        assert run_in_mode(torch.is_grad_enabled, (), {}, GRAD_MODE, ())
        assert not torch.is_grad_enabled()
    with pytest.raises(RuntimeError):
        run_in_mode(torch.ones(2).view, (7,), {}, 0, ())
    assert torch.is_grad_enabled()


def test_autocast_is_on_or_off_as_the_caller_has_it() -> None:
    def on() -> bool:
        return torch.is_autocast_enabled("cpu")

    assert run_in_mode(on, (), {}, 0, [("cpu", torch.bfloat16)])
    assert not on()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not run_in_mode(on, (), {}, 0, ())
        assert on()


def test_clearing_leaves_what_was_written() -> None:
    assert Clearing(torch.empty)(3).tolist() == [0, 0, 0]
    x = torch.ones(2)
    assert Clearing(torch.Tensor.resize_)(x, 4).tolist() == [1, 1, 0, 0]
    assert Clearing(torch.Tensor.new)(x, [5.0]).tolist() == [5]
    assert Clearing(torch.Tensor.new)(x, 2).tolist() == [0, 0]
    assert Clearing(torch.Tensor.new)(x).shape == (0,)


def test_what_clears_is_found_where_its_function_is() -> None:
    for function in (torch.empty, torch.Tensor.set_, torch.Tensor.resize_as_):
        assert Clearing(function) in {function} and Clearing(function) != torch.zeros
        assert Clearing(function) == Clearing(function) == KeepingSizes(Clearing(function))


JOINING: dict[str, Callable[[Any, Any], object]] = {
    "set_": lambda x, other: x.set_(other),
    "set_ by a keyword": lambda x, other: x.set_(source=other),
    "data": lambda x, other: setattr(x, "data", other),
}


@pytest.mark.parametrize("name", JOINING)
@pytest.mark.parametrize("user", [None, "ann"])
def test_memory_of_another_guard_is_not_joined(
    name: str, user: str | None, hook: sy.TorchHook
) -> None:
    bob = sy.VirtualWorker(hook, id="joining")
    bob.hold(torch.ones(2).private_tensor(allowed_users=["ann"]).tag("#data"))
    worker = bob.as_user(user) if user else bob
    (data,) = worker.search("#data")
    made, public = data * 2, torch.zeros(2).send(worker)
    with pytest.raises(UnsupportedOperation, match="tensor of another guard.*copy_"):
        JOINING[name](made, public)
    assert made.get(user="ann").tolist() == [2, 2] and public.get().tolist() == [0, 0]
    bob.close()


class _Unprintable(RuntimeError):
    def __str__(self) -> str:
        raise ValueError("it has no text")


def test_an_error_without_a_text_is_told_as_it_is() -> None:
    for error in (_Unprintable(), _Unprintable(5), RuntimeError()):
        assert without_device(error, "bob") is error
    missing = RuntimeError("No CUDA GPUs are available\nand more")
    missing.add_note("in action 3")
    told = without_device(missing, "bob")
    assert isinstance(told, NoSuchDevice) and told.found == "No CUDA GPUs are available"
    assert told.__notes__ == ["in action 3"]


@pytest.mark.parametrize("name", JOINING)
def test_memory_of_the_same_guard_is_joined(name: str, hook: sy.TorchHook) -> None:
    bob = sy.VirtualWorker(hook, id="joining")
    bob.hold(torch.ones(2).private_tensor(allowed_users=["ann"]).tag("#data"))
    (data,) = bob.search("#data")
    made, other, public = data * 2, data * 3, torch.zeros(2).send(bob)
    for target in (made, public):
        JOINING[name](target, other)
    other += 1
    assert all(one.get(user="ann").tolist() == [4, 4] for one in (made, public, other))
    bob.close()


@pytest.mark.parametrize("grouped", [False, True], ids=["a command", "a group"])
def test_what_fails_leaves_no_freed_memory_behind(hook: sy.TorchHook, grouped: bool) -> None:
    bob = sy.VirtualWorker(hook, id="clearing")
    bob.hold(torch.ones(2).private_tensor(allowed_users=["ann"]))
    x, wrong = torch.ones(400).send(bob), torch.full((400,), 999).send(bob)
    out = torch.ones(2).send(bob)
    torch.use_deterministic_algorithms(True)  # fills what is not written with NaN
    try:
        with pytest.raises((IndexError, RuntimeError)):
            with bob.group() if grouped else contextlib.nullcontext():
                torch.index_select(x, 0, wrong, out=out)
    finally:
        torch.use_deterministic_algorithms(False)
    found = out.get()
    assert found.shape in ((400,), (2,)) and not found.isnan().any()
    assert found.tolist() == [1.0, 1.0] + [0.0] * (len(found) - 2)
    bob.close()
