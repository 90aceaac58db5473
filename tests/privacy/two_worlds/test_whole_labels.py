"""Attacks on labels that would cover too little: three leaks that a first design of labels had.

A graph saves results as well as operands.  A failure follows from the values of all operands.  One
object may stand under two ids, and so may its gradient be asked for under the other one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from syft.ops.calls import mutated_argument
from syft.ops.nested import leaves, replace
from syft.ops.table import FLAGS, FUNCTIONS, NAMES
from syft.workers.wire.references import Reference
from tests.privacy.two_worlds.attacks import (
    SHARES,
    Attack,
    check,
    check_all,
    check_reaches,
    data_of,
    drawn,
    learned,
    ones,
    secret,
)
from tests.privacy.two_worlds.leaks import LEAKS
from tests.privacy.two_worlds.observer import Failed, Observer
from tests.privacy.two_worlds.samples import Sample, Samples
from tests.privacy.two_worlds.test_saved_tensors import differentiable
from tests.privacy.two_worlds.world import OBSERVER, READER

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's samples use much that is deprecated


def held(eve: Observer, it: Reference) -> Any:
    """The object under an id in the first world."""
    return eve.both.worlds[0].workers["bob"].core.store.objects.get(it.id)


# ------------------------------------------------------------------------- results that are saved


def results_overwritten(sample: Sample) -> Attack:
    """Compute on public data, overwrite the memory of the results with private values, and run
    backward from what was computed of them before: the gradients of the operands are looked at."""

    def attack(eve: Observer) -> None:
        own: list[Reference] = []

        def put(leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor):
                return leaf
            own.append(eve.public(leaf))
            return own[-1]

        args, kwargs = replace((sample.args, sample.kwargs), put)
        result = eve.call(sample.name, *args, **kwargs)
        results = [leaf for leaf in leaves(result) if isinstance(leaf, Reference)]
        losses = [eve.call("torch.sum", eve.call("torch.mul", one, 1)) for one in results]
        for one in results:
            tensor = held(eve, one)
            if type(tensor) is torch.Tensor and tensor.layout is torch.strided:
                source = eve.secret(torch.zeros_like(tensor), torch.ones_like(tensor))
                eve.call("torch.Tensor.copy_", data_of(eve, one), source)
        for loss in losses:
            eve.call("torch.Tensor.backward", loss, retain_graph=True)
        for reference in own:
            eve.gradient(reference.id)
        eve.known.clear()  # the rest is for other tests

    return attack


@pytest.mark.parametrize("share", SHARES)
def test_every_operation_that_saves_its_results(
    samples: Samples, share: float, request: pytest.FixtureRequest
) -> None:
    attacks = {sample.name: results_overwritten(sample) for sample in differentiable(samples)}
    check_all(drawn(attacks, request.config.option.seed, share))


MATRIX = torch.tensor([[1.0, 5.0], [7.0, 2.0]], requires_grad=True)
INDICES = ("max", "min", "median", "mode", "sort", "cummax", "cummin")
VALUES = ("exp", "tanh", "sqrt")
SAVING = [
    *(Sample(f"torch.{name}", (MATRIX, 1), {}) for name in INDICES),
    *(Sample(f"torch.{name}", (MATRIX,), {}) for name in VALUES),
]
"""Operations whose graph saves a result: the indices, or the values."""


@pytest.mark.parametrize("sample", SAVING, ids=lambda sample: sample.name)
def test_a_result_that_was_saved_is_overwritten(sample: Sample) -> None:
    check(results_overwritten(sample))
    check_reaches(results_overwritten(sample))


def test_results_that_are_written_where_they_lie_are_found() -> None:
    with LEAKS["results"]():
        assert learned(results_overwritten(SAVING[0])) is not None


# --------------------------------------------------------------------------- what decides a failure

Deciding = Callable[[Observer, Reference, Reference, Reference], Any]
"""A command on a private place, and on what another user may read, a leaf and what may be written
to: it fails for the place 9, and not for the place 0."""

DECIDED: dict[str, Deciding] = {
    "take": lambda eve, place, leaf, own: eve.call("torch.take", leaf, place),
    "index": lambda eve, place, leaf, own: eve.call("torch.Tensor.__getitem__", leaf, place),
    "gather": lambda eve, place, leaf, own: eve.call("torch.gather", leaf, 0, place),
    "select": lambda eve, place, leaf, own: eve.call("torch.index_select", leaf, 0, place),
    "loss": lambda eve, place, leaf, own: eve.call(
        "torch.nn.functional.nll_loss", eve.call("torch.unsqueeze", leaf, 0), place
    ),
    "fill": lambda eve, place, leaf, own: eve.call("torch.Tensor.index_fill_", own, 0, place, 5.0),
    "add": lambda eve, place, leaf, own: eve.call(
        "torch.Tensor.index_add_", own, 0, place, eve.call("torch.Tensor.__getitem__", leaf, [0])
    ),
    "out": lambda eve, place, leaf, own: eve.call(
        "torch.take", eve.call("torch.Tensor.detach", leaf), place, out=own, grad=False
    ),
    "gradient": lambda eve, place, leaf, own: set_gradient(eve, chosen(eve, place), own),
    "a gradient of private size": lambda eve, place, leaf, own: set_gradient(
        eve, eve.call("torch.Tensor.requires_grad_", own), chosen(eve, place)
    ),
    "copy": lambda eve, place, leaf, own: eve.call(
        "torch.Tensor.copy_", own, chosen(eve, place), grad=False
    ),
    "product": lambda eve, place, leaf, own: eve.call("torch.mul", leaf, chosen(eve, place)),
}


def set_gradient(eve: Observer, leaf: Any, gradient: Any) -> Any:
    eve.call("torch.Tensor.requires_grad_", leaf)
    return eve.call("torch.Tensor.grad.__set__", leaf, gradient)


def chosen(eve: Observer, place: Reference) -> Any:
    """Three numbers for the place 0, and none for the place 9."""
    mask = eve.call("torch.eq", eve.call("torch.mul", ones(eve), place), 0)
    return eve.call("torch.masked_select", ones(eve), mask)


def decided_by_two(name: str) -> Attack:
    """A failure that ann's value decides, on data of the reader's: he asks for all there is."""

    def attack(eve: Observer) -> None:
        place = eve.secret(torch.tensor([0]), torch.tensor([9]))
        leaf = eve.of_reader(torch.tensor([1.0, 2.0, 3.0], requires_grad=True))
        own = eve.call("torch.Tensor.clone", eve.of_reader(torch.tensor([4.0, 5.0, 6.0])))
        result = DECIDED[name](eve, place, leaf, own)
        there = [one for one in (result, leaf, own) if isinstance(one, Reference)]
        for one in there:
            eve.call("torch.Tensor.backward", eve.call("torch.sum", one), sender=READER)
        for one in there:
            for sender in (READER, OBSERVER):
                eve.fetch(one.id, sender=sender)
                eve.call("torch.Tensor.grad.__get__", one, sender=sender)
                found = eve.call("torch.mul", one, 2, sender=sender)
                if isinstance(found, Reference):
                    eve.fetch(found.id, sender=READER)

    return attack


@pytest.mark.parametrize("name", DECIDED)
def test_a_failure_is_as_private_as_all_that_decided_it(name: str) -> None:
    check(decided_by_two(name))
    check_reaches(decided_by_two(name))


def test_a_failure_under_the_label_of_one_operand_is_found() -> None:
    with LEAKS["failures"]():
        found = {name for name in DECIDED if learned(decided_by_two(name))}
    assert found >= {"take", "loss", "fill", "out", "copy", "product"}


# --------------------------------------------------------------------------- one object, two ids


def returning_their_operand() -> Iterator[tuple[str, tuple[Any, ...]]]:
    """The calls of operations that return the very tensor that they are given."""
    x, like = torch.ones(3), torch.zeros(3)
    arguments: tuple[tuple[Any, ...], ...] = (
        *((), (torch.float32,), (like,), ("cpu",), (3,), (0,), (1,), (True,), (0, 0)),
        *((0.5, False), (-1,), (0.0,), (like, 0.0), ((3,),)),
    )
    for name, function, flags in zip(NAMES, FUNCTIONS, FLAGS, strict=True):
        if function is None or "cuda" in name:
            continue
        for args in arguments:
            given = x.clone()
            if mutated_argument(flags, (given, *args), {}) is given:
                break  # it keeps the id that it has
            try:
                found = function(given, *args)
            except Exception:  # it takes something else
                continue
            if found is given:
                yield name, args
                break


CALLS = dict(returning_their_operand())


def under_two_ids(name: str, args: tuple[Any, ...]) -> Attack:
    """A private gradient comes to an object under one of its ids; both are asked."""

    def attack(eve: Observer) -> None:
        for by_setting in (True, False):
            for first in (True, False):
                one = ones(eve, grad=True)
                given = [eve.public(arg) if isinstance(arg, torch.Tensor) else arg for arg in args]
                other = eve.call(name, one, *given, grad=False)
                if isinstance(other, Failed):
                    return
                used = one if first else other
                if by_setting:
                    eve.call("torch.Tensor.grad.__set__", used, secret(eve))
                else:
                    product = eve.call("torch.mul", used, secret(eve))
                    eve.call("torch.Tensor.backward", eve.call("torch.sum", product))
                for it in (one, other):
                    if isinstance(it, Reference):
                        eve.gradient(it.id)
                        found = eve.call("torch.Tensor.grad.__get__", it)
                        if isinstance(found, Reference):
                            eve.fetch(found.id)

    return attack


@pytest.mark.parametrize("share", SHARES)
def test_an_object_under_two_ids_has_one_private_gradient(
    share: float, request: pytest.FixtureRequest
) -> None:
    attacks = {name: under_two_ids(name, args) for name, args in CALLS.items()}
    assert len(attacks) > 30
    check_all(drawn(attacks, request.config.option.seed, share))


@pytest.mark.parametrize("name", ["torch.Tensor.contiguous", "torch.Tensor.to"])
def test_the_gradient_of_an_object_under_two_ids_is_reached(name: str) -> None:
    check_reaches(under_two_ids(name, CALLS[name]))
    with LEAKS["two ids"]():
        assert learned(under_two_ids(name, CALLS[name])) is not None
