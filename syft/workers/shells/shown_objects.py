"""What a worker shows of its objects: lists and tables that say what a program may do with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import torch

from syft.exceptions import UnsupportedOperation


class NothingFound(list[Any]):
    """What a search gives that finds nothing: an empty list, and whoever takes an item is told so.

    >>> found = bob.search("#nothing")
    >>> found, found[:1]
    ([], [])
    >>> found[0]
    Traceback (most recent call last):
    ...
    IndexError: bob has nothing that carries '#nothing', which you may find.
    """

    def __init__(self, worker: str, words: Sequence[str]) -> None:
        super().__init__()
        self._worker, self._words = worker, words

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice) or self:
            return super().__getitem__(place)
        carried = " and ".join(map(repr, self._words))
        raise IndexError(f"{self._worker} has nothing that carries {carried}, which you may find.")


class ShownObjects(dict[int, torch.Tensor]):
    """The objects of a worker by id, as they are now; to write to it would change nothing there.

    >>> bob._objects[5] = torch.ones(2)
    Traceback (most recent call last):
    ...
    syft.exceptions.UnsupportedOperation: A worker has no rule for _objects[...] = ...: ...
    """

    def __setitem__(self, id: Any, value: Any) -> NoReturn:
        instead = "bob.hold(tensor) keeps one there as its owner, x.send(bob) sends one"
        raise UnsupportedOperation("_objects[...] = ...", "A worker", instead)

    def __delitem__(self, id: Any) -> NoReturn:
        instead = "drop the pointer, or bob.clear_objects()"
        raise UnsupportedOperation("del _objects[...]", "A worker", instead)
