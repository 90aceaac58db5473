"""Bit planes: n words of 64 bits as 64 rows of n bits, so that one operation serves 64 elements.

Binary circuits need every bit of an element by itself.  Plane j holds bit j of all elements, 64
elements a word: with w = ceil(n / 64) words a plane, element ``i * w + k`` is bit i of word k.
The elements of one word thus lie w apart.  That is what makes the transposition fast: it swaps
whole rows of the elements, written below each other as a matrix (64, w), and moves no single bit
(Warren, Hacker's Delight, section 7-3).

Circuits are written with operators that numpy and torch have in common.  On the CPU they run on
numpy's views of the tensors, which cost half as much a call and add and multiply int64 twice as
fast (torch 2.13, numpy 2.4); on another device on the tensors themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import torch

Words: TypeAlias = Any
"""An array of int64: of numpy on the CPU, of torch elsewhere."""

_COLUMNS: Final = 3072
_ELEMENTS: Final = 1 << 15
"""How much is worked on at once, words of each plane or elements, so that it stays in the cache:
measured, with rows long enough that a call is cheap."""
_SHORT: Final = 8
"""Words of a plane up to which numpy's own packing is faster than the swapping of rows."""

_LOW_HALVES: Final = (
    (32, 0x00000000FFFFFFFF),
    (16, 0x0000FFFF0000FFFF),
    (8, 0x00FF00FF00FF00FF),
    (4, 0x0F0F0F0F0F0F0F0F),
    (2, 0x3333333333333333),
    (1, 0x5555555555555555),
)


def words_of(tensor: torch.Tensor) -> Words:
    """The same memory as an array to compute with.

    >>> type(words_of(torch.tensor([1])))
    <class 'numpy.ndarray'>
    """
    return tensor.numpy() if tensor.device.type == "cpu" else tensor


def tensor_of(words: Words) -> torch.Tensor:
    """The same memory as a tensor.

    >>> tensor_of(words_of(torch.tensor([1])))
    tensor([1])
    """
    return torch.from_numpy(words) if isinstance(words, np.ndarray) else words


def module_of(words: Words) -> Any:
    """The module whose functions take these words: numpy or torch, for functions of both.

    >>> module_of(words_of(torch.tensor([1]))).__name__
    'numpy'
    """
    return np if isinstance(words, np.ndarray) else torch


def plane_length(count: int) -> int:
    """The words of a plane of so many elements.

    >>> plane_length(64), plane_length(65), plane_length(0)
    (1, 2, 0)
    """
    return -(-count // 64)


def column_parts(words: Words) -> Iterator[slice]:
    """Split the words of planes into parts to work on, one after the other.

    A graphics processor takes all at once: it is the number of calls that costs there.

    >>> list(column_parts(words_of(torch.zeros(3, 4000))))
    [slice(0, 3072, None), slice(3072, 4000, None)]
    """
    length = words.shape[-1]
    step = _COLUMNS if isinstance(words, np.ndarray) else max(length, 1)
    for start in range(0, length, step):
        yield slice(start, min(start + step, length))


def element_parts(elements: Words) -> Iterator[slice]:
    """The same for elements in one row.

    >>> len(list(element_parts(words_of(torch.zeros(100_000)))))
    4
    """
    step = _ELEMENTS if isinstance(elements, np.ndarray) else max(len(elements), 1)
    for start in range(0, len(elements), step):
        yield slice(start, start + step)


def new_words(shape: Sequence[int], like: Words) -> Words:
    """Uninitialized words of a shape, of the kind of others and where they are."""
    module = module_of(like)
    return module.empty(shape, dtype=module.int64, device=like.device)


def rows_of(elements: Words) -> Words:
    """Elements as 64 rows of the length of a plane; zeros fill the last ones up.

    ``elements`` has one dimension; where 64 divides its length, nothing is copied.

    >>> rows_of(words_of(torch.arange(65))).shape
    (64, 2)
    """
    length = plane_length(len(elements))
    missing = 64 * length - len(elements)
    if missing:
        rest = new_words((missing,), elements)
        rest[:] = 0
        elements = module_of(elements).concatenate((elements, rest))
    return elements.reshape(64, length)


def transpose(rows: Words) -> None:
    """Turn 64 rows of elements into the planes of their bits, in place; twice, and they are back.

    In each square of 64 by 64 bits, bit j of row i changes places with bit i of row j.  ``rows``
    has the shape (64, k) and no gaps.

    >>> rows = rows_of(words_of(torch.tensor([4, 0, 5])))
    >>> transpose(rows)
    >>> rows[:4, 0].tolist()
    [4, 0, 5, 0]
    """
    length = rows.shape[1]
    if length <= _SHORT and isinstance(rows, np.ndarray):
        bits = np.unpackbits(rows.view(np.uint8), bitorder="little").reshape(64, length, 64)
        packed = np.packbits(bits.transpose(2, 1, 0).reshape(-1), bitorder="little")
        rows[:] = packed.view(np.int64).reshape(64, length)
        return
    for distance, low in _LOW_HALVES:
        pairs = rows.reshape(32 // distance, 2, distance, length)
        upper, lower = pairs[:, 0], pairs[:, 1]
        swapped = upper >> distance
        swapped ^= lower
        swapped &= low
        lower ^= swapped
        swapped <<= distance
        upper ^= swapped


def bit_masks(plane: Words, count: int) -> Iterator[tuple[slice, Words]]:
    """For one part of the elements after the other: where it is, and all ones where the bit is set.

    >>> [mask.tolist() for _, mask in bit_masks(words_of(torch.tensor([5])), 3)]
    [[-1, 0, -1]]
    """
    length = len(plane)
    most = _ELEMENTS if isinstance(plane, np.ndarray) else 64 * length
    shifts = module_of(plane).arange(63, -1, -1, device=plane.device)[:, None]
    # Several rows at once where planes are short, parts of one where they are long.
    rows, columns = max(1, most // max(length, 1)), max(1, min(length, most))
    for row in range(0, 64, rows):
        for column in range(0, length, columns):
            start = row * length + column
            if start < count:
                masks = plane[column : column + columns] << shifts[row : row + rows]
                masks >>= 63
                masks = masks.reshape(-1)[: count - start]
                yield slice(start, start + len(masks)), masks


def unpack(plane: torch.Tensor, count: int) -> torch.Tensor:
    """The bit of each of ``count`` elements, 0 or 1 in int64.

    >>> unpack(torch.tensor([5]), 3)
    tensor([1, 0, 1])
    """
    bits = plane.new_empty(count)
    words = words_of(bits)
    for where, masks in bit_masks(words_of(plane), count):
        words[where] = -masks
    return bits
