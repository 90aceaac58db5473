"""Whoever asks for a worker again, with the same arguments, gets the one that is there.

A cell of a notebook is run again and again.  A second worker would have nothing of what the first
one holds, and two workers of one name cannot be told apart.
"""

from __future__ import annotations

import inspect
import weakref
from abc import ABCMeta
from collections.abc import Iterable, Mapping
from typing import Any

import torch


class AskedAgain(Exception):
    """Ends the making of a worker, since the one that is asked for is there: ``worker``.

    >>> AskedAgain(bob).worker is bob
    True
    """

    def __init__(self, worker: Any) -> None:
        super().__init__(worker)
        self.worker = worker


class Reconnecting(ABCMeta):
    """Has a class give the object that is there to whoever asks for the same again: its constructor
    raises :class:`AskedAgain`.

    >>> class One(metaclass=Reconnecting):
    ...     def __init__(self, other: object = None) -> None:
    ...         if other is not None:
    ...             raise AskedAgain(other)
    >>> one = One()
    >>> One(one) is one, inspect.signature(One)
    (True, <Signature (other: 'object' = None) -> 'None'>)
    """

    @property
    def __signature__(cls) -> inspect.Signature:
        """That of the constructor, and not of what calls it."""
        of_init = inspect.signature(cls.__init__)  # type: ignore[misc]
        return of_init.replace(parameters=[*of_init.parameters.values()][1:])

    def __call__(cls, *args: Any, **settings: Any) -> Any:
        try:
            return super().__call__(*args, **settings)
        except AskedAgain as found:
            return found.worker


class WorkerArguments:
    """The arguments with which a worker of this process was made, to compare others with.

    Tensors are compared by identity: two of equal values are other data.  They are not kept alive.

    >>> x = torch.ones(2)
    >>> made = WorkerArguments([x], {"user": None})
    >>> made.differences(WorkerArguments([x], {"user": None}))
    ()
    >>> made.differences(WorkerArguments([torch.ones(2)], {"user": "ann"}))
    ('data', 'user')
    """

    __slots__ = ("_data", "_settings")

    def __init__(self, data: Iterable[torch.Tensor], settings: Mapping[str, Any]) -> None:
        self._data = [weakref.ref(tensor) for tensor in data]
        self._settings = dict(settings)

    def differences(self, other: WorkerArguments) -> tuple[str, ...]:
        """The names of the arguments that are others there."""
        mine, theirs = [tensor() for tensor in self._data], [tensor() for tensor in other._data]
        same = len(mine) == len(theirs) and all(map(_is_still, mine, theirs))
        differ = [name for name, value in self._settings.items() if value != other._settings[name]]
        return (*(() if same else ("data",)), *differ)


def _is_still(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    """Whether two are one tensor, and not two that are gone."""
    return one is other is not None
