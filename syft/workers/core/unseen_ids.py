"""The ids that a caller names of objects which are not there for it.

Whatever a request does with an id that is not there, it has to do with the id of another user's
object too: the same error, in the same order, or none.  So before a request is looked at, such an
id is replaced by one under which nothing is, and the replies say the first one again.  Handlers
need not know.  If something is stored under it, it is the caller's own, under the id in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from syft.ids import new_id

_NO_OBJECTS: Final = frozenset(("seq", "drop", "failures", "reading"))
"""Fields that name no object to be used.  Who drops what is another's changes nothing."""


def numbers_in(message: Any) -> Iterator[int]:
    """The integers in the fields of a request that may name an object, at any depth.

    Any number may be an id: those of objects are 63 random bits, and equal no others.

    >>> from syft.workers.wire.messages import Fetch
    >>> list(numbers_in(Fetch(7, 5, depth=1)))
    [5, 1]
    """
    fields = (name for name in message.__struct_fields__ if name not in _NO_OBJECTS)
    stack: list[Any] = [getattr(message, name) for name in fields]
    while stack:
        value = stack.pop(0)
        if type(value) is int:
            yield value
        elif isinstance(value, list | tuple):
            stack[:0] = value
        elif isinstance(value, dict):
            stack[:0] = value.values()


class UnseenIds:
    """The ids that one caller has named in vain, with those that stand for them.

    >>> from syft.workers.wire.messages import Fetch
    >>> unseen = UnseenIds(); hidden = unseen.in_request(Fetch(7, 5), lambda id: id == 5)
    >>> hidden.id == 5, unseen.in_reply(hidden).id
    (False, 5)
    """

    __slots__ = ("_instead", "_named")

    def __init__(self) -> None:
        self._instead: dict[int, int] = {}
        self._named: dict[int, int] = {}

    def knows(self, id: int) -> bool:
        """Whether another id stands for one."""
        return id in self._instead

    def in_request(self, message: Any, is_hidden: Callable[[int], bool]) -> Any:
        """A request with other ids in the place of those that are hidden, and that were."""
        for id in numbers_in(message):
            if id not in self._instead and is_hidden(id):
                self._instead[id] = other = new_id()
                self._named[other] = id
        fields = message.__struct_fields__
        changed = {
            name: _replaced(getattr(message, name), self._instead)
            for name in fields
            if name not in _NO_OBJECTS
        }
        return msgspec.structs.replace(message, **changed)

    def in_reply(self, reply: Any) -> Any:
        """A reply with the ids that the caller knows, in texts too."""
        changed = {
            name: _replaced(getattr(reply, name), self._named)
            for name in reply.__struct_fields__
            if name != "seq"
        }
        return msgspec.structs.replace(reply, **changed)


def _replaced(value: Any, others: dict[int, int]) -> Any:
    """A value of a message with other numbers in the place of some, in texts too."""
    change = _CHANGES.get(type(value))
    return value if change is None else change(value, others)


def _in_text(text: str, others: dict[int, int]) -> str:
    for number, other in others.items():
        text = text.replace(str(number), str(other))
    return text


_CHANGES: Final[dict[type, Callable[[Any, dict[int, int]], Any]]] = {
    int: lambda number, others: others.get(number, number),
    str: _in_text,
    list: lambda values, others: [_replaced(one, others) for one in values],
    tuple: lambda values, others: tuple(_replaced(one, others) for one in values),
    dict: lambda values, others: {key: _replaced(one, others) for key, one in values.items()},
}
