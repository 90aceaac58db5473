"""Attack 5: whether an operation fails depends on the secret, and the failure is visible.

A yes or no to any question that the observer likes to ask is a complete read: numbers are found
digit by digit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from syft.ops.nested import leaves, replace
from syft.program.program import Program, Slot
from syft.workers.core.peer_limits import PeerLimits
from syft.workers.wire.messages import Convert
from syft.workers.wire.references import Reference
from tests.privacy.two_worlds.attacks import (
    SHARES,
    Attack,
    action,
    check,
    check_all,
    check_reaches,
    drawn,
    ones,
    secret,
    zeros,
)
from tests.privacy.two_worlds.observer import Observer
from tests.privacy.two_worlds.samples import Sample, Samples, can_travel

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's samples use much that is deprecated

# --------------------------------------------------------------------------- asked by a comparison

Question = Callable[[Observer, Reference], Any]
"""An operation that fails for the index 9, and not for the index 0."""


def asked(eve: Observer) -> Reference:
    """Whether the first number of the secret is positive: 9 if so, and 0 if not."""
    private = eve.call("torch.Tensor.__getitem__", secret(eve), slice(0, 1))
    yes = eve.call("torch.Tensor.long", eve.call("torch.gt", private, 0))
    found: Reference = eve.call("torch.mul", yes, 9)
    return found


def index(eve: Observer, place: Reference) -> None:
    eve.call("torch.Tensor.__getitem__", ones(eve), place)


def take(eve: Observer, place: Reference) -> None:
    eve.call("torch.take", ones(eve), place)


def gather(eve: Observer, place: Reference) -> None:
    eve.call("torch.gather", ones(eve), 0, place)


def index_select(eve: Observer, place: Reference) -> None:
    eve.call("torch.index_select", ones(eve), 0, place)


def embedding(eve: Observer, place: Reference) -> None:
    eve.call("torch.nn.functional.embedding", place, ones(eve, 3, 2))


def scatter(eve: Observer, place: Reference) -> None:
    eve.call("torch.scatter", zeros(eve), 0, place, 1.0)


def set_item(eve: Observer, place: Reference) -> None:
    eve.call("torch.Tensor.__setitem__", zeros(eve), place, 1.0)


def one_hot(eve: Observer, place: Reference) -> None:
    eve.call("torch.nn.functional.one_hot", place, 3)


def cross_entropy(eve: Observer, place: Reference) -> None:
    eve.call("torch.nn.functional.cross_entropy", zeros(eve, 1, 3), place)


def nll_loss(eve: Observer, place: Reference) -> None:
    eve.call("torch.nn.functional.nll_loss", zeros(eve, 1, 3), place)


def integer_division(eve: Observer, place: Reference) -> None:
    by = eve.call("torch.sub", place, 9)
    eve.call("torch.floor_divide", eve.public(torch.tensor([7])), by)


def remainder(eve: Observer, place: Reference) -> None:
    by = eve.call("torch.sub", place, 9)
    eve.call("torch.remainder", eve.public(torch.tensor([7])), by)


def negative_power(eve: Observer, place: Reference) -> None:
    eve.call("torch.linalg.matrix_power", eve.call("torch.diag", place), -1)


def inverse(eve: Observer, place: Reference) -> None:
    eve.call("torch.linalg.inv", eve.call("torch.diag", eve.call("torch.Tensor.float", place)))


def solve(eve: Observer, place: Reference) -> None:
    matrix = eve.call("torch.diag", eve.call("torch.Tensor.float", place))
    eve.call("torch.linalg.solve", matrix, ones(eve, 1))


def cholesky(eve: Observer, place: Reference) -> None:
    eve.call("torch.linalg.cholesky", eve.call("torch.diag", eve.call("torch.Tensor.float", place)))


def probability(eve: Observer, place: Reference) -> None:
    eve.call("torch.bernoulli", eve.call("torch.Tensor.float", place))


def multinomial(eve: Observer, place: Reference) -> None:
    eve.call("torch.multinomial", eve.call("torch.Tensor.float", place), 1)


def normal(eve: Observer, place: Reference) -> None:
    deviation = eve.call("torch.sub", 4.0, eve.call("torch.Tensor.float", place))
    eve.call("torch.normal", 0.0, eve.call("torch.sub", eve.call("torch.neg", place), -1.0))
    eve.call("torch.normal", zeros(eve, 1), deviation)


def asserted(eve: Observer, place: Reference) -> None:
    eve.call("torch._assert", place, "no")


def bincount(eve: Observer, place: Reference) -> None:
    eve.call("torch.bincount", eve.call("torch.neg", place))


def range_of_histogram(eve: Observer, place: Reference) -> None:
    infinite = eve.call("torch.div", eve.call("torch.Tensor.float", place), 0.0)
    eve.call("torch.histc", infinite)


def shapes_of_selections(eve: Observer, place: Reference) -> None:
    """Two selections of private size are added: that fails if their sizes do not fit."""
    chosen = eve.call(
        "torch.masked_select", ones(eve, 4), eve.call("torch.gt", ones(eve, 4), place)
    )
    eve.call("torch.add", chosen, ones(eve, 4))


def number_of_results(eve: Observer, place: Reference) -> None:
    """The observer says how many tensors he expects."""
    size = eve.call("torch.add", eve.call("torch.Tensor.sum", place), 1)
    eve.call("torch.split", ones(eve, 3), size, count=3, in_container=True)


def gradient_fails(eve: Observer, place: Reference) -> None:
    """Forward succeeds, and backward finds out."""
    leaf = ones(eve, grad=True)
    size = eve.call("torch.Tensor.float", eve.call("torch.sub", place, 9))
    matrix = eve.call("torch.mul", eve.call("torch.diag", size), eve.call("torch.sum", leaf))
    result = eve.call("torch.linalg.lu_factor_ex", matrix)
    for leaf_of in leaves(result):
        if isinstance(leaf_of, Reference):
            eve.call("torch.Tensor.backward", eve.call("torch.sum", leaf_of))


def in_a_group(eve: Observer, place: Reference) -> None:
    steps = (action("torch.take", Slot(0), Slot(1), out=Slot(2)),)
    eve.group(Program(2, steps, (Slot(2),)), [ones(eve), place], 1)


def in_a_plan(eve: Observer, place: Reference) -> None:
    steps = (action("torch.take", Slot(0), Slot(1), out=Slot(2)),)
    eve.plan(Program(2, steps, (Slot(2),)), [ones(eve), place], 1)


def in_a_branch(eve: Observer, place: Reference) -> None:
    ways = [
        Program(1, (action(name, Slot(0), out=Slot(1)),), Slot(1))
        for name in ("torch.neg", "torch.abs")
    ]
    decided = action("syft.ops.control.cond", Slot(1), *ways, [Slot(0)], out=Slot(2))
    eve.group(Program(2, (decided,), (Slot(2),)), [ones(eve), place], 1)


def in_a_later_action(eve: Observer, place: Reference) -> None:
    """An action that fails ends the program: what comes after it did not happen."""
    target = zeros(eve)
    steps = (
        action("torch.take", Slot(0), Slot(1), out=Slot(3)),
        action("torch.Tensor.fill_", Slot(2), 7.0),
    )
    eve.group(Program(3, steps, ()), [ones(eve), place, target], 0)


def with_a_promise(eve: Observer, place: Reference) -> None:
    """What waits for a result that failed fails too."""
    taken = eve.call("torch.take", ones(eve), place)
    if isinstance(taken, Reference):
        eve.call("torch.add", taken, 1)


def is_the_result_a_view(eve: Observer, place: Reference) -> None:
    """The inverse of a tensor is a view of that of a matrix, and a view cannot be detached."""
    matrix = eve.call("torch.diag", eve.call("torch.Tensor.float", place))
    eve.call("torch.Tensor.detach_", eve.call("torch.linalg.tensorinv", matrix, 1))


QUESTIONS: tuple[Question, ...] = (
    is_the_result_a_view,
    probability,
    multinomial,
    normal,
    asserted,
    number_of_results,
    in_a_group,
    in_a_plan,
    in_a_later_action,
    with_a_promise,
    index,
    take,
    gather,
    index_select,
    embedding,
    scatter,
    set_item,
    one_hot,
    cross_entropy,
    nll_loss,
    integer_division,
    remainder,
    inverse,
    solve,
    cholesky,
    negative_power,
    range_of_histogram,
    gradient_fails,
    in_a_branch,
    bincount,
    shapes_of_selections,
)


@pytest.mark.parametrize("question", QUESTIONS)
def test_questions_that_are_answered_by_failing(question: Question) -> None:
    check(lambda eve: question(eve, asked(eve)))


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_questions_are_asked(question: Question) -> None:
    check_reaches(lambda eve: question(eve, asked(eve)))


# ----------------------------------------------------------- every operation, in each of its places

HOSTILE: dict[str, tuple[float, float, float]] = {
    "whole": (-90, 90, 7),
    "zero": (0, 0, 0),
    "nan": (float("nan"), 1, -1),
    "huge": (1e30, -1e30, float("inf")),
}
"""The numbers that replace those of the sample in the second world."""


def hostile(tensor: torch.Tensor, numbers: tuple[float, float, float]) -> torch.Tensor | None:
    """A tensor like the other one, full of numbers that were not expected there."""
    if tensor.layout is not torch.strided or tensor.is_quantized or not tensor.numel():
        return None
    if not (tensor.is_floating_point() or tensor.is_complex()):
        # Nobody asks an index for infinity, and huge numbers of elements are no question.
        numbers = (-90, 90, 7) if numbers[0] == -90 else (0, 1, 0)
        if tensor.dtype is torch.uint8:
            numbers = (250, 90, 7)
    made = torch.tensor(numbers, dtype=torch.float64).repeat(tensor.numel() // 3 + 1)
    duplicate = tensor.detach().clone()
    duplicate.copy_(made[: tensor.numel()].reshape(tensor.shape))
    return duplicate.requires_grad_(tensor.requires_grad)


def with_one_private(sample: Sample, place: int, other: torch.Tensor) -> Attack:
    """The sample, its tensor number ``place`` private, and another value of it in world two."""

    def attack(eve: Observer) -> None:
        number = -1

        def put(leaf: Any) -> Any:
            nonlocal number
            if not isinstance(leaf, torch.Tensor):
                return leaf
            number += 1
            return (
                eve.secret(leaf.detach(), other.detach()) if number == place else eve.public(leaf)
            )

        args, kwargs = replace((sample.args, sample.kwargs), put)
        eve.call(sample.name, *args, **kwargs)
        eve.call("torch.rand", 1)
        for id in eve.known["bob"]:
            if id not in eve.private:
                eve.fetch(id)
        eve.known.clear()  # the rest is not public, or has been looked at

    return attack


def every_place(samples: Samples, kind: str) -> Iterator[tuple[str, Attack]]:
    """Each operation with a hostile number in each of its places."""
    for name in samples.names:
        for dtype in (torch.float32, torch.int64):
            found = samples.of(name, dtype, False)
            if found:
                break
        for sample in found[len(found) // 2 : len(found) // 2 + 1]:
            if can_travel(sample):
                for place, tensor in enumerate(sample.tensors()):
                    other = hostile(tensor, HOSTILE[kind])
                    if other is not None:
                        yield f"{name}[{place}]", with_one_private(sample, place, other)


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("share", SHARES)
def test_every_operation_in_each_place(
    samples: Samples, kind: str, share: float, request: pytest.FixtureRequest
) -> None:
    attacks = dict(every_place(samples, kind))
    assert len(attacks) > 1200
    check_all(drawn(attacks, request.config.option.seed, share))


def converts_what_has_no_place_on_the_grid(eve: Observer) -> None:
    number = eve.secret(torch.tensor(1.0), torch.tensor(float("nan")))
    eve.request(Convert(eve.count(), number.id, 1, (2,), eve.id()))


def starts_a_pass_by_the_size_of_a_private_shape(eve: Observer) -> None:
    chosen = eve.secret(torch.tensor([True, False]), torch.tensor([True, True]))
    public = eve.public(torch.ones(2, requires_grad=True))
    part = eve.call("torch.Tensor.masked_select", public, chosen)
    eve.call("torch.Tensor.backward", part, eve.public(torch.ones(2)))


def passes_into_another_layout(eve: Observer) -> None:
    leaf = eve.public(torch.eye(4).to_sparse_bsr((2, 2)))
    eve.call("torch.Tensor.requires_grad_", leaf)
    eve.call("torch.Tensor.backward", leaf, secret(eve, 4, 4))
    eve.fetch(leaf.id)


def asks_what_a_failed_write_reaches(eve: Observer) -> None:
    target = eve.call("torch.Tensor.clone", _leaf(eve))
    source = eve.call("torch.Tensor.clone", _leaf(eve))
    index = eve.secret(torch.tensor([0]), torch.tensor([9]))
    eve.call("torch.Tensor.index_add_", target, 0, index, source)
    start = eve.public(torch.ones(1))
    eve.call("torch.autograd.grad", target, source, start, allow_unused=True)


def meets_a_limit_after_a_failure(eve: Observer) -> None:
    """A sealed result goes another way through the worker, which a traceback would show."""
    index = eve.secret(torch.arange(90) % 3, torch.arange(90) + 9)
    taken = eve.call("torch.take", ones(eve), index)
    for name in ("torch.Tensor.normal_", "torch.Tensor.zero_"):
        eve.call(name, taken)
    for name in ("torch.add", "torch.outer", "torch.Tensor.mul_"):
        eve.call(name, taken, taken)
    for _ in range(30):
        eve.call("torch.neg", taken)


LIMITS = {
    "elements": PeerLimits(elements=185),
    "bytes": PeerLimits(bytes=1200),
    "objects": PeerLimits(objects=9),
}


@pytest.mark.parametrize("limits", LIMITS)
def test_a_limit_does_not_tell_what_is_sealed(limits: str) -> None:
    check(meets_a_limit_after_a_failure, LIMITS[limits])
    check_reaches(meets_a_limit_after_a_failure, LIMITS[limits])


def _leaf(eve: Observer) -> Any:
    return eve.public(torch.ones(1, requires_grad=True))


@pytest.mark.parametrize(
    "attack",
    [
        converts_what_has_no_place_on_the_grid,
        starts_a_pass_by_the_size_of_a_private_shape,
        passes_into_another_layout,
        asks_what_a_failed_write_reaches,
    ],
)
def test_what_random_programs_found(attack: Attack) -> None:
    check(attack)
