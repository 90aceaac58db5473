"""What an operation comes to, as far as it is known without values.

Whoever predicts an operation, or holds a result against its prediction, speaks of it in these
terms; :mod:`syft.ops.evaluate` finds them.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch


class Verdict(enum.Enum):
    """What an evaluation comes to."""

    RUNS = "its results and writes are known"
    FAILS = "it fails whatever the values are"
    READS = "it would take a number from a value, to decide what it does or to return it"
    RESIZES = "the shapes of its results follow from values"
    UNKNOWN = "torch cannot tell without values"


ANY: Final = -1
"""A size that follows from values."""


@dataclass(frozen=True, slots=True)
class Made:
    """A new tensor among the results: all that can be known of it without values.

    A size or stride of ``ANY`` follows from values.  ``reaches`` are the inputs, by place, to which
    its graph leads; ``within`` is the first input in whose memory it lies (-1: none).  ``nbytes``
    is the size of memory of its own; -1 if a size or stride follows from values.  ``most`` are its
    sizes at most, whatever the values are; None if they have no bound.
    """

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool
    reaches: tuple[int, ...]
    within: int
    nbytes: int
    most: tuple[int, ...] | None
    offset: int = field(default=0, compare=False)
    """Where it begins in its memory, as far as the memory of the input began at 0."""

    @property
    def shares(self) -> bool:
        """Whether it lies in the memory of an input."""
        return self.within >= 0


@dataclass(frozen=True, slots=True)
class Given:
    """A result that is an input, by place."""

    place: int


@dataclass(frozen=True, slots=True)
class Use:
    """What a call uses: the elements of the tensors that it makes, or of the largest on the way,
    the bytes of new memory that lives at once, the number of its results, and whether it reads a
    number from a value.

    Sizes that follow from values count as they are at most; ``elements`` is None if one has no
    bound.  Torch's kernels may take memory of their own, which is not seen.
    """

    elements: int | None = None
    peak: int = 0
    results: int = 1
    reads: bool = field(default=False, repr=False)


@dataclass(frozen=True, slots=True)
class Saved:
    """What the graph of the results keeps for a backward pass: the memory of some ``inputs``, by
    place, that of the ``results`` that have it or not, other ``bytes``, and its own ``nodes``."""

    inputs: tuple[int, ...] = ()
    results: bool = False
    bytes: int = 0
    nodes: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a call will do.

    ``result`` is nested as the result is, with :class:`Made`, :class:`Given` and None in it.
    ``writes`` are the inputs, by place, whose memory or metadata it writes; ``changed`` is what
    those are afterwards that are not as before, and ``grown`` those of which the memory is larger.
    ``failure`` is the class and the text of the error of ``FAILS``.  ``saved`` is None if nothing
    is known of what the graph of the results keeps.
    """

    verdict: Verdict
    result: Any = None
    writes: tuple[int, ...] = ()
    changed: tuple[tuple[int, Made], ...] = ()
    draws: bool = False
    failure: tuple[type[Exception], str] = (RuntimeError, "")
    use: Use = Use()
    grown: frozenset[int] = frozenset()
    saved: Saved | None = None

    @property
    def is_complete(self) -> bool:
        """Whether it says all that a caller who may not see the values gets to know.

        >>> Outcome(Verdict.RUNS).is_complete, Outcome(Verdict.RESIZES).is_complete
        (True, False)
        """
        if self.verdict is Verdict.RESIZES:
            return self.result is not None or bool(self.writes)
        return self.verdict is Verdict.RUNS


def size_of_memory(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> int:
    """The bytes from the first element of a tensor to its last one.

    >>> size_of_memory((2, 3), (1, 4), 4), size_of_memory((2, 0), (1, 1), 4)
    (40, 0)
    """
    last = 0
    for size, stride in zip(shape, strides, strict=True):
        if size == 0:
            return 0
        last += (size - 1) * stride
    return (last + 1) * itemsize
