"""Guards: what they admit, how they meet, and where they sit."""

from __future__ import annotations

import pytest
import torch

import syft as sy
from syft.workers.labels.guards import Guard
from syft.workers.labels.memory_labels import combined, full_guard_of, protect, travelling_guard_of
from syft.workers.labels.walk import elements_of, innermost, memory_of, storages_of

ANN = Guard(frozenset({"ann"}))
BOTH = Guard(frozenset({"ann", "bea"}))


def test_a_guard_admits_those_it_names_and_nobody_else() -> None:
    assert BOTH.admits("bea")
    assert not BOTH.admits("eve") and not BOTH.admits(None) and not BOTH.admits("")
    assert not Guard(frozenset()).admits("ann")


def test_guards_only_ever_become_narrower() -> None:
    tensor = torch.ones(2)
    protect(tensor, None)
    assert full_guard_of(tensor) is None
    protect(tensor, ANN)
    protect(tensor, BOTH)
    protect(tensor, None)
    assert full_guard_of(tensor) == ANN
    protect(tensor, Guard(frozenset({"ann"}), shape_hidden=True))
    assert full_guard_of(tensor) == Guard(frozenset({"ann"}), shape_hidden=True)


def test_the_first_error_stands_for_what_could_not_be_computed() -> None:
    sealed = ANN.sealed(ValueError("7 is too large")).sealed(IndexError("of what was not computed"))
    assert str(sealed.error) == "7 is too large" and sealed.users == ANN.users


def test_what_is_combined_meets() -> None:
    one, other = torch.ones(1), torch.ones(1)
    assert combined([one, 5, None, other]) is None
    protect(one, ANN)
    assert combined([one, other]) == combined([other, one]) == ANN
    protect(other, Guard(frozenset({"bea"}), shape_hidden=True))
    assert combined([one, 5, other]) == Guard(frozenset(), shape_hidden=True)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.ones(2),
        torch.ones(2, device="meta"),
        torch.empty(0),
        torch.nn.Parameter(torch.ones(2)),
        torch.eye(2).to_sparse(),
        torch.eye(2).to_sparse_csr(),
        torch.eye(2).to_sparse_csc(),
        torch.nested.nested_tensor([torch.ones(1), torch.ones(2)], layout=torch.jagged),
        torch.quantize_per_tensor(torch.ones(2), 1.0, 0, torch.qint8),
    ],
    ids=lambda tensor: f"{tensor.layout}-{tensor.dtype}-{tensor.device}",
)
def test_a_guard_sits_on_the_memory_of_every_layout(tensor: torch.Tensor) -> None:
    assert full_guard_of(tensor) is None
    protect(tensor, ANN)
    alias = tensor.detach()
    assert full_guard_of(alias) == ANN
    assert not any("guard" in name for name in (*vars(tensor), *vars(alias)))
    protect(tensor, None)
    assert full_guard_of(alias) == ANN


def test_a_tensor_without_memory_of_its_own_is_guarded_itself() -> None:
    tensor = torch.ones(2).to_mkldnn()
    assert storages_of(tensor) == [] and memory_of(tensor) == set()
    protect(tensor, ANN)
    assert full_guard_of(tensor) == ANN
    assert full_guard_of(torch.ones(2).to_mkldnn()) is None and full_guard_of("text") is None


def test_the_gradient_travels_with_its_leaf() -> None:
    leaf = torch.ones(2, requires_grad=True)
    leaf.grad = torch.ones(2)
    protect(leaf.grad, ANN)
    assert full_guard_of(leaf) is None
    assert travelling_guard_of(leaf) == ANN
    assert travelling_guard_of(leaf * 2) is None
    logged = sy.LoggingTensor().on(leaf)
    assert travelling_guard_of(logged) == ANN


def test_the_innermost_tensor_is_the_one_in_this_process(bob: sy.VirtualWorker) -> None:
    x = torch.ones(2)
    assert innermost(sy.LoggingTensor().on(sy.LoggingTensor().on(x))) is x
    pointer = x.send(bob)
    assert innermost(pointer) is None and memory_of(pointer) == set()
    assert full_guard_of(pointer) is None and travelling_guard_of(pointer) is None
    fixed = x.fix_precision()
    assert innermost(fixed) is None and elements_of(fixed) is fixed.child.child
    assert memory_of(fixed) == memory_of(fixed.child.child)
