"""What is about to be written with private values gets new memory, and graphs keep the old."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import syft as sy
from syft.tensors.fixed.precision import fix_precision
from syft.workers.execution.moved_memory import Immovable, Moves, NoHoldings, move_written
from syft.workers.execution.successors import successor_of
from syft.workers.labels.guards import Guard
from syft.workers.labels.memory_labels import full_guard_of, protect
from syft.workers.labels.reached_graph import retaining
from tests.tensors.fixed.blind_ring import BlindRing, blind

ANN = Guard(frozenset({"ann"}))


class Others(NoHoldings):
    """Some tensors that are held besides those that are written."""

    def __init__(self, *tensors: torch.Tensor) -> None:
        self.tensors = tensors

    def sharing(self, places: Any) -> tuple[torch.Tensor, ...]:
        return self.tensors


def move(*written: torch.Tensor, others: tuple[torch.Tensor, ...] = ()) -> list[torch.Tensor]:
    """The successors of what is written, and of the others."""
    moves = move_written(written, ANN, Others(*others))
    return [moves.of(tensor) for tensor in (*written, *others)]


def lies_with(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.untyped_storage()._cdata == other.untyped_storage()._cdata


def test_memory_of_the_same_guard_stays() -> None:
    x = torch.ones(2)
    protect(x, ANN)
    assert not len(move_written([x], ANN, NoHoldings()))
    assert len(move_written([x], Guard(frozenset()), NoHoldings())) == 1


def test_what_is_moved_has_the_same_extent_and_values_in_other_memory() -> None:
    base = torch.arange(12.0).view(3, 4)
    view = base.t()[1:, ::2]
    new, same = move(view, others=(base,))
    assert new.shape == view.shape and new.stride() == view.stride()
    assert new.storage_offset() == view.storage_offset() and torch.equal(new, view)
    assert lies_with(new, same) and not lies_with(new, base)
    assert full_guard_of(new) == full_guard_of(same) == ANN and full_guard_of(base) is None


def test_something_else_that_is_held_is_left_alone() -> None:
    x, other = torch.ones(2), torch.ones(2)
    assert move(x, others=(other,))[1] is other


@pytest.mark.parametrize(
    "tensor",
    [
        torch.ones(2, dtype=torch.complex64).conj(),
        torch.ones(2, dtype=torch.complex64).conj().imag,
        torch.ones(4).view(torch.uint8),
    ],
    ids=["conj", "neg", "octets"],
)
def test_numbers_of_every_kind_are_moved(tensor: torch.Tensor) -> None:
    (new,) = move(tensor)
    assert torch.equal(new, tensor) and new.dtype is tensor.dtype
    assert new.is_conj() == tensor.is_conj() and new.is_neg() == tensor.is_neg()


def test_an_inference_tensor_stays_one() -> None:
    with torch.inference_mode():
        x = torch.ones(2)
    assert move(x)[0].is_inference()


def test_a_leaf_stays_a_leaf_of_its_class_with_its_gradient_hooks_and_attributes() -> None:
    weight = nn.Parameter(torch.ones(2))
    weight.grad = torch.ones(2)
    weight._tags = {"#w"}  # type: ignore[attr-defined]
    seen = []
    weight.register_hook(seen.append)  # type: ignore[no-untyped-call]
    (new,) = move(weight)
    assert type(new) is nn.Parameter and new.requires_grad and new.is_leaf
    assert new.grad is weight.grad and new._tags == {"#w"}  # type: ignore[attr-defined]
    assert successor_of(weight) is new
    (new * 2).sum().backward()
    assert len(seen) == 1
    plain = torch.ones(2, requires_grad=True)
    assert type(move(plain)[0]) is torch.Tensor and move(plain)[0].requires_grad
    frozen = torch.ones(2, requires_grad=True)
    frozen.register_hook(seen.append)  # type: ignore[no-untyped-call]
    frozen.requires_grad_(False)
    assert not move(frozen)[0].requires_grad


def test_a_graph_leads_on_through_a_moved_result_and_saved_the_old_one() -> None:
    leaf = torch.ones(2, requires_grad=True)
    made = leaf * 3
    product = (made * made).sum()
    (new,) = move(made)
    with torch.no_grad():
        new.mul_(100)
    product.backward(retain_graph=True)
    assert leaf.grad is not None and leaf.grad.tolist() == [18, 18]
    leaf.grad = None
    new.sum().backward()
    assert leaf.grad is not None and leaf.grad.tolist() == [3, 3]  # type: ignore[unreachable]


def test_views_with_a_graph_are_views_of_what_was_moved() -> None:
    leaf = torch.ones(2, 3, requires_grad=True)
    made = leaf * 2
    row = made[1]
    new_row, new = move(row, others=(made,))
    new_row.mul_(5)
    assert new.tolist() == [[2, 2, 2], [10, 10, 10]] and made.tolist() == [[2, 2, 2]] * 2
    new.sum().backward()
    assert leaf.grad is not None and leaf.grad.tolist() == [[2] * 3, [10] * 3]


@pytest.mark.parametrize("written", ["view", "base"])
def test_what_is_written_to_a_view_without_a_graph_is_in_the_graph_of_its_base(
    written: str,
) -> None:
    """And the other way round, as in torch."""
    base, factor = torch.ones(4), torch.tensor(3.0, requires_grad=True)
    view = base[1:3]
    new_view, new_base = move(view, others=(base,))
    (new_view if written == "view" else new_base).mul_(factor)
    for it, gradient in ((new_view, 2.0), (new_base, 2.0 if written == "view" else 4.0)):
        assert torch.autograd.grad(it.sum(), factor, retain_graph=True)[0] == gradient
    assert base.tolist() == [1] * 4 and not base.requires_grad


def test_views_that_need_not_be_of_their_base_are_moved_by_themselves() -> None:
    """Of another kind, without a graph of a leaf, and a leaf of their own."""
    numbers, leaf, base = torch.ones(4), torch.ones(2, requires_grad=True), torch.ones(2)
    others, own = numbers.view(torch.int32), base[:1].requires_grad_()
    own.grad = torch.ones(1)
    with torch.no_grad():
        part = leaf[:1]
    for view, whole in ((others, numbers), (part, leaf), (own, base)):
        new, over = move(view, others=(whole,))
        assert lies_with(new, over) and new.is_leaf and new.dtype is view.dtype
        assert new.requires_grad is view.requires_grad and new.grad is view.grad


def test_the_base_of_a_view_is_moved_though_nobody_holds_it() -> None:
    leaf = torch.ones(2, 3, requires_grad=True)
    view = (leaf * 2).t()
    (new,) = move(view)
    assert torch.equal(new, view) and new.stride() == view.stride()
    new.sum().backward()
    assert leaf.grad is not None and leaf.grad.tolist() == [[2] * 3] * 2


def test_a_view_whose_memory_was_replaced_is_none_of_its_base() -> None:
    base = torch.ones(4, requires_grad=True) * 2
    view = base[:2]
    view.data = torch.zeros(2)
    (new,) = move(view)
    assert new.tolist() == [0, 0] and new.requires_grad


def test_what_keeps_its_gradient_goes_on_doing_so() -> None:
    leaf = torch.ones(2, requires_grad=True)
    made = leaf * 2
    made.retain_grad()
    (new,) = move(made)
    assert new.retains_grad and any(tensor is new for tensor in retaining())


@pytest.mark.parametrize(
    "make",
    [
        lambda x: sy.LoggingTensor().on(x),
        lambda x: torch.view_as_real((x.requires_grad_() * 1j) * 1),
        lambda x: torch.quantize_per_tensor(x, 0.5, 0, torch.qint8),
        lambda x: torch.sparse_coo_tensor(torch.tensor([[0, 1]]), x, (2,)),
    ],
    ids=["chain", "other numbers", "quantized", "sparse"],
)
@pytest.mark.filterwarnings("ignore")  # quantized tensors are deprecated
def test_what_cannot_be_moved_is_refused(make: Any) -> None:
    with pytest.raises(Immovable):
        move(make(torch.ones(2)))


def test_successors_in_nested_arguments() -> None:
    moves, one, two = Moves(), torch.ones(1), torch.zeros(1)
    moves.add(one, two)
    more = Moves()
    more.update(moves)
    args, kwargs = more.within(([one, 3], {"out": one}))
    assert args[0] is two and args[1] == 3 and kwargs["out"] is two
    assert tuple(NoHoldings().shown()) == ()


def test_a_chain_is_moved_with_its_grid() -> None:
    x = fix_precision(torch.tensor([1.5, -2.0])).requires_grad_()
    x.grad, hidden = fix_precision(torch.ones(2)), x.detach()
    x.__dict__["_tags"] = {"kept"}
    new, view = move(x, others=(hidden,))
    assert new is not x and repr(new) == repr(x) and new.requires_grad and new.grad is x.grad
    assert full_guard_of(new) == full_guard_of(view) == ANN and full_guard_of(x) is None
    assert new.child.grid is x.child.grid and new.__dict__["_tags"] == {"kept"}
    assert lies_with(new.child.child, view.child.child)
    assert not lies_with(new.child.child, x.child.child)


def test_a_chain_whose_memory_is_not_known_is_not_moved(bob: sy.VirtualWorker) -> None:
    ring = BlindRing()
    over = fix_precision(torch.ones(2))
    for target in (torch.ones(2).send(bob), blind(torch.ones(2, dtype=torch.int64), ring)):
        with pytest.raises(Immovable):
            move(target)
    logged = sy.LoggingTensor().on(sy.LoggingTensor().on(torch.ones(2)))
    with pytest.raises(Immovable):
        move(logged)
    with pytest.raises(Immovable):
        move(over.requires_grad_() * 2)
