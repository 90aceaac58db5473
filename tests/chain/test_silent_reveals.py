"""Doors through which the data (or the emptiness) under a wrapper could slip out: each is closed,
or gives what the chain gives."""

from __future__ import annotations

import contextlib
import copy
import io
import pickle
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

import syft as sy
from syft.chain.wrapper import Wrapper, first_link
from syft.exceptions import DataStaysPut, OperationRefused, UnsupportedOperation
from tests.chain.refusal import refusal

VALUES = [1.5, 2.0]


@pytest.fixture(params=["pointer", "logging", "multi", "fixed"])
def make(
    request: pytest.FixtureRequest, bob: sy.VirtualWorker, alice: sy.VirtualWorker
) -> Callable[[Any], torch.Tensor]:
    """Makes one of each kind of wrapper from values."""
    return {
        "pointer": lambda values: torch.tensor(values).send(bob),
        "logging": lambda values: sy.LoggingTensor().on(torch.tensor(values)),
        "multi": lambda values: torch.tensor(values).send(bob, alice),
        "fixed": lambda values: torch.tensor(values).fix_precision(),
    }[request.param]


CLOSED: dict[str, Callable[[Any], Any]] = {
    "numpy()": lambda x: x.numpy(),
    "numpy() ": lambda x: x.numpy(force=True),
    "numpy conversion": np.asarray,
    "numpy conversion ": lambda x: np.array([x]),
    "numpy conversion  ": lambda x: np.add(x, 1),
    "pickling": pickle.dumps,
    "pickling ": lambda x: torch.save(x, io.BytesIO()),
    "pickling  ": lambda x: torch.save({"weights": [x]}, io.BytesIO()),
    "dlpack export": lambda x: x.__dlpack__(),
    "data_ptr()": lambda x: x.data_ptr(),
    "untyped_storage()": lambda x: x.untyped_storage(),
    "storage()": lambda x: x.storage(),
    "share_memory_()": lambda x: x.share_memory_(),
}


@pytest.mark.parametrize("door", CLOSED)
def test_a_closed_door(make: Callable[[Any], torch.Tensor], door: str) -> None:
    x = make(VALUES)
    text = refusal(lambda: CLOSED[door](x))
    besides = {
        "pickling": "; a whole state_dict with sy.get_all(state, keep=True)",
        "numpy conversion": "; to compute with an array, send torch.from_numpy(array)",
    }
    assert text == (
        f"DataStaysPut: {door.strip()} would read data that is not here: "
        f"{repr(x).splitlines()[0]}. "
        "Bring it here first with .get() (or .float_prec()), if you may"
        f"{besides.get(door.strip(), '')}."
    )


def test_other_ways_below_are_refused_too(make: Callable[[Any], torch.Tensor]) -> None:
    x = make(VALUES)
    for attempt in (
        lambda: torch.from_dlpack(x),
        lambda: x.__cuda_array_interface__,
        lambda: memoryview(x),
        lambda: torch.empty(0).set_(x),
    ):
        refusal(attempt)


KINDS: dict[str, Callable[[torch.Tensor, list[Any]], Any]] = {
    "PointerTensor": lambda x, workers: x.send(workers[0]),
    "MultiPointerTensor": lambda x, workers: x.send(*workers[:2]),
    "LoggingTensor": lambda x, workers: sy.LoggingTensor().on(x),
    "FixedPrecisionTensor": lambda x, workers: x.fix_precision(),
    "FixedPrecisionTensor of shares": lambda x, workers: x.fix_precision().share(
        *workers[:2], crypto_provider=workers[2]
    ),
    "AdditiveSharingTensor": lambda x, workers: x.long().share(
        *workers[:2], crypto_provider=workers[2]
    ),
}


@pytest.mark.parametrize("mode", [contextlib.nullcontext, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("kind", KINDS)
def test_plain_data_cannot_be_made_a_wrapper(hook: sy.TorchHook, kind: str, mode: Any) -> None:
    """It would leave the plain tensor without memory; reading it would end the process."""
    workers = [sy.VirtualWorker(hook, id=name) for name in ("bob", "alice", "carol")]
    wrapper = KINDS[kind](torch.ones(2), workers)
    parameter = nn.Parameter(torch.zeros(2))
    with mode():
        for plain in (torch.zeros(2), parameter, parameter.detach()):
            assert refusal(partial(setattr, plain, "data", wrapper)) == (
                f"UnsupportedOperation: {kind.split()[0]} has no rule for plain.data = it: a plain "
                "tensor has no chain; put the wrapper in its place (module.weight = "
                "nn.Parameter(it)), or convert the module: module.share(), fix_precision() or "
                "send()."
            )
            assert plain.tolist() == [0.0, 0.0]
            plain.data = torch.ones(2)  # the control
            assert plain.tolist() == [1.0, 1.0]
            plain.data = torch.zeros(2)


def test_a_plain_module_cannot_be_given_fixed_precision_below(hook: sy.TorchHook) -> None:
    module: Any = nn.Linear(2, 1)
    weight = module.weight.tolist()
    text = refusal(lambda: module._apply(lambda x: x.fix_precision()))
    assert text.startswith("UnsupportedOperation: FixedPrecisionTensor has no rule for plain.data")
    assert module.weight.tolist() == weight
    assert module.double().weight.dtype is torch.float64  # the control


def test_a_gradient_at_function_level_is_refused(hook: sy.TorchHook, bob: sy.VirtualWorker) -> None:
    plain = torch.zeros(2, requires_grad=True)
    for wrapper in (torch.ones(2).send(bob), sy.LoggingTensor().on(torch.ones(2))):
        assert "different type" in refusal(partial(setattr, plain, "grad", wrapper))
        assert plain.grad is None


def test_copies_are_wrappers_over_the_same_or_a_new_tensor(
    make: Callable[[Any], torch.Tensor],
) -> None:
    x = make(VALUES)
    for duplicate in (copy.copy(x), copy.deepcopy(x), x.copy(), copy.deepcopy([x])[0], x.clone()):
        assert type(duplicate) is Wrapper
        assert type(duplicate.child) is type(x.child)
    deep = copy.deepcopy(x)
    deep.mul_(2)
    assert x.tolist() == VALUES
    assert deep.tolist() == [3.0, 4.0]
    copy.copy(x).mul_(2)
    assert x.tolist() == [3.0, 4.0]


def test_deepcopy_keeps_shared_tensors_shared(make: Callable[[Any], torch.Tensor]) -> None:
    x = make(VALUES)
    first, second = copy.deepcopy([x, x])
    assert first is second
    assert first is not x


def test_copies_of_a_parameter_are_parameters(make: Callable[[Any], torch.Tensor]) -> None:
    parameter = nn.Parameter(make(VALUES))
    assert isinstance(parameter, nn.Parameter)
    assert repr(parameter).startswith("Parameter containing:\n(Wrapper)>")
    for duplicate in (copy.copy(parameter), copy.deepcopy(parameter)):
        assert isinstance(duplicate, nn.Parameter)
        assert duplicate.requires_grad


def test_values_are_asked_for_through_the_chain(make: Callable[[Any], torch.Tensor]) -> None:
    x, number = make(VALUES), make(1.5)
    assert x.tolist() == VALUES
    assert make([[1.0, 2.0], [3.0, 4.0]]).tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert number.tolist() == 1.5
    assert (float(number), int(number), complex(number)) == (1.5, 1, 1.5 + 0j)
    assert number.item() == 1.5
    assert bool(number > 1) is True
    assert f"{number:.2f}" == "1.50"
    assert f"{number:>8}" == "     1.5"
    assert f"{x}" == repr(x) == str(x)
    assert f"{number}" == repr(number)
    assert f"{x:>3}" == repr(x)
    assert "only one element tensors" in refusal(lambda: float(x))
    assert isinstance(hash(x), int)
    assert {x: 1}[x] == 1


def test_dir_lists_what_a_tensor_has(make: Callable[[Any], torch.Tensor]) -> None:
    names = dir(make(VALUES))
    assert {"child", "send", "get", "matmul", "shape"} <= set(names)


def test_indexing_a_list_with_an_integer_wrapper(bob: sy.VirtualWorker) -> None:
    assert ["a", "b", "c"][torch.tensor(1).send(bob)] == "b"
    assert list(range(torch.tensor(2).send(bob))) == [0, 1]


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * 100


ABOVE = ["pointer", "logging", "multi"]


@pytest.mark.parametrize("make", ABOVE, indirect=True)
def test_a_custom_function_would_lose_its_backward(make: Callable[[Any], torch.Tensor]) -> None:
    x = make(VALUES)
    text = refusal(lambda: Double.apply(x))
    assert text.endswith(
        " has no rule for torch.autograd.Function: its own backward would be lost; write it with "
        "ordinary torch operations."
    )
    with torch.no_grad():
        assert (x * 2).tolist() == [3.0, 4.0]
    with torch.inference_mode():
        assert (x * 2).tolist() == [3.0, 4.0]


def test_a_custom_function_works_below_autograd(hook: sy.TorchHook) -> None:
    x = torch.tensor(VALUES).fix_precision().requires_grad_()
    Double.apply(x).sum().backward()
    assert x.grad.float_prec().tolist() == [100.0, 100.0]


BELOW = "functionalize, jit.trace and torch.tensor(x) reach below the chain; write it with "


@pytest.mark.parametrize("make", ABOVE, indirect=True)
@pytest.mark.parametrize("transform", ["functionalize", "trace", "tensor"])
def test_transforms_are_refused(make: Callable[[Any], torch.Tensor], transform: str) -> None:
    x = make(VALUES)
    attempt = {
        "functionalize": lambda: torch.func.functionalize(lambda t: t * 2)(x),
        "trace": lambda: torch.jit.trace(lambda t: t * 2, (x,)),
        "tensor": lambda: torch.tensor(x),
    }[transform]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        text = refusal(attempt)
    assert text.startswith("UnsupportedOperation: ")
    remote = bool(first_link(x).remote_links())
    assert ("for torch.jit.trace: " if transform == "trace" and remote else BELOW) in text


def test_a_number_where_torch_wants_a_number(bob: sy.VirtualWorker) -> None:
    x = torch.tensor(VALUES).send(bob)
    assert torch.add(x, x, alpha=torch.tensor(3.0).send(bob)).get().tolist() == [6.0, 8.0]
    assert "has no rule for aten._local_scalar_dense" in refusal(
        lambda: torch.full((2,), torch.tensor(3.0).send(bob))
    )


def test_a_handler_never_raises_what_the_operator_swallows(bob: sy.VirtualWorker) -> None:
    """``+`` turns a TypeError into NotImplemented, and the reason would be lost."""
    x = torch.tensor(VALUES).send(bob)
    assert refusal(lambda: x + torch.ones(2)).startswith("LocationMismatch")
    assert refusal(lambda: torch.ones(2) + x).startswith("LocationMismatch")
    assert refusal(lambda: x[object()]).startswith("NotSendable")
    assert refusal(lambda: x + object()).startswith("TypeError: unsupported operand")


@pytest.mark.filterwarnings("ignore")
def test_torch_compile_does_not_trace_the_worker(bob: sy.VirtualWorker) -> None:
    x = torch.tensor(VALUES).send(bob)
    compiled = torch.compile(lambda t: t * 2 + 1, backend="eager")
    counters["frames"].clear()
    y = compiled(x)
    assert counters["frames"]["total"] <= 8  # the lambda and finalizers; a traced worker has 25
    assert y.tolist() == [4.0, 5.0]


def test_apply_would_write_to_no_memory(make: Callable[[Any], torch.Tensor]) -> None:
    """torch's own ends the process."""
    x = make(VALUES)
    if isinstance(first_link(x), sy.LoggingTensor):
        return  # its tensor is here, and is what torch gets
    with pytest.raises((DataStaysPut, OperationRefused, UnsupportedOperation), match="apply_"):
        x.apply_(abs)


def test_an_array_beside_a_tensor_that_is_elsewhere(bob: sy.VirtualWorker) -> None:
    x = torch.tensor([1.0, 2.0]).send(bob)
    assert torch.equal((x * np.array(2.0)).get(), torch.tensor([2.0, 4.0], dtype=torch.float64))
    assert torch.equal((x / np.array(2.0, np.float32)).get(), torch.tensor([0.5, 1.0]))
    assert torch.equal((x - np.float64(1)).get(), torch.tensor([0.0, 1.0]))
    assert refusal(lambda: x + np.ones(2)) == (
        "UnsupportedOperation: PointerTensor has no rule for an array of numpy: make a tensor of "
        "it, torch.from_numpy(array), and send that."
    )
