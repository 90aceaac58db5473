"""A tensor that cannot be enlarged keeps its size: torch would leave it reaching beyond its memory.

What a transport sends it reads in the tensor's own memory, and torch does not enlarge memory that
is seen elsewhere.  It says so only after the tensor has its new size, so whoever fetched a tensor
and resized it could read what lies behind it in the worker's process.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import syft as sy
from syft.exceptions import PermissionDenied
from syft.ops.table import BY_NAME
from syft.workers.hardening.precautions import RUNNABLE
from syft.workers.hardening.unwritten import sizes_within_memory
from syft.workers.labels.walk import strided_parts_of

Enlarge = Callable[[torch.Tensor, torch.Tensor], Any]

CALLS: dict[str, Enlarge] = {
    "resize_": lambda x, more: x.resize_(400),
    "resize_as_": lambda x, more: x.resize_as_(more),
    "torch.resize_as_": lambda x, more: torch.resize_as_(x, more),
    "set_": lambda x, more: x.set_(x, 0, (400,), (1,)),
    "add": lambda x, more: torch.add(more, 1, out=x),
    "cat": lambda x, more: torch.cat([more, more], out=x),
    "sort": lambda x, more: torch.sort(more, out=(x, torch.zeros_like(x).long())),
    "index_select": lambda x, more: torch.index_select(more, 0, (more * 0).long(), out=x),
}


@pytest.fixture
def bob(hook: sy.TorchHook) -> Iterator[sy.VirtualWorker]:
    worker = sy.VirtualWorker(hook, id="enlarging")
    yield worker
    worker.close()


def held(worker: sy.VirtualWorker, pointer: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = worker.core.store.objects[pointer.child.id_at_location]
    return found


def as_if_sent(tensor: torch.Tensor) -> None:
    """Have torch refuse to enlarge a tensor, as it does once a transport has read its memory."""
    tensor.detach().numpy()


@pytest.mark.parametrize("beside", [False, True], ids=["public", "beside private data"])
@pytest.mark.parametrize("grouped", [False, True], ids=["a command", "a group"])
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_a_failure_leaves_the_size(
    bob: sy.VirtualWorker, name: str, grouped: bool, beside: bool
) -> None:
    if beside:
        bob.hold(torch.ones(2).private_tensor(allowed_users=["ann"]))
    x, more = torch.arange(6.0).view(2, 3).send(bob), torch.ones(400).send(bob)
    as_if_sent(held(bob, x))
    with pytest.raises(RuntimeError, match="not resizable"):
        with bob.group() if grouped else contextlib.nullcontext():
            CALLS[name](x, more)
    assert x.get().tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_a_plan_and_a_private_tensor(bob: sy.VirtualWorker) -> None:
    data = torch.arange(3.0).private_tensor(allowed_users=["ann"], allow_destinations=[bob])
    private = data.send(bob)
    x, more = torch.arange(3.0).send(bob), torch.ones(400).send(bob)
    for pointer in (private, x):
        as_if_sent(held(bob, pointer))

    @sy.func2plan(args_shape=[(3,), (400,)])
    def grow(x: torch.Tensor, more: torch.Tensor) -> torch.Tensor:
        x.resize_(400)
        return x + more

    with pytest.raises(RuntimeError, match="not resizable"):
        grow.send(bob)(x, more).get()
    assert x.get().tolist() == [0, 1, 2]
    for name in CALLS:
        with contextlib.suppress(RuntimeError, PermissionDenied):
            CALLS[name](private, more)
            bob.objects_count()
        for tensor in bob.core.store.objects.values():
            assert tensor.numel() * tensor.itemsize <= tensor.untyped_storage().nbytes()


SHOWN: dict[str, Callable[[torch.Tensor], Any]] = {
    "preserve": lambda x: x.resize_(40_000, memory_format=torch.preserve_format),
    "channels": lambda x: x.resize_(40_000, memory_format=torch.channels_last),
    "out of another dtype": lambda x: torch.t_copy(x.new_ones(30, 30).double(), out=x),
}


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("beside", [False, True], ids=["public", "beside private data"])
@pytest.mark.parametrize("grouped", [False, True], ids=["a command", "a group"])
@pytest.mark.parametrize("name", SHOWN)
def test_what_fails_once_it_has_memory_shows_nothing_of_it(
    bob: sy.VirtualWorker, name: str, grouped: bool, beside: bool
) -> None:
    if beside:
        bob.hold(torch.ones(2).private_tensor(allowed_users=["ann"]))
    x = torch.ones(2).send(bob)
    torch.use_deterministic_algorithms(True)  # fills what is not written with NaN
    try:
        with pytest.raises((RuntimeError, ValueError)):
            with bob.group() if grouped else contextlib.nullcontext():
                SHOWN[name](x)
                bob.objects_count()
    finally:
        torch.use_deterministic_algorithms(False)
    found = x.get()
    assert found.numel() > 2, "torch has mended it"
    assert found.flatten()[:2].tolist() == [1, 1] and not found.flatten()[2:].count_nonzero()


def test_tensors_inside_a_program_that_outlive_it(bob: sy.VirtualWorker) -> None:
    """They are no inputs of it, but gradients, and what a graph keeps."""
    x = torch.ones(2, requires_grad=True).send(bob)
    numbers = torch.ones(2).send(bob)
    as_if_sent(held(bob, numbers))

    @sy.func2plan(args_shape=[(2,), (2,)])
    def grow(x: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        other = numbers[:]
        x.grad = other
        other.resize_(400)
        return x + 1

    with pytest.raises(RuntimeError, match="not resizable"):
        grow.send(bob)(x, numbers).get()
    gradient = held(bob, x).grad
    assert gradient is None or gradient.shape == (2,)


@pytest.mark.parametrize("name", ["torch.as_strided_", "torch.Tensor.as_strided_"])
def test_strides_that_go_round_all_memory(name: str) -> None:
    """The number of bytes would come to four; what lies behind the tensor would be its first
    row."""
    x = torch.ones(3)
    with pytest.raises(RuntimeError, match="fewer than 2.*63 bytes"):
        RUNNABLE[BY_NAME[name]](x, (2, 401), ((1 << 62) - 400, 1))  # type: ignore[misc]
    assert x.tolist() == [1, 1, 1]
    assert RUNNABLE[BY_NAME[name]](x, [2], [2]).tolist() == [1, 1]  # type: ignore[misc]
    nothing = RUNNABLE[BY_NAME[name]](x, (0, 401), (1 << 62, 1))  # type: ignore[misc]
    assert nothing.shape == (0, 401), "which lies nowhere"


def test_nested_tensors_are_let_through() -> None:
    x = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    with sizes_within_memory([x]):
        x.mul_(2)
    assert x.unbind()[1].tolist() == [2, 2, 2]


LAYOUTS = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc, torch.sparse_coo)


@pytest.mark.filterwarnings("ignore")  # these layouts are a beta of torch's
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_parts_of_sparse_tensors(layout: torch.layout) -> None:
    def sparse(numbers: torch.Tensor) -> torch.Tensor:
        blocks = {"blocksize": (1, 1)} if "bs" in str(layout) else {}
        return numbers.to_sparse(layout=layout, **blocks)

    x, more = sparse(torch.eye(3)), sparse(torch.ones(9, 9))
    for part in strided_parts_of(x):
        as_if_sent(part)
    for enlarge in (
        lambda x: torch.add(more, more, out=x),
        lambda x: torch.mul(more, more, out=x),
        lambda x: torch.mm(more, more, out=x),
        lambda x: x.resize_as_sparse_(more),
        lambda x: x.copy_(more),
    ):
        failed = False
        with sizes_within_memory([x]):
            try:
                enlarge(x)
            except RuntimeError:
                failed = True
        for part in strided_parts_of(x):
            assert part.numel() * part.itemsize <= part.untyped_storage().nbytes()
        if failed:
            torch.testing.assert_close(x.to_dense(), torch.eye(3))
        else:
            x = sparse(torch.eye(3))


def test_memory_that_there_is_not() -> None:
    x = torch.arange(3.0)
    with pytest.raises(RuntimeError, match="memory"), sizes_within_memory([{"x": [x]}]):
        x.resize_(1 << 45)
    assert x.tolist() == [0, 1, 2]


@pytest.mark.parametrize("numbers", [3, 1000, 1_000_000])
def test_what_came_over_a_socket_can_be_enlarged_until_it_is_sent_from_there(
    hook: sy.TorchHook, numbers: int
) -> None:
    with sy.WebsocketServerWorker(hook, port=0, id="dan") as server:
        dan = sy.WebsocketClientWorker(hook, "localhost", server.port, id="dan")
        x = torch.ones(numbers).send(dan)
        assert x.resize_(2 * numbers)[:numbers].sum().get() == numbers
        assert x.child.get(keep=True).resize_(3 * numbers).shape == (3 * numbers,)
        if numbers < 10_000:  # it was sent as a copy
            assert x.resize_(3 * numbers).sum().get() == numbers, "zeros behind it"
        else:
            with pytest.raises(RuntimeError, match="not resizable"):
                x.resize_(3 * numbers).sum().get()
            assert x.get().shape == (2 * numbers,)
        dan.close()


def gradient_without_memory(bob: sy.VirtualWorker, second: bool) -> torch.Tensor:
    """Zeros for which torch has allocated nothing, as they come of a backward pass."""
    x = torch.ones(3, requires_grad=True).send(bob)
    if not second:
        torch.sgn(x).sum().backward()
        assert x.grad is not None
        return x.grad
    (first,) = torch.autograd.grad(x.abs().sum(), x, create_graph=True)
    (found,) = torch.autograd.grad(first.sum(), x)
    return found


WITHOUT_MEMORY: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "resize_": lambda zeros, other: zeros.resize_(9),
    "another dtype": lambda zeros, other: zeros.view(torch.int32).resize_(9),
    "a part": lambda zeros, other: zeros[:0].resize_(9),
    "set_": lambda zeros, other: other.set_(zeros, 0, (9,)),
    "set_ as it is": lambda zeros, other: other.set_(source=zeros, storage_offset=0, size=(3,)),
    "data": lambda zeros, other: _with_data(other, zeros).resize_(9),
}


def _with_data(tensor: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
    tensor.data = data
    return tensor


@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize("way", WITHOUT_MEMORY)
def test_zeros_without_memory_are_not_enlarged(
    bob: sy.VirtualWorker, way: str, second: bool
) -> None:
    """Torch would copy from address 0, and end the process."""
    zeros = gradient_without_memory(bob, second)
    with pytest.raises(RuntimeError, match=r"ZeroTensors have no memory: use .clone\(\)"):
        WITHOUT_MEMORY[way](zeros, torch.zeros(3).send(bob))
    assert zeros.clone().resize_(2).get().tolist() == [0, 0]
