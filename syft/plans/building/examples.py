"""Example inputs of a plan: made from shapes, or like those it was built with.

``args_shape`` of :func:`~syft.plans.function_plan.func2plan` gives only shapes and dtypes, and an
exporter needs inputs to trace with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from syft.exceptions import WrongArguments
from syft.serde.expect import describe

_SIZE_FOR_ANY = 2
"""The size that stands for -1, any size: torch treats a size of 1 specially."""


class Outline(NamedTuple):
    """The shape, dtype and device of an input.

    >>> Outline.of(torch.ones(2)).example()
    tensor([1., 1.])
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Outline:
        """The outline of a tensor."""
        return cls(tuple(tensor.shape), tensor.dtype, tensor.device)

    def example(self) -> torch.Tensor:
        """A tensor with this outline: ones, or zeros for an integer or bool dtype."""
        fractional = self.dtype.is_floating_point or self.dtype.is_complex
        make = torch.ones if fractional else torch.zeros
        return make(self.shape, dtype=self.dtype, device=self.device)


def example_arguments(plan: str, shapes: Any) -> list[torch.Tensor]:
    """One tensor for each shape: ones, or zeros for an integer or bool dtype.

    A shape is a sequence of sizes, with -1 for any size, or a pair of such a sequence and a dtype.
    Raises :class:`~syft.exceptions.WrongArguments`.

    >>> [tuple(example.shape) for example in example_arguments("f", [(1, 2), (-1, 3)])]
    [(1, 2), (2, 3)]
    >>> example_arguments("f", [((2,), torch.int64)])
    [tensor([0, 0])]
    """
    if not isinstance(shapes, (list, tuple)):
        raise WrongArguments(plan, "a list of shapes as args_shape", describe(shapes))
    return [_outline_of_shape(plan, shape).example() for shape in shapes]


def _outline_of_shape(plan: str, shape: Any) -> Outline:
    dtype = torch.get_default_dtype()
    if isinstance(shape, Sequence) and len(shape) == 2 and isinstance(shape[1], torch.dtype):
        shape, dtype = shape
    if not isinstance(shape, Sequence) or not all(map(_is_size, shape)):
        expected = "shapes such as (-1, 2) or ((-1, 2), torch.int64) as args_shape"
        raise WrongArguments(plan, expected, repr(shape))
    sizes = tuple(_SIZE_FOR_ANY if size == -1 else size for size in shape)
    return Outline(sizes, dtype, torch.get_default_device())


def _is_size(size: Any) -> bool:
    return isinstance(size, int) and not isinstance(size, bool) and size >= -1
