"""What a call of an op does: the argument it mutates, and ops that take a Python function."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.functional import triplet_margin_with_distance_loss

from syft.ops.calls import mutated_argument
from syft.ops.table import FLAGS, number_of
from tests.program.replaying import agrees, tensors


def flags(operation: object) -> int:
    return FLAGS[number_of(operation)]


def test_each_way_of_mutating() -> None:
    assert mutated_argument(flags(torch.Tensor.add_), (1, 2), {}) == 1
    assert mutated_argument(flags(torch.Tensor.add), (1, 2), {}) is None
    assert mutated_argument(flags(torch.add), (1, 2), {"out": 3}) == 3
    assert mutated_argument(flags(torch.nn.functional.dropout), (1,), {"inplace": True}) == 1
    assert (
        mutated_argument(flags(torch.nn.functional.dropout), (), {"input": 1, "inplace": True}) == 1
    )
    assert mutated_argument(flags(torch.nn.functional.dropout), (1,), {"inplace": False}) is None


@pytest.mark.parametrize(
    "options",
    [{}, {"swap": True, "reduction": "sum"}, {"margin": 0.25, "reduction": "none"}],
    ids=str,
)
def test_a_loss_with_a_distance_of_the_users_own(options: dict[str, Any]) -> None:
    def loss(anchor: torch.Tensor, positive: torch.Tensor, negative: torch.Tensor) -> torch.Tensor:
        return triplet_margin_with_distance_loss(
            anchor,
            positive,
            negative,
            distance_function=lambda one, other: (one - other).abs().amax(-1),
            **options,
        )

    shapes = [(4, 3)] * 3
    recording = agrees(loss, tensors(*shapes, grad=True), tensors(*shapes, grad=True, seed=8))
    assert len(recording.program.actions) > 5
