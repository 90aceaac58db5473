"""A loss that takes a function: the function stays here and is called with pointers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.functional import l1_loss, triplet_margin_with_distance_loss

import syft as sy
from syft.chain.wrapper import Wrapper

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
