"""Indices and masks among the arguments of a torch call: they travel along by themselves.

``x[torch.randperm(16)[:4]]`` means positions in a tensor that is at another worker.  Integers and
bools in the place of an index are part of what is asked, as a number or a slice is, and not data
that somebody forgot to send.  So they go, as long as they are small.  Data never does so: a tensor
of floats, one that requires grad, a private one, one in any other place.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import torch

from syft.ops.nested import Arguments, Keywords, leaves, replace
from syft.ops.table import BY_NAME, COLUMNS

MOST_BYTES: Final = 2**20
"""An index of more bytes is to be sent by whoever wants it there: 131,072 positions in int64."""

_DTYPES: Final = frozenset(
    (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
)

_PLACES: Final = {
    op: (int(place), name)
    for op, value in COLUMNS["index"].items()
    for place, _, name in (value.partition(":"),)
}
"""Where the index of an operation stands, and what it is called."""
_TAKES_ARRAYS: Final = frozenset(
    BY_NAME[f"torch.Tensor.{name}"] for name in ("__getitem__", "__setitem__")
)


def indices_in(number: int, args: Arguments, kwargs: Keywords) -> list[torch.Tensor]:
    """The tensors in the place of the index of operation ``number`` that may travel along.

    >>> number, x, index = BY_NAME["torch.Tensor.__getitem__"], torch.ones(4), torch.tensor([2, 1])
    >>> indices_in(number, (x, (index, torch.tensor([0.5]))), {}) == [index]
    True
    """
    place = _PLACES.get(number)
    if place is None:
        return []
    position, keyword = place
    given = args[position : position + 1] or (kwargs.get(keyword),)
    tensors = (value for value in leaves(given) if isinstance(value, torch.Tensor))
    return list(filter(is_small_index, tensors))


def is_small_index(tensor: torch.Tensor) -> bool:
    """Whether a tensor has the dtype and at most the size of an index that travels along.

    >>> is_small_index(torch.arange(4)), is_small_index(torch.ones(4))
    (True, False)
    """
    return tensor.dtype in _DTYPES and tensor.numel() * tensor.itemsize <= MOST_BYTES


def with_tensors(number: int, args: Arguments) -> Arguments:
    """The arguments with tensors in the place of numpy arrays, if those are indices.

    >>> number = BY_NAME["torch.Tensor.__getitem__"]
    >>> with_tensors(number, (torch.ones(2), np.array([1])))
    (tensor([1., 1.]), tensor([1]))
    """
    if number not in _TAKES_ARRAYS:
        return args
    return (args[0], replace(args[1], _as_tensor), *args[2:])


def _as_tensor(value: Any) -> Any:
    return torch.from_numpy(value) if isinstance(value, np.ndarray) else value
