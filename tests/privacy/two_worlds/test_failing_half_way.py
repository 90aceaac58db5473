"""Attack 2: an operation writes private values to public memory, and then it fails.

What it wrote before the error stays.  Whoever only guards what an operation wrote when it succeeds
leaves that memory public.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from syft.ops.table import FUNCTIONS, NAMES
from syft.program.program import Program, Slot
from syft.workers.wire.references import Reference
from tests.privacy.two_worlds.attacks import (
    Attack,
    action,
    check,
    check_all,
    check_reaches,
    ones,
    secret,
    succeeded,
    zeros,
)
from tests.privacy.two_worlds.observer import Observer
from tests.privacy.two_worlds.samples import is_safe

Failing = Callable[[Observer, Reference, Reference, Reference], Any]

FAR_OFF = 99
"""An index that is too large for everything here."""


def bad_index(eve: Observer, *first: int) -> Reference:
    """Public indices, the last of which is out of range."""
    return eve.public(torch.tensor([*(first or (0, 1)), FAR_OFF]))


# ------------------------------------------------------------- one operation, a public bad index


def take(eve: Observer, public: Reference, private: Reference, index: Reference) -> None:
    eve.call("torch.take", private, index, out=public, grad=False)


def gather(eve: Observer, public: Reference, private: Reference, index: Reference) -> None:
    eve.call("torch.gather", private, 0, index, out=public, grad=False)


def index_select(eve: Observer, public: Reference, private: Reference, index: Reference) -> None:
    eve.call("torch.index_select", private, 0, index, out=public, grad=False)


def scatter(eve: Observer, public: Reference, private: Reference, index: Reference) -> None:
    eve.call("torch.Tensor.scatter_", public, 0, index, private, grad=False)


def scatter_add(eve: Observer, public: Reference, private: Reference, index: Reference) -> None:
    eve.call("torch.Tensor.scatter_add_", public, 0, index, private, grad=False)


def scatter_reduce(eve: Observer, public: Reference, private: Reference, index: Reference) -> None:
    eve.call("torch.Tensor.scatter_reduce_", public, 0, index, private, "sum", grad=False)


def index_put(eve: Observer, public: Reference, private: Reference, index: Reference) -> None:
    eve.call("torch.Tensor.index_put_", public, (index,), private, grad=False)


def accumulate(eve: Observer, public: Reference, private: Reference, index: Reference) -> None:
    eve.call("torch.Tensor.index_put_", public, (index,), private, accumulate=True, grad=False)


def set_item(eve: Observer, public: Reference, private: Reference, index: Reference) -> None:
    eve.call("torch.Tensor.__setitem__", public, index, private, grad=False)


def index_copy(eve: Observer, public: Reference, private: Reference, index: Reference) -> None:
    eve.call("torch.Tensor.index_copy_", public, 0, index, private, grad=False)


def index_add(eve: Observer, public: Reference, private: Reference, index: Reference) -> None:
    eve.call("torch.Tensor.index_add_", public, 0, index, private, grad=False)


def index_reduce(eve: Observer, public: Reference, private: Reference, index: Reference) -> None:
    eve.call("torch.Tensor.index_reduce_", public, 0, index, private, "prod", grad=False)


def put(eve: Observer, public: Reference, private: Reference, index: Reference) -> None:
    eve.call("torch.Tensor.put_", public, index, private, grad=False)


def put_and_add(eve: Observer, public: Reference, private: Reference, index: Reference) -> None:
    eve.call("torch.Tensor.put_", public, index, private, accumulate=True, grad=False)


def as_out_of_put(eve: Observer, public: Reference, private: Reference, index: Reference) -> None:
    eve.call("torch.index_add", public, 0, index, private, out=public, grad=False)


def take_along(eve: Observer, public: Reference, private: Reference, index: Reference) -> None:
    eve.call("torch.take_along_dim", private, index, 0, out=public, grad=False)


def select_rows(eve: Observer, public: Reference, private: Reference, index: Reference) -> None:
    table = eve.call("torch.Tensor.unsqueeze", private, 1)
    eve.call("torch.index_select", table, 0, index, out=public, grad=False)


BY_INDEX: tuple[Failing, ...] = (
    take,
    gather,
    index_select,
    scatter,
    scatter_add,
    scatter_reduce,
    index_put,
    accumulate,
    set_item,
    index_copy,
    index_add,
    index_reduce,
    put,
    put_and_add,
    as_out_of_put,
    select_rows,
)


@pytest.mark.parametrize("fail", BY_INDEX)
def test_what_was_written_before_a_bad_index(fail: Failing) -> None:
    def attack(eve: Observer) -> None:
        private = secret(eve)
        fail(eve, ones(eve), private, bad_index(eve))

    check(attack)


# ---------------------------------------------------------------------------- lists of tensors

LISTS = tuple(
    name
    for name, function in zip(NAMES, FUNCTIONS, strict=True)
    if "_foreach_" in name and name.endswith("_") and function is not None and is_safe(name)
)


def second_does_not_fit(name: str, form: str) -> Attack:
    """An operation on lists whose second tensors have other shapes, or an option that fails."""

    def attack(eve: Observer) -> None:
        public, private = [ones(eve), ones(eve)], secret(eve)
        wrong = ones(eve, 5)
        mixed = [private, wrong]
        others: dict[str, tuple[Any, ...]] = {
            "binary": (mixed,),
            "ternary": (mixed, mixed),
            "lerp": (mixed, 0.5),
            "unlike": ([private, eve.public(torch.ones(3, dtype=torch.complex64))],),
            "ternary with scalars": (mixed, mixed, [1.0, 2.0]),
        }
        eve.call(name, public, *others[form], grad=False)

    return attack


FORMS = ("binary", "ternary", "lerp", "unlike", "ternary with scalars")


@pytest.mark.parametrize("form", FORMS)
def test_lists_whose_second_tensor_does_not_fit(form: str) -> None:
    check_all({name: second_does_not_fit(name, form) for name in LISTS})


# ----------------------------------------------------------------------------- backward passes


def broken(eve: Observer, leaf: Reference) -> Reference:
    """A loss whose backward pass fails: what it saved was written to."""
    made = succeeded(eve.call("torch.exp", leaf))
    eve.call("torch.Tensor.add_", made, 1)
    return succeeded(eve.call("torch.sum", made))


def late_backward(eve: Observer) -> None:
    """The private part comes first, because it was computed last."""
    first, second = ones(eve, grad=True), ones(eve, grad=True)
    fails = broken(eve, first)
    private = eve.call("torch.sum", eve.call("torch.mul", second, secret(eve)))
    eve.call("torch.Tensor.backward", eve.call("torch.add", private, fails))


def late_backward_of_a_list(eve: Observer) -> None:
    first, second = ones(eve, grad=True), ones(eve, grad=True)
    fails = broken(eve, first)
    private = eve.call("torch.sum", eve.call("torch.mul", second, secret(eve)))
    eve.call("torch.autograd.backward", [private, fails])


def late_backward_adds(eve: Observer) -> None:
    """The leaf has a public gradient already, to which the private one is added."""
    first, second = ones(eve, grad=True), ones(eve, grad=True)
    eve.call("torch.Tensor.backward", eve.call("torch.sum", second))
    fails = broken(eve, first)
    private = eve.call("torch.sum", eve.call("torch.mul", second, secret(eve)))
    eve.call("torch.Tensor.backward", eve.call("torch.add", private, fails))


def private_start(eve: Observer) -> None:
    """The loss is public, and the gradient with which it starts is not."""
    first, second = ones(eve, grad=True), ones(eve, grad=True)
    made = eve.call("torch.exp", first)
    eve.call("torch.Tensor.add_", made, 1)
    loss = eve.call("torch.add", made, eve.call("torch.mul", second, 1))
    eve.call("torch.Tensor.backward", loss, secret(eve))


def retained(eve: Observer) -> None:
    """A result keeps the gradient of a pass that fails later."""
    first, second = ones(eve, grad=True), ones(eve, grad=True)
    fails = broken(eve, first)
    hidden = eve.call("torch.mul", second, 1)
    eve.call("torch.Tensor.retain_grad", hidden)
    private = eve.call("torch.sum", eve.call("torch.mul", hidden, secret(eve)))
    eve.call("torch.Tensor.backward", eve.call("torch.add", private, fails))
    eve.call("torch.Tensor.grad.__get__", hidden)


def accumulated_statistics(eve: Observer) -> None:
    """A normalization writes its statistics before it finds that a weight does not fit."""
    mean, variance, weight = zeros(eve), ones(eve), ones(eve, 5)
    rows = eve.call("torch.Tensor.expand", secret(eve), 2, 3)
    eve.call("torch.nn.functional.batch_norm", rows, mean, variance, weight, training=True)


def grown(eve: Observer) -> None:
    """A target that is too small is enlarged first, into memory that was freed."""
    private = secret(eve, 64)
    eve.call("torch.mul", private, 2)
    target = eve.public(torch.zeros(0))
    eve.call("torch.take", private, bad_index(eve, *range(63)), out=target, grad=False)


PASSES: tuple[Attack, ...] = (
    late_backward,
    late_backward_of_a_list,
    late_backward_adds,
    private_start,
    retained,
)
OTHERS: tuple[Attack, ...] = (accumulated_statistics, grown)


@pytest.mark.parametrize("attack", [*PASSES, *OTHERS])
def test_what_a_failing_operation_leaves(attack: Attack) -> None:
    check(attack)


@pytest.mark.parametrize("attack", [*PASSES, *OTHERS])
def test_something_was_written(attack: Attack) -> None:
    check_reaches(attack)


# ---------------------------------------------------------------------- in groups and in plans

STEPS = {
    "put": (action("torch.Tensor.put_", Slot(0), Slot(2), Slot(1)),),
    "scatter": (action("torch.Tensor.scatter_", Slot(0), 0, Slot(2), Slot(1)),),
    "index_put": (action("torch.Tensor.index_put_", Slot(0), (Slot(2),), Slot(1)),),
    "index_copy": (action("torch.Tensor.index_copy_", Slot(0), 0, Slot(2), Slot(1)),),
    "index_add": (action("torch.Tensor.index_add_", Slot(0), 0, Slot(2), Slot(1)),),
    "lists": (action("torch._foreach_add_", [Slot(0), Slot(0)], [Slot(1), Slot(3)]),),
    "the next action": (
        action("torch.Tensor.copy_", Slot(0), Slot(1)),
        action("torch.take", Slot(0), Slot(2), out=Slot(4)),
    ),
}
"""Programs on a public target, the secret, a bad index, and a tensor of another shape."""


@pytest.mark.parametrize("kind", ["group", "plan"])
@pytest.mark.parametrize("name", STEPS)
def test_programs_that_fail_half_way(name: str, kind: str) -> None:
    def attack(eve: Observer) -> None:
        inputs = [ones(eve), secret(eve), bad_index(eve), ones(eve, 5)]
        run = eve.group if kind == "group" else eve.plan
        run(Program(4, STEPS[name], ()), inputs, 0)

    check(attack)


# ---------------------------------------------------------------- the secret decides where it fails


def private_index(eve: Observer) -> Reference:
    """An index that is out of range in one world only."""
    return eve.secret(torch.tensor([0, 1, 2]), torch.tensor([0, 1, FAR_OFF]))


@pytest.mark.parametrize("fail", BY_INDEX)
def test_what_was_written_before_a_private_bad_index(fail: Failing) -> None:
    check(lambda eve: fail(eve, ones(eve), ones(eve), private_index(eve)))
