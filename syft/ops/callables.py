"""Operations that take a Python function: it can neither travel nor stand in a program.

They are written out here in other operations, and the function is called where the user is: with
pointers, or while a recording goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

from syft.ops.table import BY_NAME


def triplet_margin_with_distance_loss(
    anchor: torch.Tensor,
    positive: torch.Tensor,
    negative: torch.Tensor,
    *,
    distance_function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> torch.Tensor:
    """What ``torch.nn.functional.triplet_margin_with_distance_loss`` computes.

    Raises ValueError and RuntimeError as that does.

    >>> x = torch.ones(1, 2)
    >>> triplet_margin_with_distance_loss(x, x, x, distance_function=lambda a, b: (a - b).sum(1))
    tensor(1.)
    """
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    if not anchor.ndim == positive.ndim == negative.ndim:
        raise RuntimeError("anchor, positive and negative must have the same number of dimensions")
    distance = distance_function or torch.nn.functional.pairwise_distance
    far = distance(anchor, negative)
    if swap:
        far = torch.minimum(far, distance(positive, negative))
    loss = torch.clamp_min(margin + distance(anchor, positive) - far, 0)
    if reduction == "none":
        return loss
    return loss.mean() if reduction == "mean" else loss.sum()


WRITTEN_OUT: Final[dict[int, Callable[..., Any]]] = {
    BY_NAME["torch.nn.functional.triplet_margin_with_distance_loss"]: (
        triplet_margin_with_distance_loss
    ),
}
"""What to call for an operation that takes a function, by its number."""
