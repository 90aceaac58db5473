"""Pointers: send, get, copy, move, attributes, operations, and what is refused."""

from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import syft as sy
from syft.exceptions import GraphLeftBehind, LocationMismatch, UnsupportedOperation
from syft.hooks.sending import leaf_to_send
from syft.serde.packer import Packer
from syft.serde.registry import pack
from syft.tensors.pointer import PointerTensor
from syft.workers.labels.origin import writers_of
from tests.chain.refusal import here, refusal, shown
from tests.shells.child import make_worker
from tests.shells.owner import inspect

pytestmark = pytest.mark.every_shell

POINTER = "(Wrapper)>[PointerTensor | me:N -> bob:N]"


def test_send_get_and_what_is_seen(bob: sy.VirtualWorker, me: sy.VirtualWorker) -> None:
    x = torch.tensor([1.0, 2.0])
    pointer = x.send(bob)
    assert shown(pointer) == POINTER
    assert type(pointer.child) is PointerTensor
    assert (pointer.location, pointer.owner) == (bob, me)
    assert (pointer.location is bob, bob == pointer.location) == (True, True)
    assert list(inspect(bob).objects) == [pointer.id_at_location] == [pointer.child.id_at_location]
    assert pointer.id == pointer.child.id != pointer.id_at_location
    assert repr(pointer).endswith(f"| me:{pointer.id} -> bob:{pointer.id_at_location}]")
    assert torch.equal(inspect(bob).objects[pointer.id_at_location], x)
    back = pointer.get()
    assert type(back) is torch.Tensor
    assert torch.equal(back, x)
    assert inspect(bob).objects == {}


def test_a_pointer_where_it_does_not_belong(
    bob: sy.VirtualWorker, alice: sy.VirtualWorker, me: sy.VirtualWorker
) -> None:
    elsewhere = Packer(destination=me.connection_to(alice))
    pointer = torch.ones(1).send(bob)
    assert refusal(lambda: pack(pointer, elsewhere)) == here("a command", "alice", "bob")
    assert refusal(lambda: PointerTensor.call(torch.add, (1, 2), {})) == (
        "UnsupportedOperation: PointerTensor has no rule for this call: no pointer is among its "
        "arguments."
    )


def test_a_distance_function_is_called_here(worker: sy.VirtualWorker) -> None:
    rows = [torch.randn(4, 3, generator=torch.Generator().manual_seed(i)) for i in range(3)]
    remote = [row.send(worker) for row in rows]
    loss = torch.nn.functional.triplet_margin_with_distance_loss

    def distance(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x - y).abs().sum(-1)

    for options in (
        {"distance_function": distance},
        {"swap": True, "margin": 2.0},
        {"reduction": "none"},
        {"reduction": "sum"},
    ):
        assert torch.allclose(loss(*remote, **options).get(), loss(*rows, **options))
    assert refusal(lambda: loss(*remote, reduction="most")).startswith("ValueError: most is not")
    assert refusal(lambda: loss(*remote, margin=-1.0)).startswith("ValueError: margin must be")
    remote[0] = remote[0][0]
    assert refusal(lambda: loss(*remote)).startswith("RuntimeError: ")


def test_what_is_sent_is_a_copy(worker: sy.VirtualWorker) -> None:
    x = torch.tensor([1.0, 2.0])
    pointer = x.send(worker)
    x.zero_()
    pointer.add_(1)
    assert x.tolist() == [0.0, 0.0]
    assert pointer.get().tolist() == [2.0, 3.0]


def test_get_twice(bob: sy.VirtualWorker) -> None:
    pointer = torch.ones(2).send(bob)
    number = pointer.id_at_location
    pointer.get()
    gone = f"ObjectNotFound: Worker 'bob' holds no object {number}: me fetched it with get()."
    assert refusal(pointer.get) == gone
    assert refusal(lambda: pointer + 1) == gone
    assert refusal(lambda: pointer.shape) == gone
    assert inspect(bob).objects == {}


def test_get_of_what_is_here(hook: sy.TorchHook, bob: sy.VirtualWorker) -> None:
    text = "this tensor is here already (it was never sent, or has been fetched). Use it as it is."
    x = torch.ones(2)
    assert refusal(x.get) == f"NothingToGet: get(): {text}"
    assert refusal(lambda: x.move(bob)) == f"NothingToGet: move(): {text}"
    assert refusal(x.remote_get) == f"NothingToGet: remote_get(): {text}"
    assert refusal(lambda: x.remote_send(bob)) == f"NothingToGet: remote_send(): {text}"
    assert refusal(lambda: x.send(bob).remote_get()) == (
        "UnsupportedOperation: what is a tensor at its worker has no rule for remote_get: it acts "
        "on a pointer to a pointer; get() brings this one here."
    )


@pytest.mark.parametrize("place", ["nobody", 5, None, ["bob"]])
def test_an_unknown_worker(bob: sy.VirtualWorker, place: Any) -> None:
    text = (
        f"UnknownWorker: 'me' knows no worker {str(place)!r} (it knows bob). Create it, or "
        "introduce it with add_worker()."
    )
    if not isinstance(place, (str, int)):
        several = ": name them one by one" if isinstance(place, list) else ""
        got = f"a {type(place).__name__}{several}"
        text = f"UnusableSetting: a worker must be a worker or its name, got {got}."
    pointer = torch.ones(2).send(bob)
    assert refusal(lambda: torch.ones(2).send(place)) == text
    assert refusal(lambda: torch.ones(2).send(bob, place)) == text
    assert refusal(lambda: pointer.send(place)) == text
    assert refusal(lambda: pointer.move(place)) == text
    if isinstance(place, str):
        assert refusal(lambda: pointer.remote_send(place)) == text
    assert list(inspect(bob).objects) == [pointer.id_at_location]
    assert pointer.get().tolist() == [1.0, 1.0]


def test_sending_to_nobody_or_to_a_closed_worker(hook: sy.TorchHook, bob: sy.VirtualWorker) -> None:
    assert refusal(lambda: torch.ones(2).send()) == (
        "NotSendable: Cannot send a tensor to nobody: name at least one worker: x.send(bob)."
    )
    bob.close()
    assert refusal(lambda: torch.ones(2).send(bob)) == (
        "WorkerClosed: Worker 'bob' is closed: what this program had there is gone. Create a "
        "new one, or connect again."
    )


def test_an_id_that_is_taken(bob: sy.VirtualWorker, alice: sy.VirtualWorker) -> None:
    first, other = torch.ones(2).send(bob), torch.zeros(3).send(alice)
    number = first.id_at_location
    text = (
        f"ObjectIdTaken: Worker 'bob' holds an object {number} already; nothing was overwritten. "
        "Choose a fresh id."
    )
    assert refusal(lambda: torch.zeros(2).send(bob, id=number)) == text
    assert refusal(lambda: other.send(bob, id=number)) == text
    assert first.get().tolist() == [1.0, 1.0]
    assert other.get().tolist() == [0.0] * 3  # the pointer that did not leave still collects


def test_a_tensor_with_a_graph_is_not_sent(bob: sy.VirtualWorker) -> None:
    x = torch.ones(2, requires_grad=True)
    assert refusal(lambda: (x * 2).send(bob)) == (
        "NotALeaf: Cannot send a tensor that is the result of a recorded computation "
        "(MulBackward0): its graph cannot travel. Send x.detach(), or send the inputs and compute "
        "there."
    )
    assert inspect(bob).objects == {}
    assert (x * 2).detach().send(bob).tolist() == [2.0, 2.0]


VIEWS: list[tuple[Callable[[torch.Tensor], torch.Tensor], str]] = [
    (lambda x: x[0:2], "SliceBackward0"),
    (lambda x: x[1].view(3, 1), "ViewBackward0"),
    (lambda x: x.t()[1:], "SliceBackward0"),
    (lambda x: x.unbind(0)[2], "UnbindBackward0"),
]


@pytest.mark.parametrize(("view", "name"), VIEWS)
def test_a_view_of_a_leaf_goes_as_a_leaf_of_its_own(
    bob: sy.VirtualWorker, view: Callable[[torch.Tensor], torch.Tensor], name: str
) -> None:
    x = torch.arange(12.0).view(4, 3).requires_grad_()
    part = view(x).tag("#part")
    with pytest.warns(GraphLeftBehind, match=rf"\({name}\)") as warned:
        pointer = part.send(bob)
        (other,) = sy.send_all([part], bob)
    assert {Path(one.filename).name for one in warned} == {"test_pointer.py"}
    assert (pointer.requires_grad, pointer.is_leaf, pointer.tags) == (True, True, {"#part"})
    (pointer * other).sum().backward()
    fetched = pointer.get()
    assert fetched.tolist() == fetched.grad.tolist() == other.get().tolist() == part.tolist()
    assert x.grad is None


def test_what_a_view_of_a_leaf_is_not(bob: sy.VirtualWorker) -> None:
    x, changed = torch.ones(4, requires_grad=True), torch.ones(4)
    changed[:2].mul_(x[:2])
    for graph in ((x * 2)[:2], x[[0, 1]], changed[2:], x.double()[:2]):
        assert refusal(lambda graph=graph: graph.send(bob)).startswith("NotALeaf: ")
        assert refusal(lambda graph=graph: sy.send_all([graph], bob)).startswith("NotALeaf: ")
    assert x.detach()[:2].send(bob).tolist() == [1.0, 1.0]  # without a warning
    assert inspect(bob).objects == {}


def test_a_view_of_a_private_leaf_is_as_private_as_the_whole(bob: sy.VirtualWorker) -> None:
    private = torch.ones(4, requires_grad=True).private_tensor(["ann"], allow_writes=["bea"])
    with pytest.warns(GraphLeftBehind):
        assert refusal(lambda: private[:2].send(bob)).startswith("PermissionDenied: send")
    with pytest.warns(GraphLeftBehind):
        pointer = private[:2].send(bob, user="ann")
    assert refusal(pointer.get).startswith("PermissionDenied: get")
    with pytest.warns(GraphLeftBehind):
        assert writers_of(leaf_to_send(private[:2])) == {"bea"}
    assert pointer.get(user="ann").tolist() == [1.0, 1.0]


def test_requires_grad_and_grad_travel(worker: sy.VirtualWorker) -> None:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    x.grad = torch.tensor([3.0, 4.0])
    pointer = x.send(worker)
    assert pointer.requires_grad
    assert pointer.grad.tolist() == [3.0, 4.0]
    (pointer * 2).sum().backward()
    home = pointer.get()
    assert home.is_leaf
    assert home.requires_grad
    assert home.grad.tolist() == [5.0, 6.0]


DTYPES = [torch.float64, torch.bfloat16, torch.int64, torch.bool, torch.complex64, torch.uint8]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)], ids=str)
def test_dtype_shape_and_device_are_kept(
    worker: sy.VirtualWorker, device: torch.device, dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    x = torch.ones(shape, dtype=dtype, device=device)
    pointer = x.send(worker)
    assert (pointer.dtype, pointer.shape, pointer.device) == (x.dtype, x.shape, x.device)
    back = pointer.get()
    assert (back.dtype, back.shape, back.device) == (x.dtype, x.shape, x.device)
    assert torch.equal(back, x)


# ------------------------------------------------------------------------------- copies and moves


def test_copy(worker: sy.VirtualWorker) -> None:
    x = torch.tensor([1.0, 2.0]).send(worker)
    duplicate = x.copy()
    assert duplicate.id_at_location != x.id_at_location
    duplicate.zero_()
    assert (x.get().tolist(), duplicate.get().tolist()) == ([1.0, 2.0], [0.0, 0.0])
    plain = torch.ones(2)
    assert plain.copy() is not plain
    assert torch.equal(plain.copy(), plain)


def test_move(bob: sy.VirtualWorker, alice: sy.VirtualWorker, me: sy.VirtualWorker) -> None:
    x = torch.tensor([1.0, 2.0]).send(bob)
    number = x.id_at_location
    moved = x.move(alice)
    assert shown(moved) == "(Wrapper)>[PointerTensor | me:N -> alice:N]"
    assert (moved.id_at_location, inspect(bob).objects) == (number, {})
    assert refusal(lambda: x + 1) == (
        f"ObjectNotFound: Worker 'bob' holds no object {number}: me moved it to alice."
    )
    assert moved.move("alice") is moved
    assert (moved.move(bob) + 1).get().tolist() == [2.0, 3.0]
    home = torch.ones(2).send(bob).move(me)
    assert type(home) is torch.Tensor
    assert inspect(bob).objects == inspect(alice).objects == {}


def test_moving_a_kept_tensor_keeps_it(bob: sy.VirtualWorker, alice: sy.VirtualWorker) -> None:
    x = torch.ones(2).send(bob, garbage_collect_data=False)
    moved = x.move(alice)
    del moved, x
    assert len(inspect(alice)) == 1
    alice.clear_objects()


# ---------------------------------------------------------------------------- pointers to pointers


def test_pointers_to_pointers(bob: sy.VirtualWorker, alice: sy.VirtualWorker) -> None:
    outer = torch.tensor([1.0, 2.0]).send(bob).send(alice)
    assert shown(outer) == "(Wrapper)>[PointerTensor | me:N -> alice:N]"
    assert shown(inspect(alice).objects) == "{N: (Wrapper)>[PointerTensor | alice:N -> bob:N]}"
    total = outer + outer
    inner = total.get()
    assert shown(inner) == POINTER
    assert inner.get().tolist() == [2.0, 4.0]
    del outer, total, inner
    assert inspect(alice).objects == inspect(bob).objects == {}


def test_remote_get_and_remote_send(bob: sy.VirtualWorker, alice: sy.VirtualWorker) -> None:
    x = torch.tensor([1.0, 2.0]).send(bob)
    assert x.remote_send(alice) is x
    assert shown(inspect(bob).objects) == "{N: (Wrapper)>[PointerTensor | bob:N -> alice:N]}"
    assert (x + 1).get().get().tolist() == [2.0, 3.0]
    assert x.remote_get() is x
    assert inspect(alice).objects == {}
    assert x.get().tolist() == [1.0, 2.0]


def test_pointers_to_different_inner_places(
    bob: sy.VirtualWorker, alice: sy.VirtualWorker, hook: sy.TorchHook
) -> None:
    carl = make_worker(hook, id="carl")
    one = torch.ones(2).send(bob).send(alice)
    other = torch.ones(2).send(carl).send(alice)
    assert refusal(lambda: one + other) == here("torch.Tensor.add", "bob", "carl")


def test_child_of_child(bob: sy.VirtualWorker) -> None:
    pointer = sy.LoggingTensor().on(sy.LoggingTensor().on(torch.tensor([1.0, 2.0]))).send(bob)
    link = pointer.child
    assert shown(link) == "[PointerTensor | me:N -> bob:N]"
    assert shown(link.child) == "[PointerTensor | me:N -> bob:N].child"
    assert shown(link.child.child.child) == "[PointerTensor | me:N -> bob:N].child.child.child"
    assert shown(link.child.get()) == "(Wrapper)>LoggingTensor>LoggingTensor>tensor([1., 2.])"
    assert shown(link.child.child.get()) == "(Wrapper)>LoggingTensor>tensor([1., 2.])"
    assert link.child.child.child.get().tolist() == [1.0, 2.0]
    assert link.child.child.child.add(1).get().tolist() == [2.0, 3.0]
    assert torch.add(link.child.child.child, 5).get().tolist() == [6.0, 7.0]
    assert torch.cat([link.child.child.child, link.child.child.child]).shape == (4,)
    assert link.child.child.child.shape == (2,)
    assert refusal(link.child.child.child.child.get).startswith("MalformedMessage: ")
    assert refusal(lambda: link.no_such_thing) == (
        "AttributeError: 'PointerTensor' object has no attribute 'no_such_thing'"
    )
    assert shown(pointer.get()) == "(Wrapper)>LoggingTensor>LoggingTensor>tensor([1., 2.])"


# ------------------------------------------------------------------------------------- operations


def test_in_place_operations_keep_the_pointer_and_the_id(worker: sy.VirtualWorker) -> None:
    x = torch.tensor([1.0, 2.0]).send(worker)
    before, number = x, x.id_at_location
    x += 1
    x *= torch.tensor(2.0)
    assert x.add_(1).sub_(x) is x
    x[0] = 7.0
    x.relu_()
    assert torch.nn.functional.relu(x, inplace=True) is x
    assert x is before
    assert x.id_at_location == number
    assert list(inspect(worker).objects) == [number]
    assert x.get().tolist() == [7.0, 0.0]


def test_set_takes_the_memory_of_another_tensor(worker: sy.VirtualWorker) -> None:
    x, y = torch.ones(2).send(worker), torch.zeros(3).send(worker)  # type: ignore[attr-defined]
    assert x.shape == (2,) and x.set_(y) is x and x.shape == (3,)
    y.add_(1)
    assert x.get().tolist() == [1, 1, 1]
    with pytest.raises(LocationMismatch):
        y.set_(torch.ones(1))
    with pytest.raises(UnsupportedOperation, match="copy_"):
        torch.ones(1).fix_precision().set_(torch.ones(1))  # type: ignore[attr-defined]


def test_out_reuses_the_remote_memory(worker: sy.VirtualWorker) -> None:
    x, out = torch.ones(3).send(worker), torch.zeros(3).send(worker)
    assert torch.add(x, x, out=out) is out
    assert len(inspect(worker)) == 2
    values, indices = torch.zeros(()).send(worker), torch.zeros((), dtype=torch.long).send(worker)
    result = torch.max(x, 0, out=(values, indices))
    assert result[0] is values
    assert (out.get().tolist(), values.get().item()) == ([2.0] * 3, 1.0)


def test_several_results(worker: sy.VirtualWorker) -> None:
    x = torch.tensor([[3.0, 1.0], [2.0, 4.0]]).send(worker)
    found = x.max(dim=1)
    assert type(found) is torch.return_types.max
    assert (found.values.get().tolist(), found.indices.get().tolist()) == ([3.0, 4.0], [0, 1])
    first, second = x.split(1)
    assert (first.get().tolist(), second.shape) == ([[3.0, 1.0]], (1, 2))
    assert [row.get().tolist() for row in x] == [[3.0, 1.0], [2.0, 4.0]]
    assert len(inspect(worker)) == 2  # x and the second part


def test_arguments_of_every_kind(worker: sy.VirtualWorker) -> None:
    x = torch.tensor([1.0, 2.0]).send(worker)
    assert torch.add(input=x, other=x, alpha=2).get().tolist() == [3.0, 6.0]
    assert torch.cat([x, x]).get().tolist() == [1.0, 2.0, 1.0, 2.0]
    assert torch.stack((x, x), dim=1).get().tolist() == [[1.0, 1.0], [2.0, 2.0]]
    assert torch.where(condition=x > 1, input=x, other=0.0).get().tolist() == [0.0, 2.0]
    assert torch.block_diag(x, x).shape == (2, 4)
    assert x.sum(dtype=torch.float64).dtype is torch.float64
    assert (1 - x).get().tolist() == [0.0, -1.0]
    assert (2 // x).get().tolist() == [2.0, 1.0]
    assert (x * 1j).get().tolist() == [1j, 2j]
    assert (x + torch.tensor(5)).get().tolist() == [6.0, 7.0]
    assert torch.full_like(x, 3).get().tolist() == [3.0, 3.0]
    assert (torch.tensor([1]).send(worker) * 2**62).get().item() == 2**62


def test_refused_and_unknown_operations(bob: sy.VirtualWorker) -> None:
    x = torch.ones(2).send(bob)
    assert refusal(lambda: x.register_hook(print)) == (
        "OperationRefused: 'torch.Tensor.register_hook' cannot run on another worker: a function "
        "cannot travel; call retain_grad() and read .grad after the backward pass."
    )

    def mine(x: torch.Tensor) -> Any:
        return torch.overrides.handle_torch_function(mine, (x,), x)

    name = f"{__name__}.test_refused_and_unknown_operations.<locals>.mine"
    assert refusal(lambda: mine(x)) == (
        f"UnknownOperation: {name!r} is not in the op table, so it cannot run on another worker. "
        "Write it in terms of torch operations."
    )
    assert refusal(lambda: x[object()]).startswith("NotSendable")
    assert len(inspect(bob)) == 1


def test_a_remote_error_comes_back_as_it_was_and_changes_nothing(worker: sy.VirtualWorker) -> None:
    x, y = torch.ones(2).send(worker), torch.ones(3).send(worker)
    assert refusal(lambda: (x + y).shape).startswith("RuntimeError: The size of tensor a (2)")
    assert refusal(lambda: x[5].shape).startswith("IndexError: index 5 is out of bounds")
    assert len(inspect(worker)) == 2


def test_operations_at_two_places(bob: sy.VirtualWorker, alice: sy.VirtualWorker) -> None:
    x, y, plain = torch.ones(2).send(bob), torch.ones(2).send(alice), torch.ones(2)
    for op, call, places in (
        ("torch.Tensor.add", lambda: x + y, ("bob", "alice")),
        ("torch.Tensor.add", lambda: y + x, ("alice", "bob")),
        ("torch.cat", lambda: torch.cat([x, y]), ("bob", "alice")),
        ("torch.cat", lambda: torch.cat([x, plain]), ("bob", "me")),
        ("torch.Tensor.__getitem__", lambda: x[plain], ("bob", "me")),
        ("torch.Tensor.__getitem__", lambda: plain[x.long()], ("bob", "me")),
        ("torch.Tensor.__setitem__", lambda: x.__setitem__(0, y[0]), ("bob", "alice")),
        ("torch.nn.functional.mse_loss", lambda: torch.nn.functional.mse_loss(x, plain), None),
        ("torch.Tensor.backward", lambda: x.backward(plain), ("bob", "me")),
    ):
        text = refusal(call)
        assert text == here(op, *places) if places else text.startswith("LocationMismatch")
    assert (len(inspect(bob)), len(inspect(alice))) == (1, 1)


def test_plain_tensors_that_travel(worker: sy.VirtualWorker) -> None:
    x = torch.zeros(3).send(worker)
    assert x.copy_(torch.tensor([1.0, 2.0, 3.0])) is x
    x[0] = torch.tensor(9.0)
    assert (x * torch.tensor(2)).get().tolist() == [18.0, 4.0, 6.0]
    assert x[torch.tensor(1)].item() == 2.0


# ------------------------------------------------------------------------------------- attributes


def test_attributes(worker: sy.VirtualWorker) -> None:
    x = torch.arange(6.0).reshape(2, 3).send(worker)
    assert (x.shape, x.size(), x.size(1), x.ndim, x.dim()) == ((2, 3), (2, 3), 3, 2, 2)
    assert (x.dtype, x.device, x.layout) == (torch.float32, torch.device("cpu"), torch.strided)
    assert (x.numel(), len(x), x.stride(), x.itemsize, x.nbytes) == (6, 2, (3, 1), 4, 24)
    assert (x.requires_grad, x.grad, x.is_leaf, x.grad_fn) == (False, None, True, None)
    assert (x.T.shape, x.mT.shape, x.data.shape, x.is_cuda) == ((3, 2), (3, 2), (2, 3), False)
    assert 3.0 in x
    assert 30.0 not in x
    assert x[0, 0] in x
    x.requires_grad_()
    assert x.requires_grad
    x.requires_grad = False
    assert not x.requires_grad
    assert refusal(lambda: len(x.sum())) == "TypeError: len() of a 0-d tensor"
    assert refusal(lambda: list(x.sum())) == "TypeError: iteration over a 0-d tensor"


def test_python_protocols(bob: sy.VirtualWorker) -> None:
    x = torch.tensor([1.0, 4.0]).send(bob)
    assert [value.item() for value in reversed(x)] == [4.0, 1.0]
    assert math.sqrt(x[1]) == 2.0
    assert sum(x).item() == 5.0
    assert [value.item() for value in sorted(x, reverse=True)] == [4.0, 1.0]
    assert bool((x == x).all())
    assert x in [x]
    first, second = x
    assert (first.item(), -second.item()) == (1.0, -4.0)
    assert "ambiguous" in refusal(lambda: bool(x))


def test_tags_and_description(bob: sy.VirtualWorker, alice: sy.VirtualWorker) -> None:
    x = torch.tensor([1.0, 2.0]).tag("#a").describe("some numbers, and then some\nmore")
    assert (x.tags, x.description) == ({"#a"}, "some numbers, and then some\nmore")
    pointer = x.send(bob)
    summary = (
        "\n\tTags: #a \n\tShape: torch.Size([2])\n\tDescription: some numbers, and then some..."
    )
    assert shown(pointer) == POINTER + summary
    assert pointer.tag("#b", "#c") is pointer
    assert pointer.describe("short") is pointer
    summary = "\n\tTags: #a #b #c \n\tShape: torch.Size([2])\n\tDescription: short..."
    assert shown(pointer) == POINTER + summary
    assert (pointer.tags, pointer.description) == ({"#a", "#b", "#c"}, "short")
    assert shown(pointer.copy()) == POINTER + summary
    moved = pointer.move(alice)
    assert shown(moved) == "(Wrapper)>[PointerTensor | me:N -> alice:N]" + summary
    home = moved.get()
    assert (home.tags, home.description) == ({"#a", "#b", "#c"}, "short")
    assert shown(torch.ones(1).send(bob).describe("only words")).endswith(
        "torch.Size([1])\n\tDescription: only words..."
    )


def test_search_gives_pointers_that_do_not_collect(
    bob: sy.VirtualWorker, hook: sy.TorchHook
) -> None:
    carl = sy.VirtualWorker(hook, id="carl")
    kept = torch.tensor([1.0, 2.0]).tag("#a", "#b").describe("described").send(bob)
    torch.ones(1).tag("#a").send(bob, garbage_collect_data=False)
    (found,) = bob.search(["#a", "#b"])
    assert shown(found).startswith(POINTER + "\n\tTags: #a #b \n\tShape: torch.Size([2])")
    assert (found * 2).get().tolist() == [2.0, 4.0]
    assert len(bob.search("#a")) == 2
    assert len(bob.search(str(kept.id_at_location))) == 1
    assert bob.search("described") == []
    assert bob.search("#nothing") == []
    (theirs,) = carl.request_search("#b", location=bob)
    assert shown(theirs).startswith("(Wrapper)>[PointerTensor | carl:N -> bob:N]")
    del found, theirs
    assert len(inspect(bob)) == 2
    bob.clear_objects()


# --------------------------------------------------------------------------------------- garbage


def test_dropping_the_last_pointer_frees_the_object(worker: sy.VirtualWorker) -> None:
    x = torch.ones(2).send(worker)
    alias = x
    remote = weakref.ref(inspect(worker).objects[x.id_at_location])
    del x
    assert len(inspect(worker)) == 1
    del alias
    assert inspect(worker).objects == {}
    assert remote() is None
    assert not gc.isenabled()


def test_garbage_collect_data_false(worker: sy.VirtualWorker) -> None:
    x = torch.ones(2).send(worker, garbage_collect_data=False)
    number = x.id_at_location
    del x
    assert list(inspect(worker).objects) == [number]
    worker.clear_objects()


def test_errors_keep_nothing_alive(worker: sy.VirtualWorker, alice: sy.VirtualWorker) -> None:
    """An exception that is kept keeps its traceback, and that the pointers in its frames."""
    for attempt in (
        lambda: (torch.ones(2).send(worker) + torch.ones(3).send(worker)).shape,
        lambda: torch.ones(2, dtype=torch.int).send(worker).move(alice, requires_grad=True),
        lambda: torch.ones(2).send(worker).remote_get(),
        lambda: torch.ones(2).send(worker).max(7).values.shape,
        lambda: torch.ones(2).send(worker) + torch.ones(2).send(alice),
    ):
        refusal(attempt)
        assert inspect(worker).objects == inspect(alice).objects == {}


def test_a_chain_of_drops_reaches_the_last_worker(
    bob: sy.VirtualWorker, alice: sy.VirtualWorker, hook: sy.TorchHook
) -> None:
    carl = make_worker(hook, id="carl")
    x = torch.ones(2).send(bob).send(alice).send(carl)
    del x
    assert inspect(bob).objects == {}


# ------------------------------------------------------------------------------------------ modes


def test_grad_mode_holds_remotely(worker: sy.VirtualWorker) -> None:
    x = torch.ones(2, requires_grad=True).send(worker)
    with torch.no_grad():
        quiet = x * 2
        with torch.enable_grad():
            loud = x * 2
    with torch.inference_mode():
        inference = x * 2
    assert (quiet.requires_grad, loud.requires_grad) == (False, True)
    assert (inference.is_inference(), inference.requires_grad) == (True, False)
    assert (x * 2).requires_grad


def test_autocast_holds_remotely(worker: sy.VirtualWorker) -> None:
    x = torch.ones(2, 2).send(worker)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = x @ x
        with torch.autocast("cpu", enabled=False):
            full = x @ x
    assert (half.dtype, full.dtype, (x @ x).dtype) == (torch.bfloat16, torch.float32, torch.float32)


def test_queued_results_are_pending_until_somebody_waits(hook: sy.TorchHook) -> None:
    dan = make_worker(hook, id="dan", pipelined=True)
    x = torch.ones(2).send(dan)
    y = x + x
    assert not y.child.handle.done()
    assert y.child.handle.result().get().tolist() == [2.0, 2.0]
    assert y.child.handle.done()


def test_a_copy_of_a_part_of_a_remote_chain_is_a_copy_of_the_part(bob: sy.VirtualWorker) -> None:
    x = sy.LoggingTensor().on(torch.tensor([1.0, 2.0])).send(bob)
    part = x.child.child.child
    duplicate = part.copy()
    duplicate.add_(1)
    assert repr(duplicate.get()) == "tensor([2., 3.])"
    assert repr(x.get()) == "(Wrapper)>LoggingTensor>tensor([1., 2.])"


def test_a_copy_of_a_part_with_a_graph_goes_on_in_the_graph(bob: sy.VirtualWorker) -> None:
    x = sy.LoggingTensor().on(torch.tensor([1.0, 2.0], requires_grad=True)).send(bob)
    part = (x * 3).child.child.child
    duplicate = part.copy()
    assert duplicate.requires_grad and not duplicate.is_leaf
    assert duplicate.detach().get().tolist() == [3, 6]


def test_an_argument_that_is_written_to_may_be_named(bob: sy.VirtualWorker) -> None:
    x = torch.tensor([0.0, 1.0]).send(bob)
    y = torch.sigmoid_(input=x)
    assert y is x
    assert torch.equal(x.get(), torch.tensor([0.0, 1.0]).sigmoid_())


def test_a_number_is_formatted_where_it_may_be_read(
    bob: sy.VirtualWorker, worker: sy.VirtualWorker
) -> None:
    """As the loss of a training loop is, with one element in any shape."""
    loss = (torch.ones(2).send(worker) * 1.23456).sum()
    assert f"{loss:.4f} {loss.view(1, 1):7.3f} {loss:e}" == "2.4691   2.469 2.469120e+00"
    assert "%.2f" % loss == "2.47"
    several = torch.ones(2).send(worker)
    assert f"{several:>99}" == f"{several}".rjust(99) and f"{loss}".startswith("(Wrapper)>[Point")
    assert refusal(lambda: f"{torch.ones(2).send(bob):.2f}") == (
        "UnsupportedOperation: a tensor of several elements has no rule for format '.2f': format "
        "one of them, x[0], or get() it first."
    )
    private = torch.tensor(1.5).private_tensor(["ann"]).send(bob, user="ann")
    for secret in (private, private.view(1)):
        text = refusal(lambda secret=secret: f"{secret:.4f}")
        assert text.startswith("PermissionDenied: torch.")
        assert "1.5" not in text and "1.5" not in f"{secret}"
