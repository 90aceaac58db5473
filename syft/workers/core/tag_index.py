"""Which objects of a store carry which tags, so that a search does not look at all of them.

The tags themselves are on the objects (``_tags`` in their ``__dict__``), where they travel with
them.  The index holds the ids of tagged objects only: an untagged one costs no memory here.  An id
that it gives is checked against the object before it counts.

A copy that was sent of a plan is found by the id of that plan too, as if it were a tag: its sender
knows no other.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch


def tags_of(value: Any) -> frozenset[str]:
    """The tags of what is stored, as they are here: a pointer is not followed.

    >>> tags_of(torch.ones(2))
    frozenset()
    """
    return frozenset(getattr(value, "_tags", None) or ())


def is_indexed(value: Any) -> bool:
    """Whether an object is found by anything but its id, as :class:`TagIndex` says.

    >>> x, y = torch.ones(2), torch.ones(2)
    >>> y._tags = {"#a"}
    >>> is_indexed(x), is_indexed(y)
    (False, True)
    """
    return bool(getattr(value, "_tags", None)) or hasattr(value, "_copy_of")


def _words_of(value: Any) -> frozenset[str]:
    """What finds an object besides its id: its tags, and what it is a copy of."""
    tags: Iterable[str] = getattr(value, "_tags", None) or ()
    original = getattr(value, "_copy_of", None)
    return frozenset(tags if original is None else (*tags, original))


class TagIndex:
    """The ids of the objects of one store that carry each tag.

    >>> objects = {5: torch.ones(2), 6: torch.ones(2)}
    >>> index = TagIndex(objects); objects[5]._tags = {"#digits", "#train"}; index.note(5)
    >>> index.find({"#digits"}), index.find({"6"}), index.find({"#digits", "6"})
    ([5], [6], [])
    """

    __slots__ = ("_objects", "noted", "_ids", "watched")

    def __init__(self, objects: dict[int, Any]) -> None:
        self._objects = objects
        self.noted: dict[int, frozenset[str]] = {}
        """The words by which an object is found, by its id; only of those that have any."""
        self._ids: dict[str, dict[int, None]] = {}
        self.watched = False
        """Whether an operation may return an object that is tagged: one may have come."""

    def of(self, id: int) -> frozenset[str]:
        """The tags of an object; none if there is none of this id."""
        return tags_of(self._objects.get(id))

    def original(self, id: int) -> str | None:
        """The id of what an object is a copy of, where that is."""
        return getattr(self._objects.get(id), "_copy_of", None)

    def note(self, id: int) -> None:
        """Take in the tags of an object, if it has any, in the place of those it had before."""
        value = self._objects.get(id)
        tags = _words_of(value)
        if id in self.noted:
            if self.noted[id] == tags:
                return
            self.forget((id,))
        if tags:
            self.watched |= isinstance(value, torch.Tensor)
            self.noted[id] = tags
            for tag in tags:
                self._ids.setdefault(tag, {})[id] = None

    def forget(self, ids: Iterable[int]) -> None:
        """Forget the tags of objects."""
        for id in ids if self.noted else ():
            for tag in self.noted.pop(id, ()):
                del self._ids[tag][id]
                if not self._ids[tag]:
                    del self._ids[tag]

    def find(self, words: set[str]) -> list[int]:
        """The ids of the objects that carry every one of ``words`` as a tag, or as their id."""
        if not words:
            return list(self._objects)
        rarest = min(words, key=lambda word: len(self._ids.get(word, ())))
        found = dict(self._ids.get(rarest, ()))
        named = int(rarest) if rarest.isdecimal() and len(rarest) < 20 else -1
        if named in self._objects:
            found[named] = None
        objects = self._objects
        return [id for id in found if words <= _words_of(objects.get(id)) | {str(id)}]
