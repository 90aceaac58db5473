"""A worker runs in the same state of torch, whatever state the thread of its caller is in."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import syft as sy
from syft.exceptions import PermissionDenied
from syft.serde.packer import Packer
from syft.serde.registry import pack
from syft.workers.wire.messages import COUNT_SHIFT
from tests.workers.core.peers import ask, command, error_in, lonely, put, ref

Seen = list[float]
Settings = contextlib.AbstractContextManager[Any]
MARK = 8191.0
"""A value by which a tensor of the worker is known."""


def note(seen: Seen, values: Any) -> None:
    """Note the values of plain tensors among some values."""
    for value in values:
        if type(value) is torch.Tensor and value.device.type == "cpu":
            with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
                seen.extend(torch.Tensor.tolist(value.detach().flatten().double()))


class FunctionSpy(TorchFunctionMode):
    def __init__(self, seen: Seen) -> None:
        super().__init__()
        self.seen = seen

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        note(self.seen, args)
        return function(*args, **(kwargs or {}))


class DispatchSpy(TorchDispatchMode):
    def __init__(self, seen: Seen) -> None:
        super().__init__()
        self.seen = seen

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        note(self.seen, args)
        return function(*args, **(kwargs or {}))


def saving(seen: Seen) -> Settings:
    def pack(tensor: torch.Tensor) -> torch.Tensor:
        note(seen, [tensor])
        return tensor

    return torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)


@contextlib.contextmanager
def two_functions(seen: Seen) -> Iterator[None]:
    """The outer one is active while torch calls the inner one."""
    with FunctionSpy(seen), FunctionSpy(seen):
        yield


SPIES: dict[str, Callable[[Seen], Settings]] = {
    "function mode": two_functions,
    "dispatch mode": DispatchSpy,
    "hooks on saved tensors": saving,
}


def used(x: Any, w: Any) -> Any:
    """What autograd saves values of ``x`` for."""
    return (x * w).square().sum()


def operation(bob: Any, x: Any, w: Any) -> None:
    used(x, w)


def backward(bob: Any, x: Any, w: Any) -> None:
    used(x, w).backward()


def group(bob: Any, x: Any, w: Any) -> None:
    with bob.group():
        used(x, w).backward()


def send_and_move(bob: Any, x: Any, w: Any) -> None:
    """What the worker asks another worker for runs on the same thread, too."""
    (x * w).move(sy.local_worker.get_worker("alice"))


def plan(bob: Any, x: Any, w: Any) -> None:
    PLANS[-1](x, w)


PLANS: list[Any] = []
WAYS = [operation, backward, group, send_and_move, plan]


@pytest.mark.parametrize("queued", [False, True], ids=["at once", "queued"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("spy", SPIES)
def test_nothing_of_the_caller_sees_a_tensor_of_the_worker(
    hook: sy.TorchHook, alice: Any, spy: str, way: Any, queued: bool
) -> None:
    bob = sy.VirtualWorker(hook, id="host", pipelined=queued)
    secret = torch.full((2,), MARK).private_tensor(allowed_users=["ann"])
    public = torch.full((2,), MARK)
    for data in (secret, public):
        bob.hold(data.tag("#data"))
        (x,) = bob.search("#data")
        w = torch.ones(2, requires_grad=True).send(bob)
        made = sy.func2plan(args_shape=[(2,), (2,)])(used)
        made(x, w)
        PLANS.append(made)
        seen: Seen = []
        refused = (PermissionDenied,) if data is secret else ()
        with SPIES[spy](seen), contextlib.suppress(*refused):
            way(bob, x, w)
            sy.synchronize()
        assert MARK not in seen and MARK**2 not in seen
        PLANS.clear()
        del x, w, made
        bob.clear_objects()
        alice.clear_objects()


@pytest.mark.parametrize("spy", SPIES)
def test_the_same_sees_plain_tensors(spy: str) -> None:
    seen: Seen = []
    with SPIES[spy](seen):
        used(torch.full((2,), MARK), torch.ones(2, requires_grad=True))
    assert MARK in seen


def states() -> list[Any]:
    return [
        torch._C._len_torch_function_stack(),
        torch._C._len_torch_dispatch_stack(),
        torch._C._autograd._top_saved_tensors_default_hooks(True),
        torch.is_anomaly_enabled(),
        torch.is_anomaly_check_nan_enabled(),
        torch.is_inference_mode_enabled(),
        torch.get_default_dtype(),
    ]


def what_is_seen(seen: Seen) -> Seen:
    seen.clear()
    torch.ones(1) + 1
    return list(seen)


def test_the_state_of_the_caller_is_as_it_was(bob: sy.VirtualWorker) -> None:
    """Also where the worker refuses."""
    x = torch.ones(2).send(bob)
    seen: Seen = []
    with contextlib.ExitStack() as entered:
        for spy in SPIES.values():
            entered.enter_context(spy(seen))
            entered.enter_context(spy(seen))
        entered.enter_context(torch.autograd.set_detect_anomaly(True, check_nan=False))
        entered.enter_context(torch.inference_mode())
        before, before_it = states(), what_is_seen(seen)
        x + x
        with pytest.raises(RuntimeError, match="size"):
            x.view(7)
        assert states() == before
        assert what_is_seen(seen) == before_it, "two modes of each kind see it, in their order"
    assert states()[:2] == [0, 0]


@contextlib.contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


SETTINGS: dict[str, Callable[[], Settings]] = {
    "float64": lambda: default_dtype(torch.float64),
    "bfloat16": lambda: default_dtype(torch.bfloat16),
    "default device": lambda: torch.device("meta"),
    "save_on_cpu": torch.autograd.graph.save_on_cpu,
    "anomaly": lambda: torch.autograd.set_detect_anomaly(True),
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "no_grad": torch.no_grad,
}

CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "division": lambda t, n: n / 2,
    "a number": lambda t, n: n * 1.5,
    "a function of integers": lambda t, n: n.sin(),
    "float_power": lambda t, n: n.float_power(2),
    "a factory": lambda t, n: t.zeros(2),
    "linspace": lambda t, n: t.linspace(0.0, 1.0, 3),
    "what is not written": lambda t, n: t.empty(2),
    "in place": lambda t, n: t.ones(2).add_(n),
    "matmul": lambda t, n: t.ones(2, 2) @ t.ones(2, 2),
}


@pytest.mark.every_shell
@pytest.mark.parametrize("setting", SETTINGS)
def test_results_are_what_torch_gives_in_this_setting(bob: Any, setting: str) -> None:
    """A default device is the exception: a worker makes tensors on its own."""
    numbers = torch.tensor([3, 4])
    x = numbers.send(bob)
    here = SETTINGS["no_grad" if setting == "default device" else setting]
    for name, call in CALLS.items():
        with SETTINGS[setting]():
            pointer = call(bob.torch, x)
            with bob.group():
                grouped = call(bob.torch, x)
        with here():
            expected = call(torch, numbers)
        if name == "what is not written":
            expected = torch.zeros_like(expected)
        for found in (pointer.get(), grouped.get()):
            assert found.dtype is expected.dtype and torch.equal(found, expected), name
            assert found.device.type == "cpu", name
    assert (x / 2).get().dtype is torch.float32


def test_a_queued_command_has_the_default_dtype_with_which_it_was_sent(
    hook: sy.TorchHook,
) -> None:
    bob = sy.VirtualWorker(hook, id="host", pipelined=True)
    n = torch.tensor([3]).send(bob)
    first = n / 2
    plan = sy.func2plan(args_shape=[(1,)])(lambda n: n.to(torch.int64) / 2)
    planned = plan(n)
    with default_dtype(torch.float64):
        second = n / 2
        assert planned.get().dtype is first.get().dtype is torch.float32
        assert torch.get_default_dtype() is torch.float64
    assert second.get().dtype is torch.float64


@pytest.mark.every_shell
@pytest.mark.parametrize("setting", ["float64", "anomaly", "save_on_cpu", "default device"])
def test_gradients_are_the_same_in_every_setting(bob: Any, setting: str) -> None:
    x = torch.tensor([1.0, 2.0], requires_grad=True).send(bob)
    with SETTINGS[setting]():
        x.sin().sum().backward()
    assert torch.equal(x.grad.get(), torch.tensor([1.0, 2.0]).cos())


@pytest.mark.every_shell
@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_over_pointers_has_the_gradients_of_one_over_tensors(
    bob: Any, reentrant: bool
) -> None:
    def f(x: Any) -> Any:
        return (x * 2).sin().exp()

    x = torch.tensor([1.0, 2.0], requires_grad=True)
    checkpoint(f, x, use_reentrant=reentrant).sum().backward()
    y = x.detach().clone().requires_grad_().send(bob)
    checkpoint(f, y, use_reentrant=reentrant).sum().backward()
    assert torch.equal(y.grad.get(), x.grad)


def test_no_dtype_that_torch_refuses_becomes_the_default() -> None:
    core = lonely()
    put(core, 5, torch.tensor([3]))
    half = command("torch.Tensor.div", ref(5), 2, out=6, flags=1 | 1 << COUNT_SHIFT)
    for wrong, said in (
        ((("default", pack(torch.int64, Packer())),), "floating-point"),
        ((("default", 3),), "a device type and a dtype"),
        ((("mps", pack(torch.float64, Packer())),), "a device type and a dtype"),
    ):
        reply = ask(core, msgspec.structs.replace(half, autocast=wrong))
        assert said in str(error_in(reply))
        assert torch.get_default_dtype() is torch.float32
    assert 6 not in core.store.objects


def test_anomaly_mode_of_the_caller_does_not_tell_of_gradients(bob: Any) -> None:
    """With public values in it, torch's anomaly mode raises; a worker elsewhere has none."""

    def fails() -> bool:
        try:
            x.sqrt().mul(0).sum().backward()
        except RuntimeError:
            return True
        return False

    x: Any = torch.zeros(1, requires_grad=True)
    with torch.autograd.set_detect_anomaly(True):
        assert fails(), "the control"
        x = x.detach().requires_grad_().send(bob)
        assert not fails()
