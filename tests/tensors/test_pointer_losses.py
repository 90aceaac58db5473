"""A loss that takes a function: the function stays here and is called with pointers.

The weights of a loss that nobody sent: they go along.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import l1_loss, triplet_margin_with_distance_loss

import syft as sy
from syft.chain.wrapper import Wrapper
from syft.exceptions import LocationMismatch

pytestmark = pytest.mark.every_shell

POINTS = [torch.tensor([[0.0, 1.0], [2.0, 2.0]]), torch.ones(2, 2), torch.zeros(2, 2)]


def far(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x - y).abs().amax(1)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"distance_function": far},
        {"distance_function": far, "swap": True, "margin": 2.5},
        {"reduction": "sum"},
        {"reduction": "none"},
        {"distance_function": l1_loss, "margin": 0.5},
    ],
)
def test_triplet_margin_loss(options: dict[str, Any], bob: sy.VirtualWorker) -> None:
    got = triplet_margin_with_distance_loss(*[point.send(bob) for point in POINTS], **options)
    assert type(got) is Wrapper
    assert torch.equal(got.get(), triplet_margin_with_distance_loss(*POINTS, **options))


@pytest.mark.parametrize(
    ("points", "options"),
    [
        (POINTS, {"reduction": "product"}),
        (POINTS, {"margin": -1.0}),
        ([POINTS[0], POINTS[1], torch.zeros(2)], {}),
    ],
)
def test_it_refuses_what_torch_refuses(
    points: list[torch.Tensor], options: dict[str, Any], bob: sy.VirtualWorker
) -> None:
    with pytest.raises((ValueError, RuntimeError)) as native:
        triplet_margin_with_distance_loss(*points, **options)
    kind = type(native.value)
    pointers = [point.send(bob) for point in points]
    with pytest.raises(kind) as here:
        triplet_margin_with_distance_loss(*pointers, **options)
    assert type(here.value) is kind
    del pointers, here, native


LOGITS, CLASSES = torch.tensor([[1.0, 2.0], [0.5, -1.0]]), torch.tensor([0, 1])
WEIGHTS = torch.tensor([1.0, 3.0])


def test_the_weights_of_a_loss_go_along(bob: sy.VirtualWorker) -> None:
    loss = nn.CrossEntropyLoss(weight=WEIGHTS)
    got = loss(LOGITS.send(bob), CLASSES.send(bob))
    assert torch.equal(got.get(), loss(LOGITS, CLASSES))
    each = nn.BCEWithLogitsLoss(pos_weight=WEIGHTS)
    got = each(LOGITS.send(bob), WEIGHTS.expand(2, 2).send(bob))
    assert torch.equal(got.get(), each(LOGITS, WEIGHTS.expand(2, 2)))


def test_the_lengths_of_a_loss_go_along(bob: sy.VirtualWorker) -> None:
    torch.manual_seed(0)
    scores, targets = torch.randn(6, 2, 5).log_softmax(-1), torch.randint(1, 5, (2, 3))
    lengths = torch.tensor([6, 5]), torch.tensor([3, 2])
    got = nn.functional.ctc_loss(scores.send(bob), targets.send(bob), *lengths)
    assert torch.equal(got.get(), nn.functional.ctc_loss(scores, targets, *lengths))


class Mine(nn.CrossEntropyLoss):
    """A loss of the user's."""


def given(logits: Any, classes: Any) -> Any:
    return nn.functional.cross_entropy(logits, classes, weight=WEIGHTS)


@pytest.mark.parametrize(
    "loss",
    [
        given,
        Mine(weight=WEIGHTS),
        nn.CrossEntropyLoss(weight=torch.ones(2**18 + 1)),
        nn.CrossEntropyLoss(weight=WEIGHTS.clone().requires_grad_()),
    ],
    ids=["a keyword", "a loss of the user's", "large ones", "ones that are trained"],
)
def test_other_weights_stay_here(loss: Any, bob: sy.VirtualWorker) -> None:
    with pytest.raises(LocationMismatch, match="lie at bob and me"):
        loss(LOGITS.send(bob), CLASSES.send(bob))


def test_private_weights_stay_here(bob: sy.VirtualWorker) -> None:
    loss = nn.CrossEntropyLoss(weight=WEIGHTS.clone().private_tensor(["ann"]))
    with pytest.raises(LocationMismatch, match="lie at bob and me"):
        loss(LOGITS.send(bob), CLASSES.send(bob))
