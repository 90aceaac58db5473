"""Objects of a worker's store that are no tensors themselves but hold some, as a plan its state.

They are kept, found by their tags, fetched, copied, moved and dropped as tensors are, and they are
as private as what they hold.  No torch operation takes them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch


class Holder(ABC):
    """Something in a store that holds tensors. Abstract.

    ``tags`` and ``description`` are what a search looks at.

    >>> sorted(Holder.__abstractmethods__)
    ['admit', 'card', 'duplicate', 'tensors']
    """

    def __init__(self, tags: set[str], description: str | None) -> None:
        if tags:
            self._tags = tags
        if description is not None:
            self._description = description

    @property
    def tags(self) -> set[str]:
        """The tags by which the object is found."""
        return set(self.__dict__.get("_tags", ()))

    @property
    def description(self) -> str | None:
        """What the object is, in words."""
        return self.__dict__.get("_description")

    @abstractmethod
    def tensors(self) -> Sequence[torch.Tensor]:
        """Every tensor inside: their guards are the object's."""

    @abstractmethod
    def duplicate(self) -> Holder:
        """A copy with tensors of its own."""

    @abstractmethod
    def card(self) -> Any:
        """What anybody may know of the object, as a value that can travel."""

    @abstractmethod
    def admit(self, worker: str, allow_plans: bool) -> None:
        """Raise if the owner of ``worker`` does not let such an object in."""
