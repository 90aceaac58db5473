"""Other sizes for the inputs of a recorded function, to find out what it does by them.

An axis is a dimension of one input.  Axes of the same length are taken to be the same quantity
(rows of data and of labels, the inner dimension of a product), so they grow together first; where
the function does not take that, each is tried by itself.  What is added are copies of the rows that
are there, so that labels stay labels and indices stay valid.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

Axis = tuple[int, int]
"""The place of an input among the inputs, and one of its dimensions."""
_NO_AXES: Mapping[Axis, int] = {}


@dataclass(frozen=True, slots=True)
class Growth:
    """The inputs are made longer: ``lengths`` says how long; ``numbers`` are one greater.

    >>> Growth({(0, 1): 3})([torch.ones(2, 2), 5])[0].shape
    torch.Size([2, 3])
    """

    lengths: Mapping[Axis, int]
    numbers: bool = False

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        """The inputs, grown."""
        return [self._grown(place, value) for place, value in enumerate(inputs)]

    def _grown(self, place: int, value: Any) -> Any:
        if type(value) in (int, float):
            return value + 1 if self.numbers else value
        if not isinstance(value, torch.Tensor):
            return value
        grown = value.detach()
        for dim in range(value.dim()):
            if (place, dim) in self.lengths:
                grown = _lengthened(grown, dim, self.lengths[place, dim])
        return grown.requires_grad_(value.requires_grad)


SAME = Growth(_NO_AXES)
"""No growth at all."""


def _lengthened(tensor: torch.Tensor, dim: int, length: int) -> torch.Tensor:
    """The tensor with copies of its rows in one dimension, zeros where it has none."""
    if not tensor.shape[dim]:
        shape = list(tensor.shape)
        shape[dim] = length
        return tensor.new_zeros(shape)
    index = torch.arange(length, device=tensor.device) % tensor.shape[dim]
    return tensor.index_select(dim, index)


def axes_of(inputs: Sequence[Any]) -> dict[Axis, int]:
    """The length of every axis of the inputs.

    >>> axes_of([torch.ones(2, 3), 5])
    {(0, 0): 2, (0, 1): 3}
    """
    return {
        (place, dim): length
        for place, value in enumerate(inputs)
        if isinstance(value, torch.Tensor)
        for dim, length in enumerate(value.shape)
    }


def rows_of(axes: Mapping[Axis, int]) -> list[Axis]:
    """The first dimensions that are as long as that of the first tensor: rows of the same data.

    >>> rows_of({(0, 0): 2, (0, 1): 3, (1, 0): 2, (2, 0): 5})
    [(0, 0), (1, 0)]
    """
    first = [axis for axis in axes if axis[1] == 0]
    return [axis for axis in first if axes[axis] == axes[first[0]]]


def whole(axes: Mapping[Axis, int]) -> Growth:
    """All axes grown at once, each group of equal ones to a length that no other has.

    What is added is a multiple of neither 2 nor 3, so that a length that was even is odd.

    >>> whole({(0, 0): 2, (0, 1): 3, (1, 0): 2}).lengths
    {(0, 0): 7, (0, 1): 4, (1, 0): 7}
    """
    new: dict[int, int] = {}
    for length in axes.values():
        if length not in new:
            taken = {*axes.values(), *new.values()}
            steps = (step for step in itertools.count(1) if step % 2 and step % 3)
            new[length] = next(length + step for step in steps if length + step not in taken)
    return Growth({axis: new[length] for axis, length in axes.items()}, numbers=True)


def row_growths(axes: Mapping[Axis, int], times: int = 4) -> Iterator[Growth]:
    """The ways to grow the rows: by one, with the numbers and without, then to multiples.

    Multiples up to ``times``, exclusive.

    >>> [growth.lengths for growth in row_growths({(0, 0): 4, (0, 1): 2})]
    [{(0, 0): 5}, {(0, 0): 5}, {(0, 0): 8}, {(0, 0): 12}]
    """
    rows = {axis: axes[axis] for axis in rows_of(axes)}
    more = {axis: length + 1 for axis, length in rows.items()}
    yield Growth(more, numbers=True)
    if rows:
        yield Growth(more)
        for factor in range(2, times):
            yield Growth({axis: length * factor for axis, length in rows.items()})


def groups_of(axes: Mapping[Axis, int], among: Collection[Axis]) -> Iterator[list[list[Axis]]]:
    """What to grow together: for each length the axes that have it, then each of them alone.

    >>> list(groups_of({(0, 0): 2, (1, 1): 2}, {(0, 0), (1, 1)}))
    [[[(0, 0), (1, 1)], [(0, 0)], [(1, 1)]]]
    """
    by_length: dict[int, list[Axis]] = {}
    for axis, length in axes.items():
        if axis in among:
            by_length.setdefault(length, []).append(axis)
    for group in by_length.values():
        yield [group] if len(group) == 1 else [group, *([axis] for axis in group)]
