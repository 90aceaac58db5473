"""Stored objects that contain tensors without being tensors, such as a plan with its state.

They are stored, found by their tags, fetched, copied, moved and dropped like tensors.  They are as
private as the tensors they contain.  No torch operation accepts them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch


class Holder(ABC):
    """A stored object that contains tensors. Abstract.

    A search reads ``tags`` and ``description``.  ``copy_of`` is the id that the original has with
    whoever sent it, a word by which a search finds the copy.

    >>> sorted(Holder.__abstractmethods__)
    ['admit', 'duplicate', 'exchange', 'summary', 'tensors']
    """

    confined = False
    """Whether it asks for the owner of its session itself; nobody else gets anything of it."""

    def __init__(self, tags: set[str], description: str | None, copy_of: str | None = None) -> None:
        if tags:
            self._tags = tags
        if description is not None:
            self._description = description
        if copy_of is not None:
            self._copy_of = copy_of

    @property
    def copy_of(self) -> str | None:
        """The id of what this is a copy of, where that is."""
        return self.__dict__.get("_copy_of")

    @property
    def tags(self) -> set[str]:
        """The tags by which a search finds the object."""
        return set(self.__dict__.get("_tags", ()))

    @property
    def description(self) -> str | None:
        """A text about the object for its users."""
        return self.__dict__.get("_description")

    @abstractmethod
    def tensors(self) -> Sequence[torch.Tensor]:
        """Every tensor inside: their guards are the guards of the object."""

    @abstractmethod
    def exchange(self, successor: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """Put the successor of each tensor in its place."""

    @abstractmethod
    def duplicate(self) -> Holder:
        """A copy of the object and its tensors."""

    @abstractmethod
    def summary(self) -> Any:
        """The public facts about the object, as a value that can be sent."""

    @abstractmethod
    def admit(self, worker: str, allow_plans: bool) -> None:
        """Raise if ``worker`` does not accept such an object; ``allow_plans`` is its setting."""
