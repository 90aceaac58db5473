"""Attack 1: a public graph saves a tensor, the secret is written there, and backward reads it.

The loss is public and so are all its inputs.  What its graph saved is public memory; if the secret
gets into that memory, the public gradient is a function of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from syft.ops.nested import leaves, replace
from syft.program.program import Program, Slot
from syft.workers.wire import messages
from syft.workers.wire.references import Reference
from tests.privacy.two_worlds.attacks import (
    SHARES,
    Attack,
    action,
    check,
    check_all,
    check_reaches,
    data_of,
    drawn,
    ones,
    secret,
    succeeded,
    zeros,
)
from tests.privacy.two_worlds.observer import Failed, Observer
from tests.privacy.two_worlds.samples import Sample, Samples, can_travel, is_repeatable

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's samples use much that is deprecated

Write = Callable[[Observer, Reference, Reference], Any]


def through_data(eve: Observer, target: Reference, private: Reference) -> None:
    eve.call("torch.Tensor.copy_", data_of(eve, target), private)


def through_detach(eve: Observer, target: Reference, private: Reference) -> None:
    eve.call("torch.Tensor.copy_", eve.call("torch.Tensor.detach", target), private, grad=False)


def set_data(eve: Observer, target: Reference, private: Reference) -> None:
    eve.call("torch.Tensor.data.__set__", target, private)


def set_memory(eve: Observer, target: Reference, private: Reference) -> None:
    view = data_of(eve, target)
    eve.call("torch.Tensor.set_", view, private, grad=False)


def in_place(eve: Observer, target: Reference, private: Reference) -> None:
    eve.call("torch.Tensor.copy_", target, private, grad=False)


def as_out(eve: Observer, target: Reference, private: Reference) -> None:
    view = data_of(eve, target)
    eve.call("torch.mul", private, 1, out=view, grad=False)


def by_index(eve: Observer, target: Reference, private: Reference) -> None:
    view = data_of(eve, target)
    eve.call("torch.Tensor.__setitem__", view, ..., private, grad=False)


def by_list(eve: Observer, target: Reference, private: Reference) -> None:
    view = data_of(eve, target)
    eve.call("torch._foreach_copy_", [view], [private], grad=False)


WRITES = (
    *(through_data, set_data, as_out, by_index, by_list),
    *(through_detach, set_memory, in_place),
)


@pytest.mark.parametrize("write", WRITES)
def test_a_product_saves_its_factor(write: Write) -> None:
    check(product_with(write))


@pytest.mark.parametrize("write", WRITES)
def test_the_factor_is_overwritten(write: Write) -> None:
    check_reaches(product_with(write))


def product_with(write: Write) -> Attack:
    """Overwrite a factor between the product and its backward pass."""

    def attack(eve: Observer) -> None:
        factor, leaf = ones(eve), ones(eve, grad=True)
        loss = succeeded(eve.call("torch.sum", eve.call("torch.mul", factor, leaf)))
        write(eve, factor, secret(eve))
        eve.call("torch.Tensor.backward", loss)

    return attack


# ------------------------------------------------------------------- every operation that saves


def differentiable(samples: Samples) -> Iterator[Sample]:
    """A sample of each operation that has a gradient, with tensors that can be overwritten."""
    for name in samples.names:
        if name.endswith("_") or name in samples.lists or not is_repeatable(name):
            continue
        for sample in samples.of(name, torch.float32, True):
            if fits(sample):
                yield sample
                break


def fits(sample: Sample) -> bool:
    """Whether a sample has tensors to derive by, and can be sent."""
    if not any(tensor.requires_grad and tensor.numel() for tensor in sample.tensors()):
        return False
    return can_travel(sample)


def overwritten(sample: Sample, write: Write) -> Attack:
    """Compute on public data, overwrite every floating-point input, and run backward.

    The inputs are copies of leaves, so that the gradients of the leaves stay public.
    """

    def attack(eve: Observer) -> None:
        stored: list[tuple[Reference, torch.Tensor]] = []
        own: list[Reference] = []

        def put(leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor):
                return leaf
            own.append(eve.public(leaf))
            stored.append((eve.call("torch.Tensor.clone", own[-1]), leaf))
            return stored[-1][0]

        args, kwargs = replace((sample.args, sample.kwargs), put)
        result = eve.call(sample.name, *args, **kwargs)
        if isinstance(result, Failed):
            return
        losses = [
            eve.call("torch.sum", eve.call("torch.abs", leaf))
            for leaf in leaves(result)
            if isinstance(leaf, Reference)
        ]
        for reference, tensor in stored:
            if tensor.is_floating_point() and tensor.layout is torch.strided:
                write(eve, reference, secret(eve, *tensor.shape))
        for loss in losses:
            if not isinstance(loss, Failed):
                eve.call("torch.Tensor.backward", loss, retain_graph=True)
        for reference in own:
            eve.gradient(reference.id)
        eve.known.clear()  # the rest has been looked at

    return attack


@pytest.mark.parametrize("write", (through_data, set_data, set_memory))
@pytest.mark.parametrize("share", SHARES)
def test_every_operation_that_saves_its_input(
    samples: Samples, write: Write, share: float, request: pytest.FixtureRequest
) -> None:
    attacks = {sample.name: overwritten(sample, write) for sample in differentiable(samples)}
    assert len(attacks) > 400
    check_all(drawn(attacks, request.config.option.seed, share))


# ------------------------------------------------------------------------------- other graphs


def saved_by_a_view(eve: Observer) -> None:
    base, leaf = ones(eve, 2, 3), ones(eve, grad=True)
    row = eve.call("torch.Tensor.select", base, 0, 0)
    loss = eve.call("torch.sum", eve.call("torch.mul", row, leaf))
    eve.call("torch.Tensor.copy_", data_of(eve, base), secret(eve, 2, 3))
    eve.call("torch.Tensor.backward", loss)


STEPS = (
    action("torch.mul", Slot(0), Slot(1), out=Slot(3)),
    action("torch.sum", Slot(3), out=Slot(4)),
    action("torch.Tensor.data.__get__", Slot(0), out=Slot(5)),
    action("torch.Tensor.copy_", Slot(5), Slot(2)),
    action("torch.Tensor.backward", Slot(4)),
)
"""The attack as a program, on a factor, a leaf and the secret."""


def saved_in_a_group(eve: Observer) -> None:
    factor, leaf = ones(eve), ones(eve, grad=True)
    eve.group(Program(3, STEPS, ()), [factor, leaf, secret(eve)], 0)


def saved_in_a_plan(eve: Observer) -> None:
    factor, leaf = ones(eve), ones(eve, grad=True)
    eve.plan(Program(3, STEPS, ()), [factor, leaf, secret(eve)], 0)


def saved_for_a_second_derivative(eve: Observer) -> None:
    factor, leaf = ones(eve), ones(eve, grad=True)
    power = eve.call("torch.mul", eve.call("torch.pow", leaf, 3), factor)
    loss = eve.call("torch.sum", power)
    eve.call("torch.Tensor.copy_", data_of(eve, factor), secret(eve))
    (first,) = eve.call("torch.autograd.grad", loss, leaf, create_graph=True)
    eve.call("torch.Tensor.backward", eve.call("torch.sum", first))


def saved_and_asked_for_as_a_result(eve: Observer) -> None:
    factor, leaf = ones(eve), ones(eve, grad=True)
    loss = eve.call("torch.sum", eve.call("torch.mul", factor, leaf))
    eve.call("torch.Tensor.copy_", data_of(eve, factor), secret(eve))
    eve.call("torch.autograd.grad", loss, leaf)


def saved_by_a_graph_at_another_worker(eve: Observer) -> None:
    """The graph is at bob, continued at alice; bob's part saved what becomes private."""
    factor, leaf = ones(eve), ones(eve, grad=True)
    part = succeeded(eve.call("torch.mul", factor, leaf))
    eve.request(messages.Move(eve.count(), part.id, "alice", True))
    eve.call("torch.Tensor.copy_", data_of(eve, factor), secret(eve))
    loss = eve.call("torch.sum", part, worker="alice")
    eve.call("torch.Tensor.backward", loss, worker="alice")


def running_statistics(eve: Observer) -> None:
    """A normalization saves what its running statistics are, and these are written."""
    leaf, mean, variance = ones(eve, 2, 3, grad=True), zeros(eve), ones(eve)
    out = eve.call("torch.nn.functional.batch_norm", leaf, mean, variance)
    loss = eve.call("torch.sum", eve.call("torch.pow", out, 2))
    eve.call("torch.Tensor.copy_", data_of(eve, variance), secret(eve))
    eve.call("torch.Tensor.backward", loss)


@pytest.mark.parametrize(
    "attack",
    (
        saved_by_a_view,
        saved_in_a_group,
        saved_in_a_plan,
        saved_for_a_second_derivative,
        saved_and_asked_for_as_a_result,
        saved_by_a_graph_at_another_worker,
        running_statistics,
    ),
)
def test_what_a_graph_saved_stays_public(attack: Attack) -> None:
    check(attack)
