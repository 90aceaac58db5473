"""The arithmetic of shapes and strides: how much memory a tensor needs, before any is allocated.

It uses integers only.  A tensor is described in one of two ways: by its shape alone (row-major), or
by strides that *fill* memory.  Strides fill memory if the dimensions that are not repeated (stride
0) and not of length 1 are a dense block in some order.  Transposed and channels-last tensors are of
this kind, and so are expanded ones, of which only the repeated part is stored.  Any other tensor
(``x[::2]``) becomes row-major before it is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from syft.exceptions import LimitExceeded, MalformedMessage
from syft.serde.expect import MAX_INT, expect_int, malformed
from syft.serde.limits import Limits

Shape = tuple[int, ...]


def row_major(shape: Sequence[int]) -> Shape:
    """Return the strides of a contiguous tensor, as torch numbers them.

    >>> row_major((2, 3, 4))
    (12, 4, 1)
    """
    if len(shape) == 1:
        return (1,)
    strides = []
    step = 1
    for length in reversed(shape):
        strides.append(step)
        step *= length or 1
    strides.reverse()
    return tuple(strides)


def filled(shape: Sequence[int], strides: Sequence[int]) -> int | None:
    """Return how many elements the strides fill without gap or overlap; None if they do not.

    >>> filled((2, 3), (1, 2)), filled((5, 3), (0, 1)), filled((2, 3), (6, 2))
    (6, 3, None)
    """
    count = 1
    for stride, length in sorted(zip(strides, shape, strict=True)):
        if length > 1 and stride != 0:
            if stride != count:
                return None
            count *= length
    return count


def expect_shape(value: Any, limits: Limits, most: int, where: str = ".shape") -> tuple[Shape, int]:
    """Return the shape in a field and its number of elements, which is at most ``most``.

    >>> expect_shape([2, 3], Limits(), 100)
    ((2, 3), 6)
    """
    if type(value) is not list and type(value) is not tuple:
        raise malformed("an array of lengths", value, where)
    if len(value) > limits.max_dims:
        raise LimitExceeded(f"${where}", "max_dims", limits.max_dims, len(value))
    span = 1
    for index, length in enumerate(value):
        if type(length) is not int or not 0 <= length <= MAX_INT:
            expect_int(length, f"{where}[{index}]")
        # A tensor without elements has strides too, which must be numbers that torch can hold.
        span *= length or 1
    if span > most:
        raise LimitExceeded(f"${where}", "max_elements", most, span)
    return tuple(value), 0 if 0 in value else span


def expect_strides(value: Any, shape: Shape, count: int) -> tuple[Shape, int]:
    """Return the strides in a field, and how many elements must be stored for them.

    >>> expect_strides([0, 1], (5, 3), 15)
    ((0, 1), 3)
    """
    if value is None:
        return row_major(shape), count
    if type(value) is not list and type(value) is not tuple:
        raise malformed("an array of strides, or nil", value, ".strides")
    if len(value) != len(shape):
        raise MalformedMessage("$.strides", f"{len(shape)} strides", str(len(value)))
    for index, stride in enumerate(value):
        expect_int(stride, f".strides[{index}]")
    stored = filled(shape, value) if count else None
    if stored is None:
        raise MalformedMessage("$.strides", "strides that fill memory", "gaps or overlaps")
    return tuple(value), stored
