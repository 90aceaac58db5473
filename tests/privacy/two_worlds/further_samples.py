"""Calls that torch's databases lack: those for which an operation accepts a private operand.

Some operations read a number from an operand other than the private one.  A prediction knows
numbers of public tensors of one element only, and torch's samples have larger ones there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from tests.privacy.two_worlds.samples import Sample

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
"""The positional and the named ones."""


def further_samples(name: str, place: str) -> Iterator[Sample]:
    """The calls of an operation with a tensor in a place.

    >>> len([*further_samples("torch.cov", "fweights")]), [*further_samples("torch.add", "0")]
    (1, [])
    """
    for make in FURTHER.get(name, ()):
        sample = Sample(name, *make())
        if place in sample.positions():
            yield sample


def _one_frame() -> Arguments:
    """A signal of one frame of one sample."""
    options = {"window": torch.ones(1), "center": False}
    return (torch.ones(1, 1, dtype=torch.complex64), 1, 1, 1), options


def _one_observation(**weights: Any) -> Callable[[], Arguments]:
    """One observation of three variables, with its weight."""
    return lambda: ((torch.arange(3.0).view(3, 1),), {"correction": 0, **weights})


FURTHER: dict[str, tuple[Callable[[], Arguments], ...]] = {
    "torch.sparse.mm": (lambda: ((torch.ones(2, 3), torch.ones(3, 2)), {}),),
    "torch.segment_reduce": (
        lambda: ((torch.arange(3.0), "sum"), {"lengths": torch.tensor([3])}),
        lambda: ((torch.ones(0), "sum"), {"offsets": torch.tensor([0]), "initial": 0.0}),
    ),
    "torch.nn.functional.gaussian_nll_loss": (
        lambda: ((torch.arange(3.0), torch.ones(3), torch.ones(1)), {}),
    ),
    **dict.fromkeys(("torch.istft", "torch.Tensor.istft"), (_one_frame,)),
    **dict.fromkeys(
        ("torch.cov", "torch.Tensor.cov"),
        (
            _one_observation(fweights=torch.ones(1, dtype=torch.int64)),
            _one_observation(aweights=torch.ones(1)),
        ),
    ),
}
"""What makes the arguments of further calls, by operation."""
