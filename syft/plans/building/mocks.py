"""Arguments made of nothing but shapes, for plans that are built where they are defined."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from syft.exceptions import WrongArguments
from syft.serde.expect import describe

ANY = 2
"""The size that stands for -1, any size."""


def mocks(plan: str, shapes: Any) -> list[torch.Tensor]:
    """One tensor for each shape: ones, or zeros where the dtype is no floating-point one.

    A shape is a sequence of sizes, with -1 for any size, or such a sequence with a dtype.
    Raises :class:`~syft.exceptions.WrongArguments`.

    >>> [tuple(mock.shape) for mock in mocks("f", [(1, 2), (-1, 3)])]
    [(1, 2), (2, 3)]
    >>> mocks("f", [((2,), torch.int64)])
    [tensor([0, 0])]
    """
    if not isinstance(shapes, (list, tuple)):
        raise WrongArguments(plan, "a list of shapes as args_shape", describe(shapes))
    return [_mock(plan, shape) for shape in shapes]


def _mock(plan: str, shape: Any) -> torch.Tensor:
    dtype = torch.get_default_dtype()
    if isinstance(shape, Sequence) and len(shape) == 2 and isinstance(shape[1], torch.dtype):
        shape, dtype = shape
    if not isinstance(shape, Sequence) or not all(map(_is_size, shape)):
        expected = "shapes such as (-1, 2) or ((-1, 2), torch.int64) as args_shape"
        raise WrongArguments(plan, expected, repr(shape))
    sizes = [ANY if size == -1 else size for size in shape]
    make = torch.ones if dtype.is_floating_point or dtype.is_complex else torch.zeros
    return make(sizes, dtype=dtype)


def _is_size(size: Any) -> bool:
    return isinstance(size, int) and not isinstance(size, bool) and size >= -1
