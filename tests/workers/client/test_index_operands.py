"""Indices and masks that travel along: where, which, how large, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import syft as sy
from syft.ops.table import BY_NAME, NAMES
from syft.workers.client import operands
from syft.workers.client.operands import MOST_BYTES, indices_in, is_small_index
from tests.chain.refusal import here, refusal

pytestmark = pytest.mark.every_shell

X = torch.arange(12.0).view(3, 4)
ROWS, POSITIONS = torch.tensor([2, 0]), torch.tensor([[1], [0], [3]])
MASK, SOURCE = X > 5, -torch.ones(3, 4)

Call = Callable[[Any, Any, Callable[[torch.Tensor], Any]], Any]
"""A call of one name of an operation (torch's, or the method) on x, with a source where it needs
one."""

CALLS: dict[str, Call] = {
    "__getitem__": lambda f, x, s: f(x, (slice(None), ROWS)),
    "__setitem__": lambda f, x, s: f(x, MASK, 7.0),
    "index_select": lambda f, x, s: f(x, 1, index=ROWS),
    "index_add": lambda f, x, s: f(x, 0, ROWS, s(SOURCE[:2])),
    "index_copy": lambda f, x, s: f(x, 0, ROWS, s(SOURCE[:2])),
    "index_fill": lambda f, x, s: f(x, 0, ROWS, 7.0),
    "index_reduce": lambda f, x, s: f(x, 0, ROWS, s(SOURCE[:2]), "prod"),
    "gather": lambda f, x, s: f(x, 1, POSITIONS),
    "scatter": lambda f, x, s: f(x, 1, POSITIONS, 7.0),
    "scatter_add": lambda f, x, s: f(x, 1, POSITIONS, s(SOURCE)),
    "scatter_reduce": lambda f, x, s: f(x, 1, POSITIONS, s(SOURCE), "sum"),
    "take": lambda f, x, s: f(x, ROWS),
    "put": lambda f, x, s: f(x, ROWS, s(SOURCE[0, :2])),
    "take_along_dim": lambda f, x, s: f(x, POSITIONS, 1),
    "index_put": lambda f, x, s: f(x, (ROWS, ROWS), s(SOURCE[0, :2])),
    "masked_select": lambda f, x, s: f(x, mask=MASK),
    "masked_fill": lambda f, x, s: f(x, MASK, 7.0),
    "masked_scatter": lambda f, x, s: f(x, MASK, s(SOURCE)),
    "ctc_loss": lambda f, x, s: f(
        x[:, None].log_softmax(2), s(torch.tensor([[1, 2]])), torch.tensor([3]), torch.tensor([2])
    ),
}
WHERE: dict[str, Call] = {
    "torch.where": lambda f, x, s: f(MASK, x, s(SOURCE)),
    "torch.Tensor.where": lambda f, x, s: f(x, MASK, s(SOURCE)),
}


def function_of(name: str) -> Any:
    place: Any = torch
    for part in name.split(".")[1:]:
        place = getattr(place, part)
    return place


@pytest.mark.parametrize("number", sorted(operands._PLACES), ids=lambda n: NAMES[n])
@pytest.mark.filterwarnings("ignore:index_reduce")
def test_an_index_travels(bob: sy.VirtualWorker, number: int) -> None:
    name = NAMES[number]
    last = name.rpartition(".")[2]
    call = WHERE.get(name) or CALLS[last if last.endswith("__") else last.removesuffix("_")]
    mine, theirs = X.clone(), X.send(bob)
    expected = call(function_of(name), mine, lambda source: source)
    result = call(function_of(name), theirs, lambda source: source.send(bob))
    if expected is not None:
        assert torch.equal(result.get() if result is not theirs else theirs.copy().get(), expected)
    assert torch.equal(theirs.get(), mine)


@pytest.mark.parametrize(
    "index",
    [np.array([2, 0]), (slice(None), np.array([1])), np.array([True, False, True]), [np.int64(1)]],
)
def test_arrays_are_indices(bob: sy.VirtualWorker, index: Any) -> None:
    x, mine = X.send(bob), X.clone()
    assert torch.equal(x[index].get(), X[index])
    x[index] = mine[index] = -1.0
    assert torch.equal(x.get(), mine)


def test_the_gradient_goes_to_the_positions_that_were_asked_for(bob: sy.VirtualWorker) -> None:
    """What travelled is a copy, whatever becomes of the original before the backward pass."""
    x, index = X.send(bob).requires_grad_(), torch.tensor([1, 1, 2])
    y = x[index].sum()
    index.zero_()
    y.backward()
    assert x.grad.get().sum(1).tolist() == [0.0, 8.0, 4.0]
    del y
    assert x.get().grad is not None


def test_nothing_else_travels(bob: sy.VirtualWorker, alice: sy.VirtualWorker) -> None:
    x, whole = X.send(bob), X.long().send(bob)
    op = "torch.Tensor.{}".format
    cases: list[tuple[Callable[[], Any], str, str]] = [
        (lambda: whole + X.long(), op("add"), "me"),
        (lambda: x.index_add(0, ROWS, SOURCE[:2]), op("index_add"), "me"),
        (lambda: whole.scatter(1, POSITIONS, X.long()), op("scatter"), "me"),
        (lambda: X.long()[whole[0]], op("__getitem__"), "me"),
        (lambda: x[ROWS.send(alice)], op("__getitem__"), "alice"),
        (lambda: x[ROWS.private_tensor(["ann"])], op("__getitem__"), "me"),
        (lambda: x[ROWS.double()], op("__getitem__"), "me"),
        (lambda: x[torch.zeros(MOST_BYTES // 8 + 1).long()], op("__getitem__"), "me"),
    ]
    for act, name, place in cases:
        assert refusal(act) == here(name, "bob", place)
    most = torch.zeros(MOST_BYTES // 8).long()
    assert x[most].shape == (len(most), 4)


def test_how_small_an_index_is() -> None:
    for dtype in (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64):
        most = MOST_BYTES // dtype.itemsize
        assert is_small_index(torch.empty(most, dtype=dtype))
        assert not is_small_index(torch.empty(most + 1, dtype=dtype))
    assert not is_small_index(torch.ones(1)) and not is_small_index(torch.ones(1).cfloat())
    assert indices_in(BY_NAME["torch.Tensor.add"], (X, ROWS), {}) == []
    assert indices_in(BY_NAME["torch.take"], (X,), {}) == []
