"""The ids that a caller names of objects which are not there for it.

Whatever a request does with an id that is not there, it has to do with the id of another user's
object too: the same error, in the same order, or none.  So before a request is looked at, such an
id is replaced by one under which nothing is, and the replies say the first one again.  Handlers
need not know.  If something is stored under it, it is the caller's own, under the id in its place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

import msgspec

from syft.codes import TypeCode
from syft.ids import new_id
from syft.workers.wire.definitions import InputKind
from syft.workers.wire.messages import Run
from syft.workers.wire.numbering import Table

_NO_OBJECTS: Final = frozenset(("seq", "drop", "failures", "reading", "tags", "description"))
"""Fields that name no object to be used.  Who drops what is another's changes nothing."""
_OPERANDS: Final = frozenset(("args", "kwargs", "value", "values"))
"""Fields of operands, in which numbers are data too."""
_HOLDS_DATA: Final = frozenset(
    (
        *(TypeCode.TUPLE, TypeCode.LIST, TypeCode.DICT, TypeCode.SET, TypeCode.FROZENSET),
        *(TypeCode.SLICE, TypeCode.RANGE, TypeCode.SIZE, TypeCode.COMPLEX, TypeCode.GENERATOR),
        *(TypeCode.ORDERED_DICT, TypeCode.NAMED_TUPLE, TypeCode.TORCH_OPTIONS),
    )
)
"""Operands whose own numbers are data; those of any other kind may name an object."""
_NAMES_NOTHING: Final = frozenset((TypeCode.PLAN, TypeCode.ROLE, TypeCode.PROGRAM))
"""Operands in which the codec takes no reference and no pointer, at any depth."""

_NUMBER: Final = re.compile(r"(?<![0-9])(?:0|[1-9][0-9]{0,18})(?![0-9])")
"""A number in a text, which may be an id."""
_MOST: Final = 1024
"""The ids that are kept though nothing was stored in their places."""

Change = Callable[[Any], Any]
"""What becomes of a number or a text."""


def numbers_in(message: Any) -> list[int]:
    """The integers in a request that may name an object.

    Those of objects are 63 random bits, and equal no others but by intent.

    >>> from syft.workers.wire.messages import Fetch
    >>> numbers_in(Fetch(7, 5, depth=1))
    [5, 1]
    """
    found: list[int] = []

    def note(leaf: Any) -> Any:
        if type(leaf) is int:
            found.append(leaf)
        return leaf

    for name in message.__struct_fields__:
        if name not in _NO_OBJECTS:
            _renamed(name, getattr(message, name), note)
    return found


def _renamed(name: str, value: Any, change: Change) -> Any:
    """A field of a request with all changed that may name an object."""
    if name == "value":
        return _in_operand(value, change)
    if name in _OPERANDS:
        return _each(value, _in_operand, change)
    if name == "define" and isinstance(value, list | tuple):  # the id of a plan comes second
        return [*_in_any([*value[:2]], change), *value[2:]]
    return _in_any(value, change)


def _in_operand(value: Any, change: Change) -> Any:
    """An operand with all changed that may name an object."""
    if not isinstance(value, list | tuple | dict):
        return value
    code = value[0] if value and not isinstance(value, dict) else None
    if type(code) is int and code in _HOLDS_DATA:
        return _each(value, _in_operand, change)
    names = type(code) is not int or code not in _NAMES_NOTHING
    return _in_any(value, change) if names else value


def _in_any(value: Any, change: Change) -> Any:
    """A value of a message with all its numbers and texts changed, at any depth."""
    return change(value) if type(value) in (int, str) else _each(value, _in_any, change)


def _each(value: Any, rule: Callable[[Any, Change], Any], change: Change) -> Any:
    """A container with a rule applied to each of its items; anything else as it is."""
    if isinstance(value, dict):
        return {key: rule(one, change) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(rule(one, change) for one in value)
    return value


def _kinds_of_inputs(run: Run, table: Table | None) -> bytes:
    """The kinds of the inputs of a run, as far as they are known."""
    if run.define is None:
        entry = None if table is None else table.use(run.number)
        return b"" if entry is None else bytes(entry.kinds)
    define = run.define if isinstance(run.define, list | tuple) else ()
    return next((one for one in define if type(one) is bytes), b"")


def _in_inputs(run: Run, table: Table | None, change: Change) -> list[Any]:
    """The inputs of a run: an id changed, a number as it is, any other value as an operand."""
    kinds = _kinds_of_inputs(run, table)
    known = kinds[: len(run.inputs)].ljust(len(run.inputs), b"\0")
    return [
        _in_any(given, change) if kind == InputKind.REFERENCE else _in_operand(given, change)
        for given, kind in zip(run.inputs, known, strict=True)
    ]


class UnseenIds:
    """The ids that one caller has named in vain, with those that stand for them.

    >>> from syft.workers.wire.messages import Fetch
    >>> unseen = UnseenIds(); hidden = unseen.in_request(Fetch(7, 5), [5], None)
    >>> hidden.id == 5, unseen.in_reply(hidden).id
    (False, 5)
    """

    __slots__ = ("_instead", "_named", "_most")

    def __init__(self) -> None:
        self._instead: dict[int, int] = {}
        self._named: dict[int, int] = {}
        self._most = _MOST

    def __len__(self) -> int:
        return len(self._instead)

    def have_come(self, ids: Iterable[int], knows: Callable[[int], bool]) -> None:
        """Let ids be those of the objects that are there for the caller by now, unless it has an
        object of its own in their place, which ``knows`` says.  Of too many ids the older ones
        without are forgotten: named again, they are replaced by new ones."""
        self._forget(ids, knows)
        if len(self._instead) > self._most:
            older = list(self._instead)[: len(self._instead) // 2]
            self._forget(older, knows)
            self._most = _MOST + 2 * sum(id in self._instead for id in older)

    def _forget(self, ids: Iterable[int], knows: Callable[[int], bool]) -> None:
        for id in ids:
            if id in self._instead and not knows(self._instead[id]):
                del self._named[self._instead.pop(id)]

    def in_request(self, message: Any, hidden: Iterable[int], table: Table | None) -> Any:
        """A request with other ids in the place of those that are hidden, and that were; ``table``
        is what the numbers of the connection stand for."""
        for id in hidden:
            if id not in self._instead:
                self._instead[id] = other = new_id()
                self._named[other] = id
        change = partial(_exchanged, self._instead)
        changed = {
            name: _renamed(name, getattr(message, name), change)
            for name in message.__struct_fields__
            if name not in _NO_OBJECTS
        }
        if type(message) is Run:
            changed["inputs"] = _in_inputs(message, table, change)
        return msgspec.structs.replace(message, **changed)

    def in_reply(self, reply: Any) -> Any:
        """A reply (with tensor data too) with the ids that the caller knows, in texts too."""
        if "buffers" in reply.__struct_fields__:
            return msgspec.structs.replace(reply, message=self.in_reply(reply.message))
        changed = {
            name: _in_any(getattr(reply, name), partial(_exchanged, self._named))
            for name in reply.__struct_fields__
            if name != "seq"
        }
        return msgspec.structs.replace(reply, **changed)


def _exchanged(others: dict[int, int], leaf: Any) -> Any:
    """A number, or a text, with other numbers in the place of some: in one pass, however many."""
    if type(leaf) is int:
        return others.get(leaf, leaf)

    def other(found: re.Match[str]) -> str:
        number = int(found[0])
        return str(others.get(number, number))

    return _NUMBER.sub(other, leaf)
