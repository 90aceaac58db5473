"""What takes a Python function is recorded as what it does in other operations."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.functional import triplet_margin_with_distance_loss

from tests.program.replaying import agrees, tensors


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
