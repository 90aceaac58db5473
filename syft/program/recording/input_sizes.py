"""Other sizes for the inputs of a recorded function, to find what it decides by them.

An axis is a dimension of one input.  Axes of the same length are taken to be the same quantity
(rows of data and of labels, the inner dimension of a product), so they are lengthened together
first.  If the function raises then, each is tried alone.  The rows that are added are copies of the
present ones, so that labels stay labels and indices stay valid.
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
class Variation:
    """Lengthens axes to ``lengths``, and adds one to the inputs that are numbers if ``numbers``.

    >>> Variation({(0, 1): 3})([torch.ones(2, 2), 5])[0].shape
    torch.Size([2, 3])
    """

    lengths: Mapping[Axis, int]
    numbers: bool = False

    def __call__(self, inputs: Sequence[Any], options: int = 0) -> list[Any]:
        """The inputs of a further run; the last ``options`` are halved where others get one more.

        An optimizer may decide by the sign of an option, and take no ``beta`` above one.

        >>> Variation({}, numbers=True)([5, 0.5, 3], options=2)
        [6, 0.25, 3]
        """
        count = len(inputs) - options
        varied = [self._varied(place, value) for place, value in enumerate(inputs[:count])]
        halved = [value / 2 if type(value) is float else value for value in inputs[count:]]
        return varied + (halved if self.numbers else list(inputs[count:]))

    def _varied(self, place: int, value: Any) -> Any:
        if type(value) in (int, float):
            return value + 1 if self.numbers else value
        if not isinstance(value, torch.Tensor):
            return value
        longer = value.detach()
        for dim in range(value.dim()):
            if (place, dim) in self.lengths:
                longer = _lengthened(longer, dim, self.lengths[place, dim])
        if longer is not value and longer.is_contiguous() and not _is_contiguous(value):
            longer = longer.repeat_interleave(2, -1)[..., ::2]  # a function may ask for it
        return longer.requires_grad_(value.requires_grad)


def _is_contiguous(tensor: torch.Tensor) -> bool:
    return tensor.layout is not torch.strided or tensor.is_contiguous()


UNCHANGED = Variation(_NO_AXES)
"""The same inputs again."""


def _lengthened(tensor: torch.Tensor, dim: int, length: int) -> torch.Tensor:
    """The tensor with its rows repeated in one dimension; zeros if that dimension has length 0."""
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


def row_axes(axes: Mapping[Axis, int]) -> list[Axis]:
    """The first dimensions with the length of the first tensor's: taken for rows of the same data.

    >>> row_axes({(0, 0): 2, (0, 1): 3, (1, 0): 2, (2, 0): 5})
    [(0, 0), (1, 0)]
    """
    first = [axis for axis in axes if axis[1] == 0]
    return [axis for axis in first if axes[axis] == axes[first[0]]]


def vary_all_axes(axes: Mapping[Axis, int]) -> Variation:
    """Lengthen all axes at once, each group of equal ones to a length that no other has.

    The difference is a multiple of neither 2 nor 3, so that an even length becomes odd.

    >>> vary_all_axes({(0, 0): 2, (0, 1): 3, (1, 0): 2}).lengths
    {(0, 0): 7, (0, 1): 4, (1, 0): 7}
    """
    new: dict[int, int] = {}
    for length in axes.values():
        if length not in new:
            taken = {*axes.values(), *new.values()}
            steps = (step for step in itertools.count(1) if step % 2 and step % 3)
            new[length] = next(length + step for step in steps if length + step not in taken)
    return Variation({axis: new[length] for axis, length in axes.items()}, numbers=True)


def row_variations(axes: Mapping[Axis, int], times: int = 4) -> Iterator[Variation]:
    """The ways to lengthen the rows: by one, with the numbers and without, then to multiples.

    Multiples up to ``times``, exclusive.

    >>> [variation.lengths for variation in row_variations({(0, 0): 4, (0, 1): 2})]
    [{(0, 0): 5}, {(0, 0): 5}, {(0, 0): 8}, {(0, 0): 12}]
    """
    rows = {axis: axes[axis] for axis in row_axes(axes)}
    more = {axis: length + 1 for axis, length in rows.items()}
    yield Variation(more, numbers=True)
    if rows:
        yield Variation(more)
        for factor in range(2, times):
            yield Variation({axis: length * factor for axis, length in rows.items()})


def axis_groups(axes: Mapping[Axis, int], among: Collection[Axis]) -> Iterator[list[list[Axis]]]:
    """What to lengthen together: for each length the axes that have it, then each of them alone.

    >>> list(axis_groups({(0, 0): 2, (1, 1): 2}, {(0, 0), (1, 1)}))
    [[[(0, 0), (1, 1)], [(0, 0)], [(1, 1)]]]
    """
    by_length: dict[int, list[Axis]] = {}
    for axis, length in axes.items():
        if axis in among:
            by_length.setdefault(length, []).append(axis)
    for group in by_length.values():
        yield [group] if len(group) == 1 else [group, *([axis] for axis in group)]
