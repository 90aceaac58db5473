"""Handlers that ask no guard: each works for public tensors, and fails for private ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from syft.exceptions import LimitExceeded, PermissionDenied
from syft.plans.building.input_properties import check_fixed
from syft.serde.packer import Packer
from syft.serde.registry import pack
from syft.workers.core import pipeline
from syft.workers.core.pipeline import Act, Call, Declaration
from syft.workers.core.state_machine import WorkerCore
from syft.workers.labels.cell import (
    SealedCell,
    annotate,
    guard_of,
    kind_of,
    opened_for,
    sealed,
    summary_of,
)
from syft.workers.labels.guards import Guard
from syft.workers.labels.memory_labels import full_guard_of, protect, travelling_guard_of
from syft.workers.labels.walk import elements_of, innermost, recorded_of, tensors_of
from syft.workers.wire.messages import Describe, Done, Duplicate, Failure, Fetch, Value
from tests.workers.core.peers import ask, lonely, value_in

ANN = Guard(frozenset({"ann"}))
HIDDEN = Guard(frozenset({"ann"}), shape_hidden=True)

# ----------------------------------------------------------------------- handlers without a guard


def _careless(guard: Guard) -> bool:
    """What says of everything that all may know it."""
    return True


def copies_the_gradient(call: Call, message: Any) -> Any:
    """A copy asks the guard of the gradient's object, and not of its memory."""
    gradient = call.stored(message.id).grad
    duplicate = gradient.detach().clone()
    protect(duplicate, gradient.__dict__.get("_guard"))
    call.core.store.put(6, duplicate)
    return call.tell(pack(True, Packer()), _careless)


def names_the_size_in_a_limit(call: Call, message: Any) -> Any:
    """The text of a limit holds the size of what was asked for."""
    raise LimitExceeded("worker 'bob'", "elements", 1, call.whole(message.id).numel())


def checks_a_property(call: Call, message: Any) -> Any:
    """A plan asks an input for a property of its shape."""
    check_fixed("plan", (("is_contiguous", (True,)),), [call.stored(message.id)], ["x"])
    return call.tell(pack(True, Packer()), _careless)


def tells_is_leaf(call: Call, message: Any) -> Any:
    return call.tell(pack(call.stored(message.id).is_leaf, Packer()), _careless)


def counts_zeros(call: Call, message: Any) -> Any:
    """A statistic over all objects."""
    store = call.core.store
    zeros = sum(int((store.read(id) == 0).sum()) for id in store.objects)
    return call.tell(pack(zeros, Packer()), _careless)


def follows_the_graph(call: Call, message: Any) -> Any:
    leaf = call.stored(message.id).grad_fn.next_functions[0][0].variable
    return call.tell(pack(float(leaf.grad.sum()), Packer()), _careless)


def follows_the_base(call: Call, message: Any) -> Any:
    return call.tell(pack(float(call.stored(message.id)._base.grad.sum()), Packer()), _careless)


def packs_it(call: Call, message: Any) -> Any:
    return call.tell(pack(call.stored(message.id), Packer()), _careless)


def takes_it(call: Call, message: Any) -> Any:
    taken: Any = call.core.store.take(message.id, "taken")
    return call.tell(pack(taken.tolist(), Packer()), _careless)


def _with_gradient() -> torch.Tensor:
    x = torch.ones(2, requires_grad=True)
    x.grad = torch.full((2,), 5.0)
    return x


def _view_of_one_with_gradient() -> torch.Tensor:
    base = torch.ones(2)
    base.grad = torch.full((2,), 5.0)
    return base[:1]


def _gradients(value: torch.Tensor) -> torch.Tensor:
    """What is private in these: the gradient, and the tensor itself where there is none."""
    known = value if value._base is None else value._base
    if value.grad_fn is not None and value._base is None:
        known = value.grad_fn.next_functions[0][0].variable  # type: ignore[union-attr]
    gradient = known.grad if known.is_leaf else None
    return value if gradient is None else gradient


ATTACKS: dict[Callable[..., Any], tuple[Callable[[], torch.Tensor], Guard]] = {
    copies_the_gradient: (_with_gradient, ANN),
    names_the_size_in_a_limit: (lambda: torch.ones(3), HIDDEN),
    checks_a_property: (lambda: torch.ones(3), HIDDEN),
    tells_is_leaf: (lambda: torch.ones(3), ANN),
    counts_zeros: (lambda: torch.zeros(3), ANN),
    follows_the_graph: (lambda: _with_gradient() * 2, ANN),
    follows_the_base: (_view_of_one_with_gradient, ANN),
    packs_it: (lambda: torch.ones(3), ANN),
    takes_it: (lambda: torch.ones(3), ANN),
}


def _answer(act: Act, monkeypatch: pytest.MonkeyPatch, value: torch.Tensor, private: bool) -> Any:
    core = lonely()
    if private:
        core.guard()
    core.store.put(5, value)
    declared = Declaration(reads="id", answers=(Value, Done))
    steps = pipeline._steps(declared, act, False)
    monkeypatch.setitem(WorkerCore.handlers, Describe, steps)
    return core, ask(core, Describe(1, 5))


@pytest.mark.parametrize("act", ATTACKS)
def test_a_handler_that_asks_no_guard_learns_nothing(
    act: Act, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, guard = ATTACKS[act]
    _, public = _answer(act, monkeypatch, make(), private=False)
    if act is names_the_size_in_a_limit:
        assert "got 3" in _text(public)
    else:
        assert type(public) is Value
    told = set()
    for factor in (1, 2):
        value = make()
        with torch.no_grad():
            secret = _gradients(value)
            secret.mul_(factor)
        protect(secret, guard)
        core, answer = _answer(act, monkeypatch, value, private=True)
        assert type(answer) is Failure and 6 not in core.store.objects
        told.add(_text(answer))
    (text,) = told
    assert "got 3" not in text


def _text(failure: Failure) -> str:
    return repr(failure)


# ---------------------------------------------------------------------------------------- the door


def test_a_cell_tells_its_public_form_and_no_more() -> None:
    x, y = torch.ones(2), torch.ones(3)
    protect(x, ANN)
    protect(y, HIDDEN)
    cell = sealed(x)
    annotate(cell, ["#a"], "two")
    assert summary_of(cell) == (["#a"], "two", (2,)) and summary_of(sealed(y))[2] is None
    assert kind_of(cell) is torch.Tensor and guard_of(cell) == ANN
    assert [name for name in dir(cell) if not name.startswith("_")] == []


def test_a_cell_opens_for_those_whom_the_guard_admits_alone() -> None:
    x = _with_gradient()
    protect(x.grad, ANN)
    cell = sealed(x)
    assert opened_for(cell, "ann", "bob") is x
    for user in ("eve", None):
        with pytest.raises(PermissionDenied):
            opened_for(cell, user, "bob")
    protect(x.grad, ANN.sealed(ValueError("odd")))
    with pytest.raises(ValueError, match="odd"):
        opened_for(cell, "ann", "bob")


def test_what_becomes_private_by_a_write_is_a_cell_when_it_is_read() -> None:
    core, x = lonely(), torch.ones(2)
    core.store.put(5, x)
    core.guard()
    assert core.store.read(5) is x
    protect(x[:1], ANN)
    assert type(core.store.read(5)) is SealedCell


def test_a_public_leaf_with_a_public_gradient_opens_for_everybody() -> None:
    core, x = lonely(), _with_gradient()
    core.store.put(5, x)
    core.guard()
    assert type(core.store.read(5)) is SealedCell
    got = value_in(core, Fetch(1, 5, 0, True))
    assert torch.equal(got, x) and torch.equal(got.grad, torch.full((2,), 5.0))


def test_a_copy_of_a_cell_is_as_private_with_its_gradient() -> None:
    core, x = lonely(), _with_gradient()
    protect(x.grad, ANN)
    core.store.put(5, x)
    core.guard()
    assert ask(core, Duplicate(1, 5, 6)) == Done(1)
    duplicate = opened_for(core.store.read(6), "ann", "bob")
    assert full_guard_of(duplicate) is None and full_guard_of(duplicate.grad) == ANN


@pytest.mark.parametrize(
    "walk",
    [full_guard_of, travelling_guard_of, tensors_of, elements_of, innermost, recorded_of],
    ids=lambda walk: walk.__name__,
)
def test_no_walk_takes_a_cell_for_something_without_tensors(walk: Callable[[Any], Any]) -> None:
    x = torch.ones(2)
    walk(sealed(x))
    protect(x, ANN)
    with pytest.raises(TypeError, match="sealed cell has no tensors"):
        walk(sealed(x))
