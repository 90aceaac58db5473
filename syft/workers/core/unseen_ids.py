"""The ids that a caller names of objects which are not there for it.

Whatever a request does with an id that is not there, it has to do with the id of another user's
object too: the same error, in the same order, or none.  So before a request is looked at, such an
id is replaced by one under which nothing is, and the replies say the first one again.  Handlers
need not know.  If something is stored under it, it is the caller's own, under the id in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec

from syft.ids import new_id
from syft.workers.wire.messages import Run
from syft.workers.wire.numbering import Table
from syft.workers.wire.references import REF, REFS

_NO_OBJECTS: Final = frozenset(("seq", "drop", "failures", "reading"))
"""Fields that name no object to be used.  Who drops what is another's changes nothing."""
_OPERANDS: Final = frozenset(("args", "kwargs", "value", "values"))
"""Fields of packed values, in which references name objects, and other numbers are data."""
_DATA: Final = frozenset(("tags", "description"))
"""Fields of texts of the caller's own."""


def numbers_in(message: Any) -> Iterator[int]:
    """The integers in a request that may name an object.

    Those of objects are 63 random bits, and equal no others but by intent.

    >>> from syft.workers.wire.messages import Fetch
    >>> list(numbers_in(Fetch(7, 5, depth=1)))
    [5, 1]
    """
    for name in message.__struct_fields__:
        if name not in _NO_OBJECTS | _DATA:
            value = _naming(name, getattr(message, name))
            yield from (one for one in _items(value) if type(one) is int)


def _naming(name: str, value: Any) -> Any:
    """What of a field may name an object."""
    if name in _OPERANDS:
        return [one for one in _items(value, _is_reference) if _is_reference(one)]
    if name == "define":
        return value[:2] if isinstance(value, list | tuple) else ()
    return value


def _items(value: Any, ends: Callable[[Any], bool] = lambda one: False) -> Iterator[Any]:
    """What is in a value of a message at any depth, down to what ``ends`` it."""
    stack = [value]
    while stack:
        one = stack.pop()
        inside = one.values() if isinstance(one, dict) else one
        if ends(one) or not isinstance(one, list | tuple | dict):
            yield one
        else:
            stack += reversed([*inside])


def _is_reference(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and value[0] in (REF, REFS)


def with_numbers_of(message: Any, found: Any, table: Table | None) -> Any:
    """A request with the inputs of a run as they were given that are no ids: they are data."""
    if type(message) is not Run:
        return found
    define = message.define if isinstance(message.define, list | tuple) else ()
    kinds = next((one for one in define if type(one) is bytes), b"")
    if message.define is None and table is not None:
        entry = table.use(message.number)
        kinds = b"" if entry is None else bytes(entry.kinds)
    count = len(found.inputs)
    given = zip(message.inputs, found.inputs, kinds[:count].ljust(count, b"\0"), strict=True)
    return msgspec.structs.replace(found, inputs=[one if kind else id for one, id, kind in given])


class UnseenIds:
    """The ids that one caller has named in vain, with those that stand for them.

    >>> from syft.workers.wire.messages import Fetch
    >>> unseen = UnseenIds(); hidden = unseen.in_request(Fetch(7, 5), [5])
    >>> hidden.id == 5, unseen.in_reply(hidden).id
    (False, 5)
    """

    __slots__ = ("_instead", "_named")

    def __init__(self) -> None:
        self._instead: dict[int, int] = {}
        self._named: dict[int, int] = {}

    def have_come(self, ids: Iterable[int], knows: Callable[[int], bool]) -> None:
        """Let ids be those of the objects that are there for the caller by now, unless it has an
        object of its own in their place, which ``knows`` says."""
        for id in ids:
            if id in self._instead and not knows(self._instead[id]):
                del self._named[self._instead.pop(id)]

    def in_request(self, message: Any, hidden: Iterable[int]) -> Any:
        """A request with other ids in the place of those that are hidden, and that were."""
        for id in hidden:
            if id not in self._instead:
                self._instead[id] = other = new_id()
                self._named[other] = id
        fields = message.__struct_fields__
        changed = {
            name: _renamed(name, getattr(message, name), self._instead)
            for name in fields
            if name not in _NO_OBJECTS | _DATA
        }
        return msgspec.structs.replace(message, **changed)

    def in_reply(self, reply: Any) -> Any:
        """A reply (with tensor data too) with the ids that the caller knows, in texts too."""
        if "buffers" in reply.__struct_fields__:
            return msgspec.structs.replace(reply, message=self.in_reply(reply.message))
        changed = {
            name: _replaced(getattr(reply, name), self._named)
            for name in reply.__struct_fields__
            if name != "seq"
        }
        return msgspec.structs.replace(reply, **changed)


def _renamed(name: str, value: Any, others: dict[int, int]) -> Any:
    """A field of a request with other numbers in the place of ids, and of no data."""
    if name in _OPERANDS:
        return _in_operand(value, others)
    if name == "define":  # the id of a plan comes second
        listed = isinstance(value, list | tuple)
        return [*_replaced([*value[:2]], others), *value[2:]] if listed else value
    return _replaced(value, others)


def _in_operand(value: Any, others: dict[int, int]) -> Any:
    """An operand with other ids in its references."""
    if _is_reference(value):
        return _replaced(value, others)
    if isinstance(value, dict):
        return {key: _in_operand(one, others) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_in_operand(one, others) for one in value)
    return value


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
