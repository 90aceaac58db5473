"""What one call of an op does, where the op's flags alone do not say it.

- Which argument the call mutates.  Links make new wrappers for results, but ``x.add_(1)``,
  ``torch.add(x, 1, out=y)`` and ``relu(x, inplace=True)`` must return the very ``x`` or ``y`` that
  they were given.
- How an op that takes a Python function decomposes into other ops.  The function can neither travel
  nor stand in a program, so the caller calls it: with pointers, or while a recording is active.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

from syft.ops.nested import Arguments, Keywords
from syft.ops.table import BY_NAME, INPLACE, INPLACE_OPTION


def mutated_argument(flags: int, args: Arguments, kwargs: Keywords) -> Any:
    """The argument that a call mutates and returns; None if the call makes new tensors.

    >>> from syft.ops.table import BY_NAME, FLAGS
    >>> mutated_argument(FLAGS[BY_NAME["torch.Tensor.add_"]], ("x", 1), {})
    'x'
    >>> mutated_argument(FLAGS[BY_NAME["torch.add"]], ("x", 1), {"out": "y"})
    'y'
    >>> relu = FLAGS[BY_NAME["torch.nn.functional.relu"]]
    >>> mutated_argument(relu, (), {"input": "x", "inplace": True})
    'x'
    >>> mutated_argument(FLAGS[BY_NAME["torch.add"]], ("x", 1), {"out": None})
    """
    out = kwargs.get("out")
    if out is not None:
        return out
    if flags & INPLACE or (flags & INPLACE_OPTION and kwargs.get("inplace")):
        return args[0] if args else kwargs.get("input")
    return None


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

    Raises ValueError and RuntimeError where that function does.

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


DECOMPOSITIONS: Final[dict[int, Callable[..., Any]]] = {
    BY_NAME["torch.nn.functional.triplet_margin_with_distance_loss"]: (
        triplet_margin_with_distance_loss
    ),
}
"""What to call in place of an op that takes a Python function, by the op's number."""
