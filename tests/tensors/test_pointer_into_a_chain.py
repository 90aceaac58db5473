"""``pointer.child.child``: a tensor inside a remote chain, used as a tensor is."""

from __future__ import annotations

import copy
import inspect as inspection
import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

import syft as sy
from syft.chain.wrapper import Wrapper
from syft.tensors.bare_pointer import BarePointer
from syft.tensors.pointer import PointerTensor
from tests.chain.refusal import refusal, shown
from tests.shells.child import make_worker
from tests.shells.owner import inspect

OF_THE_LINK = frozenset(
    "__class__ __dict__ __dir__ __doc__ __format__ __getattribute__ __setattr__ __delattr__ "
    "__hash__ __init__ __init_subclass__ __module__ __new__ __repr__ __str__ __sizeof__ "
    "__subclasshook__ __weakref__ __annotations__ __getstate__ __setstate__ __reduce__ "
    "__torch_function__ __torch_dispatch__ __array_priority__ __cuda_array_interface__ "
    "__dlpack_c_exchange_api__ __slotnames__ __firstlineno__ __static_attributes__".split()
)
"""What Python, numpy and torch ask the link about itself; everything else is the tensor's."""

VALUES = torch.tensor([[1.0, 2.0], [3.0, 4.0]])


@pytest.fixture
def carl(hook: sy.TorchHook) -> sy.VirtualWorker:
    return make_worker(hook, "carl")


def into_a_chain(values: torch.Tensor, worker: sy.VirtualWorker) -> tuple[Wrapper, PointerTensor]:
    """A pointer to a chain, which keeps it alive, and what points to the tensor at its end."""
    pointer = sy.LoggingTensor().on(values).send(worker)
    return pointer, pointer.child.child.child


def outcome(action: Callable[[Any], Any], tensor: Any) -> Any:
    """What an action gives for a tensor: values and kinds, or the text of what it raises."""
    try:
        result = action(tensor)
    except Exception as error:
        place = f"{error}".partition("[PointerTensor")[0]
        return f"{type(error).__name__}: {place.replace(PointerTensor.__name__, 'Wrapper')}"
    return plain(result)


def plain(value: Any) -> Any:
    """A value with the tensors in it fetched, and as something to compare."""
    if isinstance(value, (Wrapper, PointerTensor)):
        return plain(value.copy().get())
    if isinstance(value, torch.Tensor):
        return (value.tolist(), value.dtype, value.requires_grad)
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    return list(map(plain, value)) if hasattr(value, "__next__") else value


def test_each_special_method_is_the_tensors_or_the_links_own() -> None:
    names = {name for kind in (torch.Tensor, Wrapper) for name in dir(kind) if name[:2] == "__"}
    assert "__matmul__" in names
    assert not names - OF_THE_LINK - vars(BarePointer).keys()


UNARY: list[Callable[[Any], Any]] = [
    *(operator.neg, operator.pos, operator.abs, operator.invert, operator.not_, operator.index),
    *(bool, int, float, complex, len, list, reversed, round, str.__len__, np.asarray),
    *(copy.copy, copy.deepcopy, lambda t: t.__reduce_ex__(2), lambda t: t.__dlpack__()),
    *(lambda t: t == None, lambda t: t != None, lambda t: 3.0 in t),  # noqa: E711
    *(lambda t: divmod(t, 2), lambda t: [1, 2] @ t, lambda t: "a" + t, lambda t: math_of(t)),
    *(lambda t: operator.delitem(t, 0), lambda t: t.requires_grad, lambda t: t.real),
]


def math_of(tensor: Any) -> Any:
    """Several operators in a row."""
    return ((1 - tensor) ** 2 @ tensor)[0] // 3


@pytest.mark.parametrize("values", [VALUES, torch.tensor([2]), torch.tensor(True)], ids=str)
@pytest.mark.parametrize("action", UNARY, ids=[str(index) for index in range(len(UNARY))])
def test_a_call_is_that_of_a_pointer(
    bob: sy.VirtualWorker, values: torch.Tensor, action: Callable[[Any], Any]
) -> None:
    holder, inside = into_a_chain(values, bob)
    assert outcome(action, inside) == outcome(action, values.send(bob))


BINARY = "add sub mul truediv floordiv mod pow matmul and_ or_ xor lshift rshift eq ne lt le gt ge"
OTHERS: dict[str, Callable[[torch.Tensor, sy.VirtualWorker], Any]] = {
    "number": lambda values, bob: 2,
    "tensor": lambda values, bob: torch.tensor(2),
    "pointer": lambda values, bob: values.send(bob),
    "inside": lambda values, bob: sy.LoggingTensor().on(values).send(bob),
    "text": lambda values, bob: "a",
}


@pytest.mark.parametrize("values", [VALUES, torch.tensor([[1, 2], [3, 9]])], ids=["float", "int"])
@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize("name", BINARY.split())
def test_an_operator_is_that_of_a_pointer(
    bob: sy.VirtualWorker, name: str, kind: str, values: torch.Tensor
) -> None:
    holder, inside = into_a_chain(values, bob)
    pointer, function = values.send(bob), getattr(operator, name)
    other = kept = OTHERS[kind](values, bob)
    if kind == "inside":
        other, kept = kept.child.child.child, values.send(bob)
    got = outcome(lambda t: function(t, other), inside)
    assert got == outcome(lambda t: function(t, kept), pointer)
    got = outcome(lambda t: function(other, t), inside)
    assert got == outcome(lambda t: function(kept, t), pointer)


def test_operators_that_were_wrong(bob: sy.VirtualWorker) -> None:
    holder, inside = into_a_chain(VALUES, bob)
    assert (inside + 1).get().tolist() == (1 + inside).get().tolist() == [[2.0, 3.0], [4.0, 5.0]]
    assert (-inside)[0].get().tolist() == [-1.0, -2.0]
    assert (inside @ inside).get().tolist() == [[7.0, 10.0], [15.0, 22.0]]
    assert (inside == 1).get().tolist() == [[True, False], [False, False]]
    assert (inside != inside).get().any().item() is False
    assert len(inside) == 2 and [float(row[0]) for row in inside] == [1.0, 3.0]
    assert refusal(lambda: bool(inside)).startswith("RuntimeError: Boolean value of Tensor")
    assert f"{inside[0, 1]:.2f}" == f"{into_a_chain(torch.tensor(2.0), bob)[1]:.2f}" == "2.00"
    assert f"{inside}" == str(inside) == repr(inside)


def test_in_place_it_stays_what_it_is(bob: sy.VirtualWorker) -> None:
    holder, inside = into_a_chain(torch.tensor([1.0, 2.0]), bob)
    before = inside
    inside += 1
    inside *= inside
    inside[0] = inside[1] + 1
    inside[1:] = 0
    assert inside is before and type(inside) is PointerTensor
    assert inside.get().tolist() == [10.0, 0.0]
    assert shown(holder.get()) == "(Wrapper)>LoggingTensor>tensor([10.,  0.])"


def test_in_place_at_the_end_of_a_row_of_attributes(bob: sy.VirtualWorker) -> None:
    holder, inside = into_a_chain(torch.tensor([1.0, 2.0]), bob)
    holder.child.child.child += 1
    holder.child.child.child[0] -= 5
    assert inside.get().tolist() == [-3.0, 3.0]

    parent = holder.child.child
    for value in (inside + 1, torch.ones(2), holder.child, inside.child):
        assert refusal(partial(setattr, parent, "child", value)) == (
            "UnsupportedOperation: PointerTensor has no rule for an assignment to .child: a remote "
            "chain is changed in place, or made anew and sent."
        )


def test_attributes_can_be_set(bob: sy.VirtualWorker) -> None:
    holder, inside = into_a_chain(torch.tensor([1.0, 2.0]), bob)
    inside.requires_grad = True
    (inside * inside).sum().backward()
    assert inside.requires_grad and inside.grad.get().tolist() == [2.0, 4.0]
    inside.grad = None
    assert inside.grad is None
    inside.data = torch.tensor([5.0, 6.0]).send(bob)
    assert inside.get().tolist() == [5.0, 6.0]
    assert refusal(partial(setattr, inside, "shape", (1, 2))) == (
        refusal(partial(setattr, torch.ones(2).send(bob), "shape", (1, 2)))
    )


def test_no_attribute_of_a_tensor_can_be_set_beside_it() -> None:
    names = {name for name in dir(torch.Tensor) if not name.startswith("_")}
    found = {name for name in names if inspection.isdatadescriptor(getattr(torch.Tensor, name))}
    assert {"grad", "data", "requires_grad"} <= found <= vars(BarePointer).keys()
    assert BarePointer.grad is vars(BarePointer)["grad"]  # what documentation looks at


def test_a_copy_is_one_of_the_part(bob: sy.VirtualWorker) -> None:
    holder, inside = into_a_chain(torch.tensor([1.0, 2.0], requires_grad=True), bob)
    shallow = copy.copy(inside)
    assert shallow is not inside and shallow.is_leaf and shallow.requires_grad
    duplicate = copy.deepcopy(inside)
    assert duplicate.requires_grad and duplicate.is_leaf and not duplicate.child.depth
    with torch.no_grad():
        duplicate += 1
    assert (duplicate.get().tolist(), inside.copy().get().tolist()) == ([2.0, 3.0], [1.0, 2.0])


def test_a_hash_is_that_of_the_object(bob: sy.VirtualWorker) -> None:
    holder, inside = into_a_chain(torch.tensor([1.0, 1.0]), bob)
    again = holder.child.child.child
    assert hash(inside) == hash(inside) and {inside: 1, again: 2}[inside] == 1
    assert len({inside, again, inside}) == 2


# ------------------------------------------------------------------------ methods that act on steps


def test_a_method_acts_on_the_step_that_the_pointer_names(
    bob: sy.VirtualWorker, alice: sy.VirtualWorker, carl: sy.VirtualWorker
) -> None:
    """me -> carl -> alice -> bob"""
    outer = VALUES.send(bob).send(alice).send(carl)
    workers = bob, alice, carl
    assert [len(inspect(worker)) for worker in workers] == [1, 1, 1]
    outer.remote_get()  # carl has alice's pointer: me -> carl -> bob
    assert [len(inspect(worker)) for worker in workers] == [1, 0, 1]
    moved = outer.move(alice)  # me -> alice -> bob
    assert [len(inspect(worker)) for worker in workers] == [1, 1, 0]
    duplicate = moved.copy()  # the data and the pointer to it
    assert [len(inspect(worker)) for worker in workers] == [2, 2, 0]
    inner = duplicate.get().move(carl)  # the later step: me -> carl
    assert [len(inspect(worker)) for worker in workers] == [1, 1, 1]
    assert torch.equal(inner.get(), VALUES)
    moved.remote_send(carl)  # me -> alice -> carl -> bob
    assert [len(inspect(worker)) for worker in workers] == [1, 1, 1]
    assert torch.equal(moved.get().get().get(), VALUES)


def test_a_step_that_is_fetched_leaves_the_chain_whole(
    bob: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    outer = VALUES.send(bob).send(alice)
    for fetch in (
        lambda: outer.child.get(keep=True),
        lambda: outer.child.child.get(),
        lambda: outer.child.child.move("me"),
    ):
        fetched = fetch()
        assert fetched.location is bob and not fetched.child.garbage_collect_data
        assert torch.equal((fetched + 1).get(), VALUES + 1)
        del fetched
        assert torch.equal((outer + 0).get().get(), VALUES), "its data lives as long as it"
    inner = outer.get()
    assert inner.child.garbage_collect_data and torch.equal(inner.get(), VALUES)


@pytest.mark.parametrize("kind", ["pointer", "logging"])
def test_a_step_is_not_taken_out_of_its_chain(
    bob: sy.VirtualWorker, alice: sy.VirtualWorker, carl: sy.VirtualWorker, kind: str
) -> None:
    if kind == "pointer":
        pointer = VALUES.send(alice).send(bob)
    else:
        pointer = sy.LoggingTensor().on(VALUES).send(bob)
    part = pointer.child.child
    for name, act in {
        "move": lambda: part.move(carl),
        "remote_get": part.remote_get,
        "remote_send": lambda: part.remote_send(carl),
        "fix_precision": part.fix_precision,
    }.items():
        text = refusal(act)
        assert text.startswith(
            f"UnsupportedOperation: a part of a remote chain has no rule for {name}: call it on "
            "the whole tensor (the pointer itself), or "
        )
    assert part.move(bob).child.place() == "bob", "it is there"
    duplicate = part.copy().move(carl)
    assert len(inspect(carl)) == 1 and len(inspect(bob)) == 1
    del duplicate
    assert not inspect(carl).objects
